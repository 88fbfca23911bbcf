package bed

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"testbed/cluster/node"
)

// The record of processes outlives a supervisor that was killed. A pid alone could be another
// program's by then: its start time tells.

// remember adds a started process to the record.
func (l layout) remember(name string, pid int) error {
	start, err := startTime(pid)
	if err != nil {
		return err
	}
	file, err := os.OpenFile(l.pids(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer file.Close()
	_, err = fmt.Fprintln(file, pid, start, name)
	return err
}

// sweep ends what an earlier supervisor in this directory left behind, and removes its files. The
// caller holds the lock, so that supervisor is dead.
func (l layout) sweep() error {
	file, err := os.Open(l.pids())
	if err == nil {
		defer file.Close()
		for lines := bufio.NewScanner(file); lines.Scan(); {
			var pid int
			var start uint64
			if n, _ := fmt.Sscan(lines.Text(), &pid, &start); n == 2 {
				if err := endProcess(pid, start); err != nil {
					return err
				}
			}
		}
	}
	if err := l.cleanNodes(); err != nil {
		return err
	}
	return l.removeFiles()
}

// cleanNodes removes mounts, processes and networks of every node that ever ran here.
func (l layout) cleanNodes() error {
	roots, _ := filepath.Glob(filepath.Join(l.nodes(), "*"))
	for _, root := range roots {
		if err := node.Cleanup(root); err != nil {
			return fmt.Errorf("the node in %s could not be cleaned up: %w", root, err)
		}
	}
	return nil
}

// endProcess kills a process unless its pid belongs to another one by now, and waits until it is gone.
func endProcess(pid int, start uint64) error {
	deadline := time.Now().Add(10 * time.Second)
	for {
		now, err := startTime(pid)
		if err != nil || now != start {
			return nil
		}
		_ = syscall.Kill(pid, syscall.SIGKILL)
		if time.Now().After(deadline) {
			return fmt.Errorf("process %d of an earlier cluster does not die", pid)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// startTime is when a process started, in clock ticks since boot; an error when it is dead.
func startTime(pid int) (uint64, error) {
	fields, err := statFields(pid)
	if err != nil {
		return 0, err
	}
	if fields[0] == "Z" {
		return 0, syscall.ESRCH
	}
	return strconv.ParseUint(fields[19], 10, 64)
}

// statFields are the words of /proc/PID/stat from the state on: the name before it may hold spaces.
func statFields(pid int) ([]string, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	if len(fields) < 20 {
		return nil, fmt.Errorf("/proc/%d/stat is short", pid)
	}
	return fields, nil
}

// descendants are all processes below one, found by their parents.
func descendants(pid int) []int {
	children := map[int][]int{}
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		child, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if fields, err := statFields(child); err == nil {
			parent, _ := strconv.Atoi(fields[1])
			children[parent] = append(children[parent], child)
		}
	}
	var all []int
	for queue := []int{pid}; len(queue) > 0; queue = queue[1:] {
		all = append(all, children[queue[0]]...)
		queue = append(queue, children[queue[0]]...)
	}
	return all
}

// memoryKB is a process's share of memory: pages shared with others are divided among them.
func memoryKB(pid int) int {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for _, line := range strings.Split(string(text), "\n") {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
			kb, _ := strconv.Atoi(fields[1])
			return kb
		}
	}
	return 0
}
