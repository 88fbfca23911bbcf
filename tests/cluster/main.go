// Command cluster is a whole Kubernetes in one binary: its first argument, or the name it is
// called by, says which of the programs it is.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"testbed/cluster/bed"
	"testbed/cluster/check"
	"testbed/cluster/components"
	"testbed/cluster/node"
	"testbed/cluster/tools"
)

func main() {
	name := filepath.Base(os.Args[0])
	if name != "kubectl" && name != "helm" {
		if len(os.Args) < 2 {
			fmt.Fprint(os.Stderr, bed.Usage)
			os.Exit(2)
		}
		os.Args = os.Args[1:]
		name = os.Args[0]
	}
	args := os.Args[1:]
	// First, because these run inside containers, where nothing else of this binary is wanted.
	if handled, code := node.InternalVerb(name, args); handled {
		os.Exit(code)
	}
	if components.Run(name) {
		return
	}
	switch name {
	case "node":
		// The program takes options only; `node add NAME` and the like are commands of the bed.
		if slices.Contains(args, "--kubeconfig") {
			os.Exit(node.Main(args))
		}
		os.Exit(bed.Main(name, args))
	case "kubectl":
		os.Exit(tools.Kubectl())
	case "helm":
		os.Exit(tools.Helm(args))
	case "check":
		os.Exit(check.Main(args))
	default:
		os.Exit(bed.Main(name, args))
	}
}
