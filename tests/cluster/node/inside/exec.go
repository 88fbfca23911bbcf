package inside

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"golang.org/x/sys/unix"
)

// cannotExec is what a shell answers for a command that it cannot run.
const cannotExec = 127

// Exec runs a further command in a container. Its process stays outside, hands the exit code on,
// and takes the command's process group with it when it is told to end.
func Exec() int {
	var spec ExecSpec
	if err := readSpec(&spec); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return cannotExec
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM)
	child, err := spec.start()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return cannotExec
	}
	go func() {
		<-signals
		_ = syscall.Kill(-child, syscall.SIGKILL)
	}()
	return reap(child)
}

func (s *ExecSpec) start() (pid int, err error) {
	group, err := s.Process.Cgroup.open()
	if err != nil {
		return 0, err
	}
	defer group.close()
	if err := joinNamespaces(s.PID); err != nil {
		return 0, err
	}
	return s.Process.start(group)
}

// joinNamespaces moves the calling thread into those of another process; that of process ids
// counts for its children only. The mount namespace comes last, because /proc changes with it.
func joinNamespaces(pid int) error {
	names := []string{"net", "ipc", "uts", "pid", "mnt"}
	files := make([]*os.File, 0, len(names))
	defer func() {
		for _, f := range files {
			_ = f.Close()
		}
	}()
	for _, name := range names {
		f, err := os.Open(fmt.Sprintf("/proc/%d/ns/%s", pid, name))
		if errors.Is(err, os.ErrNotExist) {
			return errors.New("the container is not running")
		}
		if err != nil {
			return fmt.Errorf("open a namespace of the container: %w", err)
		}
		files = append(files, f)
	}
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("leave the shared working directory: %w", err)
	}
	for i, f := range files {
		if err := unix.Setns(int(f.Fd()), 0); err != nil {
			return fmt.Errorf("join the %s namespace of the container: %w", names[i], err)
		}
	}
	return nil
}
