package cri

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"cluster.inside"
)

// programDir is where an image's program appears in the container.
const programDir = "/usr/local/bin"

const defaultPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// spec translates what the kubelet wants into what the container's init does.
func (r *Runtime) spec(c *container) (*inside.Spec, error) {
	process, err := r.process(c)
	if err != nil {
		return nil, err
	}
	security := c.config.GetLinux().GetSecurityContext()
	s := &inside.Spec{
		Layers:       r.layers(c.id),
		ReadonlyRoot: security.GetReadonlyRootfs(),
		Shm:          filepath.Join(r.shmDir(), c.sandbox.id),
		Hostname:     c.sandbox.hostname(),
		OOMScoreAdj:  int(c.resources.GetOomScoreAdj()),
		Mounts:       r.mounts(c),
		Process:      *process,
	}
	if !security.GetPrivileged() {
		s.MaskedPaths, s.ReadonlyPaths = security.GetMaskedPaths(), security.GetReadonlyPaths()
	}
	return s, nil
}

func (r *Runtime) process(c *container) (*inside.Process, error) {
	security := c.config.GetLinux().GetSecurityContext()
	user, err := lookUpUser(security)
	if err != nil {
		return nil, err
	}
	caps, err := capabilities(security)
	if err != nil {
		return nil, err
	}
	p := &inside.Process{
		Args: slices.Concat(c.config.GetCommand(), c.config.GetArgs()),
		Env:  r.environment(c, user.home),
		Dir:  c.config.GetWorkingDir(),
		UID:  user.uid, GID: user.gid, Groups: user.groups,
		NoNewPrivs:   security.GetNoNewPrivs(),
		Capabilities: caps,
		Terminal:     c.config.GetTty(),
	}
	if len(c.config.GetCommand()) == 0 {
		p.Args = slices.Concat([]string{c.image.target()}, p.Args)
	}
	if c.group != nil {
		p.Cgroup = c.group.Join()
	}
	return p, nil
}

func (i *image) target() string { return filepath.Join(programDir, filepath.Base(i.program)) }

func (r *Runtime) mounts(c *container) []inside.Mount {
	var list []inside.Mount
	if _, err := os.Stat("/sys/fs/cgroup"); err == nil {
		// Where runtimes of languages look for their limits.
		list = append(list, inside.Mount{Host: "/sys/fs/cgroup", Container: "/sys/fs/cgroup", Readonly: true})
	}
	for _, name := range []string{"hostname", "resolv.conf"} {
		list = append(list, inside.Mount{Host: filepath.Join(r.sandboxDir(c.sandbox.id), name), Container: "/etc/" + name})
	}
	if c.image.program != "" {
		list = append(list, inside.Mount{Host: c.image.program, Container: c.image.target(), Readonly: true})
	}
	for _, m := range c.config.GetMounts() {
		list = append(list, inside.Mount{Host: m.GetHostPath(), Container: m.GetContainerPath(), Readonly: m.GetReadonly()})
	}
	// A mount below another must come after it.
	slices.SortStableFunc(list, func(a, b inside.Mount) int {
		return strings.Count(filepath.Clean(a.Container), "/") - strings.Count(filepath.Clean(b.Container), "/")
	})
	return list
}

// environment is the pod's over the usual. A pod without a network of its own cannot reach the
// API server's cluster address, and is given the real one.
func (r *Runtime) environment(c *container, home string) []string {
	env := map[string]string{"PATH": defaultPath, "HOME": home, "HOSTNAME": c.sandbox.hostname()}
	if c.config.GetTty() {
		env["TERM"] = "xterm"
	}
	for _, e := range c.config.GetEnvs() {
		env[e.GetKey()] = string(e.GetValue())
	}
	if r.networkOf(c.sandbox) == nil && r.API.IsValid() {
		env["KUBERNETES_SERVICE_HOST"] = r.API.Addr().String()
		env["KUBERNETES_SERVICE_PORT"] = strconv.Itoa(int(r.API.Port()))
	}
	var list []string
	for _, k := range slices.Sorted(maps.Keys(env)) {
		list = append(list, k+"="+env[k])
	}
	return list
}

type user struct {
	uid, gid uint32
	groups   []uint32
	home     string
}

// lookUpUser finds the user of a container, who need not be among the host's.
func lookUpUser(s *cri.LinuxContainerSecurityContext) (user, error) {
	u := user{home: "/"}
	name := s.GetRunAsUsername()
	if s.GetRunAsUser() != nil {
		name = strconv.FormatInt(s.GetRunAsUser().GetValue(), 10)
	}
	if name == "" {
		name = "0"
	}
	uid, numeric := strconv.ParseUint(name, 10, 32)
	u.uid = uint32(uid)
	found := false
	raw, _ := os.ReadFile("/etc/passwd")
	for line := range strings.Lines(string(raw)) {
		f := strings.Split(strings.TrimSpace(line), ":")
		if len(f) < 6 || f[0] != name && f[2] != name {
			continue
		}
		uid, _ := strconv.ParseUint(f[2], 10, 32)
		gid, _ := strconv.ParseUint(f[3], 10, 32)
		u.uid, u.gid, u.home, found = uint32(uid), uint32(gid), f[5], true
		break
	}
	if !found && numeric != nil {
		return user{}, fmt.Errorf("there is no user %s on this machine", name)
	}
	if s.GetRunAsGroup() != nil {
		u.gid = uint32(s.GetRunAsGroup().GetValue())
	}
	for _, g := range s.GetSupplementalGroups() {
		u.groups = append(u.groups, uint32(g))
	}
	return u, nil
}

// ParseAPI turns the API server's address into what Options take. It must be an IP address,
// because pods have no names for anything of the host's.
func ParseAPI(address string) (netip.AddrPort, error) {
	api, err := netip.ParseAddrPort(address)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("the API server's address must be IP:PORT, not %q", address)
	}
	return api, nil
}
