package inside

import (
	"fmt"
	"os"
	"syscall"
)

// joining holds a control group's open files, since its paths are gone in the new root.
type joining struct {
	tasks []*os.File
	dir   *os.File
}

func (c *Cgroup) open() (*joining, error) {
	j := &joining{}
	for _, path := range c.Tasks {
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		if err != nil {
			j.close()
			return nil, fmt.Errorf("open the control group: %w", err)
		}
		j.tasks = append(j.tasks, f)
	}
	if c.Dir != "" {
		f, err := os.Open(c.Dir)
		if err != nil {
			return nil, fmt.Errorf("open the control group: %w", err)
		}
		j.dir = f
	}
	return j, nil
}

func (j *joining) close() {
	for _, f := range j.tasks {
		_ = f.Close()
	}
	if j.dir != nil {
		_ = j.dir.Close()
	}
}

// enter makes the next fork land in the control group: with version 2 by the kernel, with
// version 1 because the forking thread is in it from then on. What an init keeps in memory was
// charged elsewhere before, and it allocates next to nothing after.
func (j *joining) enter(attr *syscall.SysProcAttr) error {
	for _, f := range j.tasks {
		if _, err := f.WriteString("0"); err != nil {
			return fmt.Errorf("join the control group: %w", err)
		}
	}
	if j.dir != nil {
		attr.UseCgroupFD, attr.CgroupFD = true, int(j.dir.Fd())
	}
	return nil
}
