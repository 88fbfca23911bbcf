package check

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// badInput is one row of the table: something is wrong, one sentence says what to do.
type badInput struct {
	name string
	args []string
	// words must be in the sentence.
	words string
	// prepare makes it wrong and gives how to undo that; nil when nothing needs to be done.
	prepare func(row *badInput, dir string) (undo func(), err error)
	// through runs the command inside something that takes a right away.
	through []string
	user    uint32
}

func badInputs(first *session) []badInput {
	return []badInput{
		{name: "not root", args: []string{"up"}, words: "run it as root", user: 65534},
		{
			name: "no namespaces", args: []string{"up"}, words: "namespaces",
			through: []string{"unshare", "--user", "--map-root-user", "sh", "-c", `echo 0 > /proc/sys/user/max_pid_namespaces; exec "$0" "$@"`},
		},
		{name: "no overlay", args: []string{"up"}, words: "overlay", through: []string{first.binary, "check", noMountVerb}},
		{name: "port taken", args: []string{"up"}, words: "is taken", prepare: takePort},
		{name: "disk full", args: []string{"up"}, words: "MB are free", prepare: smallDisk},
		{name: "directory with other files", args: []string{"up"}, words: "other files", prepare: otherFiles},
		{name: "a second up in one directory", args: []string{"up", "--dir", first.dir}, words: "cluster down"},
		{name: "unknown option", args: []string{"up", "--nodse", "2"}, words: "--nodes"},
		{name: "too many nodes", args: []string{"up", "--nodes", "1000"}, words: "nodes"},
		{name: "no cluster to talk to", args: []string{"status"}, words: "cluster up"},
		{name: "load without a program", args: []string{"load", "app:1"}, words: "IMAGE=BINARY"},
		{name: "load a missing program", args: []string{"load", "app:1=/no/such/file"}, words: "no such file"},
		{name: "load a file that is no program", args: []string{"load", "app:1=/etc/passwd"}, words: "not a program"},
		{name: "unknown process", args: []string{"kill", "nothing", "--dir", first.dir}, words: "kube-apiserver"},
		{name: "unknown node", args: []string{"node", "kill", "nothing", "--dir", first.dir}, words: "node add"},
		{name: "bad node name", args: []string{"node", "add", "../up", "--dir", first.dir}, words: "cannot be a node's name"},
		{name: "unknown fault", args: []string{"net", "slow", "--dir", first.dir}, words: "delay"},
		{name: "fault of an unknown client", args: []string{"net", "cut", "--client", "x", "--dir", first.dir}, words: "--through x"},
		{name: "kubeconfig for nobody", args: []string{"kubeconfig", "--dir", first.dir}, words: "--user"},
	}
}

// run carries out one row in a directory of its own, and looks for what it left behind.
func (b badInput) run(ctx context.Context, binary string) error {
	parent, err := os.MkdirTemp("", "bad-input-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(parent)
	if err := os.Chmod(parent, 0o777); err != nil {
		return err
	}
	dir := filepath.Join(parent, "state")
	before, err := traces(dir)
	if err != nil {
		return err
	}
	if b.prepare != nil {
		undo, err := b.prepare(&b, dir)
		if err != nil {
			return err
		}
		defer undo()
	}
	kept, _ := filepath.Glob(filepath.Join(dir, "*"))
	words := append(append(b.through, binary), b.args...)
	cmd := exec.CommandContext(ctx, words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "CLUSTER_DIR="+dir)
	if b.user != 0 {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: b.user, Gid: b.user}}
	}
	output, err := cmd.CombinedOutput()
	text := strings.TrimSpace(string(output))
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return fmt.Errorf("exit code 0 was given: %s (%v)", text, err)
	}
	if err := expect(strings.Contains(text, b.words), "%q is not in %q", b.words, text); err != nil {
		return err
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "*")); len(left) != len(kept) {
		return fmt.Errorf("files are left: %v", left)
	}
	after, err := traces(dir)
	if err != nil {
		return err
	}
	return after.beyond(before)
}

func takePort(row *badInput, _ string) (func(), error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	row.args = []string{"up", "--api-port", fmt.Sprint(listener.Addr().(*net.TCPAddr).Port)}
	return func() { listener.Close() }, nil
}

func smallDisk(_ *badInput, dir string) (func(), error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=16m"); err != nil {
		return nil, err
	}
	return func() { _ = unix.Unmount(dir, 0) }, nil
}

func otherFiles(_ *badInput, dir string) (func(), error) {
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	return func() {}, os.WriteFile(filepath.Join(dir, "letter"), nil, 0o644)
}
