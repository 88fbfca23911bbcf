package check

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rollingUpdate watches that an update with maxUnavailable 0 never leaves fewer pods ready than asked for.
func rollingUpdate(ctx context.Context, s *space) error {
	const replicas = 3
	spec := podSpec("serve")
	spec.Containers[0].ReadinessProbe = httpProbe("/")
	if err := s.createDeployment(ctx, "web", replicas, spec); err != nil {
		return err
	}
	if err := s.awaitRollout(ctx, "web", time.Minute); err != nil {
		return err
	}
	before, err := s.pods(ctx, "web")
	if err != nil {
		return err
	}
	patch := `{"spec":{"template":{"spec":{"containers":[{"name":"app","env":[{"name":"VERSION","value":"two"}]}]}}}}`
	if err := s.patchDeployment(ctx, "web", patch); err != nil {
		return err
	}
	fewest := replicas
	err = until(ctx, time.Minute, "the update is done", func() error {
		pods, err := s.pods(ctx, "web")
		if err != nil {
			return err
		}
		ready, old := 0, 0
		for i := range pods {
			if isReady(&pods[i]) {
				ready++
			}
			for _, b := range before {
				if b.UID == pods[i].UID {
					old++
				}
			}
		}
		fewest = min(fewest, ready)
		return expect(old == 0 && ready == replicas && len(pods) == replicas, "%d old, %d ready", old, ready)
	})
	if err != nil {
		return err
	}
	return expect(fewest == replicas, "only %d of %d pods were ready during the update", fewest, replicas)
}

func podDeletionCost(ctx context.Context, s *space) error {
	const replicas = 3
	if err := s.createDeployment(ctx, "web", replicas, podSpec("serve")); err != nil {
		return err
	}
	if err := s.awaitRollout(ctx, "web", time.Minute); err != nil {
		return err
	}
	pods, err := s.pods(ctx, "web")
	if err != nil {
		return err
	}
	// Without the cost, the youngest would go: so the oldest is made the cheapest.
	cheapest := pods[0]
	for _, p := range pods {
		if p.CreationTimestamp.Before(&cheapest.CreationTimestamp) {
			cheapest = p
		}
	}
	for _, p := range pods {
		cost := 100
		if p.UID == cheapest.UID {
			cost = -100
		}
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"controller.kubernetes.io/pod-deletion-cost":"%d"}}}`, cost)
		if _, err := s.api.CoreV1().Pods(s.name).Patch(ctx, p.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	if err := s.awaitCosts(ctx, "web", replicas); err != nil {
		return err
	}
	if err := s.scale(ctx, "web", replicas-1); err != nil {
		return err
	}
	if err := s.awaitGone(ctx, cheapest.Name, 30*time.Second); err != nil {
		return err
	}
	left, err := s.pods(ctx, "web")
	if err != nil {
		return err
	}
	return expect(len(left) == replicas-1, "%d pods are left", len(left))
}

// awaitCosts gives the controller's cache the time that the annotations take to reach it.
func (s *space) awaitCosts(ctx context.Context, app string, replicas int) error {
	err := until(ctx, 10*time.Second, "the costs are set", func() error {
		pods, err := s.pods(ctx, app)
		if err != nil {
			return err
		}
		count := 0
		for _, p := range pods {
			if p.Annotations["controller.kubernetes.io/pod-deletion-cost"] != "" {
				count++
			}
		}
		return expect(count == replicas, "%d of %d", count, replicas)
	})
	time.Sleep(500 * time.Millisecond)
	return err
}

// exitCode fails with code 78 again and again, as a program with a bad configuration does.
func exitCode(ctx context.Context, s *space) error {
	if err := s.createPod(ctx, "bad", podSpec("exit", "78")); err != nil {
		return err
	}
	return s.awaitPod(ctx, "bad", "is in CrashLoopBackOff after exit code 78", func(p *corev1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			last, waiting := c.LastTerminationState.Terminated, c.State.Waiting
			if last != nil && last.ExitCode == 78 && waiting != nil && waiting.Reason == "CrashLoopBackOff" {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(p))
	})
}

func imageNotLoaded(ctx context.Context, s *space) error {
	spec := podSpec("serve")
	spec.Containers[0].Image = "nobody/loaded-this:1"
	if err := s.createPod(ctx, "missing", spec); err != nil {
		return err
	}
	return s.awaitPod(ctx, "missing", "says ErrImagePull and what to do", func(p *corev1.Pod) error {
		for _, c := range p.Status.ContainerStatuses {
			w := c.State.Waiting
			if w != nil && (w.Reason == "ErrImagePull" || w.Reason == "ImagePullBackOff") &&
				strings.Contains(w.Message, "load") && strings.Contains(w.Message, "nobody/loaded-this:1") {
				return nil
			}
		}
		return fmt.Errorf("%s", describe(p))
	})
}
