package tree

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/dynago/dynago/trace"
)

// Totals are sums over the requests of a chain, or of a whole trace.
type Totals struct {
	Requests    int
	Failed      int // ended by an error
	Compactions int // that sum up their chain
	ToolCalls   int // that answers ask for
	ToolEvents  int // tools that harnesses have told the end of
	ToolErrors  int // of those
	First, Last time.Time

	Input, Output uint64 // tokens
	// Cached is the tokens of prompts that engines had cached, and Told the tokens of all
	// prompts of which engines have told that.
	Cached, Told uint64
	// Expected is the sum of what the router expected to be cached, as shares of prompts
	// weighted by their tokens, of Asked tokens.
	Expected float64
	Asked    uint64

	TTFT Spread // milliseconds
	// Pause is the time between an answer that asks for tools and the next turn, Tool how
	// long tools ran that harnesses have told of. Milliseconds.
	Pause, Tool Spread
}

// HitShare returns the share of prompt tokens that were cached, of those prompts of which
// engines have told; ok is false if there are none.
func (t *Totals) HitShare() (share float64, ok bool) {
	return float64(t.Cached) / float64(max(1, t.Told)), t.Told > 0
}

// ReadWrite returns how many cached prompt tokens were read for each one that had to be
// computed and written; ok is false if nobody has told, or none was written.
func (t *Totals) ReadWrite() (ratio float64, ok bool) {
	written := t.Told - t.Cached
	return float64(t.Cached) / float64(max(1, written)), t.Told > 0 && written > 0
}

// ExpectedShare returns the share of prompt tokens that the router expected to be cached;
// ok is false if it has said so of no request.
func (t *Totals) ExpectedShare() (share float64, ok bool) {
	return t.Expected / float64(max(1, t.Asked)), t.Asked > 0
}

// ChainTotals are those of one chain.
type ChainTotals struct {
	Totals
	ID, ParentID, Run string
	turns             []turnTimes
}

// turnTimes is what of a turn is kept until all are known. Unix milliseconds.
type turnTimes struct {
	start, end int64
	tools      bool // the answer asks for some
}

// Stats counts records up as they come. It keeps a few numbers for each request, and
// nothing of its prompt. Its zero value is ready.
type Stats struct {
	Totals
	Alone      Totals // requests of no agent, which Totals has too
	Duplicates int
	// ITL, Total, Queue and Routing are times of requests in milliseconds, Size and Length
	// the tokens of prompts and answers.
	ITL, Total, Queue, Routing Spread
	Size, Length               Spread
	// Workers counts requests by the worker that computed their prompts, and 0 those of
	// which nobody knows. Finish counts them by the reason why they ended.
	Workers map[uint64]int
	Finish  map[string]int

	chains   map[string]*ChainTotals
	requests map[uint64]struct{} // hashes of ids
	events   map[uint64]struct{} // hashes of what tools have told
	begun    map[key][]uint64    // when tools began that have not ended, in unix milliseconds
}

// Add counts a record.
func (s *Stats) Add(r *trace.Record) {
	switch {
	case r.EventType == trace.RequestEnd && r.Request != nil:
		s.addRequest(r)
	case r.IsTool() && r.Tool != nil && r.Agent != nil:
		s.addTool(r)
	}
}

func (s *Stats) addTool(r *trace.Record) {
	if s.events == nil {
		s.events, s.begun = map[uint64]struct{}{}, map[key][]uint64{}
	}
	k := key{r.Agent.Chain(), r.Tool.ID}
	if r.Tool.ID != "" {
		e := xxh3.HashString(fmt.Sprintf("%#v", eventOf(r, k.chain)))
		if _, twice := s.events[e]; twice {
			s.Duplicates++
			return
		}
		s.events[e] = struct{}{}
	}
	if r.EventType == trace.ToolStart {
		s.begun[k] = append(s.begun[k], r.EventTime)
		return
	}
	var u Tool
	u.Record = r
	u.measure(s.start(k, r.Tool))
	for _, t := range []*Totals{&s.Totals, &s.chain(r.Agent).Totals} {
		t.ToolEvents++
		if u.Failed() {
			t.ToolErrors++
		}
		if u.Duration > 0 {
			t.Tool.Add(inMS(u.Duration))
		}
	}
}

// start returns when a tool that has ended has begun, or nil where nothing has told that
// before.
func (s *Stats) start(k key, t *trace.Tool) *uint64 {
	open := s.begun[k]
	if len(open) == 0 {
		return nil
	}
	i := startOf(t, len(open), func(i int) uint64 { return open[i] })
	at := open[i]
	if open = slices.Delete(open, i, i+1); len(open) > 0 {
		s.begun[k] = open
	} else {
		delete(s.begun, k)
	}
	return &at
}

func (s *Stats) addRequest(r *trace.Record) {
	if s.requests == nil {
		s.requests, s.Workers, s.Finish = map[uint64]struct{}{}, map[uint64]int{}, map[string]int{}
	}
	q := r.Request
	if q.RequestID != "" {
		id := xxh3.HashString(q.RequestID)
		if _, twice := s.requests[id]; twice {
			s.Duplicates++
			return
		}
		s.requests[id] = struct{}{}
	}
	settle(q)
	start, end := times(r)
	s.Totals.add(r, start, end)
	if r.Agent != nil {
		c := s.chain(r.Agent)
		c.Totals.add(r, start, end)
		c.turns = append(c.turns, turnTimes{start.UnixMilli(), end.UnixMilli(), q.Finish != nil && len(q.Finish.ToolCalls) > 0})
	} else {
		s.Alone.add(r, start, end)
	}
	for _, m := range []struct {
		spread *Spread
		ms     *float64
	}{{&s.ITL, q.AvgITL}, {&s.Total, q.TotalTime}, {&s.Queue, q.QueueTime}, {&s.Routing, q.RoutingTime}} {
		if m.ms != nil {
			m.spread.Add(*m.ms)
		}
	}
	for _, m := range []struct {
		spread *Spread
		tokens *uint64
	}{{&s.Size, q.InputTokens}, {&s.Length, q.OutputTokens}} {
		if m.tokens != nil {
			m.spread.Add(float64(*m.tokens))
		}
	}
	worker := uint64(0)
	if q.Worker != nil && q.Worker.PrefillWorkerID != nil {
		worker = *q.Worker.PrefillWorkerID
	}
	s.Workers[worker]++
	s.Finish[Ending(q)]++
}

func (t *Totals) add(r *trace.Record, start, end time.Time) {
	q := r.Request
	t.Requests++
	if Failed(q) {
		t.Failed++
	}
	if r.Agent != nil && r.Agent.Compaction != nil {
		t.Compactions++
	}
	if q.Finish != nil {
		t.ToolCalls += len(q.Finish.ToolCalls)
	}
	if t.First.IsZero() || start.Before(t.First) {
		t.First = start
	}
	if end.After(t.Last) {
		t.Last = end
	}
	if q.OutputTokens != nil {
		t.Output += *q.OutputTokens
	}
	if q.TTFT != nil {
		t.TTFT.Add(*q.TTFT)
	}
	if q.InputTokens == nil {
		return
	}
	t.Input += *q.InputTokens
	if q.CachedTokens != nil {
		t.Cached += min(*q.CachedTokens, *q.InputTokens)
		t.Told += *q.InputTokens
	}
	if q.KVHitRate != nil {
		t.Expected += *q.KVHitRate * float64(*q.InputTokens)
		t.Asked += *q.InputTokens
	}
}

func (s *Stats) chain(a *trace.AgentContext) *ChainTotals {
	c := s.chains[a.Chain()]
	if c == nil {
		if s.chains == nil {
			s.chains = map[string]*ChainTotals{}
		}
		c = &ChainTotals{ID: a.Chain()}
		s.chains[c.ID] = c
	}
	c.ParentID, c.Run = cmp.Or(c.ParentID, a.ParentChain()), cmp.Or(c.Run, a.Run())
	return c
}

// Chains returns the totals of each chain, those with the largest prompts first, and
// completes those of the trace: it is called once, when everything was added.
func (s *Stats) Chains() []*ChainTotals {
	list := make([]*ChainTotals, 0, len(s.chains))
	for _, c := range s.chains {
		list = append(list, c)
	}
	slices.SortFunc(list, func(a, b *ChainTotals) int {
		return cmp.Or(cmp.Compare(b.Input, a.Input), cmp.Compare(a.ID, b.ID))
	})
	for _, c := range list {
		slices.SortStableFunc(c.turns, func(a, b turnTimes) int { return cmp.Compare(a.start, b.start) }) // as trees do
		for i := 1; i < len(c.turns); i++ {
			if before := c.turns[i-1]; before.tools && c.turns[i].start > before.end {
				pause := float64(c.turns[i].start - before.end)
				c.Pause.Add(pause)
				s.Pause.Add(pause)
			}
		}
		c.turns = nil
	}
	return list
}

func inMS(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
