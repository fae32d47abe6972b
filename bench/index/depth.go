package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"time"

	"github.com/dynago/dynago/bench/stats"
	"github.com/dynago/dynago/kv"
)

// The shape of the index that queries of one depth are put to.
const (
	depthWorkers = 64
	promptBlocks = 128
	minBlocks    = depthWorkers * promptBlocks
)

// chains are prompts whose contents are computed instead of kept, so that they
// take no memory.
type chains int

// prompt writes the hashes of the chain numbered i into p. They differ from
// those of every other chain from the block at on.
func (c chains) prompt(i uint64, from int, p []kv.LocalHash) {
	for j := from; j < len(p); j++ {
		p[j] = kv.LocalHash(mix(i<<16 | uint64(j)))
	}
}

// store makes w hold the chain numbered i.
func (c chains) store(x index, i uint64, w uint64, e *kv.Event) error {
	for j := range e.Blocks {
		local := mix(i<<16 | uint64(j))
		e.Blocks[j] = kv.Block{Engine: kv.EngineHash(mix(local + w)), Local: kv.LocalHash(local)}
	}
	return x.Apply(kv.Target{Worker: w}, *e)
}

// fill makes worker 1+(i+shift) mod 64 hold chain i, for all i.
func (c chains) fill(x index, shift int) (failed int) {
	e := kv.Event{Blocks: make([]kv.Block, promptBlocks)}
	for i := range int(c) {
		if c.store(x, uint64(i), uint64(1+(i+shift)%depthWorkers), &e) != nil {
			failed++
		}
	}
	return failed
}

// mix is the finalizer of splitmix64.
func mix(z uint64) uint64 {
	z += 0x9e3779b97f4a7c15
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// deep is what queries of 128 blocks took.
type deep struct {
	Miss, Half, Full answers
	Failed           int `json:"failed"`
}

// answers are the latencies of some queries.
type answers struct {
	stats.Latency
	Disturbed float64 `json:"disturbed"` // share that was left out
	Wrong     int     `json:"wrong"`
}

// depth asks an index of so many blocks on 64 workers for prompts of which it
// holds nothing, half, and all. Each prompt is one that was not asked for
// lately, and its hashes have just been computed, as a router's have.
func depth(c contestant, blocks int) (deep, error) {
	oneThread()
	x := c.new()
	all := chains(blocks / promptBlocks)
	var d deep
	d.Failed = all.fill(x, 0)
	runtime.GC()
	match := x.matcher()
	random := rand.New(rand.NewPCG(42, 42))
	d.Miss = ask(match, all, 0, random)
	d.Half = ask(match, all, promptBlocks/2, random)
	d.Full = ask(match, all, promptBlocks, random)
	return d, errors.Join(d.Miss.enough(), d.Half.enough(), d.Full.enough())
}

// enough fails if hardly anything is left to judge by.
func (a answers) enough() error {
	if a.Disturbed > 0.95 {
		return fmt.Errorf("%.0f%% of the queries were disturbed by others: the machine is too busy", 100*a.Disturbed)
	}
	return nil
}

// queries are asked in batches. A batch during which the kernel gave the core to
// somebody else is left out: what it shows is the other one's work.
const (
	batches   = 2000
	batchSize = 10
)

func ask(match match, all chains, hit int, random *rand.Rand) answers {
	var a answers
	latencies := make([]time.Duration, 0, batches*batchSize)
	prompt := make([]kv.LocalHash, promptBlocks)
	for range batches {
		before := usage(ofThread).Nivcsw
		start := len(latencies)
		for range batchSize {
			i := random.Uint64N(uint64(all))
			all.prompt(i, 0, prompt)
			all.prompt(i+uint64(all)+1, hit, prompt)
			began := time.Now()
			found := match(prompt)
			latencies = append(latencies, time.Since(began))
			if found != hit {
				a.Wrong++
			}
		}
		if usage(ofThread).Nivcsw != before {
			latencies = latencies[:start]
		}
	}
	a.Latency = stats.LatencyOf(latencies)
	a.Disturbed = 1 - float64(len(latencies))/(batches*batchSize)
	return a
}
