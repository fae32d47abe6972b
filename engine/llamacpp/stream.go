package llamacpp

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"slices"
	"strings"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// chunk is one event of a completion. The last one has Stop.
type chunk struct {
	Content   string        `json:"content"`
	Tokens    []uint32      `json:"tokens"`
	Predicted int           `json:"tokens_predicted"`
	Probs     []probability `json:"completion_probabilities"`
	Progress  *struct {
		Cache int `json:"cache"`
	} `json:"prompt_progress"`

	Error jsontext.Value `json:"error"`

	Stop         bool   `json:"stop"`
	StopType     string `json:"stop_type"`
	StoppingWord string `json:"stopping_word"`
	Timings      *struct {
		Cached *int `json:"cache_n"`
	} `json:"timings"`
}

// probability tells of one position, or of one alternative there.
type probability struct {
	ID      uint32        `json:"id"`
	Logprob *float64      `json:"logprob"` // null: too low for a number
	Top     []probability `json:"top_logprobs"`
}

func read(data []byte) (c chunk, err error) {
	if err := json.Unmarshal(data, &c, httpapi.Lenient); err != nil {
		return c, &engine.Error{Kind: engine.Internal, Op: "read an event", FromEngine: true, Err: err}
	}
	return c, nil
}

// Generate runs one request. It is sent when the loop begins; leaving the loop
// closes the connection, which is how the server is told to stop.
func (e *Engine) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	var ranged atomic.Bool
	return func(yield func(engine.Delta, error) bool) {
		if ranged.Swap(true) {
			yield(engine.Delta{}, engine.Errorf(engine.Internal, "llama.cpp: the sequence of request %s was ranged over twice", r.ID))
			return
		}
		if ctx.Err() != nil {
			yield(engine.Delta{}, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		if e.closed.Load() {
			yield(engine.Delta{}, engine.Errorf(engine.Unavailable, "the engine is closed"))
			return
		}
		at := e.life.place()
		if err := e.check(r, &at); err != nil {
			yield(engine.Delta{}, err)
			return
		}
		text, err := e.complete(r, &at)
		if err != nil {
			yield(engine.Delta{}, err)
			return
		}
		s := &stream{e: e, r: r}
		if err := s.run(ctx, text, yield); err != nil {
			yield(engine.Delta{}, err)
		}
	}
}

// stream is an answer on its way.
type stream struct {
	e *Engine
	r *engine.Request

	seen   int  // tokens that came
	cached *int // tokens of the prompt that it had
	end    *engine.Delta
}

// run yields deltas until the terminal one, and returns nil then, or when the
// consumer leaves; else what ended the stream.
func (s *stream) run(ctx context.Context, body []byte, yield func(engine.Delta, error) bool) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	over := false
	for data, err := range s.e.client.Stream(ctx, "/completion", httpapi.Traced(s.r.Trace), body) {
		switch {
		case over:
			continue
		case err != nil && s.end != nil:
			yield(*s.end, nil) // the answer is whole, only its last words are missing
			return nil
		case ctx.Err() != nil:
			return engine.CauseOf(ctx, ctx.Err())
		case err != nil:
			return contextExceeded(err)
		}
		c, err := read(data)
		if err == nil && len(c.Error) > 0 {
			err = contextExceeded(httpapi.InStream(data))
		}
		switch {
		case err != nil && s.end != nil:
			yield(*s.end, nil)
			return nil
		case err != nil:
			return err
		}
		d, ended, err := s.take(ctx, &c)
		if err != nil {
			return err
		}
		if ended {
			yield(d, nil)
			if !c.Stop {
				return nil
			}
			over = true // but for the end of the stream, behind which the connection can be used again
			defer time.AfterFunc(httpapi.RestTimeout, stop).Stop()
			continue
		}
		if len(d.TokenIDs) > 0 && !yield(d, nil) {
			return nil
		}
		if s.end != nil {
			defer time.AfterFunc(httpapi.LastWords, stop).Stop() // what comes next is the last
		}
	}
	switch {
	case over:
		return nil
	case s.end != nil:
		yield(*s.end, nil)
		return nil
	case ctx.Err() != nil:
		return engine.CauseOf(ctx, ctx.Err())
	}
	return engine.Errorf(engine.StreamIncomplete, "the server's stream ended without its last event")
}

// take turns an event into a delta, and says whether it is the terminal one.
func (s *stream) take(ctx context.Context, c *chunk) (d engine.Delta, ended bool, err error) {
	if c.Progress != nil {
		s.cached = &c.Progress.Cache
	}
	if c.Timings != nil && c.Timings.Cached != nil {
		s.cached = c.Timings.Cached
	}
	if s.end != nil {
		// An id that ends the answer was seen before. The server either says now
		// that it has ended, too, or goes on, and is left.
		if c.Stop {
			s.end.Usage = s.usage(cmp.Or(c.Predicted, s.end.Usage.Output))
		}
		return *s.end, true, nil
	}
	if c.Stop {
		return s.last(c)
	}
	if len(c.Tokens) == 0 || c.Progress != nil {
		return d, false, nil // progress of the prompt, whose token 0 is none
	}
	ids := c.Tokens
	if missing := c.Predicted - s.seen - len(ids); missing > 0 {
		if ids, err = s.e.respell(ctx, c.Content, ids, missing); err != nil {
			return d, false, err
		}
	}
	before := s.seen
	s.seen += len(ids)
	d.TokenIDs = ids
	for i, id := range ids {
		listed := slices.Contains(s.r.Stop.IDs, id)
		if !listed && !slices.Contains(s.r.Stop.Hidden, id) {
			continue
		}
		end := engine.Delta{Finish: engine.FinishEOS, Usage: s.usage(before + i + 1)}
		d.TokenIDs = ids[:i]
		if listed {
			d.TokenIDs = ids[:i+1]
			end.Finish, end.MatchedIDs = engine.FinishStop, []uint32{id}
		}
		s.addLogprobs(&d, c, len(ids))
		if listed {
			end.TokenIDs, end.Logprobs = d.TokenIDs, d.Logprobs
			return end, true, nil
		}
		s.end = &end
		return d, false, nil
	}
	s.addLogprobs(&d, c, len(ids))
	return d, false, nil
}

// last turns the server's last event into the terminal delta.
func (s *stream) last(c *chunk) (engine.Delta, bool, error) {
	d := engine.Delta{Usage: s.usage(cmp.Or(c.Predicted, s.seen))}
	switch c.StopType {
	case "eos":
		d.Finish = engine.FinishEOS
	case "limit":
		d.Finish = engine.FinishLength
	case "word":
		d.Finish, d.MatchedText = engine.FinishStop, c.StoppingWord
	default:
		return engine.Delta{}, false, engine.Errorf(engine.StreamIncomplete, "the server stopped and gave no reason (stop_type %q)", c.StopType)
	}
	return d, true, nil
}

func (s *stream) usage(output int) *engine.Usage {
	u := &engine.Usage{Prompt: len(s.r.TokenIDs), Output: output}
	if s.cached != nil {
		n := min(max(0, *s.cached), u.Prompt)
		u.Cached = &n
	}
	return u
}

// least stands for a log probability that the server does not tell: of an id
// that it left out, or one that is too low for a number.
const least = -9999

// addLogprobs adds one for each id of the delta. The event had made ids; it tells
// of the last of them.
func (s *stream) addLogprobs(d *engine.Delta, c *chunk, made int) {
	if s.r.Logprobs == nil || len(d.TokenIDs) == 0 {
		return
	}
	d.Logprobs = make([]engine.Logprob, len(d.TokenIDs))
	untold := made - len(c.Probs)
	for i, id := range d.TokenIDs {
		d.Logprobs[i] = engine.Logprob{ID: id, Logprob: least}
		if p := i - untold; p >= 0 && p < len(c.Probs) && c.Probs[p].ID == id {
			d.Logprobs[i] = c.Probs[p].logprob(*s.r.Logprobs)
		}
	}
}

// logprob has at most k alternatives.
func (p *probability) logprob(k int) engine.Logprob {
	lp := engine.Logprob{ID: p.ID, Logprob: p.value()}
	for _, t := range p.Top {
		lp.Top = append(lp.Top, engine.Logprob{ID: t.ID, Logprob: t.value()})
	}
	slices.SortStableFunc(lp.Top, func(a, b engine.Logprob) int { return cmp.Compare(b.Logprob, a.Logprob) })
	for i := range lp.Top {
		if lp.Top[i].Rank = i + 1; lp.Top[i].ID == lp.ID {
			lp.Rank = i + 1
		}
	}
	lp.Top = lp.Top[:min(k, len(lp.Top))]
	return lp
}

func (p *probability) value() float64 {
	if p.Logprob == nil {
		return least
	}
	return *p.Logprob
}

// respell finds the ids that an event leaves out. The server says nothing while
// the bytes so far end within a character, and then sends their whole text with
// the last id alone. That text, spelled anew, ends in the same id; where it does
// not, its ids stand for the same text all the same.
func (e *Engine) respell(ctx context.Context, text string, last []uint32, missing int) ([]uint32, error) {
	if isASCII(text) {
		return last, nil // with drafts, the count runs ahead of the ids
	}
	ids, err := e.tokenize(ctx, text)
	if err != nil {
		return nil, fmt.Errorf("spell what the stream left out: %w", err)
	}
	tail := len(ids) - len(last)
	if tail <= 0 {
		return last, nil
	}
	if slices.Equal(ids[tail:], last) {
		// Some vocabularies put a blank before any text that is spelled alone.
		return ids[max(0, tail-missing):], nil
	}
	return ids, nil
}

func isASCII(text string) bool {
	for i := range len(text) {
		if text[i] >= utf8.RuneSelf {
			return false
		}
	}
	return true
}

// contextExceeded marks the server's own words for a prompt that is too long.
func contextExceeded(err error) error {
	if e, ok := err.(*engine.Error); ok && e.Kind == engine.InvalidArgument && strings.Contains(e.Message, "context size") {
		e.Code = "context_length_exceeded"
	}
	return err
}
