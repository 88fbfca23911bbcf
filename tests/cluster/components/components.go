// Package components runs the upstream control plane's programs, each by its usual name.
package components

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/metrics/prometheus/clientgo" // registers the client's metrics
	_ "k8s.io/component-base/metrics/prometheus/version"  // registers the build's version
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
)

// Run becomes the named program and does not return; false when there is none of that name.
// The programs read their arguments from os.Args, as they do upstream.
func Run(name string) bool {
	switch name {
	case "etcd":
		etcdmain.Main(os.Args)
		os.Exit(0)
	case "kube-apiserver":
		os.Exit(cli.Run(apiserver.NewAPIServerCommand()))
	case "kube-controller-manager":
		os.Exit(cli.Run(controllermanager.NewControllerManagerCommand()))
	case "kube-scheduler":
		os.Exit(cli.Run(scheduler.NewSchedulerCommand()))
	}
	return false
}
