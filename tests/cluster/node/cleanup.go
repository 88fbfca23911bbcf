package node

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"cluster.inside"
	"testbed/cluster/node/cgroup"
	"testbed/cluster/node/network"
)

const (
	// deathTimeout bounds the wait for killed processes.
	deathTimeout = 20 * time.Second
	deathPoll    = 10 * time.Millisecond
)

// Cleanup removes every process, mount, interface, control group and file of the node whose
// directory is root, whether it still runs, has ended or was killed. It may be called again.
func Cleanup(root string) error {
	root, err := filepath.Abs(root)
	if err != nil {
		return fmt.Errorf("find the node's directory: %w", err)
	}
	if err := endProcesses(root); err != nil {
		return err
	}
	if err := discard(root); err != nil {
		return err
	}
	if err := os.RemoveAll(root); err != nil {
		return fmt.Errorf("remove the node's directory: %w", err)
	}
	return nil
}

// discard removes what an earlier run has left, but for the directory itself, which may hold its
// starter's files.
func discard(root string) error {
	failed := []error{
		network.Remove(nameOf(root)),
		cgroup.Remove(nameOf(root)),
		unmountBelow(root),
	}
	for _, dir := range ownDirectories {
		if err := os.RemoveAll(filepath.Join(root, dir)); err != nil {
			failed = append(failed, fmt.Errorf("remove the node's files: %w", err))
		}
	}
	return errors.Join(failed...)
}

// leaveVerb is what a node becomes when it ends.
const leaveVerb = "node-leave"

// leave turns this process into one that cleans up after the node, so that the kubelet ends at
// once, as with its machine, and has no time to report what happens to its pods.
func leave(root string) error {
	if err := syscall.Exec(ownProgram, []string{"cluster", leaveVerb, root}, os.Environ()); err != nil {
		return fmt.Errorf("clean up after the node: %w", err)
	}
	return nil
}

func finishLeaving(root string) int {
	if err := errors.Join(endProcesses(root), discard(root)); err != nil {
		fmt.Fprintf(os.Stderr, "cluster node: %v\n", err)
		return 1
	}
	return 0
}

// endProcesses kills the node and the inits of its containers, which take the rest along.
func endProcesses(root string) error {
	deadline := time.Now().Add(deathTimeout)
	for {
		left := processes(root)
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("processes %v of the node have not ended %s after they were killed", left, deathTimeout)
		}
		for _, pid := range left {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(deathPoll)
	}
}

// processes finds those of a node by their arguments, which hold its root. A node's own say so
// as --root; the others' were given by it.
func processes(root string) []int {
	var found []int
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		raw, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		var args []string
		for arg := range bytes.SplitSeq(raw, []byte{0}) {
			args = append(args, string(arg))
		}
		if len(args) > 2 && belongs(args[1:], root) && !ended(pid) {
			found = append(found, pid)
		}
	}
	return found
}

func belongs(args []string, root string) bool {
	switch args[0] {
	case inside.InitVerb, inside.ExecVerb:
		return args[1] == root
	case "node":
		i := slices.Index(args, "--root")
		return i > 0 && i+1 < len(args) && args[i+1] == root || slices.Contains(args, "--root="+root)
	default:
		return false
	}
}

// ended says whether a process only waits for its parent to take note.
func ended(pid int) bool {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	// The state follows the name, which is in brackets and may hold anything.
	_, after, _ := strings.Cut(string(raw[bytes.LastIndexByte(raw, ')')+1:]), " ")
	return strings.HasPrefix(after, "Z") || strings.HasPrefix(after, "X")
}

// unmountBelow undoes mounts below a directory in this process's mount namespace, inner ones first.
func unmountBelow(root string) error {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return fmt.Errorf("list mounts: %w", err)
	}
	var below []string
	for line := range strings.Lines(string(raw)) {
		f := strings.Fields(line)
		if len(f) < 5 {
			continue
		}
		// Spaces and the like are written in octal.
		path, err := strconv.Unquote(`"` + strings.ReplaceAll(f[4], `"`, `\"`) + `"`)
		if err == nil && strings.HasPrefix(path, root+"/") {
			below = append(below, path)
		}
	}
	slices.Reverse(below)
	var failed []error
	for _, path := range below {
		if err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW); err != nil && !errors.Is(err, unix.EINVAL) {
			failed = append(failed, fmt.Errorf("unmount %s: %w", path, err))
		}
	}
	return errors.Join(failed...)
}
