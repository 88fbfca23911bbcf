package check

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// podSpec is one container with the checks' program and the given arguments.
func podSpec(args ...string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr(int64(5)),
		Containers: []corev1.Container{{
			Name: "app", Image: appImage, Args: args,
		}},
	}
}

// shellSpec is one container that runs a shell line.
func shellSpec(line string) corev1.PodSpec {
	spec := podSpec()
	spec.Containers[0].Command = []string{"sh", "-c", line}
	return spec
}

// once is the spec for a pod that runs to its end.
func once(spec corev1.PodSpec) corev1.PodSpec {
	spec.RestartPolicy = corev1.RestartPolicyNever
	return spec
}

func httpProbe(path string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(8080)}},
		PeriodSeconds: 1, FailureThreshold: 2,
	}
}

func execProbe(command ...string) *corev1.Probe {
	return &corev1.Probe{
		ProbeHandler:  corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: command}},
		PeriodSeconds: 1, FailureThreshold: 2, TimeoutSeconds: 5,
	}
}

func (s *space) createPod(ctx context.Context, name string, spec corev1.PodSpec) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: spec}
	_, err := s.api.CoreV1().Pods(s.name).Create(ctx, pod, metav1.CreateOptions{})
	return err
}

func (s *space) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	return s.api.CoreV1().Pods(s.name).Get(ctx, name, metav1.GetOptions{})
}

// pods are those of one app that are not on their way out.
func (s *space) pods(ctx context.Context, app string) ([]corev1.Pod, error) {
	list, err := s.api.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
	if err != nil {
		return nil, err
	}
	var live []corev1.Pod
	for _, p := range list.Items {
		if p.DeletionTimestamp == nil {
			live = append(live, p)
		}
	}
	return live, nil
}

func (s *space) awaitPod(ctx context.Context, name, what string, condition func(*corev1.Pod) error) error {
	return until(ctx, time.Minute, fmt.Sprintf("pod %s %s", name, what), func() error {
		pod, err := s.pod(ctx, name)
		if err != nil {
			return err
		}
		return condition(pod)
	})
}

func (s *space) awaitReady(ctx context.Context, name string) error {
	return s.awaitPod(ctx, name, "is ready", func(p *corev1.Pod) error {
		return expect(isReady(p), "%s", describe(p))
	})
}

// awaitEnd waits until the pod has run to its end and gives how its container ended.
func (s *space) awaitEnd(ctx context.Context, name string) (*corev1.ContainerStateTerminated, error) {
	var end *corev1.ContainerStateTerminated
	err := s.awaitPod(ctx, name, "has ended", func(p *corev1.Pod) error {
		if len(p.Status.ContainerStatuses) > 0 {
			end = p.Status.ContainerStatuses[0].State.Terminated
		}
		return expect(end != nil, "%s", describe(p))
	})
	return end, err
}

// output runs a pod to its end, which must be a good one, and gives what it printed.
func (s *space) output(ctx context.Context, name string, spec corev1.PodSpec) (string, error) {
	if err := s.createPod(ctx, name, once(spec)); err != nil {
		return "", err
	}
	end, err := s.awaitEnd(ctx, name)
	if err != nil {
		return "", err
	}
	text, err := s.api.CoreV1().Pods(s.name).GetLogs(name, &corev1.PodLogOptions{}).DoRaw(ctx)
	if err == nil && end.ExitCode != 0 {
		err = fmt.Errorf("exit code %d: %s", end.ExitCode, text)
	}
	return string(text), err
}

func (s *space) awaitGone(ctx context.Context, name string, limit time.Duration) error {
	return until(ctx, limit, "pod "+name+" is gone", func() error {
		if _, err := s.pod(ctx, name); err == nil {
			return errNotYet
		}
		return nil
	})
}

func (s *space) createDeployment(ctx context.Context, name string, replicas int32, spec corev1.PodSpec) error {
	labels := map[string]string{"app": name}
	_, err := s.api.AppsV1().Deployments(s.name).Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Strategy: appsv1.DeploymentStrategy{RollingUpdate: &appsv1.RollingUpdateDeployment{
				MaxUnavailable: ptr(intstr.FromInt32(0)), MaxSurge: ptr(intstr.FromInt32(1)),
			}},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	return err
}

// awaitRollout waits until all replicas are of the present template and available.
func (s *space) awaitRollout(ctx context.Context, name string, limit time.Duration) error {
	return until(ctx, limit, "deployment "+name+" is rolled out", func() error {
		d, err := s.api.AppsV1().Deployments(s.name).Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		want, status := *d.Spec.Replicas, d.Status
		done := status.ObservedGeneration >= d.Generation && status.UpdatedReplicas == want &&
			status.AvailableReplicas == want && status.Replicas == want
		return expect(done, "%d of %d available", status.AvailableReplicas, want)
	})
}

func (s *space) scale(ctx context.Context, name string, replicas int) error {
	return s.patchDeployment(ctx, name, fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas))
}

func (s *space) patchDeployment(ctx context.Context, name, patch string) error {
	_, err := s.api.AppsV1().Deployments(s.name).Patch(ctx, name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
	return err
}

func isReady(p *corev1.Pod) bool {
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodReady {
			return c.Status == corev1.ConditionTrue
		}
	}
	return false
}

// describe is what a failed check says of a pod.
func describe(p *corev1.Pod) string {
	text := fmt.Sprintf("phase %s on %q", p.Status.Phase, p.Spec.NodeName)
	for _, c := range append(p.Status.InitContainerStatuses, p.Status.ContainerStatuses...) {
		text += fmt.Sprintf(", %s ready %t restarts %d", c.Name, c.Ready, c.RestartCount)
		if w := c.State.Waiting; w != nil {
			text += fmt.Sprintf(", waiting: %s %s", w.Reason, w.Message)
		}
		if t := c.State.Terminated; t != nil {
			text += fmt.Sprintf(", ended: %s code %d %s", t.Reason, t.ExitCode, t.Message)
		}
	}
	return text
}

func ptr[T any](value T) *T { return &value }
