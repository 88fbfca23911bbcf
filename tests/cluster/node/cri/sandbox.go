package cri

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"testbed/cluster/node/network"
)

var randomHex = func() string {
	b := make([]byte, 24)
	_, _ = rand.Read(b)
	return hex.EncodeToString(b)
}()

// sandbox is a pod: what its containers share. It has no process of its own.
type sandbox struct {
	id      string
	config  *cri.PodSandboxConfig
	created time.Time
	// network is nil for a pod on the host's network.
	network *network.Pod
	ip      string
	ready   bool
}

func (s *sandbox) state() cri.PodSandboxState {
	if s.ready {
		return cri.PodSandboxState_SANDBOX_READY
	}
	return cri.PodSandboxState_SANDBOX_NOTREADY
}

func (s *sandbox) namespaces() *cri.NamespaceOption {
	return s.config.GetLinux().GetSecurityContext().GetNamespaceOptions()
}

func (s *sandbox) onHostNetwork() bool { return s.namespaces().GetNetwork() == cri.NamespaceMode_NODE }

func (s *sandbox) hostname() string {
	if s.config.GetHostname() != "" {
		return s.config.GetHostname()
	}
	name, _ := os.Hostname()
	return name
}

// RunPodSandbox gives a pod its network and its files.
func (r *Runtime) RunPodSandbox(_ context.Context, config *cri.PodSandboxConfig, _ string) (string, error) {
	s := &sandbox{config: config, created: time.Now(), ready: true}
	if err := ownProcesses(s.namespaces()); err != nil {
		return "", err
	}
	r.mu.Lock()
	s.id = r.newID()
	r.mu.Unlock()
	if err := r.prepareSandbox(s); err != nil {
		r.discardSandbox(s)
		return "", err
	}
	r.mu.Lock()
	r.sandboxes[s.id] = s
	r.mu.Unlock()
	return s.id, nil
}

// ownProcesses refuses what would need a process of the pod's own.
func ownProcesses(n *cri.NamespaceOption) error {
	if n.GetPid() == cri.NamespaceMode_CONTAINER {
		return nil
	}
	return errors.New("containers see no processes but their own on this node: leave out shareProcessNamespace, hostPID and a target to debug")
}

func (r *Runtime) prepareSandbox(s *sandbox) error {
	switch {
	case s.onHostNetwork():
	case r.Network == nil:
		s.ip = r.loopbacks.take()
	default:
		pod, err := r.Network.Add()
		if err != nil {
			return fmt.Errorf("give the pod a network: %w", err)
		}
		s.network, s.ip = pod, pod.IP.String()
	}
	if err := os.MkdirAll(r.sandboxDir(s.id), 0o755); err != nil {
		return fmt.Errorf("make the pod's directory: %w", err)
	}
	shm := filepath.Join(r.shmDir(), s.id)
	if err := os.Mkdir(shm, 0o777); err != nil {
		return fmt.Errorf("make the pod's shared memory: %w", err)
	}
	if err := os.Chmod(shm, os.ModeSticky|0o777); err != nil {
		return fmt.Errorf("open up the pod's shared memory: %w", err)
	}
	files := map[string]string{"hostname": s.hostname() + "\n", "resolv.conf": resolvConf(s.config.GetDnsConfig())}
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(r.sandboxDir(s.id), name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("write the pod's %s: %w", name, err)
		}
	}
	return nil
}

// discardSandbox takes a pod's network and files away. It may be called again.
func (r *Runtime) discardSandbox(s *sandbox) {
	r.mu.Lock()
	pod := s.network
	s.network, s.ready = nil, false
	r.mu.Unlock()
	// Without the lock, since the kernel takes its time.
	if pod != nil {
		r.Network.Delete(pod)
	}
	_ = os.RemoveAll(r.sandboxDir(s.id))
	_ = os.RemoveAll(filepath.Join(r.shmDir(), s.id))
}

func resolvConf(c *cri.DNSConfig) string {
	var b strings.Builder
	for _, server := range c.GetServers() {
		fmt.Fprintf(&b, "nameserver %s\n", server)
	}
	if len(c.GetSearches()) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(c.GetSearches(), " "))
	}
	if len(c.GetOptions()) > 0 {
		fmt.Fprintf(&b, "options %s\n", strings.Join(c.GetOptions(), " "))
	}
	return b.String()
}

// StopPodSandbox ends what still runs in a pod and takes its network away.
func (r *Runtime) StopPodSandbox(ctx context.Context, id string) error {
	s, err := r.sandbox(id)
	if err != nil {
		return nil // Stopping is idempotent.
	}
	for _, c := range r.containersOf(id) {
		if err := r.StopContainer(ctx, c.id, 0); err != nil {
			return err
		}
	}
	r.discardSandbox(s)
	return nil
}

// RemovePodSandbox forgets a pod and its containers.
func (r *Runtime) RemovePodSandbox(ctx context.Context, id string) error {
	if err := r.StopPodSandbox(ctx, id); err != nil {
		return err
	}
	for _, c := range r.containersOf(id) {
		if err := r.RemoveContainer(ctx, c.id); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.sandboxes, id)
	return nil
}

// networkOf is nil for a pod on the host's network, and for one that was stopped.
func (r *Runtime) networkOf(s *sandbox) *network.Pod {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.network
}

func (r *Runtime) isReady(s *sandbox) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return s.ready
}

func (r *Runtime) containersOf(sandbox string) []*container {
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*container
	for _, c := range r.containers {
		if c.sandbox.id == sandbox {
			found = append(found, c)
		}
	}
	return found
}

// PodSandboxStatus describes one pod.
func (r *Runtime) PodSandboxStatus(_ context.Context, id string, _ bool) (*cri.PodSandboxStatusResponse, error) {
	s, err := r.sandbox(id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &cri.PodSandboxStatusResponse{Status: &cri.PodSandboxStatus{
		Id: id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created.UnixNano(),
		Network: &cri.PodSandboxNetworkStatus{Ip: s.ip},
		Labels:  s.config.Labels, Annotations: s.config.Annotations,
		Linux: &cri.LinuxPodSandboxStatus{Namespaces: &cri.Namespace{Options: s.namespaces()}},
	}}, nil
}

// ListPodSandbox lists pods by id, state and labels.
func (r *Runtime) ListPodSandbox(_ context.Context, f *cri.PodSandboxFilter) ([]*cri.PodSandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.PodSandbox
	for _, s := range r.sandboxes {
		if f.GetId() != "" && f.GetId() != s.id || f.GetState() != nil && f.GetState().State != s.state() ||
			!matches(s.config.Labels, f.GetLabelSelector()) {
			continue
		}
		list = append(list, &cri.PodSandbox{
			Id: s.id, Metadata: s.config.Metadata, State: s.state(), CreatedAt: s.created.UnixNano(),
			Labels: s.config.Labels, Annotations: s.config.Annotations,
		})
	}
	return list, nil
}

// UpdatePodSandboxResources has nothing to do: limits are the containers' alone.
func (r *Runtime) UpdatePodSandboxResources(context.Context, *cri.UpdatePodSandboxResourcesRequest) (*cri.UpdatePodSandboxResourcesResponse, error) {
	return &cri.UpdatePodSandboxResourcesResponse{}, nil
}
