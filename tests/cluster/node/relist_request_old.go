//go:build k8s134 || k8s135

package node

import (
	"k8s.io/apimachinery/pkg/types"
	upstream "k8s.io/kubernetes/pkg/kubelet"
)

// Until 1.35 the kubelet cannot be asked.
func requestRelist(*upstream.Kubelet, types.UID) {}
