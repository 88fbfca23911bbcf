package network

import (
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

const (
	// blockBits is the prefix of a node's part of the pod network: 510 addresses, for 500 pods.
	blockBits = 23
	// reserved addresses at a block's start: its own, the host's, the router's.
	reserved = 3
)

// Network is one node's router and the addresses of its pods.
type Network struct {
	router *Namespace
	inside *netlink.Handle
	host   *netlink.Handle
	link   string
	block  netip.Prefix

	mu   sync.Mutex
	next netip.Addr
	used map[netip.Addr]bool
}

// Up makes the router of the node called name, whose interface on the host is called link, and
// takes a part of the pod network that no other node of the machine has.
func Up(name, link string, podNetwork netip.Prefix) (_ *Network, err error) {
	if !podNetwork.Addr().Is4() || podNetwork.Bits() > 28 {
		return nil, fmt.Errorf("the pod network must be IPv4 and /28 or larger, not %s", podNetwork)
	}
	if err := Remove(link); err != nil {
		return nil, err
	}
	n := &Network{link: link, used: map[netip.Addr]bool{}}
	defer func() {
		if err != nil {
			n.Close()
		}
	}()
	if n.host, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("talk to the kernel's network: %w", err)
	}
	if n.router, err = newNamespace(); err != nil {
		return nil, err
	}
	if n.inside, err = netlink.NewHandleAt(netns.NsHandle(n.router.file.Fd()), unix.NETLINK_ROUTE); err != nil {
		return nil, fmt.Errorf("talk to the router's network: %w", err)
	}
	if err := n.connectHost(name, podNetwork.Masked()); err != nil {
		return nil, err
	}
	n.next = n.RouterIP()
	return n, nil
}

// HostIP is the host's address for the pods, and the node's for everybody.
func (n *Network) HostIP() netip.Addr { return n.block.Addr().Next() }

// RouterIP is where pods send everything.
func (n *Network) RouterIP() netip.Addr { return n.HostIP().Next() }

// Router is the namespace that pods' packets pass.
func (n *Network) Router() *Namespace { return n.router }

// Close removes the router. Pods that still run lose their network.
func (n *Network) Close() {
	if n.host != nil {
		_ = Remove(n.link)
		n.host.Close()
	}
	if n.inside != nil {
		n.inside.Close()
	}
	if n.router != nil {
		_ = n.router.Close()
	}
}

// Remove deletes the interface on the host that an earlier router may have left.
func Remove(link string) error {
	l, err := netlink.LinkByName(link)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("look for the interface %s: %w", link, err)
	}
	if err := netlink.LinkDel(l); err != nil && !errors.Is(err, unix.ENODEV) {
		return fmt.Errorf("remove the interface %s: %w", link, err)
	}
	return nil
}

func (n *Network) connectHost(name string, podNetwork netip.Prefix) error {
	const uplink = "uplink"
	attrs := netlink.NewLinkAttrs()
	attrs.Name = n.link
	pair := &netlink.Veth{LinkAttrs: attrs, PeerName: uplink, PeerNamespace: netlink.NsFd(n.router.file.Fd())}
	if err := n.host.LinkAdd(pair); err != nil {
		return fmt.Errorf("make a pair of interfaces: %w", err)
	}
	outer, err := up(n.host, n.link)
	if err != nil {
		return err
	}
	// The route is the claim on a block: the kernel refuses a second one.
	if err := n.claim(name, outer, podNetwork); err != nil {
		return err
	}
	if err := n.host.AddrAdd(outer, &netlink.Addr{IPNet: single(n.HostIP())}); err != nil {
		return fmt.Errorf("give the host an address: %w", err)
	}
	// For pods of one node to reach those of another, and only between such interfaces.
	_ = os.WriteFile(filepath.Join("/proc/sys/net/ipv4/conf", n.link, "forwarding"), []byte("1"), 0)

	if _, err := up(n.inside, "lo"); err != nil {
		return err
	}
	inner, err := up(n.inside, uplink)
	if err != nil {
		return err
	}
	if err := n.inside.AddrAdd(inner, &netlink.Addr{IPNet: single(n.RouterIP())}); err != nil {
		return fmt.Errorf("give the router an address: %w", err)
	}
	if err := n.inside.RouteAdd(&netlink.Route{LinkIndex: inner.Attrs().Index, Scope: netlink.SCOPE_LINK, Dst: single(n.HostIP())}); err != nil {
		return fmt.Errorf("route from the router to the host: %w", err)
	}
	if err := n.inside.RouteAdd(defaultVia(inner, n.HostIP())); err != nil {
		return fmt.Errorf("route from the router through the host: %w", err)
	}
	return n.router.Do(func() error {
		if err := os.WriteFile("/proc/sys/net/ipv4/ip_forward", []byte("1"), 0); err != nil {
			return fmt.Errorf("let the router forward: %w", err)
		}
		return nil
	})
}

// claim routes a block to the router: the one that the node's name leads to, or the next free one.
func (n *Network) claim(name string, outer netlink.Link, podNetwork netip.Prefix) error {
	bits := max(blockBits, podNetwork.Bits())
	count := uint32(1) << (bits - podNetwork.Bits())
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(name))
	first := sum.Sum32() % count
	for i := range count {
		block := nth(podNetwork, bits, (first+i)%count)
		n.block = block
		route := &netlink.Route{
			LinkIndex: outer.Attrs().Index,
			Dst:       &net.IPNet{IP: block.Addr().AsSlice(), Mask: net.CIDRMask(bits, 32)},
			Gw:        n.RouterIP().AsSlice(),
			Flags:     int(netlink.FLAG_ONLINK),
		}
		err := n.host.RouteAdd(route)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("route from the host to the pods: %w", err)
		}
		return nil
	}
	return fmt.Errorf("every part of the pod network %s is taken by other nodes: choose a larger or another one", podNetwork)
}

func nth(network netip.Prefix, bits int, i uint32) netip.Prefix {
	a := network.Addr().As4()
	base := uint32(a[0])<<24 | uint32(a[1])<<16 | uint32(a[2])<<8 | uint32(a[3])
	base += i << (32 - bits)
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{byte(base >> 24), byte(base >> 16), byte(base >> 8), byte(base)}), bits)
}

func up(h *netlink.Handle, name string) (netlink.Link, error) {
	l, err := h.LinkByName(name)
	if err != nil {
		return nil, fmt.Errorf("find the interface %s: %w", name, err)
	}
	if err := h.LinkSetUp(l); err != nil {
		return nil, fmt.Errorf("bring the interface %s up: %w", name, err)
	}
	return l, nil
}

func single(a netip.Addr) *net.IPNet {
	return &net.IPNet{IP: a.AsSlice(), Mask: net.CIDRMask(a.BitLen(), a.BitLen())}
}

func defaultVia(l netlink.Link, gateway netip.Addr) *netlink.Route {
	_, everything, _ := net.ParseCIDR("0.0.0.0/0")
	return &netlink.Route{LinkIndex: l.Attrs().Index, Dst: everything, Gw: gateway.AsSlice(), Flags: int(netlink.FLAG_ONLINK)}
}
