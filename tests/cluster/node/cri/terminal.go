package cri

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// openTerminal makes a pseudo-terminal of a /dev/pts, be it the machine's or a container's: the
// master's end and the program's.
func openTerminal(devpts string) (master, program *os.File, err error) {
	master, err = os.OpenFile(devpts+"/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	if err == nil {
		// By the master and not by name, which means another terminal here than in a container.
		program, err = peer(master)
	}
	if err != nil {
		_ = master.Close()
		return nil, nil, fmt.Errorf("open a terminal: %w", err)
	}
	return master, program, nil
}

func peer(master *os.File) (*os.File, error) {
	fd, _, errno := unix.Syscall(unix.SYS_IOCTL, master.Fd(), unix.TIOCGPTPEER, unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC)
	if errno != 0 {
		return nil, errno
	}
	return os.NewFile(fd, "terminal"), nil
}

// follow resizes a terminal as its user's changes.
func follow(master *os.File, sizes <-chan terminalSize) {
	for s := range sizes {
		_ = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: s.Height, Col: s.Width})
	}
}
