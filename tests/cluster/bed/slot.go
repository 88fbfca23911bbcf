package bed

import (
	"fmt"
	"net"
)

// Clusters side by side on one machine must not share ports or addresses. Each takes a slot, and
// all its numbers follow from it.
const (
	slots        = 16 // as many as the service range divides into
	firstPort    = 20000
	portsPerSlot = 200 // all slots together stay below the ports that the kernel hands out
	maxNodes     = 60  // pod networks of one slot, and room in its ports
	nodePorts    = 10  // the first of the nodes' ports, counted from the slot's first
	clientPorts  = 80  // the first of the clients' proxies
)

// slot holds a number until it is closed or the process dies, whichever way: the kernel frees
// the name of the socket.
type slot struct {
	number   int
	listener net.Listener
}

func takeSlot() (*slot, error) {
	for n := range slots {
		listener, err := net.Listen("unix", fmt.Sprintf("@testbed-cluster-slot-%d", n))
		if err != nil {
			continue
		}
		s := &slot{n, listener}
		if overlap(s.podRange()) {
			listener.Close()
			continue
		}
		return s, nil
	}
	return nil, fmt.Errorf("%d clusters run on this machine already: take one down with `cluster down --dir D`", slots)
}

func (s *slot) close() { s.listener.Close() }

func (s *slot) podRange() string     { return fmt.Sprintf("10.%d.0.0/16", 128+s.number) }
func (s *slot) serviceRange() string { return fmt.Sprintf("10.96.%d.0/20", 16*s.number) }

// podNetwork is the range of one node: 1,022 addresses.
func (s *slot) podNetwork(node int) string {
	return fmt.Sprintf("10.%d.%d.0/22", 128+s.number, 4*node)
}

// port is the slot's own port, or any free one when another program has taken that.
func (s *slot) port(offset int) (int, error) {
	preferred := firstPort + s.number*portsPerSlot + offset
	if checkPort(preferred) == nil {
		return preferred, nil
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

func checkPort(port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		listener.Close()
	}
	return err
}

// overlap tells whether this machine has an address in the range.
func overlap(cidr string) bool {
	_, network, err := net.ParseCIDR(cidr)
	if err != nil {
		return true
	}
	addresses, _ := net.InterfaceAddrs()
	for _, address := range addresses {
		if in, ok := address.(*net.IPNet); ok && network.Contains(in.IP) {
			return true
		}
	}
	return false
}
