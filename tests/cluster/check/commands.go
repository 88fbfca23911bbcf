package check

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// logsFollow reads a log while it is written, to its end.
func logsFollow(ctx context.Context, s *space) error {
	const lines = 20
	if err := s.createPod(ctx, "speaker", once(podSpec("say", fmt.Sprint(lines)))); err != nil {
		return err
	}
	err := s.awaitPod(ctx, "speaker", "has started", func(p *corev1.Pod) error {
		return expect(p.Status.Phase != corev1.PodPending, "%s", describe(p))
	})
	if err != nil {
		return err
	}
	text, err := s.kubectl(ctx, "logs", "-f", "speaker")
	if err != nil {
		return err
	}
	got := strings.Count(text, "line ")
	return expect(got == lines, "%d lines of %d were seen", got, lines)
}

// execInPod passes input, output and the exit code through.
func execInPod(ctx context.Context, s *space) error {
	if err := s.createPod(ctx, "box", podSpec("serve")); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, "box"); err != nil {
		return err
	}
	text, err := s.runAs(ctx, s.admin(), "some input", "kubectl", "-n", s.name, "exec", "-i", "box", "--", "sh", "-c", "hostname; cat")
	if err != nil {
		return err
	}
	if err := expect(text == "box\nsome input", "the pod said %q", text); err != nil {
		return err
	}
	_, err = s.kubectl(ctx, "exec", "box", "--", "sh", "-c", "exit 7")
	var exit *exec.ExitError
	return expect(errors.As(err, &exit) && exit.ExitCode() == 7, "exit code 7 became %v", err)
}

// portForward fetches a page from a pod by a port of this machine.
func portForward(ctx context.Context, s *space) error {
	spec := podSpec("serve")
	spec.Containers[0].ReadinessProbe = httpProbe("/")
	if err := s.createPod(ctx, "web", spec); err != nil {
		return err
	}
	if err := s.awaitReady(ctx, "web"); err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	forward := exec.CommandContext(ctx, s.binary, "kubectl", "-n", s.name, "port-forward", "web", ":8080")
	forward.Env = append(os.Environ(), "KUBECONFIG="+s.admin())
	output, err := forward.StdoutPipe()
	if err != nil {
		return err
	}
	if err := forward.Start(); err != nil {
		return err
	}
	defer func() { cancel(); _ = forward.Wait() }()
	line, err := bufio.NewReader(output).ReadString('\n')
	if err != nil {
		return fmt.Errorf("port-forward ended: %w", err)
	}
	address := regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(line)
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get("http://" + address)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	return expect(strings.HasPrefix(string(text), "hello from web"), "the pod said %q", text)
}

// serviceReachesPods calls a ClusterIP service from a pod, by its address, its variables and its name.
func serviceReachesPods(ctx context.Context, s *space) error {
	spec := podSpec("serve")
	spec.Containers[0].ReadinessProbe = httpProbe("/")
	if err := s.createDeployment(ctx, "web", 2, spec); err != nil {
		return err
	}
	service, err := s.api.CoreV1().Services(s.name).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: corev1.ServiceSpec{
			Selector: map[string]string{"app": "web"},
			Ports:    []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := s.awaitRollout(ctx, "web", time.Minute); err != nil {
		return err
	}
	urls := map[string]string{
		"address":   "http://" + net.JoinHostPort(service.Spec.ClusterIP, "80"),
		"variables": "http://$(WEB_SERVICE_HOST):$(WEB_SERVICE_PORT)",
		"name":      "http://web." + s.name + ".svc.cluster.local",
	}
	for by, url := range urls {
		text, err := s.output(ctx, "by-"+by, podSpec("get", url))
		if err != nil {
			return fmt.Errorf("by %s: %w", by, err)
		}
		if err := expect(strings.HasPrefix(text, "hello from web-"), "by %s, the service said %q", by, text); err != nil {
			return err
		}
	}
	return nil
}

// helmInstall installs, upgrades and removes a chart with the real helm.
func helmInstall(ctx context.Context, s *space) error {
	chart := filepath.Join(s.scratch, "chart")
	if err := os.MkdirAll(filepath.Join(chart, "templates"), 0o755); err != nil {
		return err
	}
	for name, text := range map[string]string{
		"Chart.yaml":         "{apiVersion: v2, name: small, version: 0.1.0}\n",
		"values.yaml":        "{word: one}\n",
		"templates/map.yaml": "{apiVersion: v1, kind: ConfigMap, metadata: {name: from-chart}, data: {word: {{ .Values.word }}}}\n",
	} {
		if err := os.WriteFile(filepath.Join(chart, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	helm := func(args ...string) error {
		_, err := s.run(ctx, append([]string{"helm", "-n", s.name}, args...)...)
		return err
	}
	word := func() string {
		got, err := s.api.CoreV1().ConfigMaps(s.name).Get(ctx, "from-chart", metav1.GetOptions{})
		if err != nil {
			return "nothing"
		}
		return got.Data["word"]
	}
	if err := helm("install", "small", chart); err != nil {
		return err
	}
	if err := expect(word() == "one", "after install there is %s", word()); err != nil {
		return err
	}
	if err := helm("upgrade", "small", chart, "--set", "word=two"); err != nil {
		return err
	}
	if err := expect(word() == "two", "after upgrade there is %s", word()); err != nil {
		return err
	}
	if err := helm("uninstall", "small"); err != nil {
		return err
	}
	return expect(word() == "nothing", "after uninstall there is %s", word())
}
