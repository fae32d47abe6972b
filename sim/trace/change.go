package trace

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"
)

// Normalise lets the first request arrive at 0.
func Normalise(w []Request) {
	if len(w) == 0 {
		return
	}
	start := earliest(w)
	for i := range w {
		w[i].At -= start
	}
}

func earliest(w []Request) time.Duration {
	return slices.MinFunc(w, func(a, b Request) int { return cmp.Compare(a.At, b.At) }).At
}

// Speed divides all times of a workload, delays included, by ratio, which is
// more than 0.
func Speed(w []Request, ratio float64) {
	for i := range w {
		w[i].At = scaled(w[i].At, 1/ratio)
		w[i].Delay = scaled(w[i].Delay, 1/ratio)
	}
}

func scaled(d time.Duration, by float64) time.Duration {
	return time.Duration(min(float64(d)*by, float64(maxTime)))
}

// RescaleStarts stretches or squeezes the times at which requests arrive that
// wait for no other: they then span so much, from 0 on. Delays stay.
func RescaleStarts(w []Request, span time.Duration) {
	Normalise(w)
	var last time.Duration
	for i := range w {
		if len(w[i].After) == 0 {
			last = max(last, w[i].At)
		}
	}
	if last == 0 {
		return
	}
	for i := range w {
		w[i].At = scaled(w[i].At, float64(span)/float64(last))
	}
}

// RescaleReady stretches or squeezes arrivals and delays so that the last
// request would be ready after span if answers took no time. A request must come
// behind those that it waits for, as those of sessions do in all formats.
func RescaleReady(w []Request, span time.Duration) {
	Normalise(w)
	ready := make(map[string]time.Duration, len(w))
	var last time.Duration
	for i := range w {
		at := w[i].At
		if len(w[i].After) > 0 {
			at = 0
			for _, id := range w[i].After {
				at = max(at, ready[id])
			}
			at += w[i].Delay
		}
		ready[w[i].ID] = at
		last = max(last, at)
	}
	if last > 0 {
		Speed(w, float64(last)/float64(span))
	}
}

// Deepen makes each prompt k times as long and lets it share k times as much
// with others: each of its blocks becomes k. Answers stay.
func Deepen(w []Request, k int) error {
	for i := range w {
		text := make(Text, len(w[i].Prompt))
		for j, p := range w[i].Prompt {
			if int64(p.From+p.Len)*int64(k) > maxTokens {
				return fmt.Errorf("request %q: a prompt %d times as long is longer than %d tokens", w[i].ID, k, maxTokens)
			}
			text[j] = Piece{Stream: p.Stream, From: p.From * uint32(k), Len: p.Len * uint32(k)}
		}
		w[i].Prompt = text
	}
	return nil
}

// Duplicate returns a workload n times over. The copies have nothing in common
// but their times: their ids and sessions end in ":copy_1" and so on, and so do
// not meet, and neither do their tokens. Requests come in the order of their
// arrival.
func Duplicate(w []Request, n int) []Request {
	copies := slices.Clone(w)
	for k := 1; k < n; k++ {
		suffix := fmt.Sprintf(":copy_%d", k)
		other := func(t Text) Text {
			t = slices.Clone(t)
			for i := range t {
				t[i].Stream = mix(t[i].Stream + uint64(k)*golden)
			}
			return t
		}
		for _, r := range w {
			r.ID += suffix
			if r.Session != "" {
				r.Session += suffix
			}
			if r.Parent != "" {
				r.Parent += suffix
			}
			r.After = slices.Clone(r.After)
			for i := range r.After {
				r.After[i] += suffix
			}
			r.Prompt, r.Answer = other(r.Prompt), other(r.Answer)
			copies = append(copies, r)
		}
	}
	byArrival(copies)
	return copies
}

// byArrival sorts requests, and leaves those as they are that come together.
func byArrival(w []Request) {
	slices.SortStableFunc(w, func(a, b Request) int { return cmp.Compare(a.At, b.At) })
}

// Partition deals a workload out to n. What belongs to one session, or waits for
// one another, goes to the same part; else the parts take turns, or, with a
// source of random numbers, are drawn.
func Partition(w []Request, n int, random *rand.Rand) [][]Request {
	families := newFamilies(w)
	parts := make([][]Request, n)
	place := map[int]int{}
	for i := range w {
		root := families.of(i)
		part, ok := place[root]
		if !ok {
			if part = len(place) % n; random != nil {
				part = random.IntN(n)
			}
			place[root] = part
		}
		parts[part] = append(parts[part], w[i])
	}
	return parts
}

// families are the requests that belong together, as a forest: each points to
// another of its family, and one to itself.
type families []int

func newFamilies(w []Request) families {
	f := make(families, len(w))
	at := make(map[string]int, len(w))
	sessions := map[string]int{}
	for i := range w {
		f[i] = i
		at[w[i].ID] = i
	}
	for i := range w {
		if s := w[i].Session; s != "" {
			if j, ok := sessions[s]; ok {
				f.join(i, j)
			} else {
				sessions[s] = i
			}
		}
		for _, id := range w[i].After {
			if j, ok := at[id]; ok {
				f.join(i, j)
			}
		}
	}
	return f
}

func (f families) of(i int) int {
	for f[i] != i {
		f[i] = f[f[i]]
		i = f[i]
	}
	return i
}

func (f families) join(i, j int) { f[f.of(i)] = f.of(j) }

// Jitter spreads requests that a coarse clock lets arrive at the same time, and
// that wait for no other, evenly at random over the time until the next tick.
// Those of the last tick get as long as those of the one before. The requests
// come in the order of their arrival, and so do they afterwards.
func Jitter(w []Request, random *rand.Rand) {
	byArrival(w)
	var ticks []time.Duration
	for i := range w {
		if at := w[i].At; len(w[i].After) == 0 && (len(ticks) == 0 || at != ticks[len(ticks)-1]) {
			ticks = append(ticks, at)
		}
	}
	if len(ticks) < 2 {
		return
	}
	next := func(at time.Duration) time.Duration {
		i, _ := slices.BinarySearch(ticks, at)
		if i+1 < len(ticks) {
			return ticks[i+1] - at
		}
		return ticks[i] - ticks[i-1]
	}
	for i := range w {
		if len(w[i].After) == 0 {
			w[i].At += time.Duration(random.Float64() * float64(next(w[i].At)))
		}
	}
	byArrival(w)
}
