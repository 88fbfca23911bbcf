package cri

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
	remote "k8s.io/cri-client/pkg"
	utilexec "k8s.io/utils/exec"

	"testbed/cluster/node/cgroup"
)

// The test's binary is also the containers' init, since it contains that package.

const patience = 20 * time.Second

// bed is a runtime with one pod on the host's network.
type bed struct {
	*Runtime
	t   *testing.T
	pod *cri.PodSandboxConfig
	id  string
}

func newBed(t *testing.T) *bed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("containers need root")
	}
	root := t.TempDir()
	groups, err := cgroup.Open("node-test-" + filepath.Base(filepath.Dir(root)))
	if err != nil {
		t.Logf("without control groups: %v", err)
	} else {
		t.Cleanup(func() { must(t, groups.Remove()) })
	}
	r, err := New(Options{Root: root, Owner: root, Images: &Images{File: filepath.Join(root, "images"), Root: root}, Cgroups: groups})
	must(t, err)
	t.Cleanup(func() { must(t, unix.Unmount(r.shmDir(), unix.MNT_DETACH)) })
	b := &bed{Runtime: r, t: t, pod: &cri.PodSandboxConfig{
		Metadata: &cri.PodSandboxMetadata{Name: "pod", Uid: "uid"}, Hostname: "host-of-pod", LogDirectory: root,
		Linux: &cri.LinuxPodSandboxConfig{SecurityContext: &cri.LinuxSandboxSecurityContext{NamespaceOptions: &cri.NamespaceOption{
			Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER,
		}}},
	}}
	b.id, err = r.RunPodSandbox(t.Context(), b.pod, "")
	must(t, err)
	t.Cleanup(func() { must(t, r.RemovePodSandbox(context.Background(), b.id)) })
	return b
}

func config(script string) *cri.ContainerConfig {
	return &cri.ContainerConfig{
		Metadata: &cri.ContainerMetadata{Name: "c"}, Image: &cri.ImageSpec{Image: "host"}, LogPath: "c.log",
		Command: []string{"sh", "-c", script},
		Linux: &cri.LinuxContainerConfig{SecurityContext: &cri.LinuxContainerSecurityContext{NamespaceOptions: &cri.NamespaceOption{
			Network: cri.NamespaceMode_NODE, Pid: cri.NamespaceMode_CONTAINER,
		}}},
	}
}

func (b *bed) start(c *cri.ContainerConfig) string {
	b.t.Helper()
	id, err := b.CreateContainer(b.t.Context(), b.id, c, b.pod)
	must(b.t, err)
	must(b.t, b.StartContainer(b.t.Context(), id))
	return id
}

// end waits for the container to end by itself.
func (b *bed) end(id string) *cri.ContainerStatus {
	b.t.Helper()
	c, err := b.container(id)
	must(b.t, err)
	select {
	case <-c.done:
	case <-time.After(patience):
		b.t.Fatalf("the container has not ended; its log: %s", b.log())
	}
	r, err := b.ContainerStatus(b.t.Context(), id, false)
	must(b.t, err)
	return r.Status
}

// log is what the container said, without times and streams.
func (b *bed) log() string {
	raw, _ := os.ReadFile(filepath.Join(b.Root, "c.log"))
	var text strings.Builder
	for line := range strings.Lines(string(raw)) {
		text.WriteString(strings.SplitN(line, " ", 4)[3])
	}
	return text.String()
}

// says waits until the container has said something.
func (b *bed) says(what string) {
	b.t.Helper()
	for deadline := time.Now().Add(patience); !strings.Contains(b.log(), what); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			b.t.Fatalf("the container did not say %q but: %s", what, b.log())
		}
	}
}

func (b *bed) run(c *cri.ContainerConfig) string {
	b.t.Helper()
	b.end(b.start(c))
	return b.log()
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("%q is missing in: %s", p, text)
		}
	}
}

func TestContainerHasProcessesNameAndDevicesOfItsOwn(t *testing.T) {
	b := newBed(t)
	said := b.run(config(`hostname; ls /proc | grep -c '^[0-9]'; ls /tmp | wc -l; echo x > /dev/null && echo $(ls /dev | sort)`))
	wants(t, said, "host-of-pod\n", "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero")
	if lines := strings.Split(said, "\n"); len(lines) < 3 || len(lines[1]) != 1 || lines[2] != "0" {
		t.Errorf("sees processes or files of the machine: %s", said)
	}
}

func TestExitCodeAndReasonAreTheProgramsOwn(t *testing.T) {
	b := newBed(t)
	if s := b.end(b.start(config("exit 78"))); s.ExitCode != 78 || s.Reason != reasonError {
		t.Errorf("exit 78 became %d %s", s.ExitCode, s.Reason)
	}
	if s := b.end(b.start(config("kill -9 $$"))); s.ExitCode != 137 || s.Reason != reasonError {
		t.Errorf("a kill became %d %s", s.ExitCode, s.Reason)
	}
	if s := b.end(b.start(config("true"))); s.ExitCode != 0 || s.Reason != reasonCompleted {
		t.Errorf("success became %d %s", s.ExitCode, s.Reason)
	}
}

func TestProgramThatIsNotThereIsAStartError(t *testing.T) {
	b := newBed(t)
	c := config("")
	c.Command = []string{"no-such-program"}
	id, err := b.CreateContainer(t.Context(), b.id, c, b.pod)
	must(t, err)
	if err := b.StartContainer(t.Context(), id); err == nil || !strings.Contains(err.Error(), "no-such-program") {
		t.Errorf("the error does not name the program: %v", err)
	}
	if s := b.end(id); s.ExitCode != exitCodeNotStarted || s.Reason != reasonNotStarted {
		t.Errorf("it became %d %s", s.ExitCode, s.Reason)
	}
}

func TestInitForwardsTermAndKillFollows(t *testing.T) {
	b := newBed(t)
	polite := b.start(config("trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"))
	b.says("up")
	must(t, b.StopContainer(t.Context(), polite, 20))
	wants(t, b.log(), "bye")
	if s := b.end(polite); s.ExitCode != 3 {
		t.Errorf("the exit code is %d", s.ExitCode)
	}
	deaf := b.start(config("trap '' TERM; echo deaf; while :; do sleep 0.05; done"))
	b.says("deaf")
	began := time.Now()
	must(t, b.StopContainer(t.Context(), deaf, 1))
	if s := b.end(deaf); s.ExitCode != 137 || time.Since(began) < time.Second {
		t.Errorf("the exit code is %d after %s", s.ExitCode, time.Since(began))
	}
}

func TestInitReapsOrphansAndTakesThemAlong(t *testing.T) {
	b := newBed(t)
	id := b.start(config("(sleep 0.1 & sleep 1000 &); sleep 0.5; ls -d /proc/[0-9]* | wc -l; grep -h State /proc/[0-9]*/status; sleep 1000"))
	b.says("State")
	if strings.Contains(b.log(), "Z (zombie)") {
		t.Errorf("a zombie is left: %s", b.log())
	}
	c, err := b.container(id)
	must(t, err)
	children := descendants(c.command.Process.Pid)
	must(t, b.StopContainer(t.Context(), id, 0))
	for _, pid := range children {
		if _, err := os.Stat(filepath.Join("/proc", pid)); err == nil {
			t.Errorf("process %s has outlived its container", pid)
		}
	}
}

func descendants(pid int) (found []string) {
	ns, _ := os.Readlink(filepath.Join("/proc", strconv.Itoa(pid), "ns/pid"))
	all, _ := filepath.Glob("/proc/[0-9]*/ns/pid")
	for _, link := range all {
		if of, _ := os.Readlink(link); of == ns && ns != "" {
			found = append(found, strings.Split(link, "/")[2])
		}
	}
	return found
}

func TestUserCapabilitiesAndReadonlyRootHold(t *testing.T) {
	b := newBed(t)
	c := config("id; grep -E 'CapBnd|NoNewPrivs' /proc/self/status; touch /x || echo sealed; echo o > /dev/stdout")
	c.Linux.SecurityContext.RunAsUser = &cri.Int64Value{Value: 1234}
	c.Linux.SecurityContext.RunAsGroup = &cri.Int64Value{Value: 2345}
	c.Linux.SecurityContext.SupplementalGroups = []int64{3456}
	c.Linux.SecurityContext.ReadonlyRootfs = true
	c.Linux.SecurityContext.NoNewPrivs = true
	c.Linux.SecurityContext.Capabilities = &cri.Capability{DropCapabilities: []string{"ALL"}, AddCapabilities: []string{"NET_BIND_SERVICE"}}
	wants(t, b.run(c), "uid=1234 gid=2345 groups=2345,3456", "CapBnd:\t0000000000000400", "NoNewPrivs:\t1", "sealed", "o\n")
}

func TestMountsFollowLinksInsideTheContainerAndReadonlyHolds(t *testing.T) {
	b := newBed(t)
	dir := t.TempDir()
	must(t, os.WriteFile(filepath.Join(dir, "file"), []byte("content"), 0o644))
	c := config("cat /run/linked/file; echo $(cat /etc/one); touch /run/linked/new || echo sealed; touch /open/new && echo open")
	c.Mounts = []*cri.Mount{
		{HostPath: dir, ContainerPath: "/var/run/linked", Readonly: true},
		{HostPath: filepath.Join(dir, "file"), ContainerPath: "/etc/one"},
		{HostPath: dir, ContainerPath: "/open"},
	}
	wants(t, b.run(c), "contentcontent", "sealed", "open")
	if _, err := os.Stat("/run/linked"); err == nil {
		t.Error("the mount point was made on the host")
	}
}

func TestMemoryLimitKills(t *testing.T) {
	b := newBed(t)
	c := config("x=$(head -c 300000000 /dev/zero | tr '\\0' x); echo survived")
	c.Linux.Resources = &cri.LinuxContainerResources{MemoryLimitInBytes: 64 << 20}
	if s := b.end(b.start(c)); s.Reason != reasonOutOfMemory {
		t.Errorf("it became %d %s: %s", s.ExitCode, s.Reason, b.log())
	}
}

func TestExecJoinsTheContainerAndTimesOut(t *testing.T) {
	b := newBed(t)
	id := b.start(config("touch /marker; echo up; sleep 1000"))
	b.says("up")
	out, _, err := b.ExecSync(t.Context(), id, []string{"sh", "-c", "ls /marker; hostname; echo $PATH"}, patience)
	must(t, err)
	wants(t, string(out), "/marker", "host-of-pod", defaultPath)
	_, _, err = b.ExecSync(t.Context(), id, []string{"sh", "-c", "exit 5"}, patience)
	var code utilexec.CodeExitError
	if !errors.As(err, &code) || code.Code != 5 {
		t.Errorf("exit 5 became %v", err)
	}
	began := time.Now()
	_, _, err = b.ExecSync(t.Context(), id, []string{"sleep", "60"}, 300*time.Millisecond)
	if !errors.Is(err, remote.ErrCommandTimedOut) || time.Since(began) > 10*time.Second {
		t.Errorf("a command that takes too long became %v after %s", err, time.Since(began))
	}
	out, _, err = b.ExecSync(t.Context(), id, []string{"sh", "-c", "pgrep -c sleep"}, patience)
	must(t, err)
	if strings.TrimSpace(string(out)) != "1" {
		t.Errorf("the command has outlived its time: %s are asleep", out)
	}
}

func TestImageStandsForItsProgram(t *testing.T) {
	b := newBed(t)
	program := filepath.Join(t.TempDir(), "greet")
	must(t, os.WriteFile(program, []byte("#!/bin/sh\necho hello $@ from $0\n"), 0o755))
	must(t, os.WriteFile(b.Images.File, []byte(`{"example/greeter:1": "`+program+`"}`), 0o644))
	c := config("")
	c.Image.Image, c.Command, c.Args = "example/greeter:1", nil, []string{"you"}
	wants(t, b.run(c), "hello you from /usr/local/bin/greet")
	_, err := b.Images.PullImage(t.Context(), &cri.ImageSpec{Image: "example/other:1"}, nil, nil)
	if err == nil {
		t.Fatal("an image that was not loaded was found")
	}
	wants(t, err.Error(), "image example/other:1 was not loaded into this cluster; run: cluster load example/other:1=PATH")
}

func TestLogKeepsPartialLinesAndFollowsRotation(t *testing.T) {
	b := newBed(t)
	id := b.start(config("head -c 20000 /dev/zero | tr '\\0' x; echo; echo up; while ! test -e /go; do sleep 0.02; done; echo after"))
	b.says("up")
	must(t, os.Rename(filepath.Join(b.Root, "c.log"), filepath.Join(b.Root, "rotated")))
	must(t, b.ReopenContainerLog(t.Context(), id))
	_, _, err := b.ExecSync(t.Context(), id, []string{"touch", "/go"}, patience)
	must(t, err)
	b.end(id)
	if b.log() != "after\n" {
		t.Errorf("the new log has %q", b.log())
	}
	raw, err := os.ReadFile(filepath.Join(b.Root, "rotated"))
	must(t, err)
	wants(t, string(raw), " stdout P xxx", " stdout F xxx")
}

func TestEndedContainerLeavesOnlyItsLog(t *testing.T) {
	b := newBed(t)
	b.run(config("echo data > /file"))
	for deadline := time.Now().Add(patience); ; time.Sleep(10 * time.Millisecond) {
		left, err := os.ReadDir(filepath.Join(b.Root, "containers"))
		must(t, err)
		if len(left) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%v is left", left)
		}
	}
}
