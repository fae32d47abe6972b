package mock

import (
	"slices"
	"strings"

	"github.com/dynago/dynago/engine"
)

// Source names where an engine's tokens come from.
type Source string

// Sources of tokens. The next token follows from the tokens before it, whoever
// computed them, and from what the request is sampled by, so that a request that
// is carried on elsewhere gets the same ones.
const (
	// SourceText gives sentences that a person can read, and ends after some
	// of them.
	SourceText Source = "text"
	// SourceRandom gives ids in [1000, 2000), up to the limit.
	SourceRandom Source = "random"
	// SourceEcho gives the prompt back, and ends. It alone has to be told what is
	// prompt, and what another engine has answered.
	SourceEcho Source = "echo"
	// SourceScript gives what a script says.
	SourceScript Source = "script"
)

// digest is a running hash over tokens.
type digest uint64

func (d digest) add(id uint32) digest {
	x := (uint64(d) ^ uint64(id)) * 0x9fb21c651e98df25
	return digest(x ^ x>>32)
}

// pick returns a number below n that depends on the digest and k.
func (d digest) pick(k, n int) int {
	x := uint64(d) + uint64(k+1)*0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return int((x ^ x>>31) % uint64(n))
}

// origin is the digest of no tokens at all, from which an answer begins. A
// greedy one follows from the prompt alone, a sampled one from its seed besides.
// Without a seed the name of the request stands for it: the choices of a prompt
// differ, and the attempts at one choice do not.
func (e *Engine) origin(r *engine.Request) digest {
	d := digest(e.cfg.Seed).add(1)
	switch s := &r.Sampling; {
	case s.Temperature != nil && *s.Temperature == 0:
		return d
	case s.Seed != nil:
		return d.add(uint32(*s.Seed)).add(uint32(*s.Seed >> 32))
	}
	for _, b := range []byte(r.ID[:max(0, strings.LastIndexByte(r.ID, '-'))]) {
		d = d.add(uint32(b))
	}
	return d
}

// ending is how a source may end an answer by itself.
type ending struct {
	id  uint32
	may bool
	min int // not among so many first tokens
}

// ending finds the end-of-sequence id that the request would notice.
func (e *Engine) ending(r *engine.Request) ending {
	for _, id := range e.cfg.EOS {
		if slices.Contains(r.Stop.Hidden, id) || slices.Contains(r.Stop.IDs, id) {
			return ending{id: id, may: true, min: r.Stop.MinTokens}
		}
	}
	return ending{}
}

// generator returns the tokens for a request that no rule answers.
func (e *Engine) generator(r *engine.Request) Generator {
	switch e.source {
	case SourceRandom:
		return e.random(r)
	case SourceEcho:
		prompt, answered := r.Divide()
		end := e.ending(r)
		end.min += len(answered)
		return &echoTokens{prompt: prompt, given: len(answered), end: end}
	}
	// A model whose vocabulary cannot spell plain words has random ids for them.
	if len(e.prose().opening) == 0 {
		return e.random(r)
	}
	return newAnswer(e.prose(), e.origin(r), r.TokenIDs, e.ending(r))
}

func (e *Engine) random(r *engine.Request) Generator {
	d := e.origin(r)
	for _, id := range r.TokenIDs {
		d = d.add(id)
	}
	return &randomTokens{d: d, ids: &e.ids}
}

// idRange is where ids come from that mean nothing.
type idRange struct {
	low, high uint32
	not       []uint32
}

func (s *idRange) pick(d digest, k int) uint32 {
	id := s.low + uint32(d.pick(k, int(s.high-s.low)))
	for slices.Contains(s.not, id) {
		if id++; id >= s.high {
			id = s.low
		}
	}
	return id
}

type randomTokens struct {
	d   digest
	ids *idRange
}

func (t *randomTokens) Next() uint32 {
	id := t.ids.pick(t.d, 0)
	t.d = t.d.add(id)
	return id
}

type echoTokens struct {
	prompt []uint32
	given  int
	end    ending
}

func (t *echoTokens) Next() uint32 {
	at := t.given
	t.given++
	if at >= len(t.prompt) && t.end.may && at >= t.end.min {
		return t.end.id
	}
	return t.prompt[at%len(t.prompt)]
}

// scriptTokens gives a script's emission, and then ends, or where it may not,
// goes on with something else.
type scriptTokens struct {
	ids   []uint32
	given int
	end   ending
	after func() Generator
	rest  Generator
}

func (t *scriptTokens) Next() uint32 {
	at := t.given
	t.given++
	switch {
	case at < len(t.ids):
		return t.ids[at]
	case at == len(t.ids) && t.end.may && at >= t.end.min:
		return t.end.id
	case t.rest == nil:
		t.rest = t.after()
		for range at - len(t.ids) { // which another engine has given
			t.rest.Next()
		}
	}
	return t.rest.Next()
}
