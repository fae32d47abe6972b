package indextest

import (
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// readers checks what queries see while others change the index. Every change is
// announced before it begins and after it has ended, with the state that it leads
// to; so a query knows which states each target can have been in while it ran.
// What it finds must lie between the least and the most of them: for a target that
// nobody touched meanwhile, exactly what it holds, and of a worker that had left
// before, nothing.
func readers(t *testing.T, open func() Index) {
	for _, c := range []churn{
		{name: "Churn", workers: 40, prompts: 12, length: 60, leave: 3, hole: 10, decode: 25, changes: 20_000},
		{name: "Departures", workers: 12, prompts: 4, length: 24, leave: 40, hole: 5, decode: 5, changes: 20_000},
		{name: "Decoding", workers: 6, prompts: 6, length: 400, leave: 1, hole: 3, decode: 85, changes: 10_000},
		{name: "ManyTargets", workers: 400, prompts: 8, length: 40, leave: 5, hole: 10, decode: 10, changes: 10_000},
	} {
		t.Run(c.name, func(t *testing.T) {
			// Many fleets, since what was split once stays so.
			const times = 5
			c.changes /= slow * times
			for i := range uint64(times * *scale) {
				c.run(t, open(), *seed+i)
				if t.Failed() {
					t.Fatalf("seed %d", *seed+i)
				}
			}
		})
	}
	t.Run("Splits", func(t *testing.T) { splits(t, open) })
	t.Run("Newcomers", func(t *testing.T) { newcomers(t, open) })
	t.Run("Rivals", func(t *testing.T) { rivals(t, open) })
}

// churn is how a fleet changes while it is asked.
type churn struct {
	name                string
	workers             int
	prompts, length     int
	leave, hole, decode int // percent of the changes
	changes             int // in all
}

// ranks is the number of ranks of every worker. Each keeps its blocks on one tier.
const ranks = 3

var tierOf = [ranks]kv.Tier{kv.TierDevice, kv.TierHost, kv.TierShared}

// state is what a worker holds at one moment.
type state struct {
	id    uint64
	depth [ranks][]int32 // by rank and prompt
}

// lane is one worker.
type lane struct {
	states []state // all that it ever was in, with room for those to come
	// begun is the newest state that the worker may be in, ended the newest that
	// it is in for certain, unless a later one has begun.
	begun, ended atomic.Int64
	rand         draw
	reuse        bool // comes back under its old id
	hole         [ranks]*gap
	aside        [ranks]*kv.Event // what removes the blocks beside all prompts
}

// gap is a block that was taken out of the middle.
type gap struct {
	prompt, at int
	before     []int32 // depths, for when it is mended
}

// fleet is what all goroutines of one run share.
type fleet struct {
	churn
	t       *testing.T
	index   Index
	blocks  [][]kv.LocalHash // by prompt
	common  [][]int          // how many blocks two prompts begin with
	settled int              // blocks of each rank of worker 0
	lanes   []*lane
	done    atomic.Bool
	failed  atomic.Bool
}

func (c churn) run(t *testing.T, x Index, seed uint64) {
	f := &fleet{churn: c, t: t, index: x}
	f.draw(rand.New(rand.NewPCG(seed, 1)).IntN)
	f.settle()

	const (
		writers = 4
		queries = 400 / slow // at least, of each reader
	)
	var writing, reading sync.WaitGroup
	for w := range writers {
		writing.Go(func() { f.write(rand.New(rand.NewPCG(seed, uint64(100+w))).IntN, w, writers) })
	}
	for r := range 2 {
		reading.Go(func() {
			rnd := draw(rand.New(rand.NewPCG(seed, uint64(200+r))).IntN)
			f.read(rnd, queries)
		})
	}
	writing.Wait()
	f.done.Store(true)
	reading.Wait()

	for prompt := range f.blocks {
		f.ask(x.Matcher(), prompt, len(f.blocks[prompt]))
	}
	for _, l := range f.lanes {
		x.RemoveWorker(l.states[l.ended.Load()].id)
	}
	if s := x.Stats(); s.Targets != 0 || s.Blocks != 0 || s.Nodes != 0 {
		t.Errorf("left behind %+v", s)
	}
}

// draw draws the prompts, of which most begin as another does.
func (f *fleet) draw(d draw) {
	next := kv.LocalHash(0)
	for i := range f.prompts {
		var local []kv.LocalHash
		if i > 0 {
			from := f.blocks[d(i)]
			local = append(local, from[:d(len(from))]...)
		}
		for len(local) < f.length {
			next++
			local = append(local, next)
		}
		f.blocks = append(f.blocks, local)
	}
	for _, a := range f.blocks {
		var row []int
		for _, b := range f.blocks {
			n := 0
			for n < len(a) && a[n] == b[n] {
				n++
			}
			row = append(row, n)
		}
		f.common = append(f.common, row)
	}
	for w := range f.workers {
		l := &lane{reuse: w%2 == 0, rand: rand.New(rand.NewPCG(uint64(w), 3)).IntN}
		s := state{id: uint64(w)}
		for r := range ranks {
			s.depth[r] = make([]int32, f.prompts)
		}
		l.states = make([]state, f.prompts*ranks+2+2*f.changes/f.workers)
		l.states[0] = s
		f.lanes = append(f.lanes, l)
	}
}

// settle gives worker 0 half of the prompts, which it keeps for ever.
func (f *fleet) settle() {
	l := f.lanes[0]
	held := make(map[kv.LocalHash]bool)
	for prompt := 0; prompt < f.prompts; prompt += 2 {
		for _, b := range f.blocks[prompt] {
			held[b] = true
		}
		for rank := range ranks {
			f.store(l, rank, prompt, 0, f.length)
		}
	}
	f.settled = len(held)
}

// change announces the next state of a worker, makes it so, and says that it is.
func (f *fleet) change(l *lane, next state, do func() error) {
	n := l.begun.Load() + 1
	l.states[n] = next
	l.begun.Store(n)
	if err := do(); err != nil {
		f.fail("worker %d: %v", next.id, err)
	}
	l.ended.Store(n)
}

func (f *fleet) fail(format string, args ...any) {
	if f.failed.CompareAndSwap(false, true) {
		f.t.Errorf(format, args...)
	}
}

// next returns the state that l is in, with the depths of one rank to be changed.
func (l *lane) next(rank int) state {
	s := l.states[l.begun.Load()]
	s.depth[rank] = append([]int32(nil), s.depth[rank]...)
	return s
}

// keyOf is the key of every worker for a block: its content with that of the
// blocks before it, of which a prompt's numbers say enough.
func (f *fleet) keyOf(prompt, at int) kv.EngineHash {
	return kv.EngineHash(mix(uint64(f.blocks[prompt][at])))
}

func (f *fleet) event(kind kv.EventKind, rank, prompt, from, to int) kv.Event {
	e := kv.Event{Kind: kind, Tier: tierOf[rank]}
	if kind == kv.Stored && from > 0 {
		e.HasParent, e.Parent = true, f.keyOf(prompt, from-1)
	}
	for at := from; at < to; at++ {
		e.Blocks = append(e.Blocks, kv.Block{Engine: f.keyOf(prompt, at), Local: f.blocks[prompt][at]})
	}
	return e
}

// store adds the blocks [from, to) of a prompt.
func (f *fleet) store(l *lane, rank, prompt, from, to int) {
	s := l.next(rank)
	for other, depth := range s.depth[rank] {
		s.depth[rank][other] = max(depth, int32(min(to, f.common[prompt][other])))
	}
	t := kv.Target{Worker: s.id, Rank: uint32(rank)}
	f.change(l, s, func() error { return f.index.Apply(t, f.event(kv.Stored, rank, prompt, from, to)) })
}

// remove takes away the blocks [from, to) of a prompt; who shares them ends there.
func (f *fleet) remove(l *lane, rank, prompt, from, to int) {
	s := l.next(rank)
	for other, depth := range s.depth[rank] {
		if f.common[prompt][other] > from {
			s.depth[rank][other] = min(depth, int32(from))
		}
	}
	t := kv.Target{Worker: s.id, Rank: uint32(rank)}
	e := f.event(kv.Removed, rank, prompt, from, to)
	f.change(l, s, func() error { return f.index.Apply(t, e) })
}

// mend puts the missing block back.
func (f *fleet) mend(l *lane, rank int) {
	g := l.hole[rank]
	l.hole[rank] = nil
	s := l.next(rank)
	copy(s.depth[rank], g.before)
	t := kv.Target{Worker: s.id, Rank: uint32(rank)}
	f.change(l, s, func() error { return f.index.Apply(t, f.event(kv.Stored, rank, g.prompt, g.at, g.at+1)) })
}

// fork stores a few blocks that no prompt has behind the first n of one, so that
// what holds those is split there; the next call takes them away.
func (f *fleet) fork(d draw, l *lane, rank, prompt, n int) {
	s := l.next(rank)
	t := kv.Target{Worker: s.id, Rank: uint32(rank)}
	e := l.aside[rank]
	l.aside[rank] = nil
	if e == nil {
		stored := f.event(kv.Stored, rank, prompt, n, n)
		for range 1 + d(20) {
			x := uint64(d(1<<62)) | 1<<63
			stored.Blocks = append(stored.Blocks, kv.Block{Engine: kv.EngineHash(mix(x)), Local: kv.LocalHash(x)})
		}
		removed := kv.Event{Kind: kv.Removed, Tier: stored.Tier, Blocks: stored.Blocks}
		e, l.aside[rank] = &stored, &removed
	}
	f.change(l, s, func() error { return f.index.Apply(t, *e) })
}

// depart takes a rank or the whole worker away, in one of the ways there are.
func (f *fleet) depart(l *lane, rank int, all bool) {
	s := l.next(rank)
	t := kv.Target{Worker: s.id, Rank: uint32(rank)}
	if !all {
		clear(s.depth[rank])
		l.hole[rank], l.aside[rank] = nil, nil
		f.change(l, s, func() error {
			if l.rand.percent(50) {
				return f.index.Apply(t, kv.Event{Kind: kv.Cleared})
			}
			f.index.RemoveTarget(t)
			return nil
		})
		return
	}
	for r := range ranks {
		s.depth[r] = make([]int32, f.prompts)
	}
	l.hole, l.aside = [ranks]*gap{}, [ranks]*kv.Event{}
	if !l.reuse {
		s.id += uint64(f.workers)
	}
	f.change(l, s, func() error {
		f.index.RemoveWorker(t.Worker)
		return nil
	})
}

// write changes every n-th worker, but for the first of all.
func (f *fleet) write(d draw, first, n int) {
	var mine []*lane
	for w := first; w < f.workers; w += n {
		if w != 0 {
			mine = append(mine, f.lanes[w])
		}
	}
	for range f.changes / n {
		l := mine[d(len(mine))]
		if int(l.begun.Load())+1 < len(l.states) && !f.failed.Load() {
			f.one(d, l)
		}
	}
}

// one makes one change of a worker.
func (f *fleet) one(d draw, l *lane) {
	rank, prompt := d(ranks), d(f.prompts)
	depths := l.states[l.begun.Load()].depth[rank]
	depth := int(depths[prompt])
	switch op := d(100); {
	case op < f.leave:
		f.depart(l, rank, d.percent(60))
	case l.hole[rank] != nil:
		f.mend(l, rank)
	case d.percent(15):
		f.fork(d, l, rank, prompt, d(depth+1))
	case op < f.leave+f.hole && depth > 0:
		at := d(depth)
		l.hole[rank] = &gap{prompt, at, append([]int32(nil), depths...)}
		f.remove(l, rank, prompt, at, at+1)
	case op < f.leave+f.hole+f.decode:
		if depth < f.length {
			f.store(l, rank, prompt, depth, depth+1)
		}
	case d.percent(50):
		if depth < f.length {
			f.store(l, rank, prompt, depth, depth+1+d(f.length-depth))
		}
	default: // from the end, up to what another prompt needs
		least := 0
		for other, n := range depths {
			if common := f.common[prompt][other]; int(n) > common {
				least = max(least, common)
			}
		}
		if least < depth {
			f.remove(l, rank, prompt, least+d(depth-least), depth)
		}
	}
}

// read asks until all is written, and at least the given number of times.
func (f *fleet) read(d draw, least int) {
	match := f.index.Matcher()
	for n := 0; (n < least || !f.done.Load()) && !f.failed.Load(); n++ {
		prompt := d(f.prompts)
		length := f.length
		if d.percent(20) {
			length = 1 + d(length)
		}
		f.ask(match, prompt, length)
		if n%64 == 0 {
			if got := f.index.Blocks(kv.Target{}); got != f.settled {
				f.fail("worker 0 holds %d blocks, want %d", got, f.settled)
			}
			if x, ok := f.index.(Tiered); ok {
				if got := x.BlocksOn(kv.Target{}, kv.TierDevice); got != f.settled {
					f.fail("worker 0 holds %d blocks on its device, want %d", got, f.settled)
				}
			}
			f.index.Stats()
			f.dump()
		}
	}
}

// dump asks for all that worker 0 holds, if the index can tell.
func (f *fleet) dump() {
	d, ok := f.index.(Dumper)
	if !ok {
		return
	}
	told := 0
	for e := range d.Dump(kv.Target{}) {
		told += len(e.Blocks)
	}
	if told != f.settled {
		f.fail("worker 0 tells of %d blocks, want %d", told, f.settled)
	}
}

// ask asks for the beginning of a prompt and judges the answer.
func (f *fleet) ask(match func([]kv.LocalHash) []kvindex.Match, prompt, length int) {
	from := make([]int64, len(f.lanes))
	for i, l := range f.lanes {
		from[i] = l.ended.Load()
	}
	answer := match(f.blocks[prompt][:length])
	got := make(map[kv.Target][4]int32, len(answer))
	for i, m := range answer {
		if i > 0 && answer[i-1].Target.Compare(m.Target) >= 0 {
			f.fail("%v comes after %v", m.Target, answer[i-1].Target)
		}
		got[m.Target] = m.Blocks
	}
	for i, l := range f.lanes {
		states := l.states[from[i] : l.begun.Load()+1]
		for j, s := range states {
			if j > 0 && s.id == states[j-1].id {
				continue
			}
			for rank := range ranks {
				t := kv.Target{Worker: s.id, Rank: uint32(rank)}
				f.judge(t, got[t], states, prompt, length)
				delete(got, t)
			}
		}
	}
	for t, blocks := range got {
		f.fail("prompt %d: %v is found with %v, but had left", prompt, t, blocks)
	}
}

// judge compares what was found of a target with the states that it may have been
// in.
func (f *fleet) judge(t kv.Target, blocks [4]int32, states []state, prompt, length int) {
	least, most := int32(length), int32(0)
	for _, s := range states {
		depth := int32(0)
		if s.id == t.Worker {
			depth = min(s.depth[t.Rank][prompt], int32(length))
		}
		least, most = min(least, depth), max(most, depth)
	}
	tier := tierOf[t.Rank]
	n := blocks[tier]
	blocks[tier] = 0
	if n < least || n > most || blocks != [4]int32{} {
		f.fail("%d blocks of prompt %d: found %d of %v on %v and %v elsewhere, while it held %d to %d",
			length, prompt, n, t, tier, blocks, least, most)
	}
}
