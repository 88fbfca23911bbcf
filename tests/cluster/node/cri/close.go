//go:build !k8s135

package cri

import "context"

// Close has nothing to close: the process ends with its containers.
func (r *Runtime) Close(context.Context) error { return nil }

// Close has nothing to close.
func (i *Images) Close(context.Context) error { return nil }
