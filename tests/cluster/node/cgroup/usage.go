package cgroup

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// mostProcesses keeps a container that forks without end from taking all of a machine's, which
// may be 32,768.
const mostProcesses = 4096

// Usage is what a container has used so far, or uses now.
type Usage struct {
	CPUNanoseconds  uint64
	MemoryBytes     uint64
	WorkingSetBytes uint64
	RSSBytes        uint64
}

// Limit sets the limits of a group anew; those that are zero are left as they are.
func (g *Group) Limit(l Limits) error {
	memory, v2 := g.memory()
	if dir, ok := g.dirs["pids"]; ok || v2 {
		// Best effort: it only guards the machine.
		_ = os.WriteFile(filepath.Join(cmp.Or(dir, memory), "pids.max"), strconv.AppendInt(nil, mostProcesses, 10), 0)
	}
	if l.MemoryBytes > 0 {
		name, swap := "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"
		bytes := strconv.FormatInt(l.MemoryBytes, 10)
		swapBytes := bytes
		if v2 {
			name, swap, swapBytes = "memory.max", "memory.swap.max", "0"
			// As a container does: all of it ends when it is out of memory, not a part.
			_ = os.WriteFile(filepath.Join(memory, "memory.oom.group"), []byte("1"), 0)
		}
		if err := os.WriteFile(filepath.Join(memory, name), []byte(bytes), 0); err != nil {
			return fmt.Errorf("limit the memory of a container: %w", err)
		}
		// Absent where the kernel does not account for swap.
		_ = os.WriteFile(filepath.Join(memory, swap), []byte(swapBytes), 0)
	}
	if l.CPUQuota > 0 && l.CPUPeriod > 0 {
		// Best effort: a slower machine is no wrong result.
		if v2 {
			_ = os.WriteFile(filepath.Join(memory, "cpu.max"), fmt.Appendf(nil, "%d %d", l.CPUQuota, l.CPUPeriod), 0)
		} else if dir, ok := g.dirs["cpu"]; ok {
			_ = os.WriteFile(filepath.Join(dir, "cpu.cfs_period_us"), strconv.AppendInt(nil, l.CPUPeriod, 10), 0)
			_ = os.WriteFile(filepath.Join(dir, "cpu.cfs_quota_us"), strconv.AppendInt(nil, l.CPUQuota, 10), 0)
		}
	}
	return nil
}

// OutOfMemory says whether the kernel has killed a process of the container for its limit.
func (g *Group) OutOfMemory() bool {
	dir, v2 := g.memory()
	file := "memory.oom_control"
	if v2 {
		file = "memory.events"
	}
	return fields(filepath.Join(dir, file))["oom_kill"] > 0
}

// Usage reads the group's counters.
func (g *Group) Usage() (Usage, error) {
	dir, v2 := g.memory()
	stat := fields(filepath.Join(dir, "memory.stat"))
	if stat == nil {
		return Usage{}, errors.New("the control group is gone")
	}
	var u Usage
	var inactive uint64
	if v2 {
		u.MemoryBytes = number(filepath.Join(dir, "memory.current"))
		u.RSSBytes, inactive = stat["anon"], stat["inactive_file"]
		u.CPUNanoseconds = fields(filepath.Join(dir, "cpu.stat"))["usage_usec"] * 1000
	} else {
		u.MemoryBytes = number(filepath.Join(dir, "memory.usage_in_bytes"))
		u.RSSBytes, inactive = stat["total_rss"], stat["total_inactive_file"]
		for _, c := range []string{"cpuacct", "cpu"} {
			if d, ok := g.dirs[c]; ok && u.CPUNanoseconds == 0 {
				u.CPUNanoseconds = number(filepath.Join(d, "cpuacct.usage"))
			}
		}
	}
	u.WorkingSetBytes = u.MemoryBytes - min(inactive, u.MemoryBytes)
	return u, nil
}

func (g *Group) memory() (dir string, v2 bool) {
	if dir, ok := g.dirs[""]; ok {
		return dir, true
	}
	return g.dirs["memory"], false
}

// fields reads a file of lines "name number".
func fields(path string) map[string]uint64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil
	}
	out := map[string]uint64{}
	for line := range strings.Lines(string(raw)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			if n, err := strconv.ParseUint(value, 10, 64); err == nil {
				out[name] = n
			}
		}
	}
	return out
}

func number(path string) uint64 {
	raw, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64)
	return n
}
