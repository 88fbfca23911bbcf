// Package network gives a node's pods addresses and namespaces of their own.
//
// A node has one router: a network namespace that is connected with the host by one pair of
// interfaces and with each pod by another. Only the node's process holds the namespaces, so the
// kernel removes them, their interfaces and the host's routes to them when it ends, however it
// ends. Nothing of the host is changed but the one interface.
package network

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives as long as it is open or a process is in it.
type Namespace struct {
	file *os.File
}

func newNamespace() (*Namespace, error) {
	var ns *Namespace
	err := onThread(func() error {
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("make a network namespace: %w", err)
		}
		f, err := os.Open(threadNamespace())
		if err != nil {
			return fmt.Errorf("open the new network namespace: %w", err)
		}
		ns = &Namespace{file: f}
		return nil
	})
	return ns, err
}

// File is what a process needs to join the namespace.
func (ns *Namespace) File() *os.File { return ns.file }

// Close lets the namespace go.
func (ns *Namespace) Close() error { return ns.file.Close() }

// Do runs f in the namespace. What f opens stays there; what f starts in other goroutines does not.
func (ns *Namespace) Do(f func() error) error {
	return onThread(func() error {
		if err := unix.Setns(int(ns.file.Fd()), unix.CLONE_NEWNET); err != nil {
			return fmt.Errorf("enter a network namespace: %w", err)
		}
		return f()
	})
}

// Dial connects from within the namespace to an IP address and port.
func (ns *Namespace) Dial(ctx context.Context, proto, address string) (conn net.Conn, err error) {
	err = ns.Do(func() (err error) {
		conn, err = (&net.Dialer{}).DialContext(ctx, proto, address)
		return err
	})
	return conn, err
}

// Listen accepts connections within the namespace.
func (ns *Namespace) Listen(address string) (l net.Listener, err error) {
	err = ns.Do(func() (err error) {
		l, err = net.Listen("tcp4", address)
		return err
	})
	return l, err
}

// ListenPacket receives datagrams within the namespace.
func (ns *Namespace) ListenPacket(address string) (c net.PacketConn, err error) {
	err = ns.Do(func() (err error) {
		c, err = net.ListenPacket("udp4", address)
		return err
	})
	return c, err
}

// onThread runs f on a thread of its own, which may change its namespace, and restores it. If it
// cannot, the thread ends with the goroutine instead of running others in a strange namespace.
func onThread(f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		home, err := os.Open(threadNamespace())
		if err != nil {
			runtime.UnlockOSThread()
			result <- fmt.Errorf("open the network namespace: %w", err)
			return
		}
		defer home.Close()
		err = f()
		if unix.Setns(int(home.Fd()), unix.CLONE_NEWNET) == nil {
			runtime.UnlockOSThread()
		}
		result <- err
	}()
	return <-result
}

func threadNamespace() string { return fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()) }
