// Package mask holds the tokens of an answer to a form: it tells before each token
// which ids may come, so that a JSON schema, a pattern, a choice or a call of a
// tool is kept whatever the model would like to say.
//
// The one idea: the state of an answer is the expression for the texts that may
// still come, and reading a byte takes its derivative. Equal expressions are one,
// so states and their masks are made when they are first met, shared by all
// answers, and a copy of a state is a copy of a pointer. An expression without
// texts is never kept, so there is no way that leads nowhere.
//
//	form ─▶ expressions ─▶ states, by derivative ─┐
//	tokens of the vocabulary ─▶ trie of bytes ────┴─▶ mask
package mask

import (
	"errors"
	"fmt"
	"iter"
	"math/bits"
	"sync"
	"sync/atomic"
)

// ErrStuck says that the text may not end and no token may come: the vocabulary
// cannot write what the form asks for.
var ErrStuck = errors.New("no token of the vocabulary may come next in the form of the answer")

// ErrTooMuch says that a form, or the next token in it, takes more than may be spent on
// that.
var ErrTooMuch = errors.New("the form of the answer takes too much")

// Grammar is a compiled form for one vocabulary. It is safe for concurrent use.
type Grammar struct {
	vocabulary *Vocabulary
	root       *expr
	size       atomic.Int64 // bytes of the arena, as of late
	mu         sync.Mutex   // held for the arena
	arena      *arena
}

// newGrammar returns the grammar of an expression.
func newGrammar(v *Vocabulary, r rules, root *expr) (*Grammar, error) {
	a, err := newArena(r, root)
	if err != nil {
		return nil, err
	}
	g := &Grammar{vocabulary: v, arena: a, root: root}
	g.size.Store(a.bytes())
	return g, nil
}

// State is how far one answer has come. It is a value: a copy goes its own way.
// One state is not safe for concurrent use, copies are.
type State struct {
	grammar *Grammar
	arena   *arena
	at      *node
	ended   bool
}

// Start returns the state of an answer that has no token yet.
func (g *Grammar) Start() State {
	g.mu.Lock()
	defer g.mu.Unlock()
	a := g.fresh()
	return State{grammar: g, arena: a, at: a.root}
}

// fresh returns the arena, or a new one if it has become too large.
func (g *Grammar) fresh() *arena {
	if g.arena.full() {
		young := *g.arena
		young.clear()
		if err := young.within(compileFor, func() { young.root = young.begin(g.root) }); err != nil {
			return g.arena // it was within the limits before, with more to do
		}
		g.arena = &young
	}
	return g.arena
}

// enter makes sure that the state stands in the grammar's arena.
func (s *State) enter() (*arena, error) {
	a := s.grammar.fresh()
	if s.arena == a {
		return a, nil
	}
	err := a.within(tokenFor, func() { s.at = a.adopt(s.at, map[*node]*node{}) })
	if err == nil {
		s.arena = a
	}
	return a, err
}

// Clone returns a state that is advanced on its own.
func (s *State) Clone() State { return *s }

// Done says whether the text may end here.
func (s *State) Done() bool { return s.at.null }

// Ended says whether an end has been read. Nothing may come any more.
func (s *State) Ended() bool { return s.ended }

// Mask sets in dst the bits of the ids that may come next, and clears all others:
// bit id mod 64 of word id / 64. It has [Vocabulary.Words] words at least; the bits
// of what is longer are cleared. It returns [ErrStuck] if there are none.
func (s *State) Mask(dst []uint64) error {
	g := s.grammar
	if s.ended {
		return errors.New("mask: the answer has ended")
	}
	if len(dst) < g.vocabulary.Words() {
		return fmt.Errorf("mask: %d words for a mask of %d", len(dst), g.vocabulary.Words())
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a, err := s.enter()
	if err != nil {
		return err
	}
	var p *profile
	err = a.within(tokenFor, func() { p = g.profileOf(s.at) })
	g.size.Store(a.bytes())
	if err != nil {
		return err
	}
	some := len(p.few) > 0 || p.bits != nil
	clear(dst[copy(dst, p.bits):])
	for _, id := range p.few {
		dst[id>>6] |= 1 << (id & 63)
	}
	err = a.within(tokenFor, func() {
		for id, symbol := range a.marks {
			if a.next(s.at, symbol).op != opVoid {
				dst[id>>6] |= 1 << (id & 63)
				some = true
			}
		}
	})
	if err != nil {
		return err
	}
	if s.at.null {
		for _, id := range g.vocabulary.ends {
			dst[id>>6] |= 1 << (id & 63)
			some = true
		}
	}
	if !some {
		return ErrStuck
	}
	return nil
}

// Advance reads a token. It is an error if the token may not come; the state is
// then as before.
func (s *State) Advance(id uint32) error {
	g := s.grammar
	v := g.vocabulary
	switch {
	case s.ended:
		return fmt.Errorf("mask: token %d behind the end of the answer", id)
	case int64(id) >= int64(len(v.tokens)):
		return fmt.Errorf("mask: token %d is not in the vocabulary of %d", id, len(v.tokens))
	case v.isEnd[id]:
		if !s.at.null {
			return fmt.Errorf("mask: token %d ends the answer before it keeps its form", id)
		}
		s.ended = true
		return nil
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	a, err := s.enter()
	if err != nil {
		return err
	}
	next := a.void
	err = a.within(tokenFor, func() {
		if symbol, ok := a.marks[int32(id)]; ok {
			next = a.next(s.at, symbol)
		} else if text := v.tokens[id]; len(text) > 0 {
			next = a.read(s.at, text)
		}
	})
	if err != nil {
		return err
	}
	if next.op == opVoid {
		return fmt.Errorf("mask: token %d does not keep the form of the answer", id)
	}
	s.at = next
	return nil
}

// ones yields the ids whose bits are set.
func ones(mask []uint64) iter.Seq[uint32] {
	return func(yield func(uint32) bool) {
		for i, w := range mask {
			for ; w != 0; w &= w - 1 {
				if !yield(uint32(i*64 + bits.TrailingZeros64(w))) {
					return
				}
			}
		}
	}
}
