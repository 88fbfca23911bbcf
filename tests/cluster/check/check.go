// Package check proves on a running cluster that the bed is what it says, and measures it.
package check

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"testbed/cluster/bed"
)

// atOnce checks share two cores: most of their time they wait.
const atOnce = 6

// inSpace is a check that needs a namespace and disturbs nobody.
type inSpace struct {
	name string
	run  func(context.Context, *space) error
}

var gentle = []inSpace{
	{"CEL rules refuse what they should", celRules},
	{"server-side apply sees conflicts and forces them", serverSideApply},
	{"RBAC denies a tenant, then allows what a role gives", rbac},
	{"the audit log counts a user's writes exactly", auditCounts},
	{"Pod Security admission refuses and admits", podSecurity},
	{"aggregated discovery and flow control are on", discoveryAndFlowControl},
	{"a rolling update with maxUnavailable 0 keeps all replicas", rollingUpdate},
	{"readiness and liveness probes by HTTP", httpProbes},
	{"readiness and liveness probes by exec", execProbes},
	{"a startup probe by HTTP holds liveness back", startupProbe(httpProbe("/ready"))},
	{"a startup probe by exec holds liveness back", startupProbe(execProbe("test", "-e", "/tmp/ready"))},
	{"preStop, then SIGTERM, then an early end", gracefulStop},
	{"SIGKILL after the grace period", forcedStop},
	{"exit code 78 shows, CrashLoopBackOff follows", exitCode},
	{"pod-deletion-cost decides which pod goes", podDeletionCost},
	{"ConfigMap and Secret mounts update in place", mountsUpdate},
	{"environment, user, directory, read-only root, termination message", containerSettings},
	{"a memory limit kills, OOMKilled shows", memoryLimit},
	{"an unchanged in-cluster client connects", inClusterClient},
	{"a ClusterIP service reaches its pods from a pod", serviceReachesPods},
	{"kubectl logs -f", logsFollow},
	{"kubectl exec", execInPod},
	{"kubectl port-forward", portForward},
	{"helm installs, upgrades and removes", helmInstall},
	{"owner references are collected", ownerReferences},
	{"a namespace is deleted with all in it", namespaceDeletion},
	{"an image that was not loaded: ErrImagePull with words that help", imageNotLoaded},
	{"net delay, cut and blackhole break one client's line", networkFaults},
}

// rough checks break parts of the cluster, so they run one after the other.
var rough = []inSpace{
	{"200 pods run on one node and go without a trace", crowd},
	{"a node is frozen and thawed with its containers", frozenNode},
	{"a killed node is NotReady and its pods move", lostNode},
	// Last: schedulers and controllers take their time to watch again.
	{"the API server stopped and continued", apiServerFreeze},
	{"the API server killed and restarted keeps its objects", apiServerRestart},
}

// Main is `cluster check`.
func Main(args []string) int {
	if len(args) > 1 && args[0] == noMountVerb {
		return withoutMount(args[1:])
	}
	long, strict := slices.Contains(args, "--long"), slices.Contains(args, "--strict")
	if slices.ContainsFunc(args, func(arg string) bool { return arg != "--long" && arg != "--strict" }) {
		fmt.Fprint(os.Stderr, bed.Usage)
		return 2
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	binary, err := os.Executable()
	if err != nil {
		fmt.Fprintln(os.Stderr, "cluster check:", err)
		return 1
	}
	r := &report{figures: map[string]float64{}, strict: strict}
	checkAll(ctx, binary, long, r)
	return r.print()
}

func checkAll(ctx context.Context, binary string, long bool, r *report) {
	r.time(fmt.Sprintf("the first build takes at most %v", buildTarget), func() error { return buildTime(binary, r) })
	s, err := newSession(binary, "first")
	if err != nil {
		r.add(outcome{name: "a directory for the cluster", err: err})
		return
	}
	defer os.RemoveAll(filepath.Dir(s.dir))
	before, err := traces(s.dir)
	if err != nil {
		r.add(outcome{name: "what runs before", err: err})
		return
	}
	var started error
	r.time(fmt.Sprintf("from an empty disk to a node that is ready in %v", readyTarget), func() error {
		took, err := within(readyTarget, func() error { _, started = s.run(ctx, "up"); return started })
		r.figure("ready_s", took)
		return err
	})
	defer func() { _, _ = s.run(context.Background(), "down") }()
	if started == nil {
		if err := s.connect(ctx); err != nil {
			r.add(outcome{name: "connect", err: err})
			return
		}
		checkRunning(ctx, s, long, r)
		r.time("kill -9 of everything, then up, then down: nothing is left", func() error { return killedWhole(ctx, binary) })
	}
	r.time("after down nothing is left", func() error {
		if _, err := s.run(ctx, "down"); err != nil {
			return err
		}
		return nothingLeft(ctx, s.dir, before)
	})
}

func checkRunning(ctx context.Context, s *session, long bool, r *report) {
	r.time(fmt.Sprintf("all processes, idle, take at most %d MB", memoryTargetMB), func() error { return idleMemory(ctx, s, r) })
	rolloutAndScaleDown(ctx, s, r)
	var rotation sync.WaitGroup
	const rotationName = "token mounts rotate"
	if long {
		rotation.Go(func() { s.check(ctx, r, inSpace{rotationName, tokenRotates}) })
	} else {
		r.add(outcome{name: rotationName, skipped: "takes eight minutes, the shortest life of a token: cluster check --long"})
	}
	slots := make(chan struct{}, atOnce)
	var all sync.WaitGroup
	for _, c := range gentle {
		slots <- struct{}{}
		all.Go(func() { s.check(ctx, r, c); <-slots })
	}
	all.Wait()
	rotation.Wait()
	for _, c := range rough {
		s.check(ctx, r, c)
	}
	r.time("two clusters side by side", func() error { return sideBySide(ctx, s) })
	for _, b := range badInputs(s) {
		r.time("bad input: "+b.name, func() error { return b.run(ctx, s.binary) })
	}
	for _, b := range badBuilds {
		r.time("bad input: "+b.name, func() error { return b.run(ctx, s.binary) })
	}
}

// check runs one check in a namespace of its own.
func (s *session) check(ctx context.Context, r *report, c inSpace) {
	r.time(c.name, func() error {
		sp, err := s.newSpace(ctx)
		if err != nil {
			return err
		}
		defer sp.close()
		return c.run(ctx, sp)
	})
}

// newSession names a directory that does not exist yet.
func newSession(binary, name string) (*session, error) {
	parent, err := os.MkdirTemp("", "cluster-check-")
	if err != nil {
		return nil, err
	}
	return &session{binary: binary, dir: filepath.Join(parent, name)}, nil
}
