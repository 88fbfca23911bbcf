package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// sideBySide starts a second cluster while the first runs; pods come up in both at once.
func sideBySide(ctx context.Context, first *session) error {
	second, err := newSession(first.binary, "second")
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(second.dir))
	before, err := traces(second.dir)
	if err != nil {
		return err
	}
	defer func() { _, _ = second.run(context.Background(), "down") }()
	// Not held to the target: it shares two cores with the first.
	if err := second.up(ctx); err != nil {
		return err
	}
	results := make(chan error)
	for _, s := range []*session{first, second} {
		go func() { results <- smallRollout(ctx, s) }()
	}
	if err := errors.Join(<-results, <-results); err != nil {
		return err
	}
	if _, err := second.run(ctx, "down"); err != nil {
		return err
	}
	return nothingLeft(ctx, second.dir, before)
}

func smallRollout(ctx context.Context, s *session) error {
	sp, err := s.newSpace(ctx)
	if err != nil {
		return err
	}
	defer sp.close()
	spec := podSpec("serve")
	spec.Containers[0].ReadinessProbe = httpProbe("/")
	if err := sp.createDeployment(ctx, "web", 3, spec); err != nil {
		return err
	}
	return sp.awaitRollout(ctx, "web", 30*time.Second)
}

// killedWhole kills every process of a cluster; the next `up` in its directory finds nothing in its way.
func killedWhole(ctx context.Context, binary string) error {
	s, err := newSession(binary, "killed")
	if err != nil {
		return err
	}
	defer os.RemoveAll(filepath.Dir(s.dir))
	before, err := traces(s.dir)
	if err != nil {
		return err
	}
	defer func() { _, _ = s.run(context.Background(), "down") }()
	if err := s.up(ctx); err != nil {
		return err
	}
	sp, err := s.newSpace(ctx)
	if err != nil {
		return err
	}
	defer sp.close()
	if err := sp.createDeployment(ctx, "web", 3, podSpec("serve")); err != nil {
		return err
	}
	if err := sp.awaitRollout(ctx, "web", 30*time.Second); err != nil {
		return err
	}
	status, err := s.status(ctx)
	if err != nil {
		return err
	}
	for _, p := range status.Processes {
		if err := syscall.Kill(p.Pid, syscall.SIGKILL); err != nil {
			return fmt.Errorf("kill %s: %w", p.Name, err)
		}
	}
	if err := s.up(ctx); err != nil {
		return fmt.Errorf("the next up: %w", err)
	}
	if err := smallRollout(ctx, s); err != nil {
		return err
	}
	// Once more, and this time `down` has to clean up.
	if status, err = s.status(ctx); err != nil {
		return err
	}
	for _, p := range status.Processes {
		_ = syscall.Kill(p.Pid, syscall.SIGKILL)
	}
	if _, err := s.run(ctx, "down"); err != nil {
		return err
	}
	return nothingLeft(ctx, s.dir, before)
}

// nothingLeft waits for what the kernel takes away by itself, then names what is still there.
func nothingLeft(ctx context.Context, dir string, before trace) error {
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("the state directory %s is left", dir)
	}
	return until(ctx, 10*time.Second, "nothing is left", func() error {
		after, err := traces(dir)
		if err != nil {
			return err
		}
		return after.beyond(before)
	})
}
