// Package proxy stands between one client and the API server and breaks the line on demand.
package proxy

import (
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"
)

// Fault is what the line does to bytes and connections.
type Fault struct {
	// Kind is one of ok, delay, blackhole and cut.
	Kind  string
	Delay time.Duration
}

// ParseFault reads "ok", "cut", "blackhole" or "delay MILLISECONDS".
func ParseFault(words []string) (Fault, error) {
	switch {
	case len(words) == 1 && (words[0] == "ok" || words[0] == "cut" || words[0] == "blackhole"):
		return Fault{Kind: words[0]}, nil
	case len(words) == 2 && words[0] == "delay":
		ms, err := strconv.Atoi(words[1])
		if err == nil && ms >= 0 && ms <= 600_000 {
			return Fault{Kind: "delay", Delay: time.Duration(ms) * time.Millisecond}, nil
		}
	}
	return Fault{}, fmt.Errorf("a fault is ok, cut, blackhole or delay MILLISECONDS (0 to 600000), not %q", words)
}

func (f Fault) String() string {
	if f.Kind == "delay" {
		return fmt.Sprintf("delay %d ms", f.Delay.Milliseconds())
	}
	return f.Kind
}

// Proxy forwards TCP connections. It never looks into them: TLS passes through untouched.
type Proxy struct {
	listener net.Listener
	target   string

	mu      sync.Mutex
	fault   Fault
	changed chan struct{} // closed and replaced whenever the fault changes
	open    map[net.Conn]struct{}
}

// Listen starts a proxy on the address.
func Listen(address, target string) (*Proxy, error) {
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, err
	}
	p := &Proxy{
		listener: listener, target: target, fault: Fault{Kind: "ok"},
		changed: make(chan struct{}), open: map[net.Conn]struct{}{},
	}
	go p.accept()
	return p, nil
}

// Address is where clients connect.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

// Fault is the one in force.
func (p *Proxy) Fault() Fault {
	fault, _ := p.current()
	return fault
}

// Set changes the fault, for open connections too. A cut resets those at once.
func (p *Proxy) Set(f Fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
	close(p.changed)
	p.changed = make(chan struct{})
	if f.Kind == "cut" {
		for c := range p.open {
			reset(c)
		}
	}
}

// Close ends the proxy and every connection through it.
func (p *Proxy) Close() {
	p.listener.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.open {
		reset(c)
	}
}

func (p *Proxy) current() (Fault, <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.fault, p.changed
}

func (p *Proxy) accept() {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		go p.serve(client)
	}
}

func (p *Proxy) serve(client net.Conn) {
	if !p.track(client) {
		return
	}
	defer p.forget(client)
	// A black hole answers nothing, not even the connection's other half.
	if !p.waitOutBlackhole() {
		return
	}
	server, err := net.DialTimeout("tcp", p.target, 10*time.Second)
	if err != nil {
		reset(client)
		return
	}
	if !p.track(server) {
		return
	}
	defer p.forget(server)
	var both sync.WaitGroup
	both.Add(2)
	go func() { defer both.Done(); p.pump(server, client) }()
	go func() { defer both.Done(); p.pump(client, server) }()
	both.Wait()
}

// track registers a connection, or resets it when the line is cut.
func (p *Proxy) track(c net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fault.Kind == "cut" {
		reset(c)
		return false
	}
	p.open[c] = struct{}{}
	return true
}

func (p *Proxy) forget(c net.Conn) {
	c.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, c)
}

// waitOutBlackhole returns when bytes may pass; false when the line was cut instead.
func (p *Proxy) waitOutBlackhole() bool {
	for {
		fault, changed := p.current()
		if fault.Kind != "blackhole" {
			return fault.Kind != "cut"
		}
		<-changed
	}
}

// reset closes with RST, as a cable that was cut and a peer that forgot would end in.
func reset(c net.Conn) {
	if tcp, ok := c.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.Close()
}
