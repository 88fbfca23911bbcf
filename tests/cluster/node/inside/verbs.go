package inside

import (
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
)

// The words that the binary is called with to become a process of this package.
const (
	InitVerb = "container-init"
	ExecVerb = "container-exec"
)

// A hundred packages of Kubernetes initialise themselves when the binary starts. Whoever is only
// an init leaves before that, and stays on the main thread, whose credentials it changes.
func init() {
	if len(os.Args) < 2 || filepath.Base(os.Args[0]) == "kubectl" {
		return
	}
	if handled, code := Verb(os.Args[1], os.Args[2:]); handled {
		os.Exit(code)
	}
}

// Verb runs the named process of this package and returns its exit code, or handled=false if
// the name is none of its words. Arguments only mark the process as the node's for clean-up.
func Verb(name string, _ []string) (handled bool, code int) {
	switch name {
	case InitVerb:
		lean()
		return true, Init()
	case ExecVerb:
		lean()
		return true, Exec()
	default:
		return false, 0
	}
}

// lean keeps a process that does next to nothing small: there may be hundreds of it.
func lean() {
	runtime.LockOSThread()
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(-1)
}
