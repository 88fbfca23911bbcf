package network

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"
)

// testLink is this run's own.
var testLink = fmt.Sprintf("nt%d", os.Getpid())

func newNetwork(t *testing.T) *Network {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	// From the range that is set aside for tests of network devices.
	n, err := Up("test", testLink, netip.MustParsePrefix("198.18.0.0/16"))
	if err != nil {
		t.Skipf("this machine has no networks for pods: %v", err)
	}
	t.Cleanup(n.Close)
	return n
}

func add(t *testing.T, n *Network) *Pod {
	t.Helper()
	p, err := n.Add()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Delete(p) })
	return p
}

// greet accepts one connection and says who asked.
func greet(t *testing.T, l net.Listener) {
	t.Helper()
	t.Cleanup(func() { l.Close() })
	go func() {
		conn, err := l.Accept()
		if err == nil {
			host, _, _ := net.SplitHostPort(conn.RemoteAddr().String())
			_, _ = io.WriteString(conn, host)
			conn.Close()
		}
	}()
}

func ask(t *testing.T, conn net.Conn, err error) string {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(5 * time.Second))
	said, err := io.ReadAll(conn)
	if err != nil {
		t.Fatal(err)
	}
	return string(said)
}

func TestPodsAndTheHostReachEachOther(t *testing.T) {
	n := newNetwork(t)
	a, b := add(t, n), add(t, n)

	l, err := b.Listen("0.0.0.0:80")
	if err != nil {
		t.Fatal(err)
	}
	greet(t, l)
	conn, err := a.Dial(t.Context(), "tcp4", net.JoinHostPort(b.IP.String(), "80"))
	if who := ask(t, conn, err); who != a.IP.String() {
		t.Errorf("a pod is seen as %s by another, not as %s", who, a.IP)
	}

	greet(t, l)
	conn, err = net.Dial("tcp4", net.JoinHostPort(b.IP.String(), "80"))
	if who := ask(t, conn, err); who != n.HostIP().String() {
		t.Errorf("the host is seen as %s by a pod, not as %s", who, n.HostIP())
	}

	host, err := net.Listen("tcp4", net.JoinHostPort(n.HostIP().String(), "0"))
	if err != nil {
		t.Fatal(err)
	}
	greet(t, host)
	conn, err = a.Dial(t.Context(), "tcp4", host.Addr().String())
	if who := ask(t, conn, err); who != a.IP.String() {
		t.Errorf("a pod is seen as %s by the host, not as %s", who, a.IP)
	}
}

func TestNodesTakeDifferentPartsOfOneRangeAndReachEachOther(t *testing.T) {
	one := newNetwork(t)
	two, err := Up("test", testLink+"b", netip.MustParsePrefix("198.18.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(two.Close)
	if one.block.Overlaps(two.block) {
		t.Fatalf("both have %s", one.block)
	}
	a, b := add(t, one), add(t, two)
	l, err := b.Listen("0.0.0.0:80")
	if err != nil {
		t.Fatal(err)
	}
	greet(t, l)
	conn, err := a.Dial(t.Context(), "tcp4", net.JoinHostPort(b.IP.String(), "80"))
	ask(t, conn, err)
}

func TestAddressesRestBeforeTheyAreUsedAgain(t *testing.T) {
	n := newNetwork(t)
	first := add(t, n)
	n.Delete(first)
	if second := add(t, n); second.IP == first.IP {
		t.Errorf("%s was used again at once", first.IP)
	}
}

func TestNothingIsLeftOfANetworkThatWasClosed(t *testing.T) {
	n := newNetwork(t)
	n.Close()
	if _, err := net.InterfaceByName(testLink); err == nil {
		t.Error("the interface is left")
	}
}
