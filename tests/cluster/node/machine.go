package node

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	v1 "github.com/google/cadvisor/info/v1"
	v2 "github.com/google/cadvisor/info/v2"
	"golang.org/x/sys/unix"
	"k8s.io/kubernetes/pkg/kubelet/cadvisor"
)

// leastCores is what a node says it has if it has less, so that a small machine keeps no pod of a
// test pending for what it requests: it is only slower.
const leastCores = 16

// machine tells the kubelet about this machine in place of cadvisor, which would watch every
// control group of it. Containers are measured by the runtime.
type machine struct {
	name string
	// root is on the file system that the node fills.
	root string
}

var _ cadvisor.Interface = machine{}

func (machine) Start() error { return nil }

func (m machine) MachineInfo() (*v1.MachineInfo, error) {
	memory, err := memoryInfo()
	if err != nil {
		return nil, err
	}
	return &v1.MachineInfo{NumCores: max(runtime.NumCPU(), leastCores), MemoryCapacity: memory["MemTotal"], InstanceID: v1.InstanceID(m.name), MachineID: m.name, SystemUUID: m.name}, nil
}

func (machine) VersionInfo() (*v1.VersionInfo, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, fmt.Errorf("ask the kernel for its version: %w", err)
	}
	return &v1.VersionInfo{KernelVersion: unix.ByteSliceToString(u.Release[:]), ContainerOsVersion: distribution()}, nil
}

func (m machine) RootFsInfo() (v2.FsInfo, error)                     { return m.GetDirFsInfo(m.root) }
func (m machine) ImagesFsInfo(context.Context) (v2.FsInfo, error)    { return m.GetDirFsInfo(m.root) }
func (m machine) ContainerFsInfo(context.Context) (v2.FsInfo, error) { return m.GetDirFsInfo(m.root) }

func (machine) GetDirFsInfo(path string) (v2.FsInfo, error) {
	var st unix.Statfs_t
	if err := unix.Statfs(path, &st); err != nil {
		return v2.FsInfo{}, fmt.Errorf("look at the file system of %s: %w", path, err)
	}
	block := uint64(st.Bsize)
	inodes, free := st.Files, st.Ffree
	return v2.FsInfo{
		Mountpoint: path, Capacity: st.Blocks * block, Available: st.Bavail * block,
		Usage: (st.Blocks - st.Bfree) * block, Inodes: &inodes, InodesFree: &free,
	}, nil
}

// ContainerInfoV2 knows one container, the whole machine. The runtime knows the others.
func (machine) ContainerInfoV2(string, v2.RequestOptions) (map[string]v2.ContainerInfo, error) {
	memory, err := memoryInfo()
	if err != nil {
		return nil, err
	}
	used := memory["MemTotal"] - memory["MemAvailable"]
	return map[string]v2.ContainerInfo{"/": {
		Spec: v2.ContainerSpec{HasCpu: true, HasMemory: true, Memory: v2.MemorySpec{Limit: memory["MemTotal"]}},
		Stats: []*v2.ContainerStats{{
			Timestamp: time.Now(),
			Cpu:       &v1.CpuStats{Usage: v1.CpuUsage{Total: cpuNanoseconds()}},
			Memory:    &v1.MemoryStats{Usage: memory["MemTotal"] - memory["MemFree"], WorkingSet: used, RSS: memory["AnonPages"]},
		}},
	}}, nil
}

func (machine) GetRequestedContainersInfo(string, v2.RequestOptions) (map[string]*v1.ContainerInfo, error) {
	return map[string]*v1.ContainerInfo{}, nil
}

// memoryInfo is /proc/meminfo in bytes.
func memoryInfo() (map[string]uint64, error) {
	raw, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return nil, fmt.Errorf("read the size of the memory: %w", err)
	}
	info := map[string]uint64{}
	for line := range strings.Lines(string(raw)) {
		if f := strings.Fields(line); len(f) == 3 {
			kib, _ := strconv.ParseUint(f[1], 10, 64)
			info[strings.TrimSuffix(f[0], ":")] = kib << 10
		}
	}
	return info, nil
}

// cpuNanoseconds is what all cores have worked since the start of the machine.
func cpuNanoseconds() uint64 {
	const (
		tick = 10_000_000 // nanoseconds of the unit of /proc/stat on every Linux
		idle = 4          // columns of the line: its name, user, nice, system, idle, waiting
	)
	raw, _ := os.ReadFile("/proc/stat")
	line, _, _ := strings.Cut(string(raw), "\n")
	var total uint64
	for i, word := range strings.Fields(line) {
		if i == 0 || i == idle || i == idle+1 {
			continue
		}
		n, _ := strconv.ParseUint(word, 10, 64)
		total += n * tick
	}
	return total
}

func distribution() string {
	raw, _ := os.ReadFile("/etc/os-release")
	for line := range strings.Lines(string(raw)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "PRETTY_NAME="); ok {
			return strings.Trim(name, `"`)
		}
	}
	return "Linux"
}
