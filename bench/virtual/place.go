package main

import (
	"bytes"
	"fmt"
	"iter"
	"math"

	"github.com/dynago/dynago/bench/data"
	"github.com/dynago/dynago/sim/trace"
)

// published are hit rates of placement alone, for caches of 1,000, 4,000 and
// 16,000 blocks of 512 tokens: where workers take turns, and where a prompt goes
// to the worker with the least of blocks not held, and 0.02 for each block that
// was not held there before.
var published = map[string]map[int][3]struct{ turns, kv float64 }{
	"conversation": {
		4:  {{.053, .084}, {.110, .262}, {.178, .359}},
		8:  {{.061, .173}, {.098, .330}, {.134, .365}},
		16: {{.060, .259}, {.090, .359}, {.099, .366}},
	},
	"synthetic": {
		4:  {{.070, .225}, {.193, .529}, {.361, .640}},
		8:  {{.063, .363}, {.162, .627}, {.226, .640}},
		16: {{.057, .520}, {.124, .640}, {.136, .640}},
	},
}

// placement is how far from the published table ours is.
type placement struct {
	Cells int     // hit rates compared
	Off   int     // that differ by more than 0.005
	Worst float64 // the largest difference
}

func place() (any, error) {
	var p placement
	for name, rows := range published {
		w, err := recorded(name)
		if err != nil {
			return nil, err
		}
		chains := trace.Chains(w, trace.DefaultBlockSize)
		for workers, cells := range rows {
			for i, capacity := range []int{1_000, 4_000, 16_000} {
				o := trace.PlaceOptions{Workers: workers, Capacity: capacity, LoadWeight: 0.02, Forward: true}
				p.compare(trace.Place(chains, o).Hit, cells[i].kv)
				o.RoundRobin = true
				p.compare(trace.Place(chains, o).Hit, cells[i].turns)
			}
		}
	}
	return p, nil
}

func (p *placement) compare(got, want float64) {
	off := math.Abs(got - want)
	p.Cells++
	p.Worst = max(p.Worst, off)
	if off > 0.005 {
		p.Off++
	}
}

// recorded returns one of the recorded traces.
func recorded(name string) ([]trace.Request, error) {
	w, err := collect(trace.Read(trace.Mooncake, trace.ReadOptions{}, bytes.NewReader(data.Packed(name))))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return w, nil
}

// collect returns all of a sequence, or its error.
func collect(requests iter.Seq2[trace.Request, error]) ([]trace.Request, error) {
	var all []trace.Request
	for r, err := range requests {
		if err != nil {
			return nil, err
		}
		all = append(all, r)
	}
	return all, nil
}
