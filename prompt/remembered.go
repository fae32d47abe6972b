package prompt

import (
	"encoding/binary"
	"strconv"
	"sync"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/zeebo/xxh3"
)

// To find a place the conversation is rendered twice more up to there. What follows the
// place has no part in that, so that for as long as a conversation goes on, and a
// harness marks where it marked before, one time is enough.

// mostPlaces is how many places are remembered, of each of two generations.
const mostPlaces = 4096

// settledPlaces remember where places are in the texts of prompts. They are safe for
// concurrent use. A nil one remembers nothing.
type settledPlaces struct {
	mu         sync.Mutex
	young, old map[uint64]settledPlace
}

// settledPlace is the end of the text that is settled at a place. It holds for one
// template, and for prompts that begin with that text.
type settledPlace struct {
	template *chattemplate.Template
	end      int
	sum      uint64 // of the text up to there
}

func (s *settledPlaces) get(key uint64) (p settledPlace, ok bool) {
	if s == nil {
		return p, false
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if p, ok = s.young[key]; ok {
		return p, true
	}
	if p, ok = s.old[key]; ok {
		s.put(key, p)
	}
	return p, ok
}

func (s *settledPlaces) add(key uint64, p settledPlace) {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.put(key, p)
}

// put adds a place; the lock must be held.
func (s *settledPlaces) put(key uint64, p settledPlace) {
	if s.young == nil || len(s.young) >= mostPlaces {
		s.young, s.old = map[uint64]settledPlace{}, s.young
	}
	s.young[key] = p
}

// textSum names the text of a walk up to an offset, with the control tokens in it that
// mean nothing.
func (w *walk) textSum(end int) uint64 {
	var h xxh3.Hasher
	h.WriteString(w.text[:end]) //nolint:errcheck // it never fails
	var mark [8]byte
	for _, at := range w.inert {
		if at >= end {
			break
		}
		binary.LittleEndian.PutUint64(mark[:], uint64(at))
		h.Write(mark[:]) //nolint:errcheck // it never fails
	}
	return h.Sum64()
}

// placeKey names a place by all that is said up to it, by whether its turn ends there,
// and by how the whole is rendered. What of it is shown is held against the text besides.
func placeKey(r *chat.Request, at chat.Breakpoint) uint64 {
	k := keyer{}
	n := blockOf(r, at)
	k.add(string(r.API), r.Model, strconv.Itoa(at.Turn), strconv.Itoa(n), string(r.TemplateArgs))
	k.settings(r)
	tools, system, turns := r.Tools, r.System, r.Turns
	switch at.Turn {
	case -2:
		tools, system, turns = tools[:n], nil, nil
	case -1:
		system, turns = system[:n], nil
	default:
		turns = turns[:at.Turn+1]
	}
	for i := range tools {
		t := &tools[i]
		k.add(string(t.Kind), t.Namespace, t.Name, t.Description, string(t.Schema), string(t.Wire))
	}
	k.add("system")
	k.blocks(system)
	for i := range turns {
		t := &turns[i]
		k.add(string(t.Role), t.Name, t.Phase)
		if i == at.Turn {
			k.blocks(t.Blocks[:n])
			// What may follow the end of a turn is something else than what may follow
			// within it.
			k.add(strconv.FormatBool(n == len(t.Blocks)))
			break
		}
		k.blocks(t.Blocks)
	}
	return k.h.Sum64()
}

// keyer names lists of texts.
type keyer struct{ h xxh3.Hasher }

// add adds texts, each with its length, so that no two lists are written alike.
func (k *keyer) add(texts ...string) {
	var length [8]byte
	for _, text := range texts {
		binary.LittleEndian.PutUint64(length[:], uint64(len(text)))
		k.h.Write(length[:])  //nolint:errcheck // it never fails
		k.h.WriteString(text) //nolint:errcheck // it never fails
	}
}

// settings add what is not said, and still shown.
func (k *keyer) settings(r *chat.Request) {
	t := &r.Thinking
	on, keep, budget := "", "", ""
	if t.Enabled != nil {
		on = strconv.FormatBool(*t.Enabled)
	}
	if t.Keep != nil {
		keep = strconv.Itoa(*t.Keep)
	}
	if t.Budget != nil {
		budget = strconv.Itoa(*t.Budget)
	}
	k.add(on, keep, budget, strconv.FormatBool(t.Adaptive), t.Effort, strconv.FormatBool(r.ToolChoice.Hidden), string(r.ToolChoice.Mode))
	k.add(r.ToolChoice.Names...)
	k.add(string(r.Output.Kind), r.Output.Name, string(r.Output.Schema), r.Output.Pattern)
}

func (k *keyer) blocks(blocks []chat.Block) {
	for i := range blocks {
		b := &blocks[i]
		k.add(string(b.Kind), b.Text, string(b.Wire))
		switch {
		case b.Use != nil:
			k.add(b.Use.ID, b.Use.NativeID, b.Use.Namespace, b.Use.Name, string(b.Use.Kind), b.Use.Args)
		case b.Result != nil:
			k.add(b.Result.ID, b.Result.Name, strconv.FormatBool(b.Result.IsError))
			k.blocks(b.Result.Blocks)
		case b.Media != nil:
			k.add(b.Media.Source, b.Media.MediaType, b.Media.Data, b.Media.Detail)
		}
	}
	k.add("end")
}
