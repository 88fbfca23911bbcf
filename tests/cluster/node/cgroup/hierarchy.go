package cgroup

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// hierarchies returns where each controller is mounted: version 2 alone under "", if memory is
// there, else those of version 1.
func hierarchies() map[string]string {
	raw, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil
	}
	roots := map[string]string{}
	for line := range strings.Lines(string(raw)) {
		before, after, ok := strings.Cut(line, " - ")
		fields, super := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(super) < 3 {
			continue
		}
		switch path := fields[4]; super[0] {
		case "cgroup2":
			if has, _ := os.ReadFile(filepath.Join(path, "cgroup.controllers")); slices.Contains(strings.Fields(string(has)), "memory") {
				return map[string]string{"": path}
			}
		case "cgroup":
			for option := range strings.SplitSeq(super[2], ",") {
				if slices.Contains(controllers, option) {
					roots[option] = path
				}
			}
		}
	}
	if roots["memory"] == "" {
		return nil
	}
	return merge(roots)
}

// merge keeps one controller of those that share a mount, so that a group is made there once.
func merge(roots map[string]string) map[string]string {
	kept := map[string]string{}
	seen := map[string]bool{}
	for _, c := range controllers {
		root, ok := roots[c]
		if !ok {
			continue
		}
		if resolved, err := filepath.EvalSymlinks(root); err == nil {
			root = resolved
		}
		if !seen[root] {
			kept[c], seen[root] = root, true
		}
	}
	return kept
}

// delegate lets the children of a version 2 group have the controllers that it has itself.
func delegate(dir string) error {
	has, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return fmt.Errorf("read the controllers of %s: %w", dir, err)
	}
	for _, c := range controllers {
		if !slices.Contains(strings.Fields(string(has)), c) {
			continue
		}
		// One by one, because one that is refused would take the others with it.
		err := os.WriteFile(filepath.Join(dir, "cgroup.subtree_control"), []byte("+"+c), 0)
		if err != nil && c == "memory" {
			return fmt.Errorf("hand memory control down in %s: %w", dir, err)
		}
	}
	return nil
}
