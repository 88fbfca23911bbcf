package inside

import (
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Terminals belong to this group on every distribution.
const ttyGroup = 5

var devices = map[string]uint64{
	"null":    unix.Mkdev(1, 3),
	"zero":    unix.Mkdev(1, 5),
	"full":    unix.Mkdev(1, 7),
	"random":  unix.Mkdev(1, 8),
	"urandom": unix.Mkdev(1, 9),
	"tty":     unix.Mkdev(5, 0),
}

var deviceLinks = map[string]string{
	"fd":     "/proc/self/fd",
	"stdin":  "/proc/self/fd/0",
	"stdout": "/proc/self/fd/1",
	"stderr": "/proc/self/fd/2",
	"ptmx":   "pts/ptmx",
}

// mountKernelFileSystems gives the container /proc of its process namespace, /sys of its network
// namespace, read-only, and a /dev with nothing of the machine's in it.
func mountKernelFileSystems() error {
	const safe = unix.MS_NOSUID | unix.MS_NODEV | unix.MS_NOEXEC
	if err := mount("proc", "/proc", safe, ""); err != nil {
		return err
	}
	if err := mount("sysfs", "/sys", safe|unix.MS_RDONLY, ""); err != nil {
		return err
	}
	if err := mount("tmpfs", "/dev", unix.MS_NOSUID, "mode=755,size=64k"); err != nil {
		return err
	}
	for name, number := range devices {
		path := filepath.Join("/dev", name)
		if err := unix.Mknod(path, unix.S_IFCHR|0o666, int(number)); err != nil {
			return fmt.Errorf("make %s: %w", path, err)
		}
		if err := os.Chmod(path, 0o666); err != nil {
			return fmt.Errorf("open up %s: %w", path, err)
		}
	}
	for name, to := range deviceLinks {
		if err := os.Symlink(to, filepath.Join("/dev", name)); err != nil {
			return fmt.Errorf("link /dev/%s: %w", name, err)
		}
	}
	for _, dir := range []string{"/dev/pts", "/dev/shm"} {
		if err := os.Mkdir(dir, 0o755); err != nil {
			return fmt.Errorf("make %s: %w", dir, err)
		}
	}
	options := fmt.Sprintf("newinstance,ptmxmode=0666,mode=0620,gid=%d", ttyGroup)
	return mount("devpts", "/dev/pts", unix.MS_NOSUID|unix.MS_NOEXEC, options)
}

func mount(kind, target string, flags uintptr, options string) error {
	if err := unix.Mount(kind, target, kind, flags, options); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	return nil
}
