package cri

import (
	"context"
	"fmt"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// killTimeout bounds the wait for a killed container, which the kernel may hold up.
const killTimeout = 20 * time.Second

// StopContainer asks a container to end and kills it after timeout seconds.
func (r *Runtime) StopContainer(ctx context.Context, id string, timeout int64) error {
	c, err := r.container(id)
	if err != nil {
		return nil // Stopping is idempotent.
	}
	r.mu.Lock()
	running := c.state == cri.ContainerState_CONTAINER_RUNNING
	r.mu.Unlock()
	if !running {
		return nil
	}
	if timeout > 0 {
		_ = c.command.Process.Signal(c.stopSignal())
		select {
		case <-c.done:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Duration(timeout) * time.Second):
		}
	}
	// Process 1 of a process namespace takes everything in it along.
	_ = c.command.Process.Kill()
	select {
	case <-c.done:
		return nil
	case <-time.After(killTimeout):
		return fmt.Errorf("the container has not ended %s after it was killed", killTimeout)
	}
}

func (c *container) stopSignal() syscall.Signal {
	if s := unix.SignalNum(c.config.GetStopSignal().String()); s != 0 {
		return s
	}
	return syscall.SIGTERM
}
