//go:build !k8s134 && !k8s135

package cri

import (
	"net/url"

	"k8s.io/cri-streaming/pkg/streaming"
	"k8s.io/cri-streaming/pkg/streaming/remotecommand"
)

type (
	library      = streaming.Server
	terminalSize = remotecommand.TerminalSize
)

func newLibrary(base *url.URL, s sessions) (library, error) {
	config := streaming.DefaultConfig
	config.BaseURL = base
	return streaming.NewServer(config, s)
}
