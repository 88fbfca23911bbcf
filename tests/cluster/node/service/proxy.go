// Package service gives services their addresses: connections of pods to a cluster IP are
// accepted in the node's router and carried to a ready endpoint. It needs no firewall and changes
// nothing of the host. Pods see connections from a service come from the node's address.
package service

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discovery "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	discoverylisters "k8s.io/client-go/listers/discovery/v1"
	"k8s.io/client-go/tools/cache"

	"testbed/cluster/node/network"
)

// Proxy follows the cluster's services.
type Proxy struct {
	router    *network.Namespace
	api       netip.AddrPort
	informers informers.SharedInformerFactory
	services  corelisters.ServiceLister
	slices    discoverylisters.EndpointSliceLister

	// changed holds one token when something is to be looked at again.
	changed chan struct{}

	mu        sync.Mutex
	addresses map[netip.Addr]bool
	ports     map[netip.AddrPort]*port
}

// New makes a proxy whose cluster IPs are addresses of the router.
func New(client kubernetes.Interface, router *network.Namespace, api netip.AddrPort) *Proxy {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutManagedFields))
	p := &Proxy{
		router: router, api: api, informers: factory,
		services:  factory.Core().V1().Services().Lister(),
		slices:    factory.Discovery().V1().EndpointSlices().Lister(),
		changed:   make(chan struct{}, 1),
		addresses: map[netip.Addr]bool{}, ports: map[netip.AddrPort]*port{},
	}
	handler := cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.touch() },
		UpdateFunc: func(any, any) { p.touch() },
		DeleteFunc: func(any) { p.touch() },
	}
	// Adding a handler fails for a stopped informer only.
	_, _ = factory.Core().V1().Services().Informer().AddEventHandler(handler)
	_, _ = factory.Discovery().V1().EndpointSlices().Informer().AddEventHandler(handler)
	return p
}

func withoutManagedFields(o any) (any, error) {
	if m, ok := o.(interface {
		SetManagedFields([]metav1.ManagedFieldsEntry)
	}); ok {
		m.SetManagedFields(nil)
	}
	return o, nil
}

// Run keeps the router's addresses and ports as the services say until the context ends.
func (p *Proxy) Run(ctx context.Context) {
	p.informers.Start(ctx.Done())
	p.informers.WaitForCacheSync(ctx.Done())
	for {
		p.reconcile()
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
		}
	}
}

func (p *Proxy) touch() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func (p *Proxy) reconcile() {
	desired, err := p.desired()
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster node: services: %v\n", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	wanted := map[netip.Addr]bool{}
	for at, backends := range desired {
		wanted[at.Addr()] = true
		if !p.addresses[at.Addr()] {
			if err := p.router.AddAddress(at.Addr()); err != nil {
				fmt.Fprintf(os.Stderr, "cluster node: services: %v\n", err)
				continue
			}
			p.addresses[at.Addr()] = true
		}
		if p.ports[at] == nil {
			p.ports[at] = &port{at: at, router: p.router}
		}
		if err := p.ports[at].set(backends); err != nil {
			fmt.Fprintf(os.Stderr, "cluster node: services: %v\n", err)
		}
	}
	for at, open := range p.ports {
		if _, ok := desired[at]; !ok {
			open.close()
			delete(p.ports, at)
		}
	}
	for address := range p.addresses {
		if !wanted[address] {
			p.router.RemoveAddress(address)
			delete(p.addresses, address)
		}
	}
}

// desired is which backends each cluster IP and port has now.
func (p *Proxy) desired() (map[netip.AddrPort][]netip.AddrPort, error) {
	services, err := p.services.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list services: %w", err)
	}
	slices, err := p.slices.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("list endpoints: %w", err)
	}
	byService := map[string][]*discovery.EndpointSlice{}
	for _, s := range slices {
		key := s.Namespace + "/" + s.Labels[discovery.LabelServiceName]
		byService[key] = append(byService[key], s)
	}
	desired := map[netip.AddrPort][]netip.AddrPort{}
	for _, s := range services {
		ip, err := netip.ParseAddr(s.Spec.ClusterIP)
		if err != nil || !ip.Is4() {
			continue // It has none, or one that the router cannot have.
		}
		for _, servicePort := range s.Spec.Ports {
			if servicePort.Protocol != corev1.ProtocolTCP {
				continue
			}
			at := netip.AddrPortFrom(ip, uint16(servicePort.Port))
			if s.Namespace == "default" && s.Name == "kubernetes" {
				// Its endpoint may be an address that only the host can reach.
				desired[at] = []netip.AddrPort{p.api}
				continue
			}
			desired[at] = backends(byService[s.Namespace+"/"+s.Name], servicePort.Name)
		}
	}
	return desired, nil
}

func backends(slices []*discovery.EndpointSlice, portName string) []netip.AddrPort {
	var list []netip.AddrPort
	for _, slice := range slices {
		if slice.AddressType != discovery.AddressTypeIPv4 {
			continue
		}
		for _, port := range slice.Ports {
			if port.Port == nil || portName != deref(port.Name) {
				continue
			}
			for _, e := range slice.Endpoints {
				if e.Conditions.Ready != nil && !*e.Conditions.Ready {
					continue
				}
				for _, a := range e.Addresses {
					if ip, err := netip.ParseAddr(a); err == nil {
						list = append(list, netip.AddrPortFrom(ip, uint16(*port.Port)))
					}
				}
			}
		}
	}
	return list
}

func deref(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}
