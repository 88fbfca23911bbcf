package node

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/kubelet/cm"
)

// containerManager manages nothing, as upstream's stub does: limits are the runtime's. But the
// kubelet asks it for pods' control groups at every status and would log each refusal.
type containerManager struct{ cm.ContainerManager }

func newContainerManager() cm.ContainerManager {
	return containerManager{cm.NewStubContainerManager()}
}

func (m containerManager) NewPodContainerManager() cm.PodContainerManager {
	return podGroups{m.ContainerManager.NewPodContainerManager()}
}

// podGroups says of every pod that nothing is set.
type podGroups struct{ cm.PodContainerManager }

func (podGroups) GetPodCgroupConfig(*corev1.Pod, corev1.ResourceName) (*cm.ResourceConfig, error) {
	var (
		bytes, quota   int64
		shares, period uint64
	)
	return &cm.ResourceConfig{Memory: &bytes, CPUQuota: &quota, CPUPeriod: &period, CPUShares: &shares}, nil
}
