// Package tools holds the programs that people and tests use against a cluster.
package tools

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	"testbed/cluster/bed"
)

// Kubectl is the real kubectl. Without a kubeconfig of the caller's it talks to the cluster in
// the default state directory, as its admin.
func Kubectl() int {
	preferRunningCluster()
	if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err)
	}
	return 0
}

// Helm becomes the helm binary that was built beside this one: upstream's command is not a library.
func Helm(args []string) int {
	preferRunningCluster()
	self, err := os.Executable()
	if err == nil {
		helm := filepath.Join(filepath.Dir(self), "helm")
		err = syscall.Exec(helm, append([]string{"helm"}, args...), os.Environ())
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("%s is missing: build with tests/cluster/build.sh, which puts it there", helm)
		}
	}
	fmt.Fprintln(os.Stderr, "helm:", err)
	return 1
}

func preferRunningCluster() {
	if os.Getenv("KUBECONFIG") != "" {
		return
	}
	admin := bed.AdminKubeconfig(bed.DefaultDir())
	if _, err := os.Stat(admin); err == nil {
		os.Setenv("KUBECONFIG", admin)
	}
}
