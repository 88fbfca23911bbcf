package inside

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// lastCapability bounds the loop over capability numbers; the kernel refuses those it lacks.
const lastCapability = 63

// start runs the program with its user, capabilities and control group. It changes the calling
// thread for good: the thread must be locked, and nothing but reaping is left to do on it.
func (p *Process) start(group *joining) (pid int, err error) {
	if p.Dir == "" {
		p.Dir = "/"
	}
	if err := os.MkdirAll(p.Dir, 0o755); err != nil && !os.IsExist(err) {
		return 0, fmt.Errorf("make the working directory %s: %w", p.Dir, err)
	}
	path, err := p.lookUp()
	if err != nil {
		return 0, err
	}
	for fd := range 3 {
		// So that a user other than root may open /dev/stdout again.
		_ = unix.Fchown(fd, int(p.UID), int(p.GID))
	}
	for c := range lastCapability {
		if p.Capabilities&(1<<c) == 0 {
			_ = unix.Prctl(unix.PR_CAPBSET_DROP, uintptr(c), 0, 0, 0)
		}
	}
	if p.NoNewPrivs {
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return 0, fmt.Errorf("set no_new_privs: %w", err)
		}
	}
	attr := &syscall.ProcAttr{Dir: p.Dir, Env: p.Env, Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{
		Credential: &syscall.Credential{Uid: p.UID, Gid: p.GID, Groups: p.Groups},
		Setsid:     true,
		Setctty:    p.Terminal,
	}}
	syscall.Umask(0o022)
	if err := group.enter(attr.Sys); err != nil {
		return 0, err
	}
	pid, err = syscall.ForkExec(path, p.Args, attr)
	if err != nil {
		return 0, fmt.Errorf("start %s: %w", p.Args[0], err)
	}
	return pid, nil
}

// lookUp finds the program by the container's own PATH.
func (p *Process) lookUp() (string, error) {
	name := p.Args[0]
	if strings.Contains(name, "/") {
		return name, nil
	}
	var path string
	for _, e := range p.Env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			path = v
		}
	}
	for _, dir := range filepath.SplitList(path) {
		file := filepath.Join(dir, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return file, nil
		}
	}
	return "", fmt.Errorf("exec: %q: executable file not found in $PATH", name)
}
