package cri

import (
	"fmt"
	"slices"
	"strings"

	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// capabilityNames are the kernel's, by number.
var capabilityNames = []string{
	"CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP",
	"LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER",
	"SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE",
	"SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP",
	"MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF",
	"CHECKPOINT_RESTORE",
}

// defaultCapabilities are those that container runtimes agree on.
var defaultCapabilities = []string{
	"CHOWN", "DAC_OVERRIDE", "FSETID", "FOWNER", "MKNOD", "NET_RAW", "SETGID", "SETUID", "SETFCAP", "SETPCAP",
	"NET_BIND_SERVICE", "SYS_CHROOT", "KILL", "AUDIT_WRITE",
}

// capabilities returns a container's bounding set as bits.
func capabilities(s *cri.LinuxContainerSecurityContext) (uint64, error) {
	all := uint64(1)<<len(capabilityNames) - 1
	if s.GetPrivileged() {
		return all, nil
	}
	set, err := bits(defaultCapabilities, all)
	if err != nil {
		return 0, err
	}
	// All of them first, so that one may be taken from all, or be all that is given.
	add, drop := s.GetCapabilities().GetAddCapabilities(), s.GetCapabilities().GetDropCapabilities()
	if slices.Contains(add, "ALL") {
		set = all
	}
	if slices.Contains(drop, "ALL") {
		set = 0
	}
	added, err := bits(add, 0)
	if err != nil {
		return 0, err
	}
	dropped, err := bits(drop, 0)
	if err != nil {
		return 0, err
	}
	return set&^dropped | added, nil
}

// bits turns names into a set; ALL stands for what the caller says.
func bits(names []string, all uint64) (set uint64, err error) {
	for _, name := range names {
		if name == "ALL" {
			set |= all
			continue
		}
		n := slices.Index(capabilityNames, strings.TrimPrefix(name, "CAP_"))
		if n < 0 {
			return 0, fmt.Errorf("there is no capability %s", name)
		}
		set |= 1 << n
	}
	return set, nil
}
