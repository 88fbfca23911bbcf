package cri

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// longestLine is what other runtimes write as one entry; a longer line becomes several.
const longestLine = 16 << 10

// logFile writes what a container says in the format that the kubelet reads, and passes it on to
// whoever is attached.
type logFile struct {
	path string

	mu        sync.Mutex
	file      *os.File
	listeners map[*listener]bool
}

type listener struct {
	stdout, stderr io.Writer
}

func openLog(path string) (*logFile, error) {
	l := &logFile{path: path, listeners: map[*listener]bool{}}
	return l, l.reopen()
}

func (l *logFile) reopen() error {
	f, err := os.OpenFile(l.path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o640)
	if err != nil {
		return fmt.Errorf("open the container's log: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file != nil {
		_ = l.file.Close()
	}
	l.file = f
	return nil
}

func (l *logFile) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	_ = l.file.Close()
}

// attach passes on what is said from now on, until detach. A nil writer wants nothing.
func (l *logFile) attach(stdout, stderr io.Writer) (detach func()) {
	who := &listener{stdout, stderr}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.listeners[who] = true
	return func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		delete(l.listeners, who)
	}
}

// pump writes a stream to the log until its end, which for a terminal is an error.
func (l *logFile) pump(stream string, from io.Reader) {
	lines := bufio.NewReaderSize(from, longestLine)
	for {
		line, err := lines.ReadSlice('\n')
		if len(line) > 0 {
			l.write(stream, line)
		}
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
}

func (l *logFile) write(stream string, line []byte) {
	text, tag := line, "P"
	if line[len(line)-1] == '\n' {
		text, tag = line[:len(line)-1], "F"
	}
	entry := make([]byte, 0, len(line)+64)
	entry = time.Now().AppendFormat(entry, time.RFC3339Nano)
	entry = fmt.Appendf(entry, " %s %s ", stream, tag)
	entry = append(append(entry, text...), '\n')
	l.mu.Lock()
	defer l.mu.Unlock()
	// A full disk must not stop the container.
	_, _ = l.file.Write(entry)
	for who := range l.listeners {
		to := who.stdout
		if stream == "stderr" {
			to = who.stderr
		}
		if to == nil {
			continue
		}
		if _, err := to.Write(line); err != nil {
			delete(l.listeners, who)
		}
	}
}
