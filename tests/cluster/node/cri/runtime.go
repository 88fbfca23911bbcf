// Package cri is a container runtime for the kubelet, in its own process: a container is a
// process in namespaces of its own on an overlay of the host. All state is in memory, because
// nothing outlives the node's process.
package cri

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"testbed/cluster/node/cgroup"
	"testbed/cluster/node/network"
)

const runtimeName = "process"

// ownProgram is this binary, also when another has taken its place on disk.
const ownProgram = "/proc/self/exe"

// Options say what a Runtime works with.
type Options struct {
	// Root is the directory of everything that the runtime writes.
	Root string
	// Owner marks the runtime's processes, in their arguments, for whoever cleans up.
	Owner  string
	Images *Images
	// Network is nil where pods share the host's, with loopback addresses.
	Network *network.Network
	// Cgroups is nil where the machine has none.
	Cgroups *cgroup.Tree
	// API is the API server's address for pods without a network of their own.
	API netip.AddrPort
	// Changed is told of every pod whose containers changed by themselves.
	Changed func(podUID string)
}

// Runtime is the kubelet's runtime service.
type Runtime struct {
	Options
	spawner   *spawner
	streaming *streamingServer
	loopbacks *loopbacks

	mu         sync.Mutex
	lastID     uint64
	sandboxes  map[string]*sandbox
	containers map[string]*container
}

// New makes a runtime whose directory is empty.
func New(o Options) (*Runtime, error) {
	r := &Runtime{
		Options: o, spawner: newSpawner(), loopbacks: newLoopbacks(o.Owner),
		sandboxes: map[string]*sandbox{}, containers: map[string]*container{},
	}
	if err := os.MkdirAll(r.shmDir(), 0o755); err != nil {
		return nil, fmt.Errorf("make the runtime's directory: %w", err)
	}
	if err := unix.Mount("tmpfs", r.shmDir(), "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, ""); err != nil {
		return nil, fmt.Errorf("mount shared memory for pods: %w", err)
	}
	var err error
	if r.streaming, err = newStreamingServer(r); err != nil {
		return nil, err
	}
	if r.Cgroups == nil {
		go r.watchMemory()
	}
	return r, nil
}

func (r *Runtime) shmDir() string              { return filepath.Join(r.Root, "shm") }
func (r *Runtime) sandboxDir(id string) string { return filepath.Join(r.Root, "sandboxes", id) }
func (r *Runtime) layers(id string) string     { return filepath.Join(r.Root, "containers", id) }

// newID looks like a container id and is unique over restarts of the node. Callers hold the lock.
func (r *Runtime) newID() string {
	r.lastID++
	return fmt.Sprintf("%s%016x", randomHex, r.lastID)
}

func (r *Runtime) sandbox(id string) (*sandbox, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if s := r.sandboxes[id]; s != nil {
		return s, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no pod sandbox %s", id)
}

func (r *Runtime) container(id string) (*container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.containers[id]; c != nil {
		return c, nil
	}
	return nil, status.Errorf(codes.NotFound, "there is no container %s", id)
}

func matches(labels, selector map[string]string) bool {
	for k, v := range selector {
		if labels[k] != v {
			return false
		}
	}
	return true
}

// Version names the runtime.
func (r *Runtime) Version(context.Context, string) (*cri.VersionResponse, error) {
	return &cri.VersionResponse{Version: "0.1.0", RuntimeName: runtimeName, RuntimeVersion: "1.0.0", RuntimeApiVersion: "v1"}, nil
}

// Status is ready from the start, since the network is up before the runtime.
func (r *Runtime) Status(context.Context, bool) (*cri.StatusResponse, error) {
	return &cri.StatusResponse{Status: &cri.RuntimeStatus{Conditions: []*cri.RuntimeCondition{
		{Type: cri.RuntimeReady, Status: true}, {Type: cri.NetworkReady, Status: true},
	}}}, nil
}

// UpdateRuntimeConfig is told the pod network by the kubelet; the runtime has it already.
func (r *Runtime) UpdateRuntimeConfig(context.Context, *cri.RuntimeConfig) error { return nil }

// RuntimeConfig has nothing to tell: the kubelet manages no control groups here.
func (r *Runtime) RuntimeConfig(context.Context) (*cri.RuntimeConfigResponse, error) {
	return nil, unimplemented("the runtime's configuration")
}

// CheckpointContainer is not there.
func (r *Runtime) CheckpointContainer(context.Context, *cri.CheckpointContainerRequest) error {
	return unimplemented("checkpointing")
}

// GetContainerEvents is not there: the kubelet is told by Options.Changed.
func (r *Runtime) GetContainerEvents(context.Context, chan *cri.ContainerEventResponse, func(cri.RuntimeService_GetContainerEventsClient)) error {
	return unimplemented("a stream of container events")
}

func unimplemented(what string) error {
	return status.Errorf(codes.Unimplemented, "this runtime does not have %s", what)
}
