package cri

import (
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"
	cri "k8s.io/cri-api/pkg/apis/runtime/v1"
)

// streams is a container's standard input and output: its own ends, and the node's by stream.
type streams struct {
	stdin, stdout, stderr *os.File
	near                  map[string]*os.File
	input                 *input
	far                   []*os.File
}

// input is where an attached user's typing goes. A nil input takes none.
type input struct {
	mu       sync.Mutex
	to       *os.File
	terminal bool
}

func newStreams(config *cri.ContainerConfig) (*streams, error) {
	s := &streams{near: map[string]*os.File{}}
	if err := s.open(config); err != nil {
		s.closeNear()
		s.closeFar()
		return nil, err
	}
	return s, nil
}

func (s *streams) open(config *cri.ContainerConfig) error {
	if config.GetTty() {
		master, program, err := openTerminal("/dev/pts")
		if err != nil {
			return err
		}
		s.near["stdout"], s.far = master, []*os.File{program}
		s.stdin, s.stdout, s.stderr = program, program, program
		s.input = &input{to: master, terminal: true}
		return nil
	}
	for name, end := range map[string]**os.File{"stdout": &s.stdout, "stderr": &s.stderr} {
		read, write, err := os.Pipe()
		if err != nil {
			return fmt.Errorf("make a pipe: %w", err)
		}
		// Best effort: the default is enough for most.
		_, _ = unix.FcntlInt(write.Fd(), unix.F_SETPIPE_SZ, logPipeBytes)
		s.near[name], *end = read, write
		s.far = append(s.far, write)
	}
	if !config.GetStdin() {
		return nil // Which the program sees as /dev/null.
	}
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("make a pipe: %w", err)
	}
	s.stdin, s.input = read, &input{to: write}
	s.far = append(s.far, read)
	return nil
}

// closeFar gives up the program's ends, which it has inherited.
func (s *streams) closeFar() {
	for _, f := range s.far {
		_ = f.Close()
	}
}

func (s *streams) closeNear() {
	for _, f := range s.near {
		_ = f.Close()
	}
	s.input.close()
}

func (i *input) close() {
	if i == nil {
		return
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	_ = i.to.Close()
}

// copyFrom types what a user types. With once, the program sees its end.
func (i *input) copyFrom(from io.Reader, once bool) {
	_, _ = io.Copy(i.to, from)
	if once && !i.terminal {
		i.close()
	}
}
