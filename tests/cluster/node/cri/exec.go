package cri

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"cluster.inside"
)

const (
	// execOutputBytes bounds what a command of a probe or hook may answer.
	execOutputBytes = 1 << 20
	// execLinger is how long output is waited for after the command itself has ended.
	execLinger = time.Second
)

// stdio is what a command in a container is connected with. Nil is nothing.
type stdio struct {
	in       io.Reader
	out, err io.Writer
	terminal bool
	sizes    <-chan terminalSize
}

// ExecSync runs a command in a container for at most the timeout, and returns what it said.
func (r *Runtime) ExecSync(ctx context.Context, id string, args []string, timeout time.Duration) (stdout, stderr []byte, err error) {
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	var out, errs limitedBuffer
	code, err := r.exec(ctx, id, args, stdio{out: &out, err: &errs})
	switch {
	case ctx.Err() != nil:
		err = fmt.Errorf("%w: %q timed out after %s", remote.ErrCommandTimedOut, strings.Join(args, " "), timeout)
	case err == nil && code != 0:
		err = utilexec.CodeExitError{
			Err:  fmt.Errorf("command '%s' exited with %d: %s", strings.Join(args, " "), code, errs.Bytes()),
			Code: code,
		}
	}
	return out.Bytes(), errs.Bytes(), err
}

// exec runs a command in a container until it ends or the context does.
func (r *Runtime) exec(ctx context.Context, id string, args []string, io stdio) (code int, err error) {
	c, err := r.container(id)
	if err != nil {
		return 0, err
	}
	r.mu.Lock()
	running := c.state == cri.ContainerState_CONTAINER_RUNNING
	r.mu.Unlock()
	if !running {
		return 0, errors.New("the container is not running")
	}
	process, err := r.process(c)
	if err != nil {
		return 0, err
	}
	process.Args, process.Terminal = args, io.terminal
	command := exec.CommandContext(ctx, ownProgram, inside.ExecVerb, r.Owner, id)
	command.Args[0] = "cluster"
	command.Env = []string{}
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// So that it takes the command along.
	command.Cancel = func() error { return command.Process.Signal(syscall.SIGTERM) }
	command.WaitDelay = execLinger
	spec, err := json.Marshal(inside.ExecSpec{PID: c.command.Process.Pid, Process: *process})
	if err != nil {
		return 0, fmt.Errorf("write a command's spec: %w", err)
	}
	read, write, err := os.Pipe()
	if err != nil {
		return 0, fmt.Errorf("make a pipe: %w", err)
	}
	command.ExtraFiles = []*os.File{read}
	var finish func() error
	if io.terminal {
		finish, err = connectTerminal(command, io, fmt.Sprintf("/proc/%d/root/dev/pts", c.command.Process.Pid))
	} else {
		finish, err = connectPipes(command, io)
	}
	if err == nil {
		err = r.spawner.start(command)
	}
	_ = read.Close()
	if err != nil {
		_ = write.Close()
		return 0, fmt.Errorf("start a command in the container: %w", err)
	}
	_, _ = write.Write(spec)
	_ = write.Close()
	err = finish()
	if err != nil && command.ProcessState == nil {
		return 0, fmt.Errorf("wait for a command in the container: %w", err)
	}
	return int(exitCode(command.ProcessState)), nil
}

// connectPipes copies input by itself, because Wait would wait for the end of it.
func connectPipes(command *exec.Cmd, io stdio) (finish func() error, err error) {
	command.Stdout, command.Stderr = io.out, io.err
	if io.in == nil {
		return command.Wait, nil
	}
	stdin, err := command.StdinPipe()
	if err != nil {
		return nil, err
	}
	return func() error {
		go copyAndClose(stdin, io.in)
		return command.Wait()
	}, nil
}

func connectTerminal(command *exec.Cmd, io stdio, devpts string) (finish func() error, err error) {
	master, program, err := openTerminal(devpts)
	if err != nil {
		return nil, err
	}
	command.Stdin, command.Stdout, command.Stderr = program, program, program
	return func() error {
		_ = program.Close()
		defer master.Close()
		go follow(master, io.sizes)
		if io.in != nil {
			go copyTo(master, io.in)
		}
		said := make(chan struct{})
		go func() {
			defer close(said)
			copyTo(io.out, master)
		}()
		err := command.Wait()
		select {
		case <-said:
		case <-time.After(execLinger):
		}
		return err
	}, nil
}

func copyAndClose(to io.WriteCloser, from io.Reader) {
	copyTo(to, from)
	_ = to.Close()
}

func copyTo(to io.Writer, from io.Reader) {
	if to == nil {
		to = io.Discard
	}
	_, _ = io.Copy(to, from)
}

// limitedBuffer keeps the beginning of what is written to it.
type limitedBuffer struct{ bytes.Buffer }

func (b *limitedBuffer) Write(p []byte) (int, error) {
	if room := execOutputBytes - b.Len(); room > 0 {
		b.Buffer.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}
