package cri

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"cluster.inside"
)

const (
	// startTimeout bounds the set-up of a container, which takes milliseconds.
	startTimeout = 30 * time.Second
	// logPipeBytes is how much a container may say while the node is frozen.
	logPipeBytes = 1 << 20
	// exitCodeNotStarted is what other runtimes report for a program that cannot be started.
	exitCodeNotStarted = 128
)

// StartContainer builds the container and waits until its program runs or cannot run.
func (r *Runtime) StartContainer(_ context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	if err := r.start(c); err != nil {
		r.exited(c, exitCodeNotStarted, reasonNotStarted, err.Error())
		return err
	}
	return nil
}

func (r *Runtime) start(c *container) error {
	if !r.isReady(c.sandbox) {
		return errors.New("the pod has been stopped")
	}
	if err := r.makeLayers(c); err != nil {
		return err
	}
	if r.Cgroups != nil {
		group, err := r.Cgroups.Create(c.id, limits(c.resources))
		if err != nil {
			return err
		}
		c.group = group
	}
	log, err := openLog(c.logPath)
	if err != nil {
		return err
	}
	c.log = log
	streams, err := newStreams(c.config)
	if err != nil {
		log.close()
		return err
	}
	c.input = streams.input
	report, err := r.spawn(c, streams)
	streams.closeFar()
	if err != nil {
		streams.closeNear()
		log.close()
		return err
	}
	var pumps sync.WaitGroup
	for name, near := range streams.near {
		pumps.Go(func() { log.pump(name, near) })
	}
	wait := func() {
		_ = c.command.Wait()
		pumps.Wait()
		streams.closeNear()
		log.close()
	}
	if err := waitForReport(report); err != nil {
		_ = c.command.Process.Kill()
		wait()
		return err
	}
	r.mu.Lock()
	c.state, c.started = cri.ContainerState_CONTAINER_RUNNING, time.Now()
	r.mu.Unlock()
	go func() {
		wait()
		code := exitCode(c.command.ProcessState)
		r.exited(c, code, c.reasonFor(code), "")
		r.notify(c)
		// The kubelet collects dead containers once a minute; nobody needs their files until then.
		_ = r.discardContainer(c)
	}()
	return nil
}

// spawn starts the container's init in its namespaces and gives it the spec.
func (r *Runtime) spawn(c *container, streams *streams) (report *os.File, err error) {
	spec, err := r.spec(c)
	if err != nil {
		return nil, err
	}
	specRead, specWrite, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer specWrite.Close()
	reportRead, reportWrite, err := os.Pipe()
	if err != nil {
		_ = specRead.Close()
		return nil, fmt.Errorf("make a pipe: %w", err)
	}
	defer reportWrite.Close()
	command := exec.Command(ownProgram, inside.InitVerb, r.Owner, c.id)
	command.Args[0] = "cluster"
	command.Env = []string{}
	command.Stdout, command.Stderr = streams.stdout, streams.stderr
	if streams.stdin != nil {
		command.Stdin = streams.stdin
	}
	command.ExtraFiles = []*os.File{specRead, reportWrite}
	if network := r.networkOf(c.sandbox); network != nil {
		command.ExtraFiles = append(command.ExtraFiles, network.File())
		spec.JoinNet = true
	}
	command.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWIPC | unix.CLONE_NEWUTS,
		Setsid:     true,
		Pdeathsig:  syscall.SIGKILL,
	}
	err = r.spawner.start(command)
	_ = specRead.Close() // Or an init that dies would leave the spec's writer waiting.
	if err != nil {
		_ = reportRead.Close()
		return nil, fmt.Errorf("start a container's init: %w", err)
	}
	c.command = command
	// A broken pipe means that the init has died, which its report will not say either.
	_ = json.NewEncoder(specWrite).Encode(spec)
	return reportRead, nil
}

func waitForReport(from *os.File) error {
	defer from.Close()
	_ = from.SetReadDeadline(time.Now().Add(startTimeout))
	var report inside.Report
	switch err := json.NewDecoder(from).Decode(&report); {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return fmt.Errorf("the container was not set up within %s", startTimeout)
	case errors.Is(err, io.EOF):
		return errors.New("the container's init died before it had set the container up")
	case err != nil:
		return fmt.Errorf("read the report of a container's init: %w", err)
	case report.Error != "":
		return errors.New(report.Error)
	}
	return nil
}

// makeLayers prepares the container's file system. Its /tmp and /run are its own, not the host's.
func (r *Runtime) makeLayers(c *container) error {
	layers := r.layers(c.id)
	for _, dir := range []string{"upper/var", "work", "merged"} {
		if err := os.MkdirAll(filepath.Join(layers, dir), 0o755); err != nil {
			return fmt.Errorf("make a container's directory: %w", err)
		}
	}
	for dir, mode := range map[string]os.FileMode{"tmp": os.ModeSticky | 0o777, "run": 0o755, "var/tmp": os.ModeSticky | 0o777} {
		path := filepath.Join(layers, "upper", dir)
		if err := os.Mkdir(path, 0o755); err != nil {
			return fmt.Errorf("make a container's /%s: %w", dir, err)
		}
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("open up a container's /%s: %w", dir, err)
		}
		if err := unix.Setxattr(path, "trusted.overlay.opaque", []byte("y"), 0); err != nil {
			return fmt.Errorf("hide the host's /%s: %w", dir, err)
		}
	}
	return nil
}

func (r *Runtime) exited(c *container, code int32, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c.state, c.finished = cri.ContainerState_CONTAINER_EXITED, time.Now()
	c.exitCode, c.reason, c.message = code, reason, message
	close(c.done)
}

func (r *Runtime) notify(c *container) {
	if r.Changed != nil {
		r.Changed(c.sandbox.config.GetMetadata().GetUid())
	}
}

func (c *container) reasonFor(code int32) string {
	switch {
	case code == 0:
		return reasonCompleted
	case c.outOfMemory.Load() || c.group != nil && c.group.OutOfMemory():
		return reasonOutOfMemory
	default:
		return reasonError
	}
}

func exitCode(state *os.ProcessState) int32 {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int32(status.Signal())
	}
	return int32(state.ExitCode())
}
