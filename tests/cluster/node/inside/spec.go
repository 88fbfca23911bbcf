// Package inside is what runs in a container besides its program: the init that sets the
// container up and reaps, and the helper that brings a second command into it.
//
// Every container has a process of this package for as long as it lives, so it imports little
// and takes over before the rest of the binary is set up (see init in verbs.go).
package inside

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
)

// The descriptors that the node hands to an init or exec process, after the three of stdio.
const (
	SpecFD   = 3 // read end: the Spec or ExecSpec as JSON
	ReportFD = 4 // write end: a Report as JSON, once
	NetNSFD  = 5 // the pod's network namespace, if Spec.JoinNet
)

// Spec describes one container to its init.
type Spec struct {
	// Layers has the directories upper, work and merged of the container's own file system.
	Layers       string
	ReadonlyRoot bool
	// Shm is the pod's own /dev/shm on the host.
	Shm           string
	Hostname      string
	Mounts        []Mount
	MaskedPaths   []string
	ReadonlyPaths []string
	JoinNet       bool
	OOMScoreAdj   int
	Process       Process
}

// Mount binds a host's file or directory into the container.
type Mount struct {
	Host, Container string
	Readonly        bool
}

// Process is a program and everything that it inherits.
type Process struct {
	Args, Env  []string
	Dir        string
	UID, GID   uint32
	Groups     []uint32
	NoNewPrivs bool
	Terminal   bool
	// Capabilities is the bounding set as bits by capability number.
	Capabilities uint64
	Cgroup       Cgroup
}

// Cgroup says how a process joins its control group: version 1 by the tasks file of each
// hierarchy, version 2 by its directory. Both are empty where there are no control groups.
type Cgroup struct {
	Tasks []string
	Dir   string
}

// ExecSpec describes a further command in the container whose init is PID.
type ExecSpec struct {
	PID     int
	Process Process
}

// Report is the init's answer once the program runs or cannot run.
type Report struct {
	Error string `json:",omitempty"`
}

func readSpec(into any) error {
	f := os.NewFile(SpecFD, "spec")
	defer f.Close()
	raw, err := io.ReadAll(f)
	if err != nil {
		return fmt.Errorf("read the spec: %w", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("parse the spec: %w", err)
	}
	return nil
}

func report(err error) {
	var r Report
	if err != nil {
		r.Error = err.Error()
	}
	f := os.NewFile(ReportFD, "report")
	_ = json.NewEncoder(f).Encode(r)
	_ = f.Close()
}
