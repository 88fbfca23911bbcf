package bed

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A detached supervisor reports to the `up` that started it, on a pipe: progress, then one of
// ready or failed. It learns of the pipe from this variable.
const (
	progressVariable = "CLUSTER_PROGRESS_FD"
	progressFD       = 3
	readyMark        = "="
	failedMark       = "!"
)

var endSignals = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP}

// closeInherited keeps files that the caller had open (locks, pipes) away from processes that
// live longer than it.
func closeInherited() error {
	return unix.CloseRange(progressFD, ^uint(0)>>33, unix.CLOSE_RANGE_CLOEXEC)
}

// runForeground supervises until a signal or `down` ends it.
func runForeground(o options) error {
	say := func(format string, args ...any) { fmt.Fprintf(os.Stderr, "cluster: "+format+"\n", args...) }
	o.detached = os.Getenv(progressVariable) != ""
	report := func(string, string) {}
	if o.detached {
		pipe := os.NewFile(progressFD, "progress")
		defer pipe.Close()
		report = func(mark, text string) { fmt.Fprintf(pipe, "%s%s\n", mark, strings.ReplaceAll(text, "\n", "\\n")) }
		say = func(format string, args ...any) { report(" ", fmt.Sprintf(format, args...)) }
		os.Unsetenv(progressVariable)
		if err := os.Chdir("/"); err != nil {
			return err
		}
	}
	ctx, stop := signal.NotifyContext(context.Background(), endSignals...)
	defer stop()
	s, err := bringUp(ctx, o, say)
	if err != nil {
		if ctx.Err() != nil {
			err = errors.New("interrupted; nothing is left behind")
		}
		if o.detached {
			report(failedMark, err.Error())
			return errReported
		}
		return err
	}
	server, err := s.serve()
	if err != nil {
		return errors.Join(err, s.tearDown())
	}
	say("export KUBECONFIG=%s", AdminKubeconfig(o.dir))
	report(readyMark, "")
	if o.companion != 0 {
		go func() { awaitEnd(o.companion); stop() }()
	}
	select {
	case <-s.quit:
		// The one who asked still waits for the answer.
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		return server.Shutdown(ctx)
	case <-ctx.Done():
		say("removing everything")
		return s.tearDown()
	}
}

// printTo sends what this process prints, a panic's words above all, to a file.
func printTo(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	for _, fd := range []int{syscall.Stdout, syscall.Stderr} {
		if err := unix.Dup2(int(file.Fd()), fd); err != nil {
			return err
		}
	}
	return nil
}

// awaitEnd returns when the process is gone, or its pid is another's.
func awaitEnd(pid int) {
	const pause = 300 * time.Millisecond
	start, err := startTime(pid)
	for now := start; err == nil && now == start; now, err = startTime(pid) {
		time.Sleep(pause)
	}
}

// runDetached starts a supervisor in the background and returns when the cluster is ready.
func runDetached(o options, args []string) error {
	reader, writer, err := os.Pipe()
	if err != nil {
		return err
	}
	cmd := exec.Command(selfPath, append([]string{"up", "--foreground", "--dir", o.dir}, args...)...)
	cmd.Env = append(os.Environ(), fmt.Sprintf("%s=%d", progressVariable, progressFD))
	cmd.ExtraFiles = []*os.File{writer}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, endSignals...)
	if err := cmd.Start(); err != nil {
		return err
	}
	writer.Close()
	go func() {
		<-interrupted
		_ = cmd.Process.Signal(syscall.SIGTERM)
	}()
	for lines := bufio.NewScanner(reader); lines.Scan(); {
		mark, text := lines.Text()[:1], strings.ReplaceAll(lines.Text()[1:], "\\n", "\n")
		switch mark {
		case readyMark:
			return nil
		case failedMark:
			_ = cmd.Wait()
			return errors.New(text)
		}
		fmt.Fprintln(os.Stderr, "cluster:", text)
	}
	return fmt.Errorf("the supervisor died: %w", cmd.Wait())
}
