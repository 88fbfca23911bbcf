package cri

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// memoryPoll is how often memory is looked at where the kernel does not limit it.
const memoryPoll = 250 * time.Millisecond

// watchMemory stands in for memory control groups: it kills containers over their limits, if not
// as promptly as the kernel does.
func (r *Runtime) watchMemory() {
	for range time.Tick(memoryPoll) {
		limited := map[string]*container{}
		r.mu.Lock()
		for _, c := range r.containers {
			if c.state != cri.ContainerState_CONTAINER_RUNNING || c.resources.GetMemoryLimitInBytes() <= 0 {
				continue
			}
			if ns, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/pid", c.command.Process.Pid)); err == nil {
				limited[ns] = c
			}
		}
		r.mu.Unlock()
		if len(limited) == 0 {
			continue
		}
		for ns, used := range residentByNamespace() {
			if c := limited[ns]; c != nil && used > c.resources.GetMemoryLimitInBytes() {
				c.outOfMemory.Store(true)
				_ = c.command.Process.Kill()
			}
		}
	}
}

// residentByNamespace adds up the memory of the machine's processes, without what files back.
func residentByNamespace() map[string]int64 {
	sums := map[string]int64{}
	namespaces, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, link := range namespaces {
		ns, err := os.Readlink(link)
		if err != nil {
			continue
		}
		raw, _ := os.ReadFile(filepath.Join(filepath.Dir(filepath.Dir(link)), "statm"))
		f := strings.Fields(string(raw))
		if len(f) < 3 {
			continue
		}
		resident, _ := strconv.ParseInt(f[1], 10, 64)
		shared, _ := strconv.ParseInt(f[2], 10, 64)
		sums[ns] += (resident - shared) * int64(os.Getpagesize())
	}
	return sums
}
