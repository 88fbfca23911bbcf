package node

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// ownProgram is this binary, also when another has taken its place on disk.
const ownProgram = "/proc/self/exe"

// ownMountsMark tells the second start of a node from the first.
const ownMountsMark = "CLUSTER_NODE_MOUNTS"

// ownMounts starts the program anew in a mount namespace of its own, under the same process id.
// The kernel then unmounts all that the node has mounted when it ends, however it ends.
func ownMounts(args []string) error {
	if os.Getenv(ownMountsMark) != "" {
		return os.Unsetenv(ownMountsMark)
	}
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("make a mount namespace: %w; a node needs root with CAP_SYS_ADMIN", err)
	}
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	env := append(os.Environ(), ownMountsMark+"=1")
	if err := syscall.Exec(ownProgram, append([]string{"cluster", "node"}, args...), env); err != nil {
		return fmt.Errorf("start anew with own mounts: %w", err)
	}
	return nil
}

// checkOverlay tries what every container needs, in a place that is gone afterwards.
func checkOverlay(root string) error {
	dir, err := os.MkdirTemp(root, "overlay-check")
	if err != nil {
		return fmt.Errorf("write to the node's directory: %w", err)
	}
	defer os.RemoveAll(dir)
	for _, d := range []string{"upper", "work", "merged"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o755); err != nil {
			return fmt.Errorf("write to the node's directory: %w", err)
		}
	}
	merged := filepath.Join(dir, "merged")
	options := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", dir, dir)
	switch err := unix.Mount("overlay", merged, "overlay", 0, options); {
	case errors.Is(err, unix.ENODEV):
		return errors.New("this kernel has no overlay file system: load the module overlay, or use another kernel")
	case errors.Is(err, unix.EPERM):
		return errors.New("mounts are not allowed here: a node needs root with CAP_SYS_ADMIN")
	case err != nil:
		return fmt.Errorf("an overlay cannot be written to %s (%w): choose a directory on a plain file system such as ext4, xfs or tmpfs", root, err)
	}
	return unix.Unmount(merged, unix.MNT_DETACH)
}
