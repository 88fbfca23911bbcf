package inside

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// startFailed is the exit code of a container whose program could not be started.
const startFailed = 128

// Init is process 1 of a container: it builds the file system, starts the program, forwards
// signals to it, reaps what is orphaned and exits with the program's code.
func Init() int {
	var spec Spec
	if err := readSpec(&spec); err != nil {
		report(err)
		return startFailed
	}
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	child, err := setUp(&spec)
	report(err)
	if err != nil {
		return startFailed
	}
	go forward(signals, child)
	return reap(child)
}

func setUp(spec *Spec) (pid int, err error) {
	if spec.JoinNet {
		if err := unix.Setns(NetNSFD, unix.CLONE_NEWNET); err != nil {
			return 0, fmt.Errorf("join the pod's network: %w", err)
		}
		_ = unix.Close(NetNSFD)
	}
	if err := unix.Sethostname([]byte(spec.Hostname)); err != nil {
		return 0, fmt.Errorf("set the host name: %w", err)
	}
	// Best effort: lowering it needs a privilege that nested containers lack.
	_ = os.WriteFile("/proc/self/oom_score_adj", []byte(strconv.Itoa(spec.OOMScoreAdj)), 0)
	group, err := spec.Process.Cgroup.open()
	if err != nil {
		return 0, err
	}
	defer group.close()
	if err := enterRoot(spec); err != nil {
		return 0, err
	}
	return spec.Process.start(group)
}

// forward passes everything on but what is about this process itself.
func forward(signals <-chan os.Signal, child int) {
	for s := range signals {
		switch s {
		case syscall.SIGCHLD, syscall.SIGURG, syscall.SIGPIPE:
		default:
			_ = syscall.Kill(child, s.(syscall.Signal))
		}
	}
}

func reap(child int) int {
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
		case err != nil:
			return startFailed
		case pid == child:
			return exitCode(status)
		}
	}
}

func exitCode(status syscall.WaitStatus) int {
	if status.Signaled() {
		return 128 + int(status.Signal())
	}
	return status.ExitStatus()
}
