package bed

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"time"
)

// A program that dies unasked is started again after this pause, as a static pod would be.
const restartPause = 300 * time.Millisecond

// program is what a process runs.
type program struct {
	binary string
	args   []string
	env    []string
}

// process is one program under supervision.
type process struct {
	name string
	program
	layout layout
	spawn  spawner

	mu       sync.Mutex
	pid      int           // 0 while it does not run
	start    uint64        // with pid, names the process for good
	exited   chan struct{} // closed when the present run has ended
	stopped  bool          // by SIGSTOP
	wantDown bool          // killed on purpose: it stays down
	restarts int
}

// spawner starts all children from one thread that never ends: the kernel delivers the parent
// death signal when the thread that forked is gone, not the process.
type spawner chan func()

func newSpawner() spawner {
	work := make(spawner)
	go func() {
		runtime.LockOSThread()
		for start := range work {
			start()
		}
	}()
	return work
}

func (s spawner) run(cmd *exec.Cmd) error {
	done := make(chan error)
	s <- func() { done <- cmd.Start() }
	return <-done
}

// launch starts the program; it is a no-op while it runs.
func (p *process) launch() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wantDown = false
	return p.launchLocked()
}

func (p *process) launchLocked() error {
	if p.pid != 0 {
		return nil
	}
	log, err := os.OpenFile(p.layout.log(p.name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(p.binary, p.args...)
	cmd.Env = append(os.Environ(), p.env...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if err := p.spawn.run(cmd); err != nil {
		return fmt.Errorf("%s did not start: %w", p.name, err)
	}
	p.pid, p.stopped, p.exited = cmd.Process.Pid, false, make(chan struct{})
	p.start, _ = startTime(p.pid)
	if err := p.layout.remember(p.name, p.pid); err != nil {
		_ = cmd.Process.Kill()
		return err
	}
	go p.wait(cmd, p.exited)
	return nil
}

// wait reaps the program, and starts it again unless it was to go.
func (p *process) wait(cmd *exec.Cmd, exited chan struct{}) {
	_ = cmd.Wait()
	p.mu.Lock()
	p.pid, p.stopped = 0, false
	close(exited)
	again := !p.wantDown
	p.mu.Unlock()
	if !again {
		return
	}
	time.Sleep(restartPause)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.wantDown && p.pid == 0 {
		p.restarts++
		_ = p.launchLocked() // status shows that it is down
	}
}

// signal reaches the process alone.
func (p *process) signal(sig syscall.Signal) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pid == 0 {
		return fmt.Errorf("%s does not run: `restart %s` starts it", p.name, p.name)
	}
	switch sig {
	case syscall.SIGSTOP:
		p.stopped = true
	case syscall.SIGCONT:
		p.stopped = false
	}
	return syscall.Kill(p.pid, sig)
}

// kill ends the process without a chance to say goodbye, and keeps it down.
func (p *process) kill() error {
	p.mu.Lock()
	p.wantDown = true
	pid, exited := p.pid, p.exited
	if pid != 0 {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	p.mu.Unlock()
	if pid == 0 {
		return nil
	}
	select {
	case <-exited:
		return nil
	case <-time.After(10 * time.Second):
		return fmt.Errorf("%s (process %d) does not die", p.name, pid)
	}
}

// signalTree reaches the process and all below it: containers as well.
func (p *process) signalTree(sig syscall.Signal) error {
	if err := p.signal(sig); err != nil {
		return err
	}
	p.mu.Lock()
	pid := p.pid
	p.mu.Unlock()
	for _, child := range descendants(pid) {
		if err := syscall.Kill(child, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return nil
}

// ProcessStatus is one line of `status`.
type ProcessStatus struct {
	Name     string `json:"name"`
	Pid      int    `json:"pid"`
	State    string `json:"state"`
	Restarts int    `json:"restarts"`
	MemoryMB int    `json:"memory_mb"`
}

func (p *process) status() ProcessStatus {
	p.mu.Lock()
	defer p.mu.Unlock()
	s := ProcessStatus{Name: p.name, Pid: p.pid, State: "running", Restarts: p.restarts}
	switch {
	case p.pid == 0:
		s.State = "down"
	case p.stopped:
		s.State = "stopped"
	}
	if p.pid != 0 {
		s.MemoryMB = memoryKB(p.pid) / 1024
	}
	return s
}

// lastWords is the end of the process's log, for an error message.
func (p *process) lastWords() string {
	text, _ := os.ReadFile(p.layout.log(p.name))
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	const kept = 5
	if len(lines) > kept {
		lines = lines[len(lines)-kept:]
	}
	return strings.Join(lines, "\n")
}
