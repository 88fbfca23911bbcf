package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// probesOf runs one server whose health is two files; how it is probed is what the variants differ in.
func probes(ready, live *corev1.Probe) func(context.Context, *space) error {
	return func(ctx context.Context, s *space) error {
		spec := podSpec("serve")
		spec.Containers[0].ReadinessProbe = ready
		spec.Containers[0].LivenessProbe = live
		if err := s.createPod(ctx, "web", spec); err != nil {
			return err
		}
		err := s.awaitPod(ctx, "web", "runs and is not ready", func(p *corev1.Pod) error {
			return expect(p.Status.Phase == corev1.PodRunning && !isReady(p), "%s", describe(p))
		})
		if err != nil {
			return err
		}
		if _, err := s.kubectl(ctx, "exec", "web", "--", "touch", "/tmp/ready"); err != nil {
			return err
		}
		if err := s.awaitReady(ctx, "web"); err != nil {
			return err
		}
		if _, err := s.kubectl(ctx, "exec", "web", "--", "touch", "/tmp/dead"); err != nil {
			return err
		}
		return s.awaitPod(ctx, "web", "is restarted", func(p *corev1.Pod) error {
			c := p.Status.ContainerStatuses
			return expect(len(c) == 1 && c[0].RestartCount > 0, "%s", describe(p))
		})
	}
}

var (
	httpProbes = probes(httpProbe("/ready"), httpProbe("/live"))
	execProbes = probes(execProbe("test", "-e", "/tmp/ready"), execProbe("test", "!", "-e", "/tmp/dead"))
)

// startupProbe holds back a liveness probe that would kill at once.
func startupProbe(probe *corev1.Probe) func(context.Context, *space) error {
	return func(ctx context.Context, s *space) error {
		spec := podSpec("serve")
		probe := probe.DeepCopy()
		probe.FailureThreshold = 60
		spec.Containers[0].StartupProbe = probe
		spec.Containers[0].LivenessProbe = execProbe("test", "-e", "/tmp/ready")
		if err := s.createPod(ctx, "slow", spec); err != nil {
			return err
		}
		// Long enough for the liveness probe to have failed twice, had it run.
		for range 4 {
			time.Sleep(time.Second)
			p, err := s.pod(ctx, "slow")
			if err != nil {
				return err
			}
			if c := p.Status.ContainerStatuses; len(c) == 1 && (ptrTrue(c[0].Started) || c[0].RestartCount > 0) {
				return fmt.Errorf("it was started too early: %s", describe(p))
			}
		}
		if _, err := s.kubectl(ctx, "exec", "slow", "--", "touch", "/tmp/ready"); err != nil {
			return err
		}
		return s.awaitPod(ctx, "slow", "has started", func(p *corev1.Pod) error {
			c := p.Status.ContainerStatuses
			return expect(len(c) == 1 && ptrTrue(c[0].Started) && c[0].RestartCount == 0, "%s", describe(p))
		})
	}
}

func ptrTrue(b *bool) bool { return b != nil && *b }

// gracefulStop: the hook runs first, then SIGTERM comes, and a program that obeys is not waited for.
func gracefulStop(ctx context.Context, s *space) error {
	notes, took, err := stopPod(ctx, s, 20, false)
	if err != nil {
		return err
	}
	want := []string{"hook", "term"}
	if err := expect(slices.Equal(notes, want), "%v was noted, not %v", notes, want); err != nil {
		return err
	}
	return expect(took < 10*time.Second, "took %v of a grace period of 20 s", took)
}

// forcedStop: a program that ignores SIGTERM is killed when its time is over, not before.
func forcedStop(ctx context.Context, s *space) error {
	const grace = 4
	notes, took, err := stopPod(ctx, s, grace, true)
	if err != nil {
		return err
	}
	if err := expect(slices.Contains(notes, "term"), "%v was noted, without SIGTERM", notes); err != nil {
		return err
	}
	return expect(took >= grace*time.Second && took < (grace+8)*time.Second, "took %v with a grace period of %d s", took, grace)
}

// stopPod deletes a pod whose program notes in a file of the host what befalls it.
func stopPod(ctx context.Context, s *space, grace int64, stubborn bool) (notes []string, took time.Duration, err error) {
	spec := podSpec("serve", "/notes/file")
	if stubborn {
		spec = podSpec("serve", "/notes/file", "stubborn")
	}
	spec.TerminationGracePeriodSeconds = &grace
	spec.Volumes = []corev1.Volume{{Name: "notes", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: s.scratch}}}}
	c := &spec.Containers[0]
	c.VolumeMounts = []corev1.VolumeMount{{Name: "notes", MountPath: "/notes"}}
	c.ReadinessProbe = httpProbe("/")
	c.Lifecycle = &corev1.Lifecycle{PreStop: &corev1.LifecycleHandler{
		Exec: &corev1.ExecAction{Command: []string{"sh", "-c", "echo hook >> /notes/file"}},
	}}
	if err := s.createPod(ctx, "stop", spec); err != nil {
		return nil, 0, err
	}
	if err := s.awaitReady(ctx, "stop"); err != nil {
		return nil, 0, err
	}
	begun := time.Now()
	if err := s.api.CoreV1().Pods(s.name).Delete(ctx, "stop", metav1.DeleteOptions{}); err != nil {
		return nil, 0, err
	}
	if err := s.awaitGone(ctx, "stop", time.Minute); err != nil {
		return nil, 0, err
	}
	took = time.Since(begun)
	text, err := os.ReadFile(filepath.Join(s.scratch, "file"))
	return strings.Fields(string(text)), took, err
}
