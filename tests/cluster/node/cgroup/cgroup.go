// Package cgroup limits and measures containers by control groups of version 1 or 2, whichever
// the machine has. Where it has none, or none that may be written, callers do without.
package cgroup

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"cluster.inside"
)

const (
	// removalTimeout bounds the wait for processes that are being killed to leave.
	removalTimeout = 5 * time.Second
	removalPoll    = 10 * time.Millisecond
)

// The controllers that are used, if the machine has them. Without memory, none is of use.
var controllers = []string{"memory", "pids", "cpu", "cpuacct"}

// Tree is the control groups of one node, by controller name; of version 2 it has one, named "".
type Tree struct {
	name  string
	roots map[string]string
}

// Open finds the machine's hierarchies and makes the node's own group in each.
func Open(name string) (*Tree, error) {
	t := &Tree{name: name, roots: hierarchies()}
	if len(t.roots) == 0 {
		return nil, errors.New("this machine has no memory control groups")
	}
	for controller, root := range t.roots {
		if controller == "" {
			if err := delegate(root); err != nil {
				return nil, err
			}
		}
		if err := os.MkdirAll(filepath.Join(root, name), 0o755); err != nil {
			t.Remove()
			return nil, fmt.Errorf("make a control group: %w", err)
		}
		if controller == "" {
			if err := delegate(filepath.Join(root, name)); err != nil {
				t.Remove()
				return nil, err
			}
		}
	}
	return t, nil
}

// Remove ends every process in the groups of that name and removes them, whoever made them.
func Remove(name string) error {
	t := &Tree{name: name, roots: hierarchies()}
	return t.Remove()
}

// Remove ends every process in the node's groups and removes them.
func (t *Tree) Remove() error {
	var failed []error
	for _, root := range t.roots {
		dir := filepath.Join(root, t.name)
		children, err := os.ReadDir(dir)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		for _, c := range children {
			if c.IsDir() {
				failed = append(failed, clear(filepath.Join(dir, c.Name())))
			}
		}
		failed = append(failed, clear(dir))
	}
	return errors.Join(failed...)
}

// Group is the control groups of one container.
type Group struct {
	dirs map[string]string
}

// Limits of a container; zero is none.
type Limits struct {
	MemoryBytes         int64
	CPUQuota, CPUPeriod int64
}

// Create makes a container's groups with its limits.
func (t *Tree) Create(id string, limits Limits) (*Group, error) {
	g := &Group{dirs: map[string]string{}}
	for controller, root := range t.roots {
		dir := filepath.Join(root, t.name, id)
		if err := os.Mkdir(dir, 0o755); err != nil {
			_ = g.Remove()
			return nil, fmt.Errorf("make a control group: %w", err)
		}
		g.dirs[controller] = dir
	}
	if err := g.Limit(limits); err != nil {
		_ = g.Remove()
		return nil, err
	}
	return g, nil
}

// Join is how a process of the container gets into the groups.
func (g *Group) Join() inside.Cgroup {
	if dir, ok := g.dirs[""]; ok {
		return inside.Cgroup{Dir: dir}
	}
	var c inside.Cgroup
	for _, dir := range g.dirs {
		if file := filepath.Join(dir, "tasks"); !slices.Contains(c.Tasks, file) {
			c.Tasks = append(c.Tasks, file)
		}
	}
	return c
}

// Remove ends what is left in the groups and removes them.
func (g *Group) Remove() error {
	var failed []error
	for _, dir := range g.dirs {
		failed = append(failed, clear(dir))
	}
	return errors.Join(failed...)
}

// clear removes a group, killing its processes as long as there are any.
func clear(dir string) error {
	deadline := time.Now().Add(removalTimeout)
	for {
		err := syscall.Rmdir(dir)
		if err == nil || errors.Is(err, syscall.ENOENT) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("remove the control group %s: %w", dir, err)
		}
		raw, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
		for _, word := range strings.Fields(string(raw)) {
			var pid int
			if _, err := fmt.Sscan(word, &pid); err == nil && pid > 0 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		time.Sleep(removalPoll)
	}
}
