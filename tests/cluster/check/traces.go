package check

import (
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"testbed/cluster/node"
)

// foreignNodes are the names of nodes of other clusters that run now, by which their interfaces
// and control groups start: those come and go as they like.
func foreignNodes(dir string) []string {
	var names []string
	processes, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, process := range processes {
		text, _ := os.ReadFile(process)
		words := strings.Split(string(text), "\x00")
		at := slices.Index(words, "--root")
		if at > 0 && at+1 < len(words) && !strings.HasPrefix(words[at+1], dir+"/") {
			names = append(names, node.NameOf(words[at+1]))
		}
	}
	return names
}

// trace is everything on this machine that may belong to the cluster in one directory: processes,
// mounts, network interfaces, namespaces held by a file, control groups.
type trace map[string]bool

func traces(dir string) (trace, error) {
	found := trace{}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	for _, line := range strings.Split(string(mounts), "\n") {
		fields := strings.Fields(line)
		if len(fields) > 4 && (strings.HasPrefix(fields[4], dir+"/") || strings.Contains(line, " nsfs ")) {
			found["mount "+fields[4]] = true
		}
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	for _, i := range interfaces {
		found["interface "+i.Name] = true
	}
	processes, _ := filepath.Glob("/proc/[0-9]*")
	for _, process := range processes {
		if command, mine := ours(process, dir); mine {
			found[fmt.Sprintf("process %s %.80s", filepath.Base(process), command)] = true
		}
	}
	// Version 1 has a tree per controller, version 2 has one.
	for _, pattern := range []string{"/sys/fs/cgroup/*", "/sys/fs/cgroup/*/*", "/sys/fs/cgroup/*/*/*", "/sys/fs/cgroup/*/*/*/*"} {
		groups, _ := filepath.Glob(pattern)
		for _, group := range groups {
			if info, err := os.Lstat(group); err == nil && info.IsDir() {
				found["control group "+group] = true
			}
		}
	}
	for _, foreign := range foreignNodes(dir) {
		maps.DeleteFunc(found, func(name string, _ bool) bool { return strings.Contains(name, foreign) })
	}
	return found, nil
}

// ours tells whether a process belongs to the cluster: its command, environment or root says so.
func ours(process, dir string) (string, bool) {
	command, err := os.ReadFile(process + "/cmdline")
	if err != nil {
		return "", false
	}
	text := strings.ReplaceAll(strings.TrimRight(string(command), "\x00"), "\x00", " ")
	root, _ := os.Readlink(process + "/root")
	self := process == fmt.Sprintf("/proc/%d", os.Getpid())
	// The commands of this check name the directory too; they are short-lived.
	mine := !self && (strings.Contains(text, dir+"/") || strings.HasSuffix(text, "--dir "+dir) || strings.HasPrefix(root, dir+"/"))
	return text, mine
}

// beyond is an error that names what is here now and was not before.
func (t trace) beyond(before trace) error {
	var left []string
	for name := range t {
		if !before[name] {
			left = append(left, name)
		}
	}
	if len(left) == 0 {
		return nil
	}
	slices.Sort(left)
	const shown = 5
	if len(left) > shown {
		return fmt.Errorf("%d are left: %s …", len(left), strings.Join(left[:shown], "; "))
	}
	return fmt.Errorf("left: %s", strings.Join(left, "; "))
}
