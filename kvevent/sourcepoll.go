package kvevent

import (
	"context"
	"errors"
	"iter"
	"log/slog"
	"sync"
	"time"

	"github.com/dynago/dynago/kv"
)

// How often an engine is asked for its events: soon again after some came, more
// and more seldom while none do, and after it could not be reached.
const (
	pollSoonest = 20 * time.Millisecond
	pollLatest  = 100 * time.Millisecond
	pollFailed  = time.Second
	// pollLimit is how long an answer may take. Most builds of TensorRT-LLM answer
	// only when nothing has happened for two seconds, and what they have gathered for
	// one who has left by then is lost.
	pollLimit = 5 * time.Minute
)

// PollConfig says how an engine is asked for its events.
type PollConfig struct {
	// Fetch asks once, and returns the answer: POST /kv_cache_events of a
	// TensorRT-LLM server, whose every event is told once. It must end with its
	// context. Nobody else may ask the same server.
	Fetch func(ctx context.Context) ([]byte, error)
	// Decoder says what the worker is like.
	Decoder Config
	// Log, if not nil, hears of what an operator could do something about.
	Log *slog.Logger
}

// PollSource asks an engine for its events that publishes none of itself. An
// engine asked this way replays nothing: what is lost is lost, and the rank is
// then known partially.
//
// Its methods may be called from any goroutine, but only one loop ranges over
// its events at a time.
type PollSource struct {
	config PollConfig
	loop   sync.Mutex
	// Of the loop, which hands them on to the next one.
	decoder *TRTLLMDecoder
	ranks   map[uint32]*teller
	epoch   uint64
	failing bool // which has been said

	mu        sync.Mutex
	restarted bool
	// renewed is whether numbers began anew and nobody has said why yet.
	renewed bool
	stats   PollStats
}

// PollStats is what a [PollSource] has seen. It is plain data.
type PollStats struct {
	Polls, Failed uint64 // times that the engine was asked, and could not be
	Lost          uint64 // times that a rank's events were missing, or began anew
	Decoder       Counts
}

// NewPollSource returns a source that has asked nothing yet.
func NewPollSource(c PollConfig) *PollSource {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &PollSource{
		config: c, decoder: NewTRTLLMDecoder(c.Decoder), ranks: make(map[uint32]*teller), epoch: uint64(time.Now().UnixNano()),
	}
}

// Events yields what the engine's caches tell, until ctx ends, as
// [Source.Events] does.
func (s *PollSource) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		if !s.loop.TryLock() {
			yield(kv.Batch{}, errors.New("kvevent: poll: another loop reads these events"))
			return
		}
		defer s.loop.Unlock()
		left := false
		send := func(b kv.Batch) { left = left || ctx.Err() != nil || !yield(b, nil) }
		s.begin(from, send)
		for wait := pollSoonest; !left && ctx.Err() == nil; {
			n, err := s.poll(ctx, send)
			switch {
			case left || ctx.Err() != nil:
				return
			case err != nil:
				wait = pollFailed
			case n > 0:
				wait = pollSoonest
			default:
				wait = min(wait*3/2, pollLatest)
			}
			select {
			case <-ctx.Done():
			case <-time.After(wait):
			}
		}
	}
}

// begin goes on where the consumer is. A rank that it is elsewhere in cannot be
// told anew, and is partial from then on.
func (s *PollSource) begin(from []kv.Cursor, send func(kv.Batch)) {
	known := make(map[uint32]kv.Cursor, len(from))
	for _, c := range from {
		known[c.Rank] = c
		if s.ranks[c.Rank] == nil {
			s.teller(c.Rank)
			s.ranks[c.Rank].told = true
		}
	}
	for rank, t := range s.ranks {
		c, ok := known[rank]
		t.send = send
		if ok && t.told && c.Epoch == t.epoch && c.Sequence == t.seq {
			continue
		}
		t.beginAnew(ok)
	}
}

// teller returns that of a rank, made if need be.
func (s *PollSource) teller(rank uint32) *teller {
	t := s.ranks[rank]
	if t == nil {
		t = &teller{rank: rank, epoch: s.epoch}
		s.ranks[rank] = t
	}
	return t
}

// poll asks once, and returns how many of the engine's events came.
func (s *PollSource) poll(ctx context.Context, send func(kv.Batch)) (n uint64, err error) {
	if s.isRestarted() {
		for rank, t := range s.ranks {
			s.decoder.Forget(rank)
			t.begin(kv.GapRestart)
		}
	}
	asking, cancel := context.WithTimeout(ctx, pollLimit)
	body, err := s.config.Fetch(asking)
	cancel()
	var runs []Polled
	if err == nil {
		runs, err = s.decoder.Decode(body)
	}
	for i := range runs {
		run := &runs[i]
		n += run.Last - run.First + 1
		t := s.teller(run.Rank)
		t.send = send
		if run.Lost {
			s.renew(run.First == 0)
			s.note(func(p *PollStats) { p.Lost++ })
			s.config.Log.Warn("KV events of the rank are void", "rank", run.Rank, "reason", kv.GapLost)
			t.begin(kv.GapLost)
		}
		if run.First == 0 { // the first event of an engine's life
			t.Complete()
		}
		t.tell(run.Events)
	}
	s.note(func(p *PollStats) {
		p.Polls++
		p.Decoder = s.decoder.Counts()
		if err != nil {
			p.Failed++
		}
	})
	if ctx.Err() == nil {
		if err != nil && !s.failing {
			s.config.Log.Warn("engine cannot be asked for its KV events; it is asked again and again", "error", err)
		}
		s.failing = err != nil
	}
	return n, err
}

// Restarted tells the source what the engine's health has found out: that its
// process is another one than before. It does not wait for anything. It is false
// where that is no news: numbers that began anew have shown it already, and what
// was told since is of the process that runs now.
func (s *PollSource) Restarted() (news bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	news = !s.renewed
	s.restarted = s.restarted || news
	s.renewed = false
	return news
}

// renew notes that what came before is of another process.
func (s *PollSource) renew(anew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.renewed = anew
}

func (s *PollSource) isRestarted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	was := s.restarted
	s.restarted = false
	return was
}

func (s *PollSource) note(change func(*PollStats)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(&s.stats)
}

// Stats returns what was seen so far.
func (s *PollSource) Stats() PollStats {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stats
}
