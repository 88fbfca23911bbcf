package service

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/labels"
)

const (
	// Domain is the cluster's, as everywhere.
	Domain = "cluster.local"

	namePort        = "53"
	answerTTL       = 5 // seconds: a test bed's services come and go
	messageBytes    = 4096
	mostAnswers     = 25 // that fit into 512 bytes, which every client takes
	upstreamTimeout = 3 * time.Second
)

// errNoName means that nothing has the name, as against a name without such a record.
var errNoName = errors.New("no such name")

// ServeNames answers pods that ask for the names of services at an address of the router's, and
// passes what is not the cluster's on to the host's name server.
func (p *Proxy) ServeNames(ctx context.Context, at netip.Addr) error {
	conn, err := p.router.ListenPacket(net.JoinHostPort(at.String(), namePort))
	if err != nil {
		return fmt.Errorf("serve names: %w", err)
	}
	context.AfterFunc(ctx, func() { _ = conn.Close() })
	go func() {
		for {
			buffer := make([]byte, messageBytes)
			n, from, err := conn.ReadFrom(buffer)
			if errors.Is(err, net.ErrClosed) {
				return
			}
			if err != nil {
				continue
			}
			go func() {
				if reply := p.answer(ctx, buffer[:n]); reply != nil {
					_, _ = conn.WriteTo(reply, from)
				}
			}()
		}
	}()
	return nil
}

func (p *Proxy) answer(ctx context.Context, query []byte) []byte {
	var m dnsmessage.Message
	if err := m.Unpack(query); err != nil || len(m.Questions) != 1 {
		return nil
	}
	question := m.Questions[0]
	name := strings.ToLower(strings.TrimSuffix(question.Name.String(), "."))
	inside, ok := strings.CutSuffix(name, "."+Domain)
	if !ok {
		return forward(ctx, query)
	}
	addresses, err := p.lookUp(inside)
	m.Response, m.Authoritative, m.RecursionAvailable = true, true, true
	m.Additionals, m.Authorities = nil, nil
	if errors.Is(err, errNoName) {
		m.RCode = dnsmessage.RCodeNameError
	}
	if question.Type == dnsmessage.TypeA {
		rand.Shuffle(len(addresses), func(i, j int) { addresses[i], addresses[j] = addresses[j], addresses[i] })
		for _, a := range addresses[:min(len(addresses), mostAnswers)] {
			m.Answers = append(m.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Class: dnsmessage.ClassINET, TTL: answerTTL},
				Body:   &dnsmessage.AResource{A: a.As4()},
			})
		}
	}
	reply, err := m.Pack()
	if err != nil {
		return nil
	}
	return reply
}

// lookUp finds SERVICE.NAMESPACE.svc and, of a service without a cluster IP, HOST.SERVICE.NAMESPACE.svc.
func (p *Proxy) lookUp(name string) ([]netip.Addr, error) {
	parts := strings.Split(name, ".")
	host := ""
	if len(parts) == 4 {
		host, parts = parts[0], parts[1:]
	}
	if len(parts) != 3 || parts[2] != "svc" {
		return nil, errNoName
	}
	s, err := p.services.Services(parts[1]).Get(parts[0])
	if err != nil {
		return nil, errNoName
	}
	if ip, err := netip.ParseAddr(s.Spec.ClusterIP); err == nil {
		if host != "" {
			return nil, errNoName
		}
		return []netip.Addr{ip}, nil
	}
	if s.Spec.ClusterIP != corev1.ClusterIPNone {
		return nil, errNoName
	}
	return p.endpoints(s, host)
}

func (p *Proxy) endpoints(s *corev1.Service, host string) ([]netip.Addr, error) {
	slices, err := p.slices.EndpointSlices(s.Namespace).List(labels.SelectorFromSet(labels.Set{discovery.LabelServiceName: s.Name}))
	if err != nil {
		return nil, err
	}
	var list []netip.Addr
	for _, slice := range slices {
		for _, e := range slice.Endpoints {
			ready := e.Conditions.Ready == nil || *e.Conditions.Ready || s.Spec.PublishNotReadyAddresses
			if !ready || host != "" && deref(e.Hostname) != host {
				continue
			}
			for _, a := range e.Addresses {
				if ip, err := netip.ParseAddr(a); err == nil && ip.Is4() {
					list = append(list, ip)
				}
			}
		}
	}
	if host != "" && len(list) == 0 {
		return nil, errNoName
	}
	return list, nil
}

// forward asks the host's name server, from the host. Without an answer there is none.
func forward(ctx context.Context, query []byte) []byte {
	server := hostNameServer()
	if server == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, upstreamTimeout)
	defer cancel()
	conn, err := (&net.Dialer{}).DialContext(ctx, "udp", net.JoinHostPort(server, namePort))
	if err != nil {
		return nil
	}
	defer conn.Close()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)
	if _, err := conn.Write(query); err != nil {
		return nil
	}
	reply := make([]byte, messageBytes)
	n, err := conn.Read(reply)
	if err != nil {
		return nil
	}
	return reply[:n]
}

func hostNameServer() string {
	raw, err := os.ReadFile("/etc/resolv.conf")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "nameserver" {
			return f[1]
		}
	}
	return ""
}
