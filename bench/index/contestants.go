package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dynago/dynago/bench/workload"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
	"github.com/dynago/dynago/kvindex/positional"
)

// index is what is measured.
type index interface {
	Apply(kv.Target, kv.Event) error
	RemoveWorker(id uint64)
	// matcher returns what answers queries, for one thread.
	matcher() match
}

// match returns the number of blocks that all workers together hold of the
// beginning of a prompt. The number is not of interest; that every target's has
// been found is.
type match func(prompt []kv.LocalHash) int

// contestant is one index that can be measured.
type contestant struct {
	name string
	new  func() index
}

var contestants = []contestant{
	{"kvindex", func() index { return tree{kvindex.New()} }},
	{"positional", func() index { return table{positional.New(8)} }},
	{"none", func() index { return new(none) }},
}

func contestantNames() string {
	var names []string
	for _, c := range contestants {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

func contestantOf(name string) (contestant, error) {
	i := slices.IndexFunc(contestants, func(c contestant) bool { return c.name == name })
	if i < 0 {
		return contestant{}, fmt.Errorf("-index %s: want one of %s", name, contestantNames())
	}
	return contestants[i], nil
}

// reserve tells an index that wants to know how many blocks the workers' caches
// have, as engines do when they join.
func reserve(x index, h *workload.Corpus, capacity int) {
	r, ok := x.(interface{ Reserve(kv.Target, int) })
	if !ok {
		return
	}
	for i := range h.Workers {
		r.Reserve(kv.Target{Worker: uint64(i) + 1}, capacity)
	}
}

// tree is the index that the router uses.
type tree struct{ *kvindex.Index }

func (t tree) matcher() match {
	var m kvindex.Matches
	return func(prompt []kv.LocalHash) int {
		t.Match(prompt, &m)
		return held(m.Found)
	}
}

// table is the positional index, at the stride that it was published with.
type table struct{ *positional.Index }

func (t table) matcher() match {
	var m positional.Matches
	return func(prompt []kv.LocalHash) int {
		t.Match(prompt, &m)
		return held(m.Found)
	}
}

func held(found []kvindex.Match) int {
	n := 0
	for i := range found {
		n += int(found[i].Blocks[kv.TierDevice])
	}
	return n
}

// none looks at every hash that it is given and remembers nothing: what it costs
// is the cost of the harness.
type none struct{ sum uint64 }

func (n *none) Apply(_ kv.Target, e kv.Event) error {
	for _, b := range e.Blocks {
		n.sum += uint64(b.Engine) ^ uint64(b.Local)
	}
	return nil
}

func (n *none) RemoveWorker(uint64) {}

func (n *none) matcher() match {
	var sum uint64
	return func(prompt []kv.LocalHash) int {
		for _, l := range prompt {
			sum += uint64(l)
		}
		return int(sum & 1)
	}
}
