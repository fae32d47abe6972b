package kvcache

import (
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"golang.org/x/sys/unix"
)

// threadTime is the processor time that the calling thread has had.
func threadTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err)
	}
	return time.Duration(t.Nano())
}

// hashes makes those of request number i: half of it is one of 512 beginnings
// that others have too, the other half is its own.
func hashes(seq []kv.SeqHash, i int) {
	h := kv.SeqHash(i%512+1) << 32
	for k := range seq {
		if k == len(seq)/2 {
			h = kv.SeqHash(i)<<20 | 1
		}
		h += 0x9e3779b97f4a7c15
		seq[k] = h
	}
}

// BenchmarkCost is one request's life, 128 blocks through a full pool of 100,000:
// match, allocate, register, release. It goes in turn through a plain LRU list
// and through a pool of which nothing is asked, or of whose blocks much is. Every
// number is processor time of the thread, and the ratio is the median over rounds
// of a few requests, in which the machine was the same for both.
func BenchmarkCost(b *testing.B) {
	type step func(p *Pool, i int, seq []kv.SeqHash, refs []Ref)
	none := func(*Pool, int, []kv.SeqHash, []Ref) {}
	session := func(i int) SessionID { return SessionID(i%64 + 1) }
	now := func(i int) time.Duration { return time.Duration(i) * time.Millisecond }
	for _, c := range []struct {
		name       string
		session    func(int) SessionID
		begin, end step
	}{
		{"nothing", func(int) SessionID { return 0 }, none, none},
		{"sessions", session, func(p *Pool, i int, seq []kv.SeqHash, _ []Ref) {
			p.Advance(now(i))
			p.BeginTurn(session(i), SessionOptions{}, seq)
		}, func(p *Pool, i int, _ []kv.SeqHash, refs []Ref) {
			p.EndTurn(session(i), refs)
		}},
		{"ephemeral", session, func(p *Pool, i int, seq []kv.SeqHash, _ []Ref) {
			p.Advance(now(i))
			p.BeginTurn(session(i), SessionOptions{Ephemeral: session(i)%4 == 0}, seq)
		}, func(p *Pool, i int, _ []kv.SeqHash, refs []Ref) {
			p.EndTurn(session(i), refs)
		}},
		{"priorities", func(int) SessionID { return 0 }, none, func(p *Pool, i int, _ []kv.SeqHash, refs []Ref) {
			p.Advance(now(i))
			for k, r := range refs {
				p.Retain(r, Retention{Priority: uint8(80 - 60*(k/64)), TTL: time.Minute})
			}
		}},
		{"pins", func(int) SessionID { return 0 }, none, func(p *Pool, i int, seq []kv.SeqHash, _ []Ref) {
			p.Advance(now(i))
			p.Pin(seq[:len(seq)/2], Pin{TTL: time.Second})
		}},
	} {
		b.Run(c.name, func(b *testing.B) {
			p := NewPool(PoolConfig{Blocks: slots, PinBudget: slots / 2})
			var refs []Ref
			compare(b, func(i int, seq []kv.SeqHash) {
				c.begin(p, i, seq, nil)
				refs = p.MatchFor(c.session(i), refs[:0], seq)
				found := len(refs)
				refs, _, _ = p.Allocate(refs, len(seq)-found)
				for k := found; k < len(seq); k++ {
					parent := Root
					if k > 0 {
						parent = refs[k-1]
					}
					p.Register(refs[k], seq[k], parent)
				}
				c.end(p, i, seq, refs)
				p.Release(refs)
			})
			with := live()
			runtime.KeepAlive(p)
			p = nil
			b.ReportMetric(float64(with-live())/slots, "B/block")
		})
	}
}

// live returns the bytes that are in use.
func live() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

const (
	slots    = 100_000 // of the pools that are compared
	sequence = 128     // blocks of a request
	round    = 10      // requests
)

// compare reports what requests cost, per block, with run and with a plain list.
func compare(b *testing.B, run func(i int, seq []kv.SeqHash)) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	list := newPlainLRU(slots)
	var refs []Ref
	plain := func(_ int, seq []kv.SeqHash) {
		refs = list.match(refs[:0], seq)
		found := len(refs)
		refs = list.allocate(refs, len(seq)-found)
		for k := found; k < len(seq); k++ {
			parent := Root
			if k > 0 {
				parent = refs[k-1]
			}
			list.register(refs[k], seq[k], parent)
		}
		list.release(refs)
	}
	seq := make([]kv.SeqHash, sequence)
	next := 0
	take := func(run func(int, []kv.SeqHash)) (perBlock float64) {
		var took time.Duration
		for i := next; i < next+round; i++ {
			hashes(seq, i)
			start := threadTime()
			run(i, seq)
			took += threadTime() - start
		}
		return float64(took.Nanoseconds()) / (round * sequence)
	}
	var ours, ratios []float64
	for next < 4*slots/sequence {
		take(plain)
		take(run)
		next += round
	}
	for b.Loop() {
		with, without := take(run), take(plain)
		ours, ratios = append(ours, with), append(ratios, with/without)
		next += round
	}
	slices.Sort(ours)
	slices.Sort(ratios)
	b.ReportMetric(ours[len(ours)/2], "cpu-ns/block")
	b.ReportMetric(ratios[len(ratios)/2], "times-lru")
}

// BenchmarkMatch finds the 2,048 blocks of one prompt in a pool of a million, and
// lets go of them.
func BenchmarkMatch(b *testing.B) {
	const prompt, slots = 2048, 1_000_000
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	p := New(slots)
	seqs := make([][]kv.SeqHash, slots/prompt)
	for i := range seqs {
		seqs[i] = make([]kv.SeqHash, prompt)
		refs, _, _ := p.Allocate(nil, prompt)
		for k, r := range refs {
			seqs[i][k] = kv.SeqHash(i*prompt+k+1) * 0x9e3779b97f4a7c15
			parent := Root
			if k > 0 {
				parent = refs[k-1]
			}
			p.Register(r, seqs[i][k], parent)
		}
		p.Release(refs)
	}
	var refs []Ref
	var matching []time.Duration
	for i := 0; b.Loop(); i++ {
		start := threadTime()
		refs = p.Match(refs[:0], seqs[i*31%len(seqs)])
		matching = append(matching, threadTime()-start)
		if len(refs) != prompt {
			b.Fatalf("found %d", len(refs))
		}
		p.Release(refs)
	}
	slices.Sort(matching)
	b.ReportMetric(float64(matching[len(matching)/2].Nanoseconds())/1000, "match-cpu-µs")
}
