package check

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"testbed/cluster/bed"
)

// appImage is the name by which pods ask for the checks' own program.
const appImage = "check/app:1"

// session is one running cluster as the checks use it: by its commands, as a test would.
type session struct {
	binary string
	dir    string
	config *rest.Config
	api    kubernetes.Interface
	spaces atomic.Int32
}

// run calls the cluster binary and gives what it printed.
func (s *session) run(ctx context.Context, args ...string) (string, error) {
	return s.runAs(ctx, s.admin(), "", args...)
}

func (s *session) admin() string { return bed.AdminKubeconfig(s.dir) }

// runAs is run with another user's kubeconfig and with input.
func (s *session) runAs(ctx context.Context, kubeconfig, input string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, s.binary, args...)
	cmd.Env = append(os.Environ(), "CLUSTER_DIR="+s.dir, "KUBECONFIG="+kubeconfig)
	cmd.Stdin = strings.NewReader(input)
	output, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("cluster %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(string(output)))
	}
	return string(output), err
}

// up starts the cluster, loads the checks' program and connects.
func (s *session) up(ctx context.Context) error {
	if _, err := s.run(ctx, "up"); err != nil {
		return err
	}
	return s.connect(ctx)
}

func (s *session) connect(ctx context.Context) error {
	if _, err := s.run(ctx, "load", appImage+"="+filepath.Join(filepath.Dir(s.binary), "app")); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", s.admin())
	if err != nil {
		return err
	}
	config.QPS, config.Burst = 200, 400
	s.config = config
	s.api, err = kubernetes.NewForConfig(config)
	return err
}

func (s *session) status(ctx context.Context) (bed.Status, error) {
	var status bed.Status
	text, err := s.run(ctx, "status", "--json")
	if err == nil {
		err = json.Unmarshal([]byte(text), &status)
	}
	return status, err
}

// userKubeconfig makes a user's kubeconfig, in a file of the test's directory.
func (s *session) userKubeconfig(ctx context.Context, into, user string, more ...string) (string, error) {
	text, err := s.run(ctx, append([]string{"kubeconfig", "--user", user}, more...)...)
	if err != nil {
		return "", err
	}
	path := filepath.Join(into, user+".kubeconfig")
	return path, os.WriteFile(path, []byte(text), 0o600)
}

// space is a namespace of one check's own, with the session that it is in.
type space struct {
	*session
	name    string
	scratch string
}

// newSpace makes a namespace whose default ServiceAccount exists, as pods need it.
func (s *session) newSpace(ctx context.Context) (*space, error) {
	name := fmt.Sprintf("check-%d", s.spaces.Add(1))
	scratch, err := os.MkdirTemp("", name+"-")
	if err != nil {
		return nil, err
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := s.api.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	sp := &space{s, name, scratch}
	return sp, until(ctx, 10*time.Second, "the default ServiceAccount exists", func() error {
		_, err := s.api.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
}

// close lets the namespace go without waiting for it.
func (s *space) close() {
	os.RemoveAll(s.scratch)
	_ = s.api.CoreV1().Namespaces().Delete(context.Background(), s.name, metav1.DeleteOptions{})
}

func (s *space) kubectl(ctx context.Context, args ...string) (string, error) {
	return s.run(ctx, append([]string{"kubectl", "-n", s.name}, args...)...)
}

// errNotYet is for conditions that have nothing better to say.
var errNotYet = errors.New("not yet")

// until polls until the condition gives no error; after the deadline it says what was missing.
func until(ctx context.Context, limit time.Duration, what string, condition func() error) error {
	deadline := time.Now().Add(limit)
	for {
		err := condition()
		if err == nil {
			return nil
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return fmt.Errorf("not within %v: %s (%w)", limit, what, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}

// expect makes a condition that does not hold an error.
func expect(ok bool, format string, args ...any) error {
	if ok {
		return nil
	}
	return fmt.Errorf(format, args...)
}
