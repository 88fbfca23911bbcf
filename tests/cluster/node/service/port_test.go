package service

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"testbed/cluster/node/network"
)

func newRouter(t *testing.T) *network.Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	n, err := network.Up("test", fmt.Sprintf("ns%d", os.Getpid()), netip.MustParsePrefix("198.19.0.0/16"))
	if err != nil {
		t.Skipf("this machine has no networks for pods: %v", err)
	}
	t.Cleanup(n.Close)
	return n
}

func TestClusterIPCarriesBothWaysAndRefusesWithoutBackends(t *testing.T) {
	n := newRouter(t)
	pod, err := n.Add()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Delete(pod) })
	backend, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer backend.Close()
	go func() {
		for {
			conn, err := backend.Accept()
			if err != nil {
				return
			}
			// The answer comes after the question has ended, so ends must be passed on.
			question, _ := io.ReadAll(conn)
			_, _ = io.WriteString(conn, "answer to "+string(question))
			conn.Close()
		}
	}()

	at := netip.MustParseAddrPort("198.18.255.1:80")
	if err := n.Router().AddAddress(at.Addr()); err != nil {
		t.Fatal(err)
	}
	p := &port{at: at, router: n.Router()}
	if err := p.set([]netip.AddrPort{netip.MustParseAddrPort(backend.Addr().String())}); err != nil {
		t.Fatal(err)
	}
	conn, err := pod.Dial(t.Context(), "tcp4", at.String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	_, _ = io.WriteString(conn, "question")
	_ = conn.(*net.TCPConn).CloseWrite()
	if said, err := io.ReadAll(conn); err != nil || string(said) != "answer to question" {
		t.Errorf("the service said %q, %v", said, err)
	}

	p.close()
	if _, err := pod.Dial(t.Context(), "tcp4", at.String()); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Errorf("a service without backends does not refuse: %v", err)
	}
}
