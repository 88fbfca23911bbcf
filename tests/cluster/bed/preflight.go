package bed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// minFreeMB is what a cluster writes before it is useful: etcd's files, logs and the audit log.
const minFreeMB = 1024

// probeVerb is run by preflight in new namespaces; its argument is a directory to try an overlay in.
const probeVerb = "probe-namespaces"

// preflight finds out in one go what this machine lacks. Each error is one sentence that says what to do.
func preflight(l layout, apiPort int) error {
	if os.Geteuid() != 0 {
		return errors.New("a cluster needs root to make namespaces and mounts: run it as root or with sudo")
	}
	if apiPort != 0 {
		if err := checkPort(apiPort); err != nil {
			return fmt.Errorf("port %d is taken: choose another with --api-port, or leave the option out to get a free one", apiPort)
		}
	}
	if err := checkDisk(l.dir); err != nil {
		return err
	}
	return checkNamespaces(l.probe())
}

func checkDisk(dir string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(dir, &fs); err != nil {
		return fmt.Errorf("%s cannot be used as a state directory: %w", dir, err)
	}
	if free := fs.Bavail * uint64(fs.Bsize) >> 20; free < minFreeMB {
		return fmt.Errorf("only %d MB are free in %s and a cluster needs %d: free some, or choose another disk with --dir", free, dir, minFreeMB)
	}
	return nil
}

// checkNamespaces starts a child in the namespaces that containers get, where it mounts an overlay.
func checkNamespaces(scratch string) error {
	if err := os.Mkdir(scratch, 0o755); err != nil {
		return fmt.Errorf("the state directory cannot be written: choose another with --dir (%w)", err)
	}
	defer os.RemoveAll(scratch)
	cmd := exec.Command(selfPath, probeVerb, scratch)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID}
	output, err := cmd.CombinedOutput()
	if err == nil {
		return nil
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("this machine cannot mount an overlay file system, which containers live on: load the overlay module, or run where mounting is allowed (%s)",
			strings.TrimSpace(string(output)))
	}
	return fmt.Errorf("this machine gives no mount and PID namespaces, which containers live in: allow them (sysctl user.max_pid_namespaces, user.max_mnt_namespaces), or leave the outer sandbox (%w)", err)
}

// probeNamespaces is the child's side. All that it mounts goes away with its mount namespace.
func probeNamespaces(scratch string) int {
	err := tryOverlay(scratch)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func tryOverlay(scratch string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := unix.Mount("tmpfs", scratch, "tmpfs", 0, "size=1m"); err != nil {
		return fmt.Errorf("mount a tmpfs: %w", err)
	}
	for _, name := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(scratch, name), 0o755); err != nil {
			return err
		}
	}
	options := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", scratch, scratch)
	if err := unix.Mount("overlay", filepath.Join(scratch, "merged"), "overlay", 0, options); err != nil {
		return fmt.Errorf("mount an overlay: %w", err)
	}
	return nil
}
