package node

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	runtimeapi "k8s.io/cri-api/pkg/apis/runtime/v1"

	"testbed/cluster/node/cgroup"
	"testbed/cluster/node/cri"
	"testbed/cluster/node/network"
)

// TestMain is also a node without a kubelet, for tests that kill one: `node --root DIR`.
func TestMain(m *testing.M) {
	if len(os.Args) == 4 && os.Args[1] == "node" {
		fmt.Println(standIn(os.Args[3]))
		select {}
	}
	os.Exit(m.Run())
}

// standIn runs a container with everything that a node gives one, and says if it could.
func standIn(root string) error {
	if err := ownMounts(os.Args[2:]); err != nil {
		return err
	}
	groups, err := cgroup.Open(nameOf(root))
	if err != nil {
		groups = nil
	}
	pods, err := network.Up("test", nameOf(root), netip.MustParsePrefix("198.18.0.0/16"))
	if err != nil {
		pods = nil
	}
	runtime, err := cri.New(cri.Options{
		Root: filepath.Join(root, "runtime"), Owner: root, Network: pods, Cgroups: groups, Images: &cri.Images{Root: root},
	})
	if err != nil {
		return err
	}
	ctx := context.Background()
	pod := &runtimeapi.PodSandboxConfig{
		Metadata: &runtimeapi.PodSandboxMetadata{Name: "pod", Uid: "uid"}, LogDirectory: root,
		Linux: &runtimeapi.LinuxPodSandboxConfig{SecurityContext: &runtimeapi.LinuxSandboxSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}
	sandbox, err := runtime.RunPodSandbox(ctx, pod, "")
	if err != nil {
		return err
	}
	id, err := runtime.CreateContainer(ctx, sandbox, &runtimeapi.ContainerConfig{
		Metadata: &runtimeapi.ContainerMetadata{Name: "c"}, Image: &runtimeapi.ImageSpec{Image: "host"}, LogPath: "c.log",
		Command: []string{"sh", "-c", "sleep 12345 & sleep 12345"},
		Linux: &runtimeapi.LinuxContainerConfig{SecurityContext: &runtimeapi.LinuxContainerSecurityContext{
			NamespaceOptions: &runtimeapi.NamespaceOption{Pid: runtimeapi.NamespaceMode_CONTAINER},
		}},
	}, pod)
	if err != nil {
		return err
	}
	return runtime.StartContainer(ctx, id)
}

func startStandIn(t *testing.T, root string) *exec.Cmd {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a node needs root")
	}
	command := exec.Command("/proc/self/exe", "node", "--root", root)
	command.Stderr = os.Stderr
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = command.Process.Kill(); _ = command.Wait() })
	said, err := bufio.NewReader(out).ReadString('\n')
	if err != nil || strings.TrimSpace(said) != "<nil>" {
		t.Fatalf("the node did not start: %q, %v", said, err)
	}
	return command
}

func TestNothingIsLeftOfANodeThatWasKilled(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	node := startStandIn(t, root)
	if len(processes(root)) < 2 {
		t.Fatalf("only %v are found of the node and its container", processes(root))
	}
	if err := node.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	_ = node.Wait()
	for range 2 {
		if err := Cleanup(root); err != nil {
			t.Fatal(err)
		}
	}
	expectNothing(t, root)
}

func TestCleanupEndsANodeThatRuns(t *testing.T) {
	root := filepath.Join(t.TempDir(), "node")
	node := startStandIn(t, root)
	go func() { _ = node.Wait() }()
	if err := Cleanup(root); err != nil {
		t.Fatal(err)
	}
	expectNothing(t, root)
}

func TestNodesDoNotEndEachOther(t *testing.T) {
	dir := t.TempDir()
	one, two := filepath.Join(dir, "node"), filepath.Join(dir, "node2")
	startStandIn(t, one)
	startStandIn(t, two)
	before := len(processes(two))
	if err := Cleanup(one); err != nil {
		t.Fatal(err)
	}
	if after := len(processes(two)); after != before {
		t.Errorf("of %d processes of the other node %d are left", before, after)
	}
	if err := Cleanup(two); err != nil {
		t.Fatal(err)
	}
}

func expectNothing(t *testing.T, root string) {
	t.Helper()
	if left := processes(root); len(left) > 0 {
		t.Errorf("processes %v are left", left)
	}
	if _, err := os.Stat(root); err == nil {
		t.Error("files are left")
	}
	if _, err := net.InterfaceByName(nameOf(root)); err == nil {
		t.Error("the interface is left")
	}
	groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + nameOf(root))
	if len(groups) > 0 {
		t.Errorf("control groups %v are left", groups)
	}
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(mounts), root) {
		t.Error("mounts are left")
	}
	// A process of the container would be a child of nobody's, and asleep for long.
	deadline := time.Now().Add(10 * time.Second)
	for asleep() {
		if time.Now().After(deadline) {
			t.Fatal("a process of the container is left")
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func asleep() bool {
	all, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, file := range all {
		if raw, _ := os.ReadFile(file); string(raw) == "sleep\x0012345\x00" {
			return true
		}
	}
	return false
}
