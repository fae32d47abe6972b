package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"sync"
	"time"
)

// Go collects a heap when it has doubled. For the 10 MB of a server with short
// conversations that is ten times a second, and a tenth of all that it spends. So the
// heap of a server that is busy may grow to leastHeap first; a larger one, and that
// of a server with little to do, is collected as ever.
const leastHeap = 64 << 20

const (
	often = 500 * time.Millisecond // between collections of a busy server
	rare  = 10 * time.Second       // … and of one with little to do

	usualGrowth = 100 // percent: GOGC of Go itself
)

// collector is how far the heap may grow. It is plain data.
type collector struct {
	growth int // percent of what lives
	last   time.Time
}

// collected takes note of a collection that has left so many bytes, and returns how
// far the heap may grow until the next.
func (c *collector) collected(now time.Time, live uint64) int {
	since := now.Sub(c.last)
	c.last = now
	roomy := c.growth > usualGrowth
	switch wanted := max(usualGrowth, int(100*leastHeap/max(live, 1<<20))-100); {
	case since >= rare, wanted == usualGrowth:
		c.growth = usualGrowth
	case since >= often && !roomy:
	case !roomy || wanted < c.growth*7/8 || wanted > c.growth*9/8: // changing it stops the world
		c.growth = wanted
	}
	return c.growth
}

// calm is how long a server is left alone with what it needs to start.
const calm = time.Second

// spareCollections lets collector decide how far the heap of this process grows, once
// it has started, and has it collected in lulls, unless its operator has set GOGC.
var spareCollections = sync.OnceFunc(func() {
	if os.Getenv("GOGC") != "" {
		return
	}
	c := collector{growth: usualGrowth}
	var after func(*sentinel)
	after = func(s *sentinel) {
		before := c.growth
		if growth := c.collected(time.Now(), liveHeap()); growth != before {
			debug.SetGCPercent(growth)
		}
		runtime.SetFinalizer(s, after)
	}
	time.AfterFunc(calm, func() { runtime.SetFinalizer(&sentinel{}, after) })
	watchLulls()
})

// sentinel is an object that nobody needs: its finalizer runs behind each collection.
type sentinel struct{ _ *sentinel }

// liveHeap returns what the last collection has found in use.
func liveHeap() uint64 {
	sample := []metrics.Sample{{Name: "/gc/heap/live:bytes"}}
	metrics.Read(sample)
	return sample[0].Value.Uint64()
}
