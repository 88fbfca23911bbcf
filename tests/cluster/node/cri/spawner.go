package cri

import (
	"os/exec"
	"runtime"
)

// spawner starts processes from one thread that lives as long as the node does: the kernel kills
// a container when the thread that started it ends, and Go's threads come and go.
type spawner struct {
	commands chan spawn
}

type spawn struct {
	command *exec.Cmd
	result  chan error
}

func newSpawner() *spawner {
	s := &spawner{commands: make(chan spawn)}
	go func() {
		runtime.LockOSThread()
		for c := range s.commands {
			c.result <- c.command.Start()
		}
	}()
	return s
}

func (s *spawner) start(command *exec.Cmd) error {
	c := spawn{command, make(chan error, 1)}
	s.commands <- c
	return <-c.result
}
