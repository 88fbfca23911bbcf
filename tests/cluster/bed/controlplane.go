package bed

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"testbed/cluster/pki"
)

// Names of the control plane's processes.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
)

// Ports of the control plane, counted from the slot's first.
const (
	etcdPort = iota
	etcdPeerPort
	apiPort
	controllerManagerPort
	schedulerPort
)

// A node is lost this long after its last sign of life, and its pods go this long after that.
// Upstream's 50 and 300 seconds are for machines that come back; tests would wait for nothing else.
const (
	nodeGraceSeconds  = 16
	tolerationSeconds = 5
)

// auditPolicy writes one line per finished request: who, what, which object, which answer.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: None
  nonResourceURLs: ["/healthz*", "/livez*", "/readyz*", "/metrics"]
- level: Metadata
`

// controlPlane is what the four processes need to know.
type controlPlane struct {
	layout
	slot  *slot
	ports [schedulerPort + 1]int
}

func (c *controlPlane) server() string { return "https://" + c.address() }
func (c *controlPlane) address() string {
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.ports[apiPort]))
}

// choosePorts takes the slot's ports; want replaces the API server's unless it is 0.
func (c *controlPlane) choosePorts(want int) error {
	for i := range c.ports {
		port, err := c.slot.port(i)
		if err != nil {
			return err
		}
		c.ports[i] = port
	}
	if want != 0 {
		c.ports[apiPort] = want
	}
	return nil
}

// writeCredentials makes every certificate, key and kubeconfig of the control plane.
func (c *controlPlane) writeCredentials() error {
	authority, err := pki.NewAuthority(c.pki(), "ca")
	if err != nil {
		return err
	}
	frontProxy, err := pki.NewAuthority(c.pki(), "front-proxy-ca")
	if err != nil {
		return err
	}
	_, services, err := net.ParseCIDR(c.slot.serviceRange())
	if err != nil {
		return err
	}
	kubernetesService := services.IP.To4()
	kubernetesService[3]++
	for _, p := range []struct {
		by   *pki.Authority
		name string
		pki.Request
	}{
		{authority, "apiserver", pki.Request{
			CommonName: apiServer,
			DNSNames: []string{
				"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local",
			},
			IPs: []net.IP{net.IPv4(127, 0, 0, 1), kubernetesService},
		}},
		{authority, "apiserver-kubelet-client", pki.Request{CommonName: apiServer, Organizations: []string{"system:masters"}}},
		{frontProxy, "front-proxy-client", pki.Request{CommonName: "front-proxy-client"}},
	} {
		if err := p.by.IssueTo(c.pki(), p.name, p.Request); err != nil {
			return err
		}
	}
	if err := pki.WriteKey(c.pkiFile("service-accounts.key")); err != nil {
		return err
	}
	if err := os.WriteFile(c.pkiFile("audit-policy.yaml"), []byte(auditPolicy), 0o644); err != nil {
		return err
	}
	for path, user := range map[string]pki.Request{
		AdminKubeconfig(c.dir):          {CommonName: "admin", Organizations: []string{"system:masters"}},
		c.kubeconfig(controllerManager): {CommonName: "system:" + controllerManager},
		c.kubeconfig(scheduler):         {CommonName: "system:" + scheduler},
	} {
		text, err := authority.Kubeconfig(c.server(), user.CommonName, user.Organizations)
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func (c *controlPlane) kubeconfig(component string) string {
	return filepath.Join(c.pki(), component+".kubeconfig")
}

// leanCollector trades some CPU for a small cluster. A limit of bytes would be worse: with many
// objects the collector would run all the time.
const leanCollector = "GOGC=60"

// program gives the command line of one process.
func (c *controlPlane) program(name string) program {
	switch name {
	case etcd:
		return c.command(etcd, c.etcdArgs())
	case apiServer:
		return c.command(apiServer, c.apiServerArgs())
	case controllerManager:
		return c.command(controllerManager, c.controllerManagerArgs())
	default:
		return c.command(scheduler, []string{
			"--kubeconfig=" + c.kubeconfig(scheduler), "--leader-elect=false", "--profiling=false",
			"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports[schedulerPort]),
			"--kube-api-qps=200", "--kube-api-burst=400",
		})
	}
}

func (c *controlPlane) command(name string, args []string) program {
	return program{binary: selfPath, args: append([]string{name}, args...), env: []string{leanCollector}}
}

func (c *controlPlane) etcdArgs() []string {
	client := fmt.Sprintf("http://127.0.0.1:%d", c.ports[etcdPort])
	peer := fmt.Sprintf("http://127.0.0.1:%d", c.ports[etcdPeerPort])
	return []string{
		"--name=etcd", "--data-dir=" + c.etcd(), "--log-level=warn",
		"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
		"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer, "--initial-cluster=etcd=" + peer,
		// A test bed's data need not survive the machine, only its processes.
		"--unsafe-no-fsync",
		// Room for 50,000 objects of a few revisions each; old revisions go after five minutes.
		"--quota-backend-bytes=8589934592", "--auto-compaction-mode=periodic", "--auto-compaction-retention=5m",
		// The default of 100,000 entries kept in memory is for slow followers, of which there are none.
		"--snapshot-count=5000",
	}
}

func (c *controlPlane) apiServerArgs() []string {
	return []string{
		fmt.Sprintf("--etcd-servers=http://127.0.0.1:%d", c.ports[etcdPort]),
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports[apiPort]),
		"--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
		"--service-cluster-ip-range=" + c.slot.serviceRange(),
		"--tls-cert-file=" + c.pkiFile("apiserver.crt"), "--tls-private-key-file=" + c.pkiFile("apiserver.key"),
		"--client-ca-file=" + c.pkiFile("ca.crt"),
		"--kubelet-client-certificate=" + c.pkiFile("apiserver-kubelet-client.crt"),
		"--kubelet-client-key=" + c.pkiFile("apiserver-kubelet-client.key"),
		"--kubelet-preferred-address-types=InternalIP,Hostname",
		"--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file=" + c.pkiFile("service-accounts.key"),
		"--service-account-signing-key-file=" + c.pkiFile("service-accounts.key"),
		// Tokens live as long as asked for, so that rotation can be seen within a test.
		"--service-account-extend-token-expiration=false",
		"--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--requestheader-client-ca-file=" + c.pkiFile("front-proxy-ca.crt"),
		"--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
		"--proxy-client-cert-file=" + c.pkiFile("front-proxy-client.crt"),
		"--proxy-client-key-file=" + c.pkiFile("front-proxy-client.key"),
		"--audit-policy-file=" + c.pkiFile("audit-policy.yaml"), "--audit-log-path=" + c.auditLog(),
		// Written while the request is answered and never rotated: a test that counts misses nothing.
		"--audit-log-mode=blocking", "--audit-log-maxsize=100000",
		fmt.Sprintf("--default-not-ready-toleration-seconds=%d", tolerationSeconds),
		fmt.Sprintf("--default-unreachable-toleration-seconds=%d", tolerationSeconds),
		"--allow-privileged", "--profiling=false",
	}
}

func (c *controlPlane) controllerManagerArgs() []string {
	return []string{
		"--kubeconfig=" + c.kubeconfig(controllerManager), "--leader-elect=false", "--profiling=false",
		"--bind-address=127.0.0.1", fmt.Sprintf("--secure-port=%d", c.ports[controllerManagerPort]),
		"--service-account-private-key-file=" + c.pkiFile("service-accounts.key"), "--root-ca-file=" + c.pkiFile("ca.crt"),
		"--cluster-signing-cert-file=" + c.pkiFile("ca.crt"), "--cluster-signing-key-file=" + c.pkiFile("ca.key"),
		// One account per controller, as in a real cluster: the audit log tells them apart.
		"--use-service-account-credentials",
		"--node-monitor-period=1s", fmt.Sprintf("--node-monitor-grace-period=%ds", nodeGraceSeconds),
		"--kube-api-qps=200", "--kube-api-burst=400",
	}
}
