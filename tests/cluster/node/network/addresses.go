package network

import (
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
)

// AddAddress makes an address the namespace's own.
func (ns *Namespace) AddAddress(ip netip.Addr) error {
	if err := ns.onLoopback(ip, (*netlink.Handle).AddrReplace); err != nil {
		return fmt.Errorf("add the address %s: %w", ip, err)
	}
	return nil
}

// RemoveAddress takes it back, if it is there.
func (ns *Namespace) RemoveAddress(ip netip.Addr) {
	_ = ns.onLoopback(ip, (*netlink.Handle).AddrDel)
}

func (ns *Namespace) onLoopback(ip netip.Addr, do func(*netlink.Handle, netlink.Link, *netlink.Addr) error) error {
	h, err := netlink.NewHandleAt(netns.NsHandle(ns.file.Fd()), unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	lo, err := h.LinkByName("lo")
	if err != nil {
		return err
	}
	return do(h, lo, &netlink.Addr{IPNet: single(ip)})
}
