// Package tiny is an engine with a model in it: a small transformer of the llama
// family, computed in plain Go over the very blocks that the scheduler hands out. It
// is there for what it proves rather than for what it says: whatever is cached, moved,
// preempted or carried on elsewhere, the numbers that come out are the same.
//
// The one idea: nothing but the arithmetic is its own. Scheduler, streams, events and
// loads are those of the imitation in package mock, which asks this package to compute
// what it has planned; and a row of the computation depends on nothing but the tokens
// before it, so that all that the scheduler is free to decide changes when an answer
// comes, and never what it is.
package tiny

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
	"github.com/dynago/dynago/guided/mask"
)

// Options is what an [Engine] is made of.
type Options struct {
	// Name is the model's, by which it is served.
	Name string
	// Model is the weights. Engines may share one.
	Model *llama.Model
	// Args are those of the scheduler, with the names and the meaning that they have
	// for package mock; what they say of time does not count. The zero value stands
	// for [DefaultArgs] of the model.
	Args mock.Args
	// EOS are the ids that end a sequence.
	EOS []uint32
	// Vocabulary is how the ids are written, in the order of the model's. With it
	// answers can be held to forms; nil: they cannot.
	Vocabulary *mask.Vocabulary
	// Files are passed on in the card.
	Files []engine.File
	// ID tells this engine from others, in errors.
	ID string
	// Lower says where blocks lie that the arguments keep below the device.
	Lower Lower
	// Pull says how engines of "worker_type": "prefill" and "decode" find each other.
	Pull mock.Pull
}

// Engine computes answers. Each rank has a cache and a goroutine of its own, which
// lives while there is work and keeps one core busy; there is one rank unless dp_size
// says more. Close waits for all of them.
type Engine struct {
	*mock.Engine

	model *llama.Model
	forms *mask.Compiler // or nil
	ranks []*rank

	lower   *lower
	closing sync.Once
}

var (
	_ engine.Engine        = (*Engine)(nil)
	_ engine.Disaggregator = (*Engine)(nil)
	_ engine.Sessioner     = (*Engine)(nil)
	_ engine.Pinner        = (*Engine)(nil)
	_ engine.Prefetcher    = (*Engine)(nil)
	_ engine.Controller    = (*Engine)(nil)
)

// The sizes that an engine has unless it is told otherwise.
const (
	defaultBlockSize = 16
	defaultContexts  = 8       // whole contexts that the cache of a rank has room for
	defaultMemory    = 1 << 30 // bytes that it has at most for them
	defaultSeqs      = 64
	// A pass ends before others wait for long: at this many tokens it takes some tens
	// of milliseconds with a model of the size that is meant here.
	defaultBatch = 256
)

// DefaultArgs returns what the scheduler goes by for a model: a cache with room for
// eight whole contexts, or for what a GiB holds of them, in blocks of 16 tokens.
func DefaultArgs(m *llama.Model) mock.Args {
	a := mock.DefaultArgs()
	c := m.Config()
	perBlock := m.BlockBytes(defaultBlockSize)
	a.BlockSize = defaultBlockSize
	a.KVBytesPerToken = m.BlockBytes(1)
	a.NumGPUBlocks = max(1, min(defaultContexts*c.Context/defaultBlockSize, defaultMemory/perBlock))
	a.MaxNumSeqs = defaultSeqs
	a.MaxNumBatchedTokens = defaultBatch
	return a
}

// cacheBytes returns what the caches of all ranks take.
func cacheBytes(m *llama.Model, a *mock.Args) int64 {
	blocks, bytes := int64(a.NumGPUBlocks)*int64(a.DPSize), int64(m.BlockBytes(a.BlockSize))
	if blocks > math.MaxInt64/bytes {
		return math.MaxInt64
	}
	return blocks * bytes
}

// New returns an engine that is ready. What it serves is bounded by the context of the
// model and by what the cache of a rank holds.
func New(o Options) (*Engine, error) {
	e, err := newEngine(o)
	if err != nil {
		return nil, fmt.Errorf("tiny engine %s: %w", o.ID, err)
	}
	return e, nil
}

func newEngine(o Options) (*Engine, error) {
	if o.Model == nil {
		return nil, errors.New("there is no model")
	}
	if o.Args == (mock.Args{}) {
		o.Args = DefaultArgs(o.Model)
	}
	if err := o.Args.Validate(); err != nil {
		return nil, err
	}
	var err error
	if o.Args, err = o.Lower.sized(o.Args, o.Model); err != nil {
		return nil, err
	}
	cfg := o.Model.Config()
	for _, id := range o.EOS {
		if int(id) >= cfg.Vocab {
			return nil, fmt.Errorf("the end-of-sequence id %d is none of a vocabulary of %d", id, cfg.Vocab)
		}
	}
	if bytes, free := cacheBytes(o.Model, &o.Args), weights.FreeMemory(); bytes > free {
		return nil, fmt.Errorf("num_gpu_blocks is %d: the caches of %d ranks take %d MiB, and %d MiB of memory are free", o.Args.NumGPUBlocks, o.Args.DPSize, bytes>>20, free>>20)
	}
	o.Args.SpeedupRatio = 0 // nothing is imitated
	e := &Engine{model: o.Model}
	if v := o.Vocabulary; v != nil && o.Args.GuidedDecoding {
		if v.Size() > cfg.Vocab {
			return nil, fmt.Errorf("the tokenizer has %d ids, the model %d", v.Size(), cfg.Vocab)
		}
		e.forms = mask.NewCompiler(v)
	}
	for range o.Args.DPSize {
		e.ranks = append(e.ranks, newRank(o.Model, &o.Args))
	}
	if e.lower, err = o.Lower.open(&o.Args, e.ranks); err != nil {
		return nil, err
	}
	e.Engine, err = mock.New(mock.Config{
		Model: o.Name, Args: o.Args, EOS: o.EOS, VocabSize: cfg.Vocab,
		ContextLength: uint32(min(cfg.Context, o.Args.Capacity())),
		Files:         o.Files, Name: o.ID, Computer: computer{e}, Kind: "tiny",
		Bytes: e.lower.ranks, Pull: o.Pull,
	})
	if err != nil {
		return nil, errors.Join(errors.Unwrap(err), e.lower.close()) // New says again whose it is
	}
	return e, nil
}
