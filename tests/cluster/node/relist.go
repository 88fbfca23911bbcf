package node

import (
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	upstream "k8s.io/kubernetes/pkg/kubelet"
)

// relister tells the kubelet at once when containers of a pod have ended, which it would see
// within a second by itself.
type relister struct {
	kubelet atomic.Pointer[upstream.Kubelet]
}

func (r *relister) attach(k *upstream.Kubelet) { r.kubelet.Store(k) }

func (r *relister) pod(uid string) {
	if k := r.kubelet.Load(); k != nil {
		requestRelist(k, types.UID(uid))
	}
}
