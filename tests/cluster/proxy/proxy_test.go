package proxy

import (
	"bufio"
	"net"
	"testing"
	"time"
)

// connect gives a client whose lines come back from an echo server behind the proxy.
func connect(t *testing.T, p *Proxy) (say func(string) error) {
	t.Helper()
	conn, err := net.Dial("tcp", p.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	answers := bufio.NewReader(conn)
	return func(word string) error {
		_ = conn.SetDeadline(time.Now().Add(500 * time.Millisecond))
		if _, err := conn.Write([]byte(word + "\n")); err != nil {
			return err
		}
		_, err := answers.ReadString('\n')
		return err
	}
}

func echoBehindProxy(t *testing.T) *Proxy {
	t.Helper()
	server, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { server.Close() })
	go func() {
		for {
			conn, err := server.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				for lines := bufio.NewReader(conn); ; {
					line, err := lines.ReadString('\n')
					if err != nil {
						return
					}
					_, _ = conn.Write([]byte(line))
				}
			}()
		}
	}()
	p, err := Listen("127.0.0.1:0", server.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func TestBytesPassUntilTheLineIsCut(t *testing.T) {
	p := echoBehindProxy(t)
	say := connect(t, p)
	if err := say("hello"); err != nil {
		t.Fatal(err)
	}
	p.Set(Fault{Kind: "cut"})
	if err := say("hello"); err == nil {
		t.Error("an open connection survived the cut")
	}
	if err := connect(t, p)("hello"); err == nil {
		t.Error("a new connection was possible during the cut")
	}
	p.Set(Fault{Kind: "ok"})
	if err := connect(t, p)("hello"); err != nil {
		t.Error("the line did not heal:", err)
	}
}

func TestBlackHoleKeepsConnectionsAndBytes(t *testing.T) {
	p := echoBehindProxy(t)
	say := connect(t, p)
	if err := say("hello"); err != nil {
		t.Fatal(err)
	}
	p.Set(Fault{Kind: "blackhole"})
	err := say("lost?")
	if timeout, ok := err.(net.Error); !ok || !timeout.Timeout() {
		t.Fatal("silence was expected, not", err)
	}
	p.Set(Fault{Kind: "ok"})
	// What was sent meanwhile arrives, and so does what follows.
	if err := say("again"); err != nil {
		t.Error("the connection did not survive:", err)
	}
}

func TestDelayCountsBothWays(t *testing.T) {
	p := echoBehindProxy(t)
	say := connect(t, p)
	p.Set(Fault{Kind: "delay", Delay: 50 * time.Millisecond})
	begun := time.Now()
	if err := say("hello"); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(begun); took < 100*time.Millisecond {
		t.Errorf("there and back took %v", took)
	}
}

func TestFaultsAreReadStrictly(t *testing.T) {
	for _, words := range [][]string{{"ok"}, {"cut"}, {"blackhole"}, {"delay", "0"}, {"delay", "250"}} {
		if _, err := ParseFault(words); err != nil {
			t.Error(err)
		}
	}
	for _, words := range [][]string{nil, {"delay"}, {"delay", "-1"}, {"delay", "soon"}, {"slow"}, {"cut", "now"}} {
		if _, err := ParseFault(words); err == nil {
			t.Errorf("%q was taken", words)
		}
	}
}
