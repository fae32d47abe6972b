package loadgen

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/bench/stats"
)

// tally collects what one connection saw. Connections share nothing while they
// run.
type tally struct {
	result             Result
	first, whole, gaps []time.Duration
	against            []time.Duration
	prompts, cached    []float64 // tokens
}

// count files one answer or its error.
func (t *tally) count(a answer, err error) {
	switch {
	case err == nil:
		t.result.Requests++
		t.result.Events += a.events
		t.result.Tokens += a.tokens
		t.prompts, t.cached = append(t.prompts, float64(a.prompt)), append(t.cached, float64(a.cached))
		t.whole = append(t.whole, a.whole)
		t.gaps = append(t.gaps, a.gaps...)
		if a.events > 0 {
			t.first = append(t.first, a.first)
		}
	case errors.Is(err, errHung):
		t.result.Hung++
	case errors.Is(err, errAborted):
		t.result.Aborted++
	default:
		t.fail(err)
	}
}

func (t *tally) fail(err error) {
	if t.result.Failed == nil {
		t.result.Failed = map[string]int{}
	}
	t.result.Failed[err.Error()]++
}

// merge adds up what all connections saw.
func merge(tallies []tally) Result {
	var sum tally
	for _, t := range tallies {
		sum.result.Requests += t.result.Requests
		sum.result.Events += t.result.Events
		sum.result.Tokens += t.result.Tokens
		sum.result.Open += t.result.Open
		sum.result.Aborted += t.result.Aborted
		sum.result.Hung += t.result.Hung
		sum.result.Wrong += t.result.Wrong
		if sum.result.FirstWrong == "" {
			sum.result.FirstWrong = t.result.FirstWrong
		}
		for reason, n := range t.result.Failed {
			if sum.result.Failed == nil {
				sum.result.Failed = map[string]int{}
			}
			sum.result.Failed[reason] += n
		}
		sum.first = append(sum.first, t.first...)
		sum.whole = append(sum.whole, t.whole...)
		sum.gaps = append(sum.gaps, t.gaps...)
		sum.against = append(sum.against, t.against...)
		sum.prompts, sum.cached = append(sum.prompts, t.prompts...), append(sum.cached, t.cached...)
	}
	sum.result.PromptTokens, sum.result.CachedTokens = rangeOf(sum.prompts), rangeOf(sum.cached)
	sum.result.FirstEvent = stats.LatencyOf(sum.first)
	sum.result.Whole = stats.LatencyOf(sum.whole)
	sum.result.Gap = stats.LatencyOf(sum.gaps)
	if len(sum.against) > 0 {
		against := stats.LatencyOf(sum.against)
		sum.result.Against = &against
	}
	return sum.result
}

// tickets hands out the numbers of requests until there are enough or the time
// is up. It may be used by many goroutines.
type tickets struct {
	next  atomic.Uint64
	limit uint64    // 0: none
	until time.Time // zero: no end
}

func (c *Config) tickets() *tickets {
	t := &tickets{limit: uint64(c.Requests)}
	if c.Duration > 0 {
		t.until = time.Now().Add(c.Duration)
	}
	return t
}

func (t *tickets) take(ctx context.Context) (uint64, bool) {
	if ctx.Err() != nil || !t.until.IsZero() && time.Now().After(t.until) {
		return 0, false
	}
	n := t.next.Add(1) - 1
	return n, t.limit == 0 || n < t.limit
}

// line is a connection that is opened anew after an error.
type line struct {
	server *server
	limit  time.Duration
	open   *conn
}

// ask sends one request and reads its answer.
func (l *line) ask(ctx context.Context, body []byte, how reading) (answer, error) {
	if l.open == nil {
		c, err := l.server.dial(ctx, l.limit)
		if err != nil {
			pause(ctx, 10*time.Millisecond)
			return answer{}, err
		}
		l.open = c
	}
	a, err := l.open.ask(body, how)
	if err != nil {
		l.close()
	}
	return a, err
}

func (l *line) close() {
	if l.open != nil {
		l.open.close()
		l.open = nil
	}
}

// pause waits, so that a server that refuses everything is not stormed.
func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}

// closedLoop keeps one request under way on each connection. With a second
// server each request goes to both in turn, so that noise of the machine hits
// both alike.
func closedLoop(ctx context.Context, c Config, s *server) (Result, error) {
	var against *server
	if c.Against != "" {
		var err error
		if against, err = parseServer(c.Against, c.APIKey); err != nil {
			return Result{}, err
		}
	}

	todo, past := c.tickets(), make(histories, c.Conversations)
	tallies := make([]tally, c.Concurrency)
	var wait sync.WaitGroup
	for i := range tallies {
		wait.Go(func() {
			loop(ctx, &c, todo, past, &tallies[i], s, against)
		})
	}
	wait.Wait()
	return merge(tallies), ctx.Err()
}

func loop(ctx context.Context, c *Config, todo *tickets, past histories, t *tally, s, against *server) {
	first := line{server: s, limit: c.HangAfter}
	defer first.close()
	second := line{server: against, limit: c.HangAfter}
	defer second.close()
	how := reading{stream: c.Mode == Stream, gaps: c.Mode == Stream, abortAfter: -1}

	for {
		n, ok := todo.take(ctx)
		if !ok {
			return
		}
		body := c.body(c.chat(n+c.First, past))

		t.count(first.ask(ctx, body, how))
		if against == nil {
			continue
		}
		a, err := second.ask(ctx, body, how)
		if err != nil {
			t.fail(err)
			continue
		}
		t.against = append(t.against, a.whole)
	}
}

// chat is request n of a closed loop.
func (c *Config) chat(n uint64, past histories) chat {
	if c.Prompts > 0 {
		n %= uint64(c.Prompts)
	}
	r := chat{stream: c.Mode == Stream, seed: c.Seed}
	if c.HistoryBytes == 0 {
		r.prompt = prompt(c.Seed, n, c.PromptWords)
		return r
	}
	r.past = past.of(n%uint64(c.Conversations), c.Seed, c.HistoryBytes)
	r.prompt = passage(rand.New(rand.NewPCG(c.Seed, n)), c.MessageBytes)
	return r
}
