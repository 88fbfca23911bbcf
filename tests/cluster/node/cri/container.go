package cri

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"

	"testbed/cluster/node/cgroup"
)

// Reasons that the kubelet and users know.
const (
	reasonCompleted   = "Completed"
	reasonError       = "Error"
	reasonOutOfMemory = "OOMKilled"
	reasonNotStarted  = "StartError"
)

// container is one container from its creation to its removal. What changes after the creation
// is guarded by the runtime's lock, but for what says otherwise.
type container struct {
	id      string
	sandbox *sandbox
	config  *cri.ContainerConfig
	image   *image
	logPath string

	state                      cri.ContainerState
	created, started, finished time.Time
	exitCode                   int32
	reason, message            string
	resources                  *cri.LinuxContainerResources

	// These are set before the state is running and not changed after.
	command *exec.Cmd
	group   *cgroup.Group
	log     *logFile
	input   *input
	// done is closed when the state is exited.
	done        chan struct{}
	outOfMemory atomic.Bool
}

// CreateContainer checks and remembers what is to be started.
func (r *Runtime) CreateContainer(_ context.Context, sandboxID string, config *cri.ContainerConfig, sandboxConfig *cri.PodSandboxConfig) (string, error) {
	s, err := r.sandbox(sandboxID)
	if err != nil {
		return "", err
	}
	if err := ownProcesses(config.GetLinux().GetSecurityContext().GetNamespaceOptions()); err != nil {
		return "", err
	}
	name := config.GetImage().GetUserSpecifiedImage()
	if name == "" {
		name = config.GetImage().GetImage()
	}
	found, err := r.Images.find(name)
	if err != nil {
		return "", err
	}
	if len(config.GetCommand()) == 0 && found.program == "" {
		return "", fmt.Errorf("image %s has no program of its own: give the container a command", name)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &container{
		id: r.newID(), sandbox: s, config: config, image: found,
		logPath: filepath.Join(sandboxConfig.GetLogDirectory(), config.GetLogPath()),
		state:   cri.ContainerState_CONTAINER_CREATED, created: time.Now(),
		resources: config.GetLinux().GetResources(), done: make(chan struct{}),
	}
	r.containers[c.id] = c
	return c.id, nil
}

// RemoveContainer ends a container and removes its files.
func (r *Runtime) RemoveContainer(ctx context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return nil // Removing is idempotent.
	}
	if err := r.StopContainer(ctx, id, 0); err != nil {
		return err
	}
	if err := r.discardContainer(c); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.containers, id)
	return nil
}

// discardContainer removes what a container has on disk and in the kernel, but for its log.
func (r *Runtime) discardContainer(c *container) error {
	if c.group != nil {
		if err := c.group.Remove(); err != nil {
			return err
		}
	}
	if err := os.RemoveAll(r.layers(c.id)); err != nil {
		return fmt.Errorf("remove a container's files: %w", err)
	}
	return nil
}

// ListContainers lists containers by id, state, pod and labels.
func (r *Runtime) ListContainers(_ context.Context, f *cri.ContainerFilter) ([]*cri.Container, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var list []*cri.Container
	for _, c := range r.containers {
		if f.GetId() != "" && f.GetId() != c.id || f.GetState() != nil && f.GetState().State != c.state ||
			f.GetPodSandboxId() != "" && f.GetPodSandboxId() != c.sandbox.id ||
			!matches(c.config.Labels, f.GetLabelSelector()) {
			continue
		}
		list = append(list, &cri.Container{
			Id: c.id, PodSandboxId: c.sandbox.id, Metadata: c.config.Metadata, Image: c.config.Image,
			ImageRef: c.image.id, ImageId: c.image.id, State: c.state, CreatedAt: c.created.UnixNano(),
			Labels: c.config.Labels, Annotations: c.config.Annotations,
		})
	}
	return list, nil
}

// ContainerStatus describes one container.
func (r *Runtime) ContainerStatus(_ context.Context, id string, _ bool) (*cri.ContainerStatusResponse, error) {
	c, err := r.container(id)
	if err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return &cri.ContainerStatusResponse{Status: &cri.ContainerStatus{
		Id: id, Metadata: c.config.Metadata, State: c.state, CreatedAt: c.created.UnixNano(),
		StartedAt: nanoseconds(c.started), FinishedAt: nanoseconds(c.finished), ExitCode: c.exitCode,
		Image:    &cri.ImageSpec{Image: c.image.name, UserSpecifiedImage: c.image.name},
		ImageRef: c.image.id, ImageId: c.image.id, Reason: c.reason, Message: c.message,
		Labels: c.config.Labels, Annotations: c.config.Annotations, Mounts: c.config.Mounts, LogPath: c.logPath,
		Resources: &cri.ContainerResources{Linux: c.resources},
	}}, nil
}

// nanoseconds is zero, not a year long ago, for a time that has not come.
func nanoseconds(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixNano()
}

// UpdateContainerResources sets new limits.
func (r *Runtime) UpdateContainerResources(_ context.Context, id string, resources *cri.ContainerResources) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if resources.GetLinux() == nil {
		return nil
	}
	c.resources = resources.GetLinux()
	if c.group == nil {
		return nil
	}
	return c.group.Limit(limits(c.resources))
}

func limits(l *cri.LinuxContainerResources) cgroup.Limits {
	return cgroup.Limits{MemoryBytes: l.GetMemoryLimitInBytes(), CPUQuota: l.GetCpuQuota(), CPUPeriod: l.GetCpuPeriod()}
}

// ReopenContainerLog follows a rotation by the kubelet.
func (r *Runtime) ReopenContainerLog(_ context.Context, id string) error {
	c, err := r.container(id)
	if err != nil {
		return err
	}
	if c.log == nil {
		return errors.New("the container has not been started")
	}
	return c.log.reopen()
}
