package node

import (
	"context"
	"fmt"
	"math"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"go.opentelemetry.io/otel/trace/noop"
	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	"k8s.io/kubernetes/cmd/kubelet/app/options"
	upstream "k8s.io/kubernetes/pkg/kubelet"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/container"
	kubeletutil "k8s.io/kubernetes/pkg/kubelet/util"
	"k8s.io/kubernetes/pkg/util/oom"
	"k8s.io/kubernetes/pkg/volume"
	"k8s.io/kubernetes/pkg/volume/configmap"
	"k8s.io/kubernetes/pkg/volume/downwardapi"
	"k8s.io/kubernetes/pkg/volume/emptydir"
	"k8s.io/kubernetes/pkg/volume/hostpath"
	"k8s.io/kubernetes/pkg/volume/projected"
	"k8s.io/kubernetes/pkg/volume/secret"
	"k8s.io/kubernetes/pkg/volume/util/hostutil"
	"k8s.io/kubernetes/pkg/volume/util/subpath"
	"k8s.io/mount-utils"

	"testbed/cluster/node/cri"
	"testbed/cluster/node/service"
)

const (
	maxPods = 500
	// syncPeriod is how soon a changed ConfigMap or Secret is in its volumes.
	syncPeriod = 5 * time.Second
	// leaseSeconds makes the kubelet renew its lease every two, so that a lost node is noticed
	// as soon as a controller-manager with a short grace period can.
	leaseSeconds = 8
)

// ownDirectories are what the node keeps below its root.
var ownDirectories = []string{"kubelet", "logs", "runtime"}

// kubelet is the real one with this node's parts.
type kubelet struct {
	*config
	client  *rest.Config
	runtime *cri.Runtime
	images  *cri.Images
	relist  *relister
	// address is the node's, or none where pods share the host's network.
	address netip.Addr
	// dns is the pods' name server, or none.
	dns netip.Addr
}

// run blocks until the context ends. The kubelet has no other end: its process takes it along.
func (k *kubelet) run(ctx context.Context) error {
	for _, dir := range ownDirectories {
		if err := os.MkdirAll(filepath.Join(k.root, dir), 0o755); err != nil {
			return fmt.Errorf("make the node's directory: %w", err)
		}
	}
	flags, settings, err := k.configure()
	if err != nil {
		return err
	}
	if err := writeCertificate(k.name, k.address.AsSlice(), settings.TLSCertFile, settings.TLSPrivateKeyFile); err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(k.client)
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	beat, err := kubernetes.NewForConfig(heartbeat(k.client))
	if err != nil {
		return fmt.Errorf("make a client: %w", err)
	}
	mounter := mount.New("")
	parts := &upstream.Dependencies{
		Options:    []upstream.Option{k.relist.attach},
		KubeClient: client, HeartbeatClient: beat, EventClient: client.CoreV1(),
		RemoteRuntimeService: k.runtime, RemoteImageService: k.images,
		CAdvisorInterface: machine{name: k.name, root: k.root},
		OSInterface:       ownFiles{},
		ContainerManager:  newContainerManager(),
		OOMAdjuster:       oom.NewFakeOOMAdjuster(),
		VolumePlugins:     volumePlugins(),
		Mounter:           mounter, Subpather: subpath.New(mounter), HostUtil: hostutil.NewHostUtil(),
		PodStartupLatencyTracker:  kubeletutil.NewPodStartupLatencyTracker(),
		NodeStartupLatencyTracker: kubeletutil.NewNodeStartupLatencyTracker(),
		TracerProvider:            noop.NewTracerProvider(),
	}
	if parts.TLSOptions, err = kubeletapp.InitializeTLS(ctx, flags, settings); err != nil {
		return fmt.Errorf("read the kubelet's certificate: %w", err)
	}
	if k.clientCA != "" {
		if parts.Auth, err = k.authentication(ctx, client, settings); err != nil {
			return err
		}
	}
	server := &options.KubeletServer{KubeletFlags: *flags, KubeletConfiguration: *settings}
	if err := kubeletapp.RunKubelet(ctx, server, parts); err != nil {
		return fmt.Errorf("run the kubelet: %w", err)
	}
	<-ctx.Done()
	return nil
}

func (k *kubelet) configure() (*options.KubeletFlags, *kubeletconfig.KubeletConfiguration, error) {
	flags := options.NewKubeletFlags()
	flags.RootDirectory = filepath.Join(k.root, "kubelet")
	flags.CertDirectory = flags.RootDirectory
	flags.HostnameOverride = k.name
	c, err := options.NewKubeletConfiguration()
	if err != nil {
		return nil, nil, fmt.Errorf("make the kubelet's configuration: %w", err)
	}
	c.TLSCertFile = filepath.Join(flags.CertDirectory, "serving.crt")
	c.TLSPrivateKeyFile = filepath.Join(flags.CertDirectory, "serving.key")
	c.PodLogsDir = filepath.Join(k.root, "logs")
	c.RegisterNode, c.EnableControllerAttachDetach = true, false
	c.Port, c.ReadOnlyPort, c.HealthzPort = int32(k.port), 0, 0
	switch {
	case k.address.IsValid():
		flags.NodeIP, c.Address = k.address.String(), k.address.String()
	case k.clientCA != "":
		c.Address = "0.0.0.0" // The node's address is then one of the machine's.
	default:
		c.Address = "127.0.0.1" // Not for the network, since nobody has to say who they are.
	}
	if k.dns.IsValid() {
		c.ClusterDNS, c.ClusterDomain = []string{k.dns.String()}, service.Domain
	}
	c.Authentication.Anonymous.Enabled, c.Authentication.Webhook.Enabled = true, false
	c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeAlwaysAllow
	if k.clientCA != "" {
		c.Authentication.Anonymous.Enabled, c.Authentication.Webhook.Enabled = false, true
		c.Authentication.X509.ClientCAFile = k.clientCA
		c.Authorization.Mode = kubeletconfig.KubeletAuthorizationModeWebhook
	}

	// Nothing of the host is the kubelet's to manage: no control groups, firewall or swap, and
	// no eviction, because others use the machine's memory and disk too.
	c.ContainerRuntimeEndpoint = "unix:///dev/null"
	c.CgroupRoot, c.CgroupsPerQOS, c.EnforceNodeAllocatable = "", false, nil
	c.FailCgroupV1, c.FailSwapOn, c.MakeIPTablesUtilChains = false, false, false
	c.LocalStorageCapacityIsolation = false
	c.EvictionHard, c.EvictionSoft = map[string]string{}, map[string]string{}
	c.ImageGCHighThresholdPercent, c.ImageMaximumGCAge.Duration = 100, 0

	// As fast as it goes: tests wait for it.
	c.MaxPods, c.PodsPerCore = maxPods, 0
	c.SyncFrequency.Duration = syncPeriod
	c.SerializeImagePulls = false
	c.RegistryPullQPS, c.EventRecordQPS = 0, 0
	c.NodeLeaseDurationSeconds = leaseSeconds
	if limit, err := openFilesLimit(); err == nil {
		c.MaxOpenFiles = limit
	}
	return flags, c, nil
}

// openFilesLimit is what this process may have; the kubelet would ask for more and complain.
func openFilesLimit() (int64, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit)
	return int64(min(limit.Max, math.MaxInt64)), err
}

// heartbeat gives up on a request soon, so that one that hangs does not make the node look lost.
func heartbeat(c *rest.Config) *rest.Config {
	c = rest.CopyConfig(c)
	c.Timeout = leaseSeconds / 2 * time.Second
	return c
}

func volumePlugins() []volume.VolumePlugin {
	var all []volume.VolumePlugin
	all = append(all, emptydir.ProbeVolumePlugins()...)
	all = append(all, hostpath.ProbeVolumePlugins(volume.VolumeConfig{})...)
	all = append(all, configmap.ProbeVolumePlugins()...)
	all = append(all, secret.ProbeVolumePlugins()...)
	all = append(all, projected.ProbeVolumePlugins()...)
	all = append(all, downwardapi.ProbeVolumePlugins()...)
	return all
}

// ownFiles keeps the kubelet from leaving links to logs where a real node has them.
type ownFiles struct{ container.RealOS }

func (o ownFiles) Symlink(old, name string) error {
	if strings.HasPrefix(name, upstream.DefaultContainerLogsDir) {
		return nil
	}
	return o.RealOS.Symlink(old, name)
}

func (o ownFiles) MkdirAll(path string, mode os.FileMode) error {
	if strings.HasPrefix(path, upstream.DefaultContainerLogsDir) {
		return nil
	}
	return o.RealOS.MkdirAll(path, mode)
}
