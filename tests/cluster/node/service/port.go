package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"

	"testbed/cluster/node/network"
)

const (
	// dialTimeout is as long as a client would wait for the first packets.
	dialTimeout = 10 * time.Second
	// acceptPause keeps a proxy that is out of descriptors from spinning.
	acceptPause = 100 * time.Millisecond
)

// port is one cluster IP and port. It is open as long as it has backends, so that a service
// without any refuses connections.
type port struct {
	at     netip.AddrPort
	router *network.Namespace

	mu       sync.Mutex
	backends []netip.AddrPort
	listener net.Listener
}

func (p *port) set(backends []netip.AddrPort) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.backends = backends
	switch {
	case len(backends) == 0 && p.listener != nil:
		_ = p.listener.Close()
		p.listener = nil
	case len(backends) > 0 && p.listener == nil:
		l, err := p.router.Listen(p.at.String())
		if err != nil {
			return fmt.Errorf("listen for a service: %w", err)
		}
		p.listener = l
		go p.serve(l)
	}
	return nil
}

// close refuses new connections and leaves the others be.
func (p *port) close() { _ = p.set(nil) }

func (p *port) serve(l net.Listener) {
	for {
		conn, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil:
			time.Sleep(acceptPause)
		default:
			go p.carry(conn.(*net.TCPConn))
		}
	}
}

// carry takes any backend, as a cluster does, and not another one if that does not answer.
func (p *port) carry(client *net.TCPConn) {
	defer client.Close()
	p.mu.Lock()
	if len(p.backends) == 0 {
		p.mu.Unlock()
		return
	}
	to := p.backends[rand.IntN(len(p.backends))]
	p.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp4", to.String())
	if err != nil {
		reset(client)
		return
	}
	backend := conn.(*net.TCPConn)
	defer backend.Close()
	var both sync.WaitGroup
	both.Go(func() { pass(backend, client) })
	both.Go(func() { pass(client, backend) })
	both.Wait()
}

// pass copies one direction with its end, which may come first or as a reset.
func pass(to, from *net.TCPConn) {
	_, err := io.Copy(to, from)
	if err != nil && !errors.Is(err, syscall.EPIPE) {
		reset(to)
		reset(from)
	}
	_ = to.CloseWrite()
	_ = from.CloseRead()
}

// reset makes the next close tell the peer that something went wrong.
func reset(c *net.TCPConn) { _ = c.SetLinger(0) }
