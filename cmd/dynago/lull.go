package main

import (
	"runtime/debug"
	"runtime/metrics"
	"time"
)

// Go collects a heap when it has grown enough, and in a lull it does not grow: what a
// burst has left, garbage and stacks that only its first events needed, would stay
// for the two minutes after which Go collects in any case. A server with ten thousand
// streams that wait has nothing better to do than to give that back.

// lullTick is how often a server looks whether it is in a lull.
const lullTick = time.Second

// lull notices when a server has gone quiet over a heap that is worth collecting. It
// is plain data.
type lull struct {
	allocated uint64 // bytes, at the last look
	quiet     int    // looks since the last one that saw work
}

// usage is what the runtime tells of its heap, in bytes.
type usage struct {
	allocated uint64 // since the start
	live      uint64 // left by the last collection
	held      uint64 // now: objects, dead ones included, and room kept for more
}

// due takes a look, and says whether the heap should be collected: a server that has
// allocated next to nothing in two looks, over a heap of which a fifth may be of no use.
func (l *lull) due(u usage) bool {
	worked := u.allocated - l.allocated
	l.allocated = u.allocated
	if worked > max(u.live/64, 256<<10) {
		l.quiet = 0
		return false
	}
	l.quiet++
	return l.quiet >= 2 && u.held > u.live+u.live/4
}

// watchLulls has lulls used from now on, as long as the process lives.
func watchLulls() {
	var l lull
	var look func()
	look = func() {
		if l.due(heapUsage()) {
			debug.FreeOSMemory()
		}
		time.AfterFunc(lullTick, look)
	}
	time.AfterFunc(lullTick, look)
}

func heapUsage() usage {
	samples := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}, {Name: "/gc/heap/live:bytes"}, {Name: "/memory/classes/heap/objects:bytes"}, {Name: "/memory/classes/heap/free:bytes"}}
	metrics.Read(samples)
	return usage{samples[0].Value.Uint64(), samples[1].Value.Uint64(), samples[2].Value.Uint64() + samples[3].Value.Uint64()}
}
