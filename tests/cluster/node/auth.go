package node

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	kubeletapp "k8s.io/kubernetes/cmd/kubelet/app"
	kubeletconfig "k8s.io/kubernetes/pkg/kubelet/apis/config"
	"k8s.io/kubernetes/pkg/kubelet/server"
)

// authentication lets those use the kubelet's API whom the API server knows and allows to.
func (k *kubelet) authentication(ctx context.Context, client kubernetes.Interface, c *kubeletconfig.KubeletConfiguration) (server.AuthInterface, error) {
	auth, reload, err := kubeletapp.BuildAuth(types.NodeName(k.name), client, *c)
	if err != nil {
		return nil, fmt.Errorf("set up the kubelet's authentication: %w", err)
	}
	reload(ctx.Done())
	return auth, nil
}
