//go:build !k8s134 && !k8s135

package node

import (
	"k8s.io/apimachinery/pkg/types"
	upstream "k8s.io/kubernetes/pkg/kubelet"
)

func requestRelist(k *upstream.Kubelet, pod types.UID) { k.RequestPodRelist(pod) }
