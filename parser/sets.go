package parser

import (
	"slices"
	"strings"
	"sync"

	"github.com/dynago/dynago/harmony"
)

// sets are the markers that mean something in each state.
type sets struct {
	text, thought, draft, skip markers
}

// setKey is what sets depend on.
type setKey struct {
	family Family
	// calls says that tool markup is read, and callsOn that it makes calls.
	calls, callsOn bool
	thinkOn        bool
	pondered       bool // a thought was closed
	// literal is for text that is known to hold no tokens that are markers.
	literal bool
}

// compiled are the sets that were made so far: a few for each family in use. They
// are never changed.
var compiled sync.Map // of *sets, by setKey

func (k setKey) sets() *sets {
	if s, ok := compiled.Load(k); ok {
		return s.(*sets)
	}
	s, _ := compiled.LoadOrStore(k, k.compile())
	return s.(*sets)
}

// compile collects the markers.
func (k setKey) compile() *sets {
	s := new(sets)
	if k.family.harmony() {
		for marker, act := range map[string]action{
			harmony.Start: actStart, harmony.Channel: actChannel, harmony.Constrain: actFormat, harmony.Message: actMessage,
			harmony.End: actEnd, harmony.Call: actEnd, harmony.Return: actEnd,
		} {
			k.add(&s.text, act, marker)
		}
		s.thought = s.text
		return s
	}
	if c := k.family.calls; c != nil && k.calls {
		k.add(&s.skip, actCall, c.open...)
		k.add(&s.skip, actInner, c.inner...)
		k.add(&s.skip, actCallEnd, c.close...)
		k.add(&s.skip, actCallEnd, c.ends...)
		if k.callsOn {
			for _, set := range []*markers{&s.thought, &s.draft} {
				k.add(set, actCall, c.open...)
				k.add(set, actInner, c.inner...)
			}
			k.add(&s.draft, actCallEnd, c.close...)
		}
	}
	if t := k.family.thought; t != nil && k.thinkOn {
		k.add(&s.thought, actExit, t.exits...)
		for _, set := range []*markers{&s.thought, &s.draft} {
			k.add(set, actThought, t.close...)
		}
		for _, closer := range t.close {
			k.add(&s.thought, actThought, "\n"+closer)
		}
	}
	k.addEnds(&s.thought)
	k.addEnds(&s.draft)
	k.addText(&s.text)
	return s
}

// addText collects the markers that mean something in a response.
func (k setKey) addText(set *markers) {
	c := k.family.calls
	if c != nil && (k.calls || pairs[c.name] != "") { // what wraps all of an answer is there without calls, too
		k.add(set, actStrip, c.strip...)
		k.add(set, actStrip, c.ends...)
		k.add(set, actStrip, c.close...)
	}
	if t := k.family.thought; t != nil {
		if !t.once {
			k.add(set, actStrip, t.strip...)
			k.add(set, actStrip, t.open...)
			k.add(set, actStrip, t.close...)
		}
		if k.thinkOn && !(t.once && k.pondered) {
			k.add(set, actThink, t.open...)
		}
	}
	switch {
	case c == nil:
	case k.calls:
		k.add(set, actInner, c.inner...)
		k.add(set, actCall, c.open...)
	case !k.literal: // tokens that are markers are no text, whoever reads them
		for _, marker := range slices.Concat(c.open, c.close, c.inner, c.strip, c.ends) {
			if k.family.tokens.has(marker) {
				set.add(marker, actStrip)
			}
		}
	}
}

// addEnds collects the tokens that end a turn, in a thought.
func (k setKey) addEnds(set *markers) {
	c := k.family.calls
	if c == nil || k.family.thought == nil || !k.thinkOn {
		return
	}
	for _, marker := range c.ends {
		if k.calls || k.family.tokens.has(marker) {
			k.add(set, actStrip, marker)
		}
	}
}

// add puts markers into a set, if they are looked for. Of one that comes as a
// token, with newlines before it, the newlines have to wait for the token.
func (k setKey) add(set *markers, act action, texts ...string) {
	for _, text := range texts {
		marker := strings.TrimLeft(text, "\n")
		lead := text[:len(text)-len(marker)]
		switch token := k.literal && k.family.tokens.has(marker); {
		case !token:
			set.add(text, act)
		case lead != "":
			set.add(lead+nothing, actNone)
		}
	}
}

// nothing goes on like no text does, which is valid UTF-8.
const nothing = "\xff"

// tokens are the markers of a family that are single tokens of a vocabulary.
type tokens struct {
	byID  map[uint32]string
	known map[string]bool
}

func (t *tokens) has(marker string) bool { return t != nil && t.known[marker] }

// Bind returns the family with the ids of its markers that are special tokens of
// a vocabulary: special returns the id of such a token. Where pieces have ids,
// these markers are known by them, and what only looks like one is text.
func (f Family) Bind(special func(text string) (id uint32, ok bool)) Family {
	t := &tokens{map[uint32]string{}, map[string]bool{}}
	for _, marker := range f.Markers() {
		if id, ok := special(marker); ok {
			t.byID[id], t.known[marker] = marker, true
		}
	}
	f.tokens = nil
	if len(t.byID) > 0 {
		f.tokens = t
	}
	return f
}

// part cuts the next part off a text whose ids are given: a marker, or what
// stands before the next one. It says which, and returns the ids that are left.
func (t *tokens) part(text string, ids []uint32) (part string, literal bool, rest []uint32) {
	for i, id := range ids {
		marker, ok := t.byID[id]
		if !ok {
			continue
		}
		switch at := strings.Index(text, marker); {
		case at > 0:
			return text[:at], true, ids[i:]
		case at == 0:
			return marker, false, ids[i+1:]
		}
	}
	return text, true, nil
}
