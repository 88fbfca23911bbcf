// Package node is one node of a cluster: the real kubelet, with a runtime that runs containers as
// processes of this machine, their network, and the proxy for services.
//
// Everything that a node makes is below its root directory, in its own mount namespace, or named
// after the root, so that Cleanup finds it whatever happened to the node.
package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"cluster.inside"
	"testbed/cluster/node/cgroup"
	"testbed/cluster/node/cri"
	"testbed/cluster/node/network"
	"testbed/cluster/node/service"
)

// InternalVerb runs the processes that this binary starts of itself.
func InternalVerb(name string, args []string) (handled bool, code int) {
	if name == leaveVerb && len(args) == 1 {
		return true, finishLeaving(args[0])
	}
	return inside.Verb(name, args)
}

// ContainerInit is process 1 of a container.
func ContainerInit(args []string) int {
	_, code := inside.Verb(inside.InitVerb, args)
	return code
}

// Main runs a node until it is told to end, and returns its exit code.
func Main(args []string) int {
	c, err := parse(args)
	if err == nil {
		err = check(c)
	}
	if err == nil {
		err = ownMounts(args)
	}
	if err == nil {
		err = errors.Join(run(c), leave(c.root))
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster node: %v\n", err)
		return 1
	}
	return 0
}

func run(c *config) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	if err := discard(c.root); err != nil {
		return err
	}
	client, err := connect(c.kubeconfig)
	if err != nil {
		return err
	}
	groups, err := cgroup.Open(nameOf(c.root))
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster node: containers are limited by a watcher, because %v\n", err)
	}
	pods, err := network.Up(c.name, nameOf(c.root), c.podNetwork)
	if err != nil {
		fmt.Fprintf(os.Stderr, "cluster node: pods share the host's network, on 127.0.0.0/8, because it is not possible to %v\n", err)
	} else {
		defer pods.Close()
	}
	images := &cri.Images{File: c.images, Root: c.root}
	relist := &relister{}
	runtime, err := cri.New(cri.Options{
		Root: filepath.Join(c.root, "runtime"), Owner: c.root, Images: images, Network: pods, Cgroups: groups,
		API: c.api, Changed: relist.pod,
	})
	if err != nil {
		return err
	}
	k := &kubelet{config: c, client: client, runtime: runtime, images: images, relist: relist}
	if pods != nil {
		k.address = pods.HostIP()
		proxy, err := newProxy(c, pods)
		if err != nil {
			return err
		}
		go proxy.Run(ctx)
		if c.clusterDNS {
			if err := proxy.ServeNames(ctx, pods.RouterIP()); err != nil {
				return err
			}
			k.dns = pods.RouterIP()
		}
	}
	return k.run(ctx)
}

func newProxy(c *config, pods *network.Network) (*service.Proxy, error) {
	config, err := connect(c.proxyKubeconfig)
	if err != nil {
		return nil, err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make a client: %w", err)
	}
	return service.New(client, pods.Router(), c.api), nil
}

func connect(kubeconfig string) (*rest.Config, error) {
	client, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig %s: %w", kubeconfig, err)
	}
	// A node of a test bed has hundreds of pods come and go at once.
	client.QPS, client.Burst = 500, 1000
	return client, nil
}

func check(c *config) error {
	if os.Geteuid() != 0 {
		return errors.New("a node needs root, to make namespaces and mounts: run it with sudo")
	}
	if log, err := os.Open("/dev/kmsg"); err != nil {
		return fmt.Errorf("the kubelet must read the kernel's log (%w): in a container, run that with --privileged", err)
	} else {
		log.Close()
	}
	if err := os.MkdirAll(c.root, 0o755); err != nil {
		return fmt.Errorf("make the node's directory: %w", err)
	}
	if err := checkOverlay(c.root); err != nil {
		_ = os.Remove(c.root) // If it is empty, as before.
		return err
	}
	return nil
}

// nameOf is what a node's interface and control groups are called: short, and its own.
func nameOf(root string) string { return "node" + hash(root) }
