//go:build k8s135

package cri

// Close has nothing to close: the process ends with its containers. Only 1.35 calls it so.
func (r *Runtime) Close() error { return nil }

// Close has nothing to close.
func (i *Images) Close() error { return nil }
