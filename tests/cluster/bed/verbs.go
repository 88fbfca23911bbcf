package bed

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"testbed/cluster/node"
	"testbed/cluster/proxy"
)

// do carries out one command inside the supervisor.
func (s *supervisor) do(ctx context.Context, words []string) (string, error) {
	verb, rest := words[0], words[1:]
	switch verb {
	case "status":
		return s.describe(rest)
	case "load":
		return "", s.load(rest)
	case "kubeconfig":
		return s.kubeconfigCommand(rest)
	case "stop", "cont", "kill", "restart":
		return "", s.fault(ctx, verb, rest)
	case "net":
		return "", s.netCommand(rest)
	case "node":
		return "", s.nodeCommand(ctx, rest)
	case "down":
		defer close(s.quit)
		return "", s.tearDown()
	}
	return "", fmt.Errorf("unknown command %q", verb)
}

// Status is what `status --json` prints.
type Status struct {
	Dir        string          `json:"dir"`
	Server     string          `json:"server"`
	Version    string          `json:"version"`
	Kubeconfig string          `json:"kubeconfig"`
	AuditLog   string          `json:"audit_log"`
	Logs       string          `json:"logs"`
	MemoryMB   int             `json:"memory_mb"`
	Processes  []ProcessStatus `json:"processes"`
	Clients    []ClientStatus  `json:"clients"`
}

// ClientStatus is one proxy before the API server.
type ClientStatus struct {
	Name    string `json:"name"`
	Address string `json:"address"`
	Fault   string `json:"fault"`
}

func (s *supervisor) status() Status {
	facts, _ := s.readSettings()
	status := Status{
		Dir: s.dir, Server: facts.Server, Version: facts.Version,
		Kubeconfig: AdminKubeconfig(s.dir), AuditLog: s.auditLog(), Logs: s.logs(),
	}
	self := ProcessStatus{Name: "supervisor", Pid: os.Getpid(), State: "running", MemoryMB: memoryKB(os.Getpid()) / 1024}
	status.Processes = append(status.Processes, self)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range s.order {
		status.Processes = append(status.Processes, s.process[name].status())
	}
	for _, p := range status.Processes {
		status.MemoryMB += p.MemoryMB
	}
	for name, p := range s.client {
		status.Clients = append(status.Clients, ClientStatus{name, p.Address(), p.Fault().String()})
	}
	slices.SortFunc(status.Clients, func(a, b ClientStatus) int { return strings.Compare(a.Name, b.Name) })
	return status
}

func (s *supervisor) describe(rest []string) (string, error) {
	status := s.status()
	if slices.Equal(rest, []string{"--json"}) {
		text, err := json.MarshalIndent(status, "", "  ")
		return string(text) + "\n", err
	}
	if len(rest) > 0 {
		return "", errors.New("usage: cluster status [--json]")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Kubernetes %s at %s, %d MB\nkubeconfig %s\n\n", status.Version, status.Server, status.MemoryMB, status.Kubeconfig)
	fmt.Fprintf(&b, "%-26s %8s %-8s %8s %8s\n", "PROCESS", "PID", "STATE", "RESTARTS", "MEMORY")
	for _, p := range status.Processes {
		fmt.Fprintf(&b, "%-26s %8d %-8s %8d %5d MB\n", p.Name, p.Pid, p.State, p.Restarts, p.MemoryMB)
	}
	fmt.Fprintf(&b, "\n%-26s %-21s %s\n", "CLIENT", "ADDRESS", "NETWORK")
	for _, c := range status.Clients {
		fmt.Fprintf(&b, "%-26s %-21s %s\n", c.Name, c.Address, c.Fault)
	}
	return b.String(), nil
}

// load says which program an image name stands for. Nodes read the file at each start of a container.
func (s *supervisor) load(pairs []string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	images := map[string]string{}
	text, err := os.ReadFile(s.images())
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &images); err != nil {
		return err
	}
	for _, pair := range pairs {
		image, binary, _ := strings.Cut(pair, "=")
		images[image] = binary
	}
	return writeJSON(s.images(), images)
}

func (s *supervisor) kubeconfigCommand(args []string) (string, error) {
	flags := flag.NewFlagSet("kubeconfig", flag.ContinueOnError)
	flags.SetOutput(io.Discard)
	user := flags.String("user", "", "")
	through := flags.String("through", "", "")
	var groups []string
	flags.Func("group", "", func(group string) error { groups = append(groups, group); return nil })
	if err := flags.Parse(args); err != nil || *user == "" || flags.NArg() > 0 {
		return "", errors.New("usage: cluster kubeconfig --user USER [--group GROUP]… [--through CLIENT]")
	}
	text, err := s.kubeconfig(*user, groups, *through)
	return string(text), err
}

// fault acts on one process, by its name in `status`.
func (s *supervisor) fault(ctx context.Context, verb string, rest []string) error {
	if len(rest) != 1 {
		return fmt.Errorf("usage: cluster %s PROCESS", verb)
	}
	p, err := s.find(rest[0])
	if err != nil {
		return err
	}
	switch verb {
	case "stop":
		return p.signal(syscall.SIGSTOP)
	case "cont":
		return p.signal(syscall.SIGCONT)
	case "kill":
		return p.kill()
	}
	if err := p.kill(); err != nil {
		return err
	}
	if err := p.launch(); err != nil {
		return err
	}
	return s.awaitReady(ctx, p.name)
}

func (s *supervisor) find(name string) (*process, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p := s.process[name]; p != nil {
		return p, nil
	}
	return nil, fmt.Errorf("there is no process %q, only %s", name, strings.Join(s.order, ", "))
}

// awaitReady waits until the part answers again.
func (s *supervisor) awaitReady(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	api, err := newProbe(s.layout)
	if err != nil {
		return err
	}
	s.mu.Lock()
	_, isNode := s.nodeNo[name]
	s.mu.Unlock()
	switch {
	case isNode:
		return s.await(ctx, name, func(ctx context.Context) error { return api.nodeReady(ctx, name) })
	case name == etcd || name == apiServer:
		return s.await(ctx, name, api.serverReady)
	}
	return nil
}

// netCommand sets the fault of one client's line, or of all of them.
func (s *supervisor) netCommand(rest []string) error {
	client := ""
	if at := slices.Index(rest, "--client"); at >= 0 && at+1 < len(rest) {
		client = rest[at+1]
		rest = slices.Delete(slices.Clone(rest), at, at+2)
	}
	fault, err := proxy.ParseFault(rest)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if client != "" {
		line := s.client[client]
		if line == nil {
			return fmt.Errorf("no kubeconfig goes through %q: make one with `cluster kubeconfig --user USER --through %s`", client, client)
		}
		line.Set(fault)
		return nil
	}
	for name, line := range s.client {
		// Nodes are lost by name only: a fault for clients must not take the pods along.
		if _, isNode := s.nodeNo[name]; !isNode {
			line.Set(fault)
		}
	}
	return nil
}

func (s *supervisor) nodeCommand(ctx context.Context, rest []string) error {
	if len(rest) != 2 {
		return errors.New("usage: cluster node add|kill|freeze|thaw NAME")
	}
	verb, name := rest[0], rest[1]
	if verb == "add" {
		if err := checkNodeName(name); err != nil {
			return err
		}
		if err := s.startNode(name); err != nil {
			return err
		}
		return s.awaitReady(ctx, name)
	}
	s.mu.Lock()
	_, isNode := s.nodeNo[name]
	s.mu.Unlock()
	if !isNode {
		return fmt.Errorf("there is no node %q: `cluster node add %s` makes it", name, name)
	}
	p, err := s.find(name)
	if err != nil {
		return err
	}
	switch verb {
	case "kill":
		// As if its machine had lost power: what ran on it is gone, the API server is not told.
		return errors.Join(p.kill(), node.Cleanup(s.node(name)))
	case "freeze":
		return p.signalTree(syscall.SIGSTOP)
	case "thaw":
		return p.signalTree(syscall.SIGCONT)
	}
	return errors.New("usage: cluster node add|kill|freeze|thaw NAME")
}

// checkNodeName keeps names out that would be a process's, or no file's or Kubernetes object's.
func checkNodeName(name string) error {
	valid := name != "" && len(name) <= 40 && !strings.ContainsFunc(name, func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9') && r != '-'
	}) && name[0] != '-' && name[len(name)-1] != '-'
	if !valid || slices.Contains([]string{etcd, apiServer, controllerManager, scheduler, "supervisor"}, name) {
		return fmt.Errorf("%q cannot be a node's name: use at most 40 of a-z, 0-9 and -, and not the name of a process", name)
	}
	return nil
}
