package cri

import (
	"context"
	"time"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// ContainerStats measures one container.
func (r *Runtime) ContainerStats(_ context.Context, id string) (*cri.ContainerStats, error) {
	c, err := r.container(id)
	if err != nil {
		return nil, err
	}
	return r.statsOf(c), nil
}

// ListContainerStats measures running containers by id, pod and labels.
func (r *Runtime) ListContainerStats(_ context.Context, f *cri.ContainerStatsFilter) ([]*cri.ContainerStats, error) {
	r.mu.Lock()
	var running []*container
	for _, c := range r.containers {
		if c.state == cri.ContainerState_CONTAINER_RUNNING && (f.GetId() == "" || f.GetId() == c.id) &&
			(f.GetPodSandboxId() == "" || f.GetPodSandboxId() == c.sandbox.id) && matches(c.config.Labels, f.GetLabelSelector()) {
			running = append(running, c)
		}
	}
	r.mu.Unlock()
	list := make([]*cri.ContainerStats, 0, len(running))
	for _, c := range running {
		list = append(list, r.statsOf(c))
	}
	return list, nil
}

// statsOf has identity only where there is no control group to read.
func (r *Runtime) statsOf(c *container) *cri.ContainerStats {
	now := time.Now().UnixNano()
	s := &cri.ContainerStats{Attributes: &cri.ContainerAttributes{
		Id: c.id, Metadata: c.config.Metadata, Labels: c.config.Labels, Annotations: c.config.Annotations,
	}}
	if c.group == nil {
		return s
	}
	u, err := c.group.Usage()
	if err != nil {
		return s
	}
	s.Cpu = &cri.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &cri.UInt64Value{Value: u.CPUNanoseconds}}
	s.Memory = &cri.MemoryUsage{
		Timestamp:       now,
		WorkingSetBytes: &cri.UInt64Value{Value: u.WorkingSetBytes},
		UsageBytes:      &cri.UInt64Value{Value: u.MemoryBytes},
		RssBytes:        &cri.UInt64Value{Value: u.RSSBytes},
	}
	return s
}

// PodSandboxStats measures one pod.
func (r *Runtime) PodSandboxStats(ctx context.Context, id string) (*cri.PodSandboxStats, error) {
	s, err := r.sandbox(id)
	if err != nil {
		return nil, err
	}
	return r.podStats(ctx, s)
}

// ListPodSandboxStats measures ready pods by id and labels.
func (r *Runtime) ListPodSandboxStats(ctx context.Context, f *cri.PodSandboxStatsFilter) ([]*cri.PodSandboxStats, error) {
	r.mu.Lock()
	var ready []*sandbox
	for _, s := range r.sandboxes {
		if s.ready && (f.GetId() == "" || f.GetId() == s.id) && matches(s.config.Labels, f.GetLabelSelector()) {
			ready = append(ready, s)
		}
	}
	r.mu.Unlock()
	var list []*cri.PodSandboxStats
	for _, s := range ready {
		stats, err := r.podStats(ctx, s)
		if err != nil {
			return nil, err
		}
		list = append(list, stats)
	}
	return list, nil
}

// podStats sums up a pod's containers: it has no control group of its own.
func (r *Runtime) podStats(ctx context.Context, s *sandbox) (*cri.PodSandboxStats, error) {
	containers, err := r.ListContainerStats(ctx, &cri.ContainerStatsFilter{PodSandboxId: s.id})
	if err != nil {
		return nil, err
	}
	now := time.Now().UnixNano()
	cpu := &cri.CpuUsage{Timestamp: now, UsageCoreNanoSeconds: &cri.UInt64Value{}}
	memory := &cri.MemoryUsage{Timestamp: now, WorkingSetBytes: &cri.UInt64Value{}, UsageBytes: &cri.UInt64Value{}, RssBytes: &cri.UInt64Value{}}
	for _, c := range containers {
		cpu.UsageCoreNanoSeconds.Value += c.GetCpu().GetUsageCoreNanoSeconds().GetValue()
		memory.WorkingSetBytes.Value += c.GetMemory().GetWorkingSetBytes().GetValue()
		memory.UsageBytes.Value += c.GetMemory().GetUsageBytes().GetValue()
		memory.RssBytes.Value += c.GetMemory().GetRssBytes().GetValue()
	}
	return &cri.PodSandboxStats{
		Attributes: &cri.PodSandboxAttributes{Id: s.id, Metadata: s.config.Metadata, Labels: s.config.Labels, Annotations: s.config.Annotations},
		Linux:      &cri.LinuxPodSandboxStats{Cpu: cpu, Memory: memory, Containers: containers},
	}, nil
}

// ListMetricDescriptors has no metrics beyond the stats.
func (r *Runtime) ListMetricDescriptors(context.Context) ([]*cri.MetricDescriptor, error) {
	return nil, nil
}

// ListPodSandboxMetrics has no metrics beyond the stats.
func (r *Runtime) ListPodSandboxMetrics(context.Context) ([]*cri.PodSandboxMetrics, error) {
	return nil, nil
}
