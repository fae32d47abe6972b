package kvcache

import (
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// thinkingGrace is after how much idle time a session's thinking is taken to be
// over, although no next message has shown it.
const thinkingGrace = time.Minute

// A prompt replaces the history if it shares less than half of the previous
// prompt and is shorter than six tenths of it.
const (
	compactionShared = 0.5
	compactionLength = 0.6
)

// held is a block as a session knew it. The slot may hold something else by now:
// half of the hash is enough to tell.
type held struct {
	slot int32
	half uint32
}

func (k *keeper) heldOf(i int32) held { return held{i, half(k.blocks[i].hash)} }

func half(h kv.SeqHash) uint32 { return uint32(h ^ h>>32) }

// history is what is remembered of a session's last request, to see from its
// next prompt what of it is never coming back.
type history struct {
	sequence []held // of the last request that ended
	common   int    // how much of it the prompt has that came last
	prompt   int    // blocks of that request's prompt

	thinking    []held // to become ephemeral once the prompt leaves them out
	thinkingAt  int    // position of the first
	thinkingDue time.Duration

	superseded []held     // old history after what looks like a compaction
	fork       int        // position of its first block
	mark       kv.SeqHash // what stands there in the new history; 0 = it is shorter
	compacted  bool       // the harness has said so: believe the next prompt
}

// next returns when something about an idle session is due.
func (h *history) next(deadline time.Duration) time.Duration {
	if len(h.thinking) > 0 {
		return min(deadline, h.thinkingDue)
	}
	return deadline
}

func (k *keeper) holds(h held) bool {
	b := &k.blocks[h.slot]
	return half(b.hash) == h.half && b.published()
}

// remember keeps the sequence of a request that has ended.
func (k *keeper) remember(s *session, refs []Ref) {
	s.sequence = slices.Grow(s.sequence[:0], len(refs))
	for _, r := range refs {
		i := k.original(r)
		if !k.blocks[i].published() {
			break
		}
		s.sequence = append(s.sequence, k.heldOf(i))
	}
	s.prompt, s.common = min(s.prompt, len(s.sequence)), len(s.sequence)
	if len(s.thinking) > 0 {
		s.thinkingDue = k.after(thinkingGrace)
	}
	if k.thinksIn(s, refs) {
		k.deferThinking(s, refs, len(refs))
	}
}

// MarkThinking tells that of a sequence, given from the root on, the blocks
// refs[from:] hold or follow reasoning that the next prompt will leave out, and so
// can never be found again: they become ephemeral. [ThinkingFrom] says which these
// are.
//
// Within a loop of tool calls prompts usually still carry the reasoning.
// Deferred marks therefore wait for a prompt of the session that leaves it out,
// or for a minute without one; until then the blocks are only kept from lower
// tiers, and what the loop adds to the sequence waits with them. Without a session
// marks are not deferred.
//
// Blocks that others have used are left alone.
func (k *keeper) MarkThinking(id SessionID, refs []Ref, from int, deferred bool) {
	from = min(max(from, 0), len(refs))
	if s := k.session(id); s != nil && deferred {
		k.deferThinking(s, refs, from)
		return
	}
	for _, r := range refs[from:] {
		if i := k.original(r); k.blocks[i].published() && k.ownedBy(i, id) {
			k.lower(i, false)
		}
	}
}

// deferThinking marks refs[from:], and what lies between them and earlier thinking
// of the same sequence. Marks of another one are over.
func (k *keeper) deferThinking(s *session, refs []Ref, from int) {
	if k.thinksIn(s, refs) {
		from = min(from, s.thinkingAt)
	} else if from < len(refs) {
		k.settleThinking(s)
	}
	k.wish()
	var marks []held
	for at, r := range refs[from:] {
		i := k.original(r)
		if !k.blocks[i].published() || !k.ownedBy(i, s.id) {
			continue
		}
		if len(marks) == 0 {
			s.thinkingAt = from + at
		}
		k.blocks[i].flags |= skipWrite
		marks = append(marks, k.heldOf(i))
	}
	if len(marks) == 0 {
		return
	}
	s.thinking, s.thinkingDue = marks, k.after(thinkingGrace)
	if s.running == 0 {
		k.watch(s)
	}
}

// thinksIn reports whether a sequence is one with the thinking that is marked.
func (k *keeper) thinksIn(s *session, refs []Ref) bool {
	if len(s.thinking) == 0 || s.thinkingAt >= len(refs) {
		return false
	}
	first := s.thinking[0]
	return k.holds(first) && k.original(refs[s.thinkingAt]) == first.slot
}

// ThinkingFrom returns the first block of a sequence that is not wholly before
// its first thinking token, which stands at position token.
func ThinkingFrom(token, blockSize int) int { return token / blockSize }

// Compact tells that the harness has replaced a session's history by a summary.
// What it has left out becomes ephemeral now, if a prompt has come that looked like
// it, or a request is running whose prompt leaves something out, else with the next
// prompt that does.
func (k *keeper) Compact(id SessionID) {
	s := k.session(id)
	if s == nil {
		return
	}
	if len(s.superseded) == 0 && s.running > 0 {
		s.superseded = append(s.superseded, s.sequence[s.common:]...)
	}
	if len(s.superseded) == 0 {
		s.compacted = true
		return
	}
	k.supersede(s)
}

// compare looks at a new prompt of a session.
func (k *keeper) compare(s *session, prompt []kv.SeqHash) {
	at := func(i int) kv.SeqHash {
		if i < len(prompt) {
			return prompt[i]
		}
		return 0
	}
	if len(s.thinking) > 0 && half(at(s.thinkingAt)) != s.thinking[0].half {
		k.settleThinking(s)
	}
	if len(s.superseded) > 0 {
		switch h := at(s.fork); {
		case half(h) == s.superseded[0].half: // somebody still works on the old history
			s.superseded = nil
		case h == s.mark:
			k.supersede(s)
		}
	}
	common := 0
	for common < min(len(prompt), len(s.sequence)) && half(prompt[common]) == s.sequence[common].half {
		common++
	}
	shrunk := float64(common) < compactionShared*float64(s.prompt) && float64(len(prompt)) < compactionLength*float64(s.prompt)
	if (shrunk || s.compacted) && common < len(s.sequence) {
		s.superseded = append([]held(nil), s.sequence[common:]...)
		s.fork, s.mark = common, at(common)
		if s.compacted {
			k.supersede(s)
		}
		s.compacted = false
	}
	s.prompt, s.common = len(prompt), common
}

// supersede gives up a session's old history, and the session's pins on it: a history
// is longest when it is replaced, and would keep room from pins of what follows.
func (k *keeper) supersede(s *session) {
	n := k.byID[s.id]
	for _, h := range s.superseded {
		if !k.holds(h) {
			continue
		}
		k.unpinOwner(h.slot, s.id)
		if k.untag(h.slot, n) {
			k.lower(h.slot, false)
		}
	}
	s.superseded = nil
}

// settleThinking makes blocks ephemeral that were marked for it.
func (k *keeper) settleThinking(s *session) {
	for _, h := range s.thinking {
		if k.holds(h) && k.ownedBy(h.slot, s.id) {
			k.lower(h.slot, false)
		}
	}
	s.thinking = nil
}
