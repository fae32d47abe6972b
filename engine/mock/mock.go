// Package mock is an engine without a model. It schedules as a real engine
// does (continuous batching over paged blocks, prefix caching, chunked prefill,
// preemption), takes as long as one would, tells of its cache as one does, and
// answers with readable text or with what a script says.
//
// The one idea: the scheduler is a plain state machine, [Core], to which time
// is an argument. [Engine] drives it by the clock and gives each request a
// mailbox; a simulator drives the same core in virtual time. Tokens are a
// function of the tokens before them and of the request's seed, so that neither
// batching nor preemption nor the choice of a worker changes an answer.
package mock

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/engine"
)

// Config is what an [Engine] is made of.
type Config struct {
	// Model is the name that it serves.
	Model string
	// Args says which engine is imitated. The zero value stands for
	// [DefaultArgs].
	Args Args
	// Seed makes the answers. Workers that serve one model share it, as they
	// would share the weights.
	Seed uint64
	// Source of tokens. Empty: the script if there is one, else text if there
	// is a tokenizer, else random ids.
	Source Source
	// Script is followed by SourceScript. It may be shared by several engines,
	// which then share what "times" counts.
	Script *Script
	// Encode appends the ids of a text, special tokens written out in it
	// included, and none for a text that has none. It is called from several
	// goroutines at once.
	Encode func(dst []uint32, text string) []uint32
	// EOS are the ids that end a sequence.
	EOS []uint32
	// VocabSize bounds the ids of prompts; 0 = not checked.
	VocabSize int
	// ContextLength is what the model was made for: prompt and answer together may
	// have no more tokens. 0 = whatever fits.
	ContextLength uint32
	// Files are passed on in the card.
	Files []engine.File
	// Name tells this engine from others, in errors.
	Name string
	// Bootstrap is where decode engines meet a prefill engine, instead of a port of
	// Args. It belongs to the engine.
	Bootstrap net.Listener
	// Computer, if not nil, is a model that makes the answers, whatever Source says, and
	// Kind what errors call the engine then; "" is "mock".
	Computer Computer
	Kind     string
	// Bytes is what really lies in the blocks of each rank that a Computer computes, or
	// nil: then they stay where they are.
	Bytes []*Bytes
	// Pull says how engines that have bytes come for each other's; without, a decode
	// engine computes what a prefill engine has computed.
	Pull Pull
	// Clock is the real one if nil.
	Clock Clock
	// Shared is what the engine's caches share with others, or nil. All that share
	// it have one clock.
	Shared *Shared
}

// Engine is a live mock engine. It has goroutines only while requests run.
type Engine struct {
	cfg    Config
	source Source
	ids    idRange
	prose  func() *prose
	words  func() []uint32

	clock   Clock
	ready   time.Duration // when it has started up
	rank    []*rank
	ranks   sync.WaitGroup // their goroutines
	next    atomic.Uint32  // rank of the next request that names none
	life    sync.Mutex     // held while a life ends, so that all ranks begin the same one
	epoch   atomic.Uint64
	drained atomic.Bool
	kept    keeping
	pulling atomic.Int32 // hand-offs that are being pulled
	meeting *meeting     // or nil
	closed  atomic.Bool

	cards, loads, events bell
}

var (
	_ engine.Engine        = (*Engine)(nil)
	_ engine.Disaggregator = (*Engine)(nil)
	_ engine.Sessioner     = (*Engine)(nil)
	_ engine.Pinner        = (*Engine)(nil)
	_ engine.Prefetcher    = (*Engine)(nil)
	_ engine.Controller    = (*Engine)(nil)
	_ engine.Puller        = (*Engine)(nil)
)

// New returns an engine that is ready, or will be once its start-up time has
// passed. Only a bad configuration is an error.
func New(cfg Config) (*Engine, error) {
	e, err := newEngine(cfg)
	if err != nil {
		return nil, fmt.Errorf("%s engine %s: %w", cmp.Or(cfg.Kind, "mock"), cfg.Name, err)
	}
	return e, nil
}

func newEngine(cfg Config) (_ *Engine, err error) {
	if cfg.Args == (Args{}) {
		cfg.Args = DefaultArgs()
	}
	if err := cfg.Args.Validate(); err != nil {
		return nil, err
	}
	if cfg.Model == "" {
		return nil, errors.New("model has no name")
	}
	if n := cfg.Args.Capacity(); int64(cfg.ContextLength) > int64(n) {
		return nil, fmt.Errorf("context length %d, but the engine arguments leave room for %d tokens (num_gpu_blocks × block_size, max_model_len, without chunked prefill max_num_batched_tokens)", cfg.ContextLength, n)
	}
	cfg.Kind = cmp.Or(cfg.Kind, "mock")
	e := &Engine{cfg: cfg, clock: cfg.Clock}
	if err := e.chooseSource(); err != nil {
		return nil, err
	}
	if e.clock == nil {
		e.clock = newWall()
		if cfg.Shared != nil {
			e.clock = cfg.Shared.clock
		}
	}
	e.ready = e.clock.Now() + time.Duration(cfg.Args.StartupTime*float64(time.Second))
	e.ids = idRange{low: 1000, high: 2000, not: cfg.EOS}
	if n := cfg.VocabSize; n > 0 && n < 2000 {
		e.ids.low, e.ids.high = 0, uint32(n)
	}
	if int(e.ids.high-e.ids.low) <= len(cfg.EOS) {
		return nil, fmt.Errorf("a vocabulary of %d has nothing but %d end-of-sequence ids", cfg.VocabSize, len(cfg.EOS))
	}
	e.prose = sync.OnceValue(func() *prose { return newProse(cfg.Encode) })
	e.words = sync.OnceValue(func() []uint32 { return e.prose().words() })
	e.epoch.Store(uint64(time.Now().UnixNano()))
	for i := range cfg.Args.DPSize {
		r := &rank{
			e:       e,
			wake:    make(chan struct{}, 1),
			halt:    make(chan struct{}, 1),
			mu:      &sync.Mutex{},
			streams: make(map[*stream]struct{}),
		}
		if r.core, err = r.newCore(i); err != nil {
			return nil, err
		}
		if cfg.Shared != nil {
			r.mu = &cfg.Shared.mu
		}
		r.journal.rank = uint32(i)
		r.journal.restart(e.epoch.Load())
		e.rank = append(e.rank, r)
	}
	if err := e.open(); err != nil {
		return nil, err
	}
	cfg.Shared.join(e)
	return e, nil
}

func (e *Engine) chooseSource() error {
	cfg := &e.cfg
	switch e.source = cfg.Source; {
	case cfg.Computer != nil:
		e.source = SourceRandom
	case e.source != "":
	case cfg.Script != nil:
		e.source = SourceScript
	case cfg.Encode != nil:
		e.source = SourceText
	default:
		e.source = SourceRandom
	}
	switch e.source {
	case SourceRandom, SourceEcho:
		return nil
	case SourceText, SourceScript:
		if cfg.Encode == nil {
			return fmt.Errorf("source %s needs a tokenizer", e.source)
		}
		if e.source == SourceScript && cfg.Script == nil {
			return errors.New("source script needs a script")
		}
		return nil
	}
	return fmt.Errorf("unknown source %q (want %s, %s, %s or %s)", e.source, SourceText, SourceRandom, SourceEcho, SourceScript)
}

// refusal is the error for requests that come at a wrong time, or nil.
func (e *Engine) refusal() error {
	if state, reason := e.state(); state != engine.Ready {
		return engine.Errorf(engine.Unavailable, "%s", reason)
	}
	return nil
}

func (e *Engine) state() (engine.State, string) {
	switch {
	case e.closed.Load():
		return engine.Failed, "the engine is closed"
	case e.drained.Load():
		return engine.Draining, "the engine is draining"
	case e.clock.Now() < e.ready:
		return engine.Loading, "the engine is starting up"
	}
	return engine.Ready, ""
}

// rankFor returns the rank that a request names, or the next one in turn.
func (e *Engine) rankFor(r *engine.Request) *rank {
	if r.DPRank != nil {
		return e.rank[*r.DPRank]
	}
	return e.rank[int(e.next.Add(1)-1)%len(e.rank)]
}

// Restart is what a crash and a new start look like from outside: running
// streams end with engine_shutdown, the cache is empty, the epoch is another
// one, and a drain is forgotten.
func (e *Engine) Restart() {
	e.life.Lock()
	defer e.life.Unlock()
	e.restart(errRestarted)
}

var errRestarted = engine.Errorf(engine.EngineShutdown, "the engine was restarted")

// die restarts the engine, unless the life with this epoch is over already. Streams
// that run end with err.
func (e *Engine) die(epoch uint64, err error) {
	e.life.Lock()
	defer e.life.Unlock()
	if e.epoch.Load() == epoch {
		e.restart(err)
	}
}

// restart begins another life. The lock on life must be held.
func (e *Engine) restart(err error) {
	if e.closed.Load() {
		return
	}
	epoch := max(e.epoch.Load()+1, uint64(time.Now().UnixNano()))
	e.reset(epoch, err)
	// Told last: who hears of the new life finds it on every rank.
	e.epoch.Store(epoch)
	e.drained.Store(false)
	e.cards.ring()
}

// Drain makes the engine refuse new requests, with kind unavailable. Running
// ones go on.
func (e *Engine) Drain() {
	e.drained.Store(true)
	e.cards.ring()
}

// Close ends running streams with engine_shutdown and returns when nothing is
// left running. It may be called any number of times.
func (e *Engine) Close() error {
	e.life.Lock()
	if !e.closed.Swap(true) {
		e.reset(e.epoch.Load(), engine.Errorf(engine.EngineShutdown, "the engine was closed"))
		e.cards.ring()
	}
	e.life.Unlock()
	if e.meeting != nil {
		e.meeting.close()
	}
	e.ranks.Wait()
	e.cfg.Shared.leave(e)
	return nil
}

// reset ends what runs with err and drops what is cached, on every rank.
func (e *Engine) reset(epoch uint64, err error) {
	for _, r := range e.rank {
		r.reset(epoch, err)
	}
	e.events.ring()
	e.loads.ring()
}

// Epoch returns the present epoch.
func (e *Engine) Epoch() uint64 { return e.epoch.Load() }
