package network

import (
	"fmt"
	"net/netip"
	"os"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// Pod is one pod's network.
type Pod struct {
	*Namespace
	IP   netip.Addr
	link string
}

// Add makes a namespace with an address for a pod and connects it with the router.
func (n *Network) Add() (p *Pod, err error) {
	ip, err := n.take()
	if err != nil {
		return nil, err
	}
	ns, err := newNamespace()
	if err != nil {
		n.give(ip)
		return nil, err
	}
	p = &Pod{Namespace: ns, IP: ip, link: fmt.Sprintf("pod%x", ip.As4())}
	if err := n.connectPod(p); err != nil {
		n.Delete(p)
		return nil, err
	}
	return p, nil
}

// Delete removes a pod's network and frees its address.
func (n *Network) Delete(p *Pod) {
	if l, err := n.inside.LinkByName(p.link); err == nil {
		_ = n.inside.LinkDel(l)
	}
	_ = p.Close()
	n.give(p.IP)
}

func (n *Network) connectPod(p *Pod) error {
	const name = "eth0"
	if err := p.Do(prepare); err != nil {
		return err
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = p.link
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: name, PeerNamespace: netlink.NsFd(p.file.Fd())}
	if err := n.inside.LinkAdd(pair); err != nil {
		return fmt.Errorf("make a pod's pair of interfaces: %w", err)
	}
	outer, err := up(n.inside, p.link)
	if err != nil {
		return err
	}
	pod, err := netlink.NewHandleAt(netns.NsHandle(p.file.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("talk to a pod's network: %w", err)
	}
	defer pod.Close()
	if _, err := up(pod, "lo"); err != nil {
		return err
	}
	inner, err := up(pod, name)
	if err != nil {
		return err
	}
	if err := pod.AddrAdd(inner, &netlink.Addr{IPNet: single(p.IP)}); err != nil {
		return fmt.Errorf("give a pod its address: %w", err)
	}
	// The router answers for its own address on every interface of its own.
	if err := pod.RouteAdd(defaultVia(inner, n.RouterIP())); err != nil {
		return fmt.Errorf("route from a pod to the router: %w", err)
	}
	route := &netlink.Route{LinkIndex: outer.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: single(p.IP), Src: n.RouterIP().AsSlice()}
	if err := n.inside.RouteAdd(route); err != nil {
		return fmt.Errorf("route from the router to a pod: %w", err)
	}
	return nil
}

// prepare sets what a new namespace must have before its interfaces come. Both are best effort.
func prepare() error {
	// As container runtimes do: a user other than root may listen on port 80.
	_ = os.WriteFile("/proc/sys/net/ipv4/ip_unprivileged_port_start", []byte("0"), 0)
	// Two hundred interfaces that look for IPv6 neighbours are noise; loopback keeps its ::1.
	_ = os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0)
	return nil
}

// take goes round the block, so that an address rests before it is used again.
func (n *Network) take() (netip.Addr, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	size := 1 << (32 - n.block.Bits())
	for range size {
		n.next = n.next.Next()
		// The last address is the block's broadcast address.
		if !n.block.Contains(n.next) || !n.block.Contains(n.next.Next()) {
			n.next = n.RouterIP().Next()
		}
		if !n.used[n.next] {
			n.used[n.next] = true
			return n.next, nil
		}
	}
	return netip.Addr{}, fmt.Errorf("all %d pod addresses of this node are in use", size-reserved-1)
}

func (n *Network) give(ip netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.used, ip)
}
