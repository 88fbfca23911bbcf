package proxy

import (
	"bytes"
	"net"
	"time"
)

// In flight per direction at most: what a long fat line could hold, and no more memory than this.
const (
	chunkBytes     = 32 << 10
	chunksInFlight = 256
)

// chunk is a piece of the stream with the moment at which it may arrive.
type chunk struct {
	data []byte
	due  time.Time
}

// pump copies one direction. Chunks are delayed, not throttled: many can be under way at once.
func (p *Proxy) pump(to, from net.Conn) {
	line := make(chan chunk, chunksInFlight)
	gone := make(chan struct{})
	go func() {
		defer close(line)
		buffer := make([]byte, chunkBytes)
		for {
			n, err := from.Read(buffer)
			if n > 0 {
				fault, _ := p.current()
				select {
				case line <- chunk{bytes.Clone(buffer[:n]), time.Now().Add(fault.Delay)}:
				case <-gone:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer close(gone)
	for c := range line {
		time.Sleep(time.Until(c.due))
		// What was sent into a black hole arrives when it heals, as retransmission would bring it.
		if !p.waitOutBlackhole() {
			return
		}
		if _, err := to.Write(c.data); err != nil {
			from.Close()
			return
		}
	}
	if tcp, ok := to.(*net.TCPConn); ok {
		_ = tcp.CloseWrite()
	}
}
