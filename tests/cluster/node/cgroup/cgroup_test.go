package cgroup

import (
	"bufio"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

func TestRemovalEndsWhatIsInTheGroups(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("control groups need root")
	}
	name := fmt.Sprintf("node-test-removal-%d", os.Getpid())
	tree, err := Open(name)
	if err != nil {
		t.Skipf("this machine has no control groups for containers: %v", err)
	}
	t.Cleanup(func() { _ = tree.Remove() })
	group, err := tree.Create("container", Limits{MemoryBytes: 64 << 20, CPUQuota: 50_000, CPUPeriod: 100_000})
	if err != nil {
		t.Fatal(err)
	}
	args := []string{"-c", `for f; do echo 0 > $f; done; echo in; exec sleep 1000`, "sh"}
	for _, dir := range group.dirs {
		args = append(args, filepath.Join(dir, "cgroup.procs"))
	}
	sleeper := exec.Command("sh", args...)
	out, err := sleeper.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sleeper.Start(); err != nil {
		t.Fatal(err)
	}
	if said, err := bufio.NewReader(out).ReadString('\n'); said != "in\n" {
		t.Fatalf("it did not join: %q, %v", said, err)
	}
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(10 * time.Millisecond) {
		u, err := group.Usage()
		if err == nil && u.MemoryBytes > 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the usage is %+v, %v", u, err)
		}
	}
	if err := Remove(name); err != nil {
		t.Fatal(err)
	}
	if err := sleeper.Wait(); err == nil {
		t.Error("the process has ended by itself")
	}
	for _, dir := range group.dirs {
		if _, err := os.Stat(filepath.Dir(dir)); err == nil {
			t.Errorf("%s is left", filepath.Dir(dir))
		}
	}
}
