package cri

import (
	"fmt"
	"hash/fnv"
	"sync"
)

// loopbacks hands out addresses in 127.0.0.0/8 where pods cannot have a network of their own. A
// program must then listen on its pod's address, or else it takes the port of its neighbours.
type loopbacks struct {
	mu    sync.Mutex
	block byte
	next  uint16
}

// newLoopbacks begins where the owner's name leads to, away from 127.0 and from other nodes.
func newLoopbacks(owner string) *loopbacks {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(owner))
	return &loopbacks{block: byte(1 + sum.Sum32()%254)}
}

func (l *loopbacks) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.next++
	if l.next%256 == 0 || l.next%256 == 255 {
		l.next += 2
	}
	return fmt.Sprintf("127.%d.%d.%d", l.block, l.next/256, l.next%256)
}
