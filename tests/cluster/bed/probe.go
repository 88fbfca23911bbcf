package bed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
)

// probe asks the API server as the admin. Plain HTTP: the supervisor needs a few answers, no client library.
type probe struct {
	server string
	client *http.Client
}

func newProbe(l layout) (*probe, error) {
	config, err := clientcmd.BuildConfigFromFlags("", AdminKubeconfig(l.dir))
	if err != nil {
		return nil, err
	}
	config.Timeout = 5 * time.Second
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, err
	}
	return &probe{config.Host, client}, nil
}

func (p *probe) serverReady(ctx context.Context) error {
	_, err := p.get(ctx, "/readyz")
	return err
}

func (p *probe) nodeReady(ctx context.Context, name string) error {
	var node struct {
		Spec struct {
			Taints []struct{ Key string }
		}
		Status struct {
			Conditions []struct{ Type, Status, Message string }
		}
	}
	text, err := p.get(ctx, "/api/v1/nodes/"+name)
	if err != nil {
		return err
	}
	if err := json.Unmarshal(text, &node); err != nil {
		return err
	}
	// The taint goes a moment after the condition: until then no pod comes to the node.
	for _, t := range node.Spec.Taints {
		if strings.HasPrefix(t.Key, "node.kubernetes.io/") {
			return fmt.Errorf("it has the taint %s", t.Key)
		}
	}
	for _, c := range node.Status.Conditions {
		if c.Type == "Ready" && c.Status != "True" {
			return errors.New(c.Message)
		}
		if c.Type == "Ready" {
			return nil
		}
	}
	return errors.New("it has not reported yet")
}

func (p *probe) version() (string, error) {
	var version struct{ GitVersion string }
	text, err := p.get(context.Background(), "/version")
	if err != nil {
		return "", err
	}
	err = json.Unmarshal(text, &version)
	return version.GitVersion, err
}

// letNodesProxy lets nodes follow services and their endpoints, since a node carries services itself.
func (p *probe) letNodesProxy(ctx context.Context) error {
	const binding = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"nodes-carry-services"},
"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"system:node-proxier"},
"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:nodes"}]}`
	_, err := p.ask(ctx, http.MethodPost, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", binding)
	return err
}

func (p *probe) get(ctx context.Context, path string) ([]byte, error) {
	return p.ask(ctx, http.MethodGet, path, "")
}

func (p *probe) ask(ctx context.Context, method, path, body string) ([]byte, error) {
	request, err := http.NewRequestWithContext(ctx, method, p.server+path, strings.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := p.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode/100 != 2 {
		err = fmt.Errorf("%s %s: %s", method, path, response.Status)
	}
	return text, err
}
