package trace

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// Statistics are what a workload looks like from far away.
type Statistics struct {
	Requests, Sessions int
	Span               time.Duration // from the first arrival to the last
	Input, Output      Distribution  // tokens
	Blocks, Unique     int           // of the prompts
	// Reused blocks are those of the longest beginning of a prompt that came
	// before, in the order of the requests: what a cache would find that never
	// forgets, of prompts alone.
	Reused int
}

// Distribution is that of a number.
type Distribution struct {
	Mean          float64
	P50, P90, P99 int
	Max           int
}

// Reuse returns the share of blocks that an endless cache has.
func (s *Statistics) Reuse() float64 { return float64(s.Reused) / float64(max(s.Blocks, 1)) }

// Analyse looks at a workload in blocks of so many tokens.
func Analyse(w []Request, blockSize int) Statistics {
	var s Statistics
	sessions := map[string]bool{}
	var inputs, outputs []int
	var first, last time.Duration
	cache := NewCache(0)
	blocks := newNumbering(blockSize)
	for i := range w {
		r := &w[i]
		sessions[r.Session] = true
		inputs = append(inputs, r.Prompt.Len())
		outputs = append(outputs, r.Answer.Len())
		if i == 0 {
			first = r.At
		}
		first, last = min(first, r.At), max(last, r.At)
		chain := blocks.of(r.Prompt)
		s.Blocks += len(chain)
		s.Reused += cache.Match(chain)
		cache.Touch(chain)
	}
	delete(sessions, "")
	s.Requests, s.Sessions, s.Span = len(w), len(sessions), last-first
	s.Input, s.Output = distribution(inputs), distribution(outputs)
	s.Unique = cache.Len()
	return s
}

// distribution sorts its numbers.
func distribution(n []int) (d Distribution) {
	if len(n) == 0 {
		return d
	}
	slices.Sort(n)
	sum := 0
	for _, v := range n {
		sum += v
	}
	at := func(p int) int { return n[((len(n)-1)*p+50)/100] }
	return Distribution{Mean: float64(sum) / float64(len(n)), P50: at(50), P90: at(90), P99: at(99), Max: n[len(n)-1]}
}

// String returns a few lines for people.
func (s Statistics) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests of %d sessions in %s\n", s.Requests, s.Sessions, s.Span.Round(time.Second))
	for _, d := range []struct {
		what string
		Distribution
	}{{"prompt", s.Input}, {"answer", s.Output}} {
		fmt.Fprintf(&b, "%s tokens: mean %.0f, p50 %d, p90 %d, p99 %d, max %d\n", d.what, d.Mean, d.P50, d.P90, d.P99, d.Max)
	}
	fmt.Fprintf(&b, "%d blocks, %d of them unique; an endless cache has %.4f of them\n", s.Blocks, s.Unique, s.Reuse())
	return b.String()
}
