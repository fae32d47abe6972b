package router

import (
	"context"
	"slices"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
)

// pool is what workers have in common that cut and name a prompt's blocks the
// same way.
type pool struct {
	blockSize int // tokens
	eagle     bool
	model     string // where the books name blocks by a secret; else empty
}

// guessedBlockSize stands in where a card tells none. Nothing is found cached
// there; only costs must be comparable.
const guessedBlockSize = 16

func blockSize(card *engine.Card) int {
	if card.BlockSize == 0 {
		return guessedBlockSize
	}
	return int(card.BlockSize)
}

// hashed says whether the worker's blocks are named as we can name them.
func hashed(card *engine.Card) bool {
	return card.HashScheme == engine.SchemeXXH3 || card.HashScheme == engine.SchemeXXH3Eagle
}

func (r *Router) pool(card *engine.Card) pool {
	p := pool{blockSize: blockSize(card), eagle: card.HashScheme == engine.SchemeXXH3Eagle}
	if r.tracking != nil {
		p.model = card.Model
	}
	return p
}

// prompt is the request's prompt cut into the blocks of one pool.
type prompt struct {
	pool
	local []kv.LocalHash
	seq   []kv.SeqHash
	// tracked names the blocks in the books. It is seq unless that is a secret.
	tracked []kv.SeqHash
	own     hashes         // memory for a short prompt
	keyed   hashes         // the same, of what is tracked
	found   matches        // by what workers have told
	ahead   matches        // by what was routed to them lately
	instead matches        // by what was shown, or routed to those that are not believed
	probe   chan []kv.Span // will tell shared; nil if nobody was asked
	asked   bool           // somebody was
	shared  []kv.Span
}

type hashes struct {
	local []kv.LocalHash
	seq   []kv.SeqHash
}

// matches are read in the order of the targets.
type matches struct {
	kvindex.Matches
	at int // the first that was not yet asked for
}

// of returns what a target holds, or nil. Targets are asked for in order.
func (m *matches) of(t kv.Target) *[4]int32 {
	for m.at < len(m.Found) {
		held := &m.Found[m.at]
		if held.Target == t {
			m.at++
			return &held.Blocks
		}
		if held.Target.Compare(t) > 0 {
			return nil
		}
		m.at++
	}
	return nil
}

// find is of for one target alone.
func (m *matches) find(t kv.Target) *[4]int32 {
	i, ok := slices.BinarySearchFunc(m.Found, t, func(held kvindex.Match, t kv.Target) int { return held.Target.Compare(t) })
	if !ok {
		return nil
	}
	return &m.Found[i].Blocks
}

// blocks returns how many blocks so many tokens take, the last one maybe in
// part.
func (p *prompt) blocks(tokens int) int { return (tokens + p.blockSize - 1) / p.blockSize }

// cut makes the prompt for a pool.
func (r *Router) cut(ctx context.Context, q *Query, s *scratch, of pool) {
	n := len(s.prompts)
	if n < cap(s.prompts) {
		s.prompts = s.prompts[:n+1] // with the memory it had
	} else {
		s.prompts = append(s.prompts, prompt{})
	}
	p := &s.prompts[n]
	p.pool, p.found.at, p.ahead.at, p.instead.at = of, 0, 0, 0
	p.probe = r.ask(ctx, q, of.blockSize, &s.tuning)
	scheme := kv.PublicScheme(of.blockSize, q.Namespace)
	scheme.Eagle = of.eagle
	if h := q.Hashes; h != nil {
		p.local, p.seq, p.tracked = h.Local, h.Seq[:len(h.Local)], h.Seq
		return
	}
	p.local, p.seq = r.hash(q.Tokens, scheme, &p.own)
	p.tracked = p.seq
	if r.tracking != nil && s.tuning.TrackActiveBlocks && s.tuning.AssumeKVReuse {
		_, p.tracked = r.hash(q.Tokens, r.tracking.Scheme(of.model, routingGroup, of.blockSize, q.Namespace, of.eagle), &p.keyed)
	}
}

// routingGroup is the group that all workers of a model are in.
const routingGroup = "default"

// hash names the blocks of a prompt, of a short one in memory of its own.
func (r *Router) hash(tokens []uint32, scheme kv.Scheme, own *hashes) ([]kv.LocalHash, []kv.SeqHash) {
	if len(tokens) >= kv.MemoTokens {
		return r.memo.Hashes(tokens, scheme)
	}
	own.local = scheme.AppendLocal(own.local[:0], tokens)
	own.seq = scheme.AppendSeq(own.seq[:0], own.local)
	return own.local, own.seq
}

// look finds out where blocks of a prompt are.
func (r *Router) look(p *prompt) {
	r.index.Match(p.local, &p.found.Matches)
	r.ahead.match(p.local, &p.ahead.Matches)
	r.instead.Load().match(p.local, &p.instead.Matches)
}

// hear waits for what the cache beside the workers has of a prompt.
func (p *prompt) hear() {
	if p.asked = p.probe != nil; p.asked {
		p.shared = <-p.probe
		p.probe = nil
	}
}
