//go:build k8s134 || k8s135

package cri

import (
	"net/url"

	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/kubelet/pkg/cri/streaming"
)

// Until 1.35 the streaming server was elsewhere.
type (
	library      = streaming.Server
	terminalSize = remotecommand.TerminalSize
)

func newLibrary(base *url.URL, s sessions) (library, error) {
	config := streaming.DefaultConfig
	config.BaseURL = base
	return streaming.NewServer(config, s)
}
