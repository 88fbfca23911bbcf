package check

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The targets that the bed must meet, each with a check of its own.
const (
	readyTarget     = 8 * time.Second
	rolloutTarget   = 10 * time.Second
	scaleDownTarget = 5 * time.Second
	memoryTargetMB  = 1024
	buildTarget     = 12 * time.Minute
	rolloutPods     = 20
	crowdPods       = 200
)

// buildTime reads what the build noted beside the binary.
func buildTime(binary string, r *report) error {
	text, err := os.ReadFile(filepath.Join(filepath.Dir(binary), "build-seconds"))
	if err != nil {
		return err
	}
	seconds, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
	if err != nil {
		return err
	}
	r.figure("build_s", seconds)
	return target(seconds <= buildTarget.Seconds(), "the build took %.0f s, at most %v are allowed", seconds, buildTarget)
}

// within measures an action in seconds and misses its target when it takes longer than the limit.
func within(limit time.Duration, action func() error) (float64, error) {
	begun := time.Now()
	if err := action(); err != nil {
		return 0, err
	}
	took := time.Since(begun)
	return took.Seconds(), target(took <= limit, "took %.1f s, at most %v are allowed", took.Seconds(), limit)
}

func rolloutAndScaleDown(ctx context.Context, s *session, r *report) {
	sp, err := s.newSpace(ctx)
	if err != nil {
		r.add(outcome{name: "namespace for the figures", err: err})
		return
	}
	defer sp.close()
	spec := podSpec("serve")
	spec.Containers[0].ReadinessProbe = httpProbe("/")
	r.time(fmt.Sprintf("a Deployment of %d with readiness probes is rolled out in %v", rolloutPods, rolloutTarget), func() error {
		took, err := within(rolloutTarget, func() error {
			if err := sp.createDeployment(ctx, "crowd", rolloutPods, spec); err != nil {
				return err
			}
			return sp.awaitRollout(ctx, "crowd", time.Minute)
		})
		r.figure("rollout_s", took)
		return err
	})
	r.time(fmt.Sprintf("it is scaled to zero, gracefully, in %v", scaleDownTarget), func() error {
		took, err := within(scaleDownTarget, func() error {
			if err := sp.scale(ctx, "crowd", 0); err != nil {
				return err
			}
			return sp.awaitNoPods(ctx, time.Minute)
		})
		r.figure("scale_down_s", took)
		return err
	})
}

// awaitNoPods waits until the namespace has no pod any more, not even one that is ending.
func (s *space) awaitNoPods(ctx context.Context, limit time.Duration) error {
	return until(ctx, limit, "all pods are gone", func() error {
		list, err := s.api.CoreV1().Pods(s.name).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		return expect(len(list.Items) == 0, "%d pods are left", len(list.Items))
	})
}

// idleMemory is measured after the cluster has come to rest.
func idleMemory(ctx context.Context, s *session, r *report) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Second):
	}
	status, err := s.status(ctx)
	if err != nil {
		return err
	}
	r.figure("rss_mb", float64(status.MemoryMB))
	if err := expect(status.MemoryMB > 0, "no memory is told"); err != nil {
		return err
	}
	return target(status.MemoryMB <= memoryTargetMB, "%d MB, at most %d are allowed", status.MemoryMB, memoryTargetMB)
}

// crowd runs many pods on one node, and compares what the machine holds before and after.
func crowd(ctx context.Context, sp *space) error {
	before, err := traces(sp.dir)
	if err != nil {
		return err
	}
	spec := shellSpec("exec sleep 1000")
	spec.TerminationGracePeriodSeconds = ptr(int64(1))
	spec.NodeName = "node-1"
	if err := sp.createDeployment(ctx, "crowd", crowdPods, spec); err != nil {
		return err
	}
	if err := sp.awaitRollout(ctx, "crowd", 2*time.Minute); err != nil {
		return err
	}
	pods, err := sp.pods(ctx, "crowd")
	if err != nil {
		return err
	}
	if err := distinctAddresses(pods, crowdPods); err != nil {
		return err
	}
	if err := sp.scale(ctx, "crowd", 0); err != nil {
		return err
	}
	if err := sp.awaitNoPods(ctx, 90*time.Second); err != nil {
		return err
	}
	return until(ctx, 20*time.Second, "no trace of the pods is left", func() error {
		after, err := traces(sp.dir)
		if err != nil {
			return err
		}
		return after.beyond(before)
	})
}

func distinctAddresses(pods []corev1.Pod, want int) error {
	addresses := map[string]string{}
	for _, p := range pods {
		if p.Status.PodIP != "" {
			addresses[p.Status.PodIP] = p.Name
		}
	}
	return expect(len(addresses) == want, "%d pods have %d addresses", len(pods), len(addresses))
}
