// Package bed brings a cluster up, supervises it, breaks it on demand and takes it down.
package bed

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"testbed/cluster/pki"
	"testbed/cluster/proxy"
)

// upTimeout is far beyond what a loaded machine needs: what takes longer will never come.
const upTimeout = 3 * time.Minute

// selfPath starts this very binary, even after its file was replaced.
const selfPath = "/proc/self/exe"

// options are those of `up`.
type options struct {
	dir     string
	nodes   int
	apiPort int
	// companion is a process that the cluster ends with; 0 for none.
	companion int
	// detached says that nobody reads what this process prints.
	detached bool
}

// supervisor owns the processes and proxies of one cluster.
type supervisor struct {
	layout
	want  options
	say   func(format string, args ...any)
	lock  *os.File
	slot  *slot
	plane *controlPlane
	spawn spawner
	made  bool

	mu      sync.Mutex
	process map[string]*process
	order   []string // the names in the order of their first start
	nodeNo  map[string]int
	client  map[string]*proxy.Proxy
	quit    chan struct{} // closed by `down`
}

// bringUp starts a cluster and returns when its nodes are ready. On failure nothing is left behind.
func bringUp(ctx context.Context, o options, say func(string, ...any)) (*supervisor, error) {
	s := &supervisor{
		layout: layout{o.dir}, want: o, say: say, spawn: newSpawner(),
		process: map[string]*process{}, nodeNo: map[string]int{}, client: map[string]*proxy.Proxy{},
		quit: make(chan struct{}),
	}
	if err := s.claimDir(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, upTimeout)
	defer cancel()
	if err := s.build(ctx); err != nil {
		return nil, errors.Join(err, s.tearDown())
	}
	return s, nil
}

// claimDir makes the state directory ours, and cleans up what a killed predecessor left in it.
func (s *supervisor) claimDir() error {
	if _, err := os.Stat(s.dir); errors.Is(err, os.ErrNotExist) {
		s.made = true
		if err := os.MkdirAll(s.dir, 0o755); err != nil {
			return fmt.Errorf("the state directory cannot be made: %w", err)
		}
	}
	var err error
	if s.lock, err = takeLock(s.layout); err != nil {
		return err
	}
	if old, err := s.readSettings(); err == nil {
		s.say("cleaning up after a cluster that was killed here")
		s.made = old.MadeDir
		if err := s.sweep(); err != nil {
			s.lock.Close()
			return err
		}
	} else if others, _ := filepath.Glob(filepath.Join(s.dir, "*")); len(others) > 1 {
		s.release()
		return fmt.Errorf("%s has other files in it: choose an empty or a new directory with --dir", s.dir)
	}
	// From here on a later `up` knows that the files are a cluster's.
	err = s.writeSettings(settings{MadeDir: s.made, Pid: os.Getpid()})
	if err == nil {
		err = preflight(s.layout, s.want.apiPort)
	}
	if err != nil {
		err = errors.Join(err, s.removeFiles())
		s.release()
	}
	return err
}

// release gives the state directory back.
func (s *supervisor) release() {
	s.removeDir(s.made)
	s.lock.Close()
}

// takeLock holds the directory as long as this process lives.
func takeLock(l layout) (*os.File, error) {
	lock, err := os.OpenFile(l.lock(), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("%s cannot be written: choose another directory with --dir (%w)", l.dir, err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		lock.Close()
		return nil, fmt.Errorf("a cluster runs in %s already: `cluster down --dir %s` ends it, or choose another directory with --dir", l.dir, l.dir)
	}
	return lock, nil
}

// inUse tells whether a supervisor holds the directory.
func inUse(l layout) bool {
	lock, err := os.Open(l.lock())
	if err != nil {
		return false
	}
	defer lock.Close()
	return unix.Flock(int(lock.Fd()), unix.LOCK_SH|unix.LOCK_NB) != nil
}

// build starts everything at once: each part waits for what it needs by itself.
func (s *supervisor) build(ctx context.Context) error {
	begun := time.Now()
	var err error
	if s.slot, err = takeSlot(); err != nil {
		return err
	}
	if err := s.create(); err != nil {
		return err
	}
	if s.want.detached {
		if err := printTo(s.log("supervisor")); err != nil {
			return err
		}
	}
	s.plane = &controlPlane{layout: s.layout, slot: s.slot}
	if err := s.plane.choosePorts(s.want.apiPort); err != nil {
		return err
	}
	facts := settings{MadeDir: s.made, Pid: os.Getpid(), Server: s.plane.server(), Slot: s.slot.number}
	if err := s.writeSettings(facts); err != nil {
		return err
	}
	if err := s.remember("supervisor", os.Getpid()); err != nil {
		return err
	}
	if err := writeJSON(s.images(), map[string]string{}); err != nil {
		return err
	}
	if err := s.plane.writeCredentials(); err != nil {
		return err
	}
	for _, name := range []string{etcd, apiServer, controllerManager, scheduler} {
		if err := s.start(name, s.plane.program(name)); err != nil {
			return err
		}
	}
	s.say("etcd, API server, controller manager and scheduler started")
	api, err := newProbe(s.layout)
	if err != nil {
		return err
	}
	if err := s.await(ctx, apiServer, api.serverReady); err != nil {
		return err
	}
	s.say("API server ready after %.1f s", time.Since(begun).Seconds())
	if err := api.letNodesProxy(ctx); err != nil {
		return err
	}
	for i := range s.want.nodes {
		if err := s.startNode(fmt.Sprintf("node-%d", i+1)); err != nil {
			return err
		}
	}
	for name := range s.nodeNo {
		if err := s.await(ctx, name, func(ctx context.Context) error { return api.nodeReady(ctx, name) }); err != nil {
			return err
		}
	}
	if facts.Version, err = api.version(); err != nil {
		return err
	}
	if err := s.writeSettings(facts); err != nil {
		return err
	}
	s.say("Kubernetes %s with %d node(s) ready after %.1f s", facts.Version, len(s.nodeNo), time.Since(begun).Seconds())
	return nil
}

func (s *supervisor) start(name string, p program) error {
	s.mu.Lock()
	existing := s.process[name]
	if existing == nil {
		existing = &process{name: name, program: p, layout: s.layout, spawn: s.spawn}
		s.process[name] = existing
		s.order = append(s.order, name)
	}
	s.mu.Unlock()
	return existing.launch()
}

// startNode gives a node its credentials, its line to the API server and its process.
func (s *supervisor) startNode(name string) error {
	s.mu.Lock()
	number, known := s.nodeNo[name]
	if !known {
		number = len(s.nodeNo)
		if number >= maxNodes {
			s.mu.Unlock()
			return fmt.Errorf("a cluster has %d nodes at most", maxNodes)
		}
		s.nodeNo[name] = number
	}
	s.mu.Unlock()
	if !known {
		text, err := s.kubeconfig("system:node:"+name, []string{"system:nodes"}, name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(s.layout.client(name), text, 0o600); err != nil {
			return err
		}
	}
	port, err := s.slot.port(nodePorts + number)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.node(name), 0o755); err != nil {
		return err
	}
	return s.start(name, program{
		binary: selfPath,
		args: []string{
			"node", "--kubeconfig", s.layout.client(name), "--name", name, "--root", s.node(name),
			"--port", fmt.Sprint(port), "--images", s.images(), "--client-ca", s.pkiFile("ca.crt"),
			"--pod-network", s.slot.podNetwork(number), "--api", s.plane.address(),
		},
		env: []string{leanCollector},
	})
}

// await polls until the check passes. It gives up early when the process keeps dying.
func (s *supervisor) await(ctx context.Context, name string, check func(context.Context) error) error {
	const (
		pause  = 50 * time.Millisecond
		deaths = 3
	)
	s.mu.Lock()
	p := s.process[name]
	s.mu.Unlock()
	before := p.status().Restarts
	for {
		err := check(ctx)
		if err == nil {
			return nil
		}
		if ctx.Err() != nil || p.status().Restarts-before >= deaths {
			return fmt.Errorf("%s did not become ready (%w); its log ends with:\n%s", name, err, p.lastWords())
		}
		time.Sleep(pause)
	}
}

// tearDown ends all processes and removes all files, whatever state they are in.
func (s *supervisor) tearDown() error {
	var failed []error
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, p := range s.client {
		p.Close()
	}
	// Marked first, so that none is started again while the others end.
	var all sync.WaitGroup
	results := make(chan error, len(s.order))
	for _, name := range s.order {
		all.Add(1)
		go func() { defer all.Done(); results <- s.process[name].kill() }()
	}
	all.Wait()
	close(results)
	for err := range results {
		failed = append(failed, err)
	}
	failed = append(failed, s.cleanNodes())
	if s.slot != nil {
		s.slot.close()
	}
	failed = append(failed, s.removeFiles())
	s.release()
	return errors.Join(failed...)
}

// line is the proxy of one client, made when it is first asked for.
func (s *supervisor) line(name string) (*proxy.Proxy, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.client[name]; p != nil {
		return p, nil
	}
	port, err := s.slot.port(clientPorts + len(s.client))
	if err != nil {
		return nil, err
	}
	p, err := proxy.Listen(net.JoinHostPort("127.0.0.1", fmt.Sprint(port)), s.plane.address())
	if err != nil {
		return nil, err
	}
	s.client[name] = p
	return p, nil
}

// kubeconfig is for any user; through names the proxy that it uses, if any.
func (s *supervisor) kubeconfig(user string, groups []string, through string) ([]byte, error) {
	authority, err := pki.LoadAuthority(s.pki(), "ca")
	if err != nil {
		return nil, err
	}
	server := s.plane.server()
	if through != "" {
		line, err := s.line(through)
		if err != nil {
			return nil, err
		}
		server = "https://" + line.Address()
	}
	return authority.Kubeconfig(server, user, groups)
}
