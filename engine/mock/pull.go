package mock

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/zeebo/xxh3"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// Where blocks have bytes, the decode engine comes for them: the hand-off says where
// they are, and its engine gives them away block by block until they are released. They
// go into the cache as if they had been computed there, and the request finds them; what
// has not come, for whatever reason, it computes.

// pulled is what a prefill engine hands over in the style pull. Numbers of 64 bits are
// texts, for those whose numbers are shorter.
type pulled struct {
	Version   int    `json:"v"`
	Handoff   string `json:"handoff"`
	Address   string `json:"address,omitzero"`
	Rank      uint32 `json:"rank"`
	Epoch     uint64 `json:"epoch,string,omitzero"`
	Layout    string `json:"layout,omitzero"`
	BlockSize int    `json:"block_size,omitzero"`
	Tokens    int    `json:"tokens,omitzero"`
}

const (
	pullVersion = 1
	// maxPulls is how many hand-offs are pulled from an engine at a time.
	maxPulls = 16
	// pullTime is how long each block is waited for, on both ends.
	pullTime = 30 * time.Second
	// pullAttempts is how many streams in a row may break that have brought nothing.
	pullAttempts = 3
	// depositBytes is how much of what has come waits to be put into the cache, for
	// which passes have to stand still.
	depositBytes = 8 << 20
)

// Pull says how the engines of one fleet come for each other's blocks.
type Pull struct {
	// Address is where this engine is reached, in the words that Dial of the others
	// understands.
	Address func() string
	// Dial returns the engine at an address, and a function that ends its use.
	Dial func(ctx context.Context, address string) (p engine.Puller, done func(), err error)
	// Failed, if not nil, is told of each pull that has not brought what it could have
	// brought: where from, and why.
	Failed func(address string, err error)
}

// PullStats counts by what came of them the hand-offs that were pulled.
type PullStats struct {
	Done   int64 // nothing was missing any more
	NoRoom int64 // the cache had room for a part
	Failed int64 // the rest was computed here
}

// pulls says whether hand-offs are pulled.
func (e *Engine) pulls() bool { return e.cfg.Bytes != nil }

// handOverBlocks is what the last delta of a prefill leg carries in the style pull.
func (s *stream) handOverBlocks() []byte {
	h := pulled{
		Version: pullVersion, Handoff: s.handoff, Rank: s.rank.journal.rank, Epoch: s.epoch,
		Layout: s.e.layout(), BlockSize: s.e.cfg.Args.BlockSize, Tokens: len(s.r.TokenIDs),
	}
	if s.e.cfg.Pull.Address != nil {
		h.Address = s.e.cfg.Pull.Address()
	}
	text, err := json.Marshal(h)
	if err != nil {
		panic("mock: a hand-off cannot be written: " + err.Error()) // a struct of names and numbers
	}
	return text
}

// layout is the fingerprint of what lies in a block.
func (e *Engine) layout() string { return e.card().Disagg.Layout }

// fetch gets the blocks of a prompt that another engine has computed, as far as they
// can be had.
func (s *stream) fetch(ctx context.Context) error {
	var h pulled
	switch err := json.Unmarshal(s.r.Disagg.Handoff, &h); {
	case err != nil:
		return badHandoff("the decode leg", err)
	case h.Version != pullVersion || h.Handoff == "" || h.Epoch == 0:
		return badHandoff("the decode leg", errors.New("want what the prefill leg has handed over, with v, handoff and epoch"))
	}
	p := newPull(s, &h)
	if p.next == p.wanted {
		return nil
	}
	err := p.complete(ctx)
	if ctx.Err() != nil {
		return engine.CauseOf(ctx, ctx.Err())
	}
	p.count(err)
	return nil
}

// pull is the blocks of one prompt on their way from another engine.
type pull struct {
	s      *stream
	h      *pulled
	hashes []kv.SeqHash
	wanted int // blocks of the prompt, but for one that has to be computed
	next   int // the first one that has not come
	bytes  int // of each

	waiting [][]byte // what has come, and is not yet in the cache; the last one is next-1
	over    bool     // the cache takes no more
}

// errFull ends a pull where the cache takes no more.
var errFull = errors.New("the cache has no room for more")

func newPull(s *stream, h *pulled) *pull {
	a := &s.e.cfg.Args
	p := &pull{s: s, h: h, bytes: len(s.e.cfg.Bytes[s.rank.journal.rank].Device.Block(0))}
	p.hashes = kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, s.r.TokenIDs, a.BlockSize, s.r.KV.Namespace.Seed()))
	p.wanted = min(len(p.hashes), (len(s.r.TokenIDs)-1)/a.BlockSize) // at least one token is computed
	s.rank.mu.Lock()
	defer s.rank.mu.Unlock()
	p.next, _ = s.rank.core.pool.Prefix(p.hashes[:p.wanted])
	return p
}

// complete gets what is missing. What lies between the engines may break off; it is tried
// again as long as that brings something.
func (p *pull) complete(ctx context.Context) error {
	e := p.s.e
	switch layout := e.layout(); {
	case e.cfg.Pull.Dial == nil:
		return errors.New("this engine cannot reach others")
	case !e.cfg.Args.EnablePrefixCaching:
		return errors.New("nothing is cached here, want enable_prefix_caching true")
	case p.h.Layout != layout || p.h.BlockSize != e.cfg.Args.BlockSize:
		return fmt.Errorf("other numbers would come out of its blocks: they are laid out as %q, %d tokens each, and these here as %q, %d each", p.h.Layout, p.h.BlockSize, layout, e.cfg.Args.BlockSize)
	}
	for fruitless := 0; ; {
		from := p.next
		err := p.run(ctx)
		p.deposit()
		switch {
		case p.over:
			return errFull
		case ctx.Err() != nil || !brokeOff(err):
			return err
		case p.next > from:
			fruitless = 0
		default:
			fruitless++
		}
		if fruitless == pullAttempts {
			return err
		}
	}
}

// count notes what came of the pull.
func (p *pull) count(err error) {
	r := p.s.rank
	r.mu.Lock()
	stats := &r.core.stats.Pulls
	switch {
	case err == nil:
		stats.Done++
	case errors.Is(err, errFull):
		stats.NoRoom++
	default:
		stats.Failed++
	}
	r.mu.Unlock()
	if failed := p.s.e.cfg.Pull.Failed; failed != nil && err != nil && !errors.Is(err, errFull) {
		failed(p.h.Address, err)
	}
}

// run pulls until nothing is missing, the cache is full, or something fails.
func (p *pull) run(ctx context.Context) error {
	// Whoever is silent for too long is left.
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silence := time.AfterFunc(pullTime, func() {
		cancel(engine.Errorf(engine.ResponseTimeout, "nothing has come for %v", pullTime))
	})
	defer silence.Stop()
	from, done, err := p.s.e.cfg.Pull.Dial(ctx, p.h.Address)
	if err != nil {
		return err
	}
	defer done()
	q := engine.PullRequest{Handoff: p.h.Handoff, Epoch: p.h.Epoch, Layout: p.h.Layout, FromBlock: p.next, BlockBytes: p.bytes}
	for b, err := range from.Pull(ctx, q) {
		if err != nil {
			return engine.CauseOf(ctx, err)
		}
		if !p.take(&b) {
			return fmt.Errorf("what came is not block %d of the prompt as it was sent", p.next)
		}
		if p.next == p.wanted || p.over {
			return nil
		}
		silence.Reset(pullTime)
	}
	return fmt.Errorf("it has given no more than %d blocks of %d", p.next, p.wanted)
}

// brokeOff says whether a stream has ended for a reason that lies between the engines.
func brokeOff(err error) bool {
	switch engine.KindOf(err) {
	case engine.Disconnected, engine.StreamIncomplete, engine.CannotConnect, engine.ConnectionTimeout:
		return true
	}
	return false
}

// take keeps a block, if it is the one that was sent and the next one of the prompt.
func (p *pull) take(b *engine.PulledBlock) bool {
	if b.Number != p.next || b.Tokens != p.s.e.cfg.Args.BlockSize || b.Hash != p.hashes[p.next] ||
		len(b.Data) != p.bytes || xxh3.Hash(b.Data) != b.Checksum {
		return false
	}
	p.waiting = append(p.waiting, b.Data)
	p.next++
	if len(p.waiting)*p.bytes >= depositBytes {
		p.deposit()
	}
	return true
}

// deposit puts what has come into the cache.
func (p *pull) deposit() {
	if len(p.waiting) == 0 || p.over {
		return
	}
	first, r := p.next-len(p.waiting), p.s.rank
	r.ask(func(r *rank, _ time.Duration) {
		device := p.s.e.cfg.Bytes[r.journal.rank].Device
		n := r.core.Deposit(p.s.r.TokenIDs, p.s.r.KV.Namespace, first, len(p.waiting), func(k int, slot kvcache.Ref) {
			copy(device.Block(int(slot)), p.waiting[k-first])
		})
		r.tell(r.core.result.Events, r.core.result.Stores)
		p.over = n < len(p.waiting)
	})
	p.waiting = p.waiting[:0]
}

// Deposit puts blocks of a prompt into the cache that were computed elsewhere: those
// from number first on, for each of which fill is called with its slot. They take the
// room that requests would, as far as it is free or idle. It returns how many of them
// are there now; what comes before them must be. Events are in the result of the last
// pass, in place of those that it had. It is not to be called while a pass is computed.
func (c *Core) Deposit(prompt []uint32, ns kv.Namespace, first, blocks int, fill func(k int, slot kvcache.Ref)) int {
	c.result.Events, c.result.Stores = c.result.Events[:0], c.result.Stores[:0]
	r := &request{Request: Request{Prompt: prompt, Namespace: ns}}
	r.local = kv.AppendLocalHashes(r.local, prompt, c.args.BlockSize, ns.Seed())
	r.seq = kv.AppendSeqHashes(r.seq, r.local)
	end := min(first+blocks, len(r.seq))
	r.blocks = c.match(r, r.blocks, r.seq[:end])
	r.sealed = len(r.blocks)
	if r.sealed >= first {
		for len(r.blocks) < end && c.pool.Spare() > 0 {
			var ok bool
			if r.blocks, ok = c.allocate(r.blocks, 1, ns); !ok {
				break
			}
			fill(len(r.blocks)-1, r.blocks[len(r.blocks)-1])
			c.stats.Pulled++
		}
		c.seal(r, len(r.blocks)*c.args.BlockSize)
	}
	n := max(0, len(r.blocks)-first)
	c.giveBack(r)
	c.tell()
	return n
}

// Pull implements [engine.Puller].
func (e *Engine) Pull(ctx context.Context, q engine.PullRequest) iter.Seq2[engine.PulledBlock, error] {
	return func(yield func(engine.PulledBlock, error) bool) {
		failed := func(err error) { yield(engine.PulledBlock{}, err) }
		switch {
		case !e.pulls() || e.cfg.Args.role() != engine.Prefill:
			failed(engine.Errorf(engine.Unsupported, "this %s engine computes nothing for others", e.cfg.Kind))
			return
		case q.Epoch != 0 && q.Epoch != e.Epoch():
			failed(engine.Errorf(engine.Stale, "the hand-off is of epoch %d, this is %d", q.Epoch, e.Epoch()))
			return
		case q.Layout != e.layout():
			failed(engine.Errorf(engine.Stale, "the blocks are laid out as %q, want %q", e.layout(), q.Layout))
			return
		}
		if e.pulling.Add(1) > maxPulls {
			e.pulling.Add(-1)
			failed(engine.Errorf(engine.WorkerOverloaded, "%d hand-offs are being pulled already", maxPulls))
			return
		}
		defer e.pulling.Add(-1)
		for k := q.FromBlock; ; k++ {
			b, last, err := e.give(ctx, q.Handoff, k)
			if err != nil {
				failed(err)
				return
			}
			if b.Data != nil && !yield(b, nil) || last {
				return
			}
		}
	}
}

// give returns block k of a hand-off, and whether it is the last one. One beyond that
// has no data.
func (e *Engine) give(ctx context.Context, handoff string, k int) (b engine.PulledBlock, last bool, err error) {
	s, err := e.awaitKept(ctx, handoff)
	if err != nil {
		return b, false, err
	}
	r := s.rank
	r.mu.Lock()
	b, last, ok := r.core.copyKept(s, k, e.cfg.Bytes[r.journal.rank].Device.Block)
	r.mu.Unlock()
	if !ok {
		return b, false, errNoHandoff(handoff)
	}
	b.Checksum = xxh3.Hash(b.Data)
	return b, last, nil
}

func errNoHandoff(id string) error {
	return engine.Errorf(engine.NotFound, "there is no hand-off %s, or not any more", strconv.Quote(id))
}

// copyKept copies block k of a request that has ended and keeps its blocks. It is not
// ok if there is no such request any more. What is written meanwhile is never one of
// these blocks, and they are given away under the lock of the rank alone.
func (c *Core) copyKept(s *stream, k int, bytes func(slot int) []byte) (b engine.PulledBlock, last, ok bool) {
	i := int(s.id & 0xffffffff)
	if s.core != c || k < 0 || i >= len(c.slots) || c.slots[i].id != s.id || c.slots[i].Generator == nil {
		return b, false, false
	}
	r, size := c.slots[i], c.args.BlockSize
	n := blocks(len(r.Prompt), size)
	if k >= n {
		return b, true, true
	}
	b = engine.PulledBlock{Number: k, Total: len(r.Prompt), Tokens: min(size, len(r.Prompt)-k*size)}
	if b.Tokens == size && k < len(r.seq) {
		b.Hash = r.seq[k]
	}
	b.Data = slices.Clone(bytes(int(r.blocks[k])))
	return b, k == n-1, true
}

// awaitKept returns the stream of a hand-off once its prompt has been computed.
func (e *Engine) awaitKept(ctx context.Context, handoff string) (*stream, error) {
	e.expireKept()
	e.kept.mu.Lock()
	k, coming := e.kept.kept[handoff], e.kept.coming[handoff]
	e.kept.mu.Unlock()
	if k != nil {
		return k.stream, nil
	}
	if coming == nil {
		return nil, errNoHandoff(handoff)
	}
	patience := time.NewTimer(pullTime)
	defer patience.Stop()
	select {
	case <-coming:
	case <-patience.C:
		return nil, engine.Errorf(engine.ResponseTimeout, "the prompt of hand-off %s was not computed within %v", strconv.Quote(handoff), pullTime)
	case <-ctx.Done():
		return nil, engine.CauseOf(ctx, ctx.Err())
	}
	e.kept.mu.Lock()
	k = e.kept.kept[handoff]
	e.kept.mu.Unlock()
	if k == nil {
		return nil, errNoHandoff(handoff)
	}
	return k.stream, nil
}

// expect says that the prompt of a hand-off is being computed.
func (k *keeping) expect(id string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.coming == nil {
		k.coming = map[string]chan struct{}{}
	}
	if k.coming[id] == nil {
		k.coming[id] = make(chan struct{})
	}
}

// settled says that a prompt has been computed, or will not be. The lock must be held.
func (k *keeping) settled(id string) {
	if c := k.coming[id]; c != nil {
		close(c)
		delete(k.coming, id)
	}
}

// disappoint tells whoever has come for the prompt of a stream that it will not be
// computed.
func (e *Engine) disappoint(s *stream) {
	if !e.pulls() || s.handoff == "" {
		return
	}
	e.kept.mu.Lock()
	defer e.kept.mu.Unlock()
	e.kept.settled(s.handoff)
}
