package node

import (
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net/netip"
	"path/filepath"

	"testbed/cluster/node/cri"
)

// config is a node's command line.
type config struct {
	kubeconfig, proxyKubeconfig string
	name, root, images          string
	port                        int
	podNetwork                  netip.Prefix
	api                         netip.AddrPort
	clusterDNS                  bool
	clientCA                    string
}

func parse(args []string) (*config, error) {
	c := &config{}
	flags := flag.NewFlagSet("node", flag.ContinueOnError)
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "`file` with which the node connects to the API server")
	flags.StringVar(&c.proxyKubeconfig, "proxy-kubeconfig", "", "`file` with which services are followed, if not the node's")
	flags.StringVar(&c.name, "name", "", "the node's name")
	flags.StringVar(&c.root, "root", "", "the node's own `directory`")
	flags.StringVar(&c.images, "images", "", "JSON `file` of image names and the programs that they stand for")
	flags.IntVar(&c.port, "port", 0, "the kubelet's port")
	flags.StringVar(&c.clientCA, "client-ca", "", "`file` with the authority of those who may use the kubelet's API; without, everybody on this machine may")
	network := flags.String("pod-network", "", "the pods' addresses, as a `CIDR`; nodes may share one")
	api := flags.String("api", "", "the API server's `IP:PORT` on this machine")
	dns := flags.String("cluster-dns", "own", "own, or none for pods without a name service")
	if err := flags.Parse(args); err != nil {
		return nil, errors.New("see its usage above")
	}
	for name, value := range map[string]string{"kubeconfig": c.kubeconfig, "name": c.name, "root": c.root, "images": c.images} {
		if value == "" {
			return nil, fmt.Errorf("--%s is missing", name)
		}
	}
	if c.port <= 0 {
		return nil, errors.New("--port is missing")
	}
	if *dns != "own" && *dns != "none" {
		return nil, fmt.Errorf("--cluster-dns is own or none, not %q", *dns)
	}
	c.clusterDNS = *dns == "own"
	var err error
	if c.podNetwork, err = netip.ParsePrefix(*network); err != nil {
		return nil, fmt.Errorf("--pod-network must be an address range such as 10.40.0.0/16, not %q", *network)
	}
	if c.api, err = cri.ParseAPI(*api); err != nil {
		return nil, fmt.Errorf("--api: %w", err)
	}
	if c.root, err = filepath.Abs(c.root); err != nil {
		return nil, fmt.Errorf("--root: %w", err)
	}
	if c.proxyKubeconfig == "" {
		c.proxyKubeconfig = c.kubeconfig
	}
	return c, nil
}

func hash(of string) string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(of))
	return fmt.Sprintf("%08x", sum.Sum32())
}
