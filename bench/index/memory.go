package main

import (
	"os"
	"runtime"
	"runtime/debug"
	"strconv"
	"strings"
	"time"
)

// footprint is what an index of many blocks takes.
type footprint struct {
	Blocks  int     `json:"blocks"`
	One     float64 `json:"one"`     // live bytes per block with one owner
	Further float64 `json:"further"` // per block and owner beyond the first
	// Left is the live heap after everything was removed, as a share of the
	// most there was.
	Left float64 `json:"left"`
	// Resident bytes per block with one owner, and the share left at the end
	// once free memory is given back.
	Resident     float64 `json:"resident"`
	ResidentLeft float64 `json:"resident_left"`
	// The least time of a full collection, in microseconds: with an empty index,
	// and with one of so many blocks.
	CollectEmpty float64 `json:"collect_empty"`
	CollectFull  float64 `json:"collect_full"`
	Failed       int     `json:"failed"`
}

// furtherOwners are the owners beyond the first.
const furtherOwners = 3

// memory fills an index of 64 workers, first with one owner for each block, then
// with more, and empties it worker by worker.
func memory(c contestant, blocks int) (footprint, error) {
	runtime.GOMAXPROCS(1) // a collection that waits for a second core says nothing of the heap
	all := chains(blocks / promptBlocks)
	f := footprint{Blocks: int(all) * promptBlocks}
	x := c.new()
	match := x.matcher()
	empty := live()
	emptyResident := resident()
	f.CollectEmpty = collection()

	f.Failed = all.fill(x, 0)
	one := live()
	f.One = float64(one-empty) / float64(f.Blocks)
	f.Resident = float64(resident()-emptyResident) / float64(f.Blocks)
	f.CollectFull = collection()

	peak := one
	if blocks <= furtherBlocks {
		for i := range furtherOwners {
			f.Failed += all.fill(x, i+1)
		}
		peak = live()
		f.Further = float64(peak-one) / float64(f.Blocks*furtherOwners)
	}
	peakResident := resident()
	for w := range depthWorkers {
		x.RemoveWorker(uint64(w) + 1)
	}
	f.Left = float64(live()-empty) / float64(peak-empty)
	f.ResidentLeft = float64(resident()-emptyResident) / float64(peakResident-emptyResident)
	runtime.KeepAlive(x)
	runtime.KeepAlive(match)
	return f, nil
}

// furtherBlocks is the most blocks that are given further owners: with four
// owners each they take as much memory as the largest index with one.
const furtherBlocks = 2_500_000

// collection returns the least time that a full collection takes, in
// microseconds: others have this machine's cores, too, and what they add says
// nothing of the heap.
func collection() float64 {
	least := time.Hour
	for range 200 {
		began := time.Now()
		runtime.GC()
		least = min(least, time.Since(began))
	}
	return float64(least) / float64(time.Microsecond)
}

// resident is the memory of this process in bytes, once it has given back what
// it does not use.
func resident() int {
	debug.FreeOSMemory()
	text, err := os.ReadFile("/proc/self/statm")
	fields := strings.Fields(string(text))
	if err != nil || len(fields) < 2 {
		panic("/proc/self/statm cannot be read") // outside Linux there is none
	}
	pages, err := strconv.Atoi(fields[1])
	if err != nil {
		panic(err)
	}
	return pages * os.Getpagesize()
}
