package inside

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// source is a host's file or directory, held open because its path ends at the pivot.
type source struct {
	file *os.File
	dir  bool
}

// enterRoot makes the container's file system the root: the host's as an overlay, with kernel
// file systems and mounts of the container's own. Targets are resolved after the pivot, so that
// a symbolic link among them leads where it does for the program.
func enterRoot(spec *Spec) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	mounts := mountsOf(spec)
	sources, err := openSources(mounts)
	if err != nil {
		return err
	}
	defer func() {
		for _, s := range sources {
			_ = s.file.Close()
		}
	}()
	oldRoot, err := unix.Open("/", unix.O_DIRECTORY|unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open the old root: %w", err)
	}
	defer unix.Close(oldRoot)
	if err := pivot(spec.Layers); err != nil {
		return err
	}
	if err := mountKernelFileSystems(); err != nil {
		return err
	}
	for i, s := range sources {
		if err := s.bind(mounts[i]); err != nil {
			return err
		}
	}
	for _, path := range spec.ReadonlyPaths {
		if err := protect(path); err != nil {
			return err
		}
	}
	for _, path := range spec.MaskedPaths {
		if err := hide(path); err != nil {
			return err
		}
	}
	if err := unix.Fchdir(oldRoot); err != nil {
		return fmt.Errorf("go to the old root: %w", err)
	}
	if err := unix.Unmount(".", unix.MNT_DETACH); err != nil {
		return fmt.Errorf("leave the old root: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("go to the new root: %w", err)
	}
	if spec.ReadonlyRoot {
		// Only now, when all mount points and the working directory exist.
		_ = os.MkdirAll(spec.Process.Dir, 0o755)
		return remountReadonly("/", false)
	}
	return nil
}

func mountsOf(spec *Spec) []Mount {
	first := []Mount{{Host: spec.Shm, Container: "/dev/shm"}}
	if spec.Process.Terminal {
		// It is of the machine's /dev/pts, so that the container's has no name for it. By its
		// name, because the open one is of the node's mount namespace.
		if name, err := os.Readlink("/proc/self/fd/0"); err == nil {
			first = append(first, Mount{Host: name, Container: "/dev/console"})
		}
	}
	return append(first, spec.Mounts...)
}

func openSources(mounts []Mount) ([]source, error) {
	var sources []source
	for _, m := range mounts {
		fd, err := unix.Open(m.Host, unix.O_PATH|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, fmt.Errorf("open %s for %s: %w", m.Host, m.Container, err)
		}
		f := os.NewFile(uintptr(fd), m.Host)
		st, err := f.Stat()
		if err != nil {
			return nil, fmt.Errorf("look at %s for %s: %w", m.Host, m.Container, err)
		}
		sources = append(sources, source{f, st.IsDir()})
	}
	return sources, nil
}

func pivot(layers string) error {
	merged := filepath.Join(layers, "merged")
	options := fmt.Sprintf("lowerdir=/,upperdir=%s/upper,workdir=%s/work", layers, layers)
	if err := unix.Mount("overlay", merged, "overlay", 0, options); err != nil {
		return fmt.Errorf("mount an overlay of the host: %w", err)
	}
	if err := unix.Chdir(merged); err != nil {
		return fmt.Errorf("go to the overlay: %w", err)
	}
	// The old root ends up on top of the new one, to be unmounted when all is set up.
	if err := unix.PivotRoot(".", "."); err != nil {
		return fmt.Errorf("pivot into the overlay: %w", err)
	}
	if err := unix.Chdir("/"); err != nil {
		return fmt.Errorf("go to the new root: %w", err)
	}
	return nil
}

func (s source) bind(m Mount) error {
	target := m.Container
	if err := makeTarget(target, s.dir); err != nil {
		return fmt.Errorf("make the mount point %s: %w", target, err)
	}
	from := fmt.Sprintf("/proc/self/fd/%d", s.file.Fd())
	if err := unix.Mount(from, target, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("mount %s: %w", target, err)
	}
	if m.Readonly {
		return remountReadonly(target, true)
	}
	return nil
}

func makeTarget(path string, dir bool) error {
	if dir {
		return os.MkdirAll(path, 0o755)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDONLY, 0o644)
	if err != nil {
		return err
	}
	return f.Close()
}

func remountReadonly(path string, recursive bool) error {
	flags := uint(0)
	if recursive {
		flags = unix.AT_RECURSIVE
	}
	err := unix.MountSetattr(unix.AT_FDCWD, path, flags, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY})
	if errors.Is(err, unix.ENOSYS) {
		// Before Linux 5.12, and then not what is mounted below.
		err = unix.Mount("", path, "", unix.MS_BIND|unix.MS_REMOUNT|unix.MS_RDONLY, "")
	}
	if err != nil {
		return fmt.Errorf("make %s read-only: %w", path, err)
	}
	return nil
}

// protect makes a path of /proc or /sys read-only, if it is there.
func protect(path string) error {
	err := unix.Mount(path, path, "", unix.MS_BIND|unix.MS_REC, "")
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("protect %s: %w", path, err)
	}
	return remountReadonly(path, true)
}

// hide covers a path of /proc or /sys with nothing, if it is there.
func hide(path string) error {
	err := unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.Mount("tmpfs", path, "tmpfs", unix.MS_RDONLY, "size=0")
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return fmt.Errorf("hide %s: %w", path, err)
	}
	return nil
}
