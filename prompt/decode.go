package prompt

import (
	"iter"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/tokenizer"
)

// Output is one item of an answer as text. End is set on the last item alone,
// whose piece releases whatever was still held back.
type Output struct {
	Piece chat.Piece
	// Cached is how many prompt tokens the engine found in its cache, once it
	// has said so.
	Cached *int
	// More says that the next item is there already: it comes from the same
	// delta.
	More bool
	// PromptLogprobs comes once, if it was asked for.
	PromptLogprobs []chat.Logprob
	End            *End
}

// End says how a generation ended.
type End struct {
	Finish engine.Finish
	// StopText or StopID is what the client's stop list matched.
	StopText string
	StopID   *uint32
	StopIDs  []uint32 // all of them, if an engine names several
	Usage    engine.Usage
}

// Decoding says how the ids of one answer become text.
type Decoding struct {
	// Spelled, if not nil, is told at the end of how many tokens text was made, and how
	// long that took, by what one in sixteen of them did.
	Spelled func(tokens int, took time.Duration)
	Stop    engine.Stop
	// Strings end the answer where they begin, or, with IncludeStop, where they
	// end. Text that may be the beginning of one is held back.
	Strings     []string
	IncludeStop bool
	// KeepSpecial leaves special tokens in the text; Markers are those that the
	// parser needs to see in any case.
	KeepSpecial bool
	Markers     []uint32
	// ByToken makes an item of every token, so that a parser sees which token
	// has which text; otherwise a delta is one item.
	ByToken bool
	// Prompt is the number of prompt tokens, for the usage of an answer that
	// ends here and not in the engine.
	Prompt int
}

// Decode turns a stream of token deltas into a stream of text. It ends with one
// Output that has an End, or with one error. However the ids are cut into
// deltas, the text and the end are the same.
//
// A stop that is found here ends the loop over deltas, and with it the engine's
// work; what else the current delta holds is discarded. So it is where a pattern of
// the model takes time without end for the text, which is an internal error.
func (m *Model) Decode(deltas iter.Seq2[engine.Delta, error], d Decoding) iter.Seq2[Output, error] {
	return func(take func(Output, error) bool) {
		taking := false // what panics then is not ours
		yield := func(o Output, err error) bool {
			taking = true
			more := take(o, err)
			taking = false
			return more
		}
		defer func() {
			v := recover()
			if v != nil && taking {
				panic(v)
			}
			if e := patternError(v); e != nil {
				fail(yield, engine.Errorf(engine.Internal, "the tokens of the answer have no text: %v", e))
			}
		}()
		s := newSpeller(m.Tokenizer, d)
		if d.Spelled != nil {
			defer s.tell()
		}
		var cached *int
		for delta, err := range deltas {
			if err != nil {
				// The client keeps what it was owed before the fault.
				if out := (Output{Piece: s.all()}); !out.empty() && !yield(out, nil) {
					return
				}
				fail(yield, err)
				return
			}
			if delta.Usage != nil && delta.Usage.Cached != nil && cached == nil {
				cached = delta.Usage.Cached
			}
			out := Output{Cached: cached, PromptLogprobs: s.logprobs(delta.PromptLogprobs)}
			promised := false // the consumer waits for the last item of the delta
			for i, id := range delta.TokenIDs {
				var lp *engine.Logprob
				if i < len(delta.Logprobs) {
					lp = &delta.Logprobs[i]
				}
				if out.End = s.timed(id, lp); out.End != nil {
					break
				}
				if d.ByToken && i < len(delta.TokenIDs)-1 {
					out.Piece, out.More = s.release(), true
					if !out.empty() {
						if !yield(out, nil) {
							return
						}
						promised = true
					}
					out = Output{Cached: cached}
				}
			}
			if out.End == nil && delta.Text != "" {
				out.End = s.pushText(delta.Text)
			}
			if out.End == nil && delta.Finish != engine.Running {
				out.End = s.finish(&delta)
			}
			if out.End != nil {
				out.End.Usage.Cached = cached
				out.End.named(delta.MatchedIDs)
				out.Piece = s.all()
				yield(out, nil)
				return
			}
			out.Piece = s.release()
			if (promised || !out.empty()) && !yield(out, nil) {
				return
			}
		}
		fail(yield, engine.Errorf(engine.StreamIncomplete, "the stream ended without a finish"))
	}
}

// fail yields an error. An output takes room on the stack of whoever yields it, which
// in Decode would be held while the stream waits.
//
//go:noinline
func fail(yield func(Output, error) bool, err error) { yield(Output{}, err) }

// empty says that there is nothing to tell.
func (o *Output) empty() bool {
	return o.Piece.Text == "" && len(o.Piece.IDs) == 0 && o.PromptLogprobs == nil
}

// speller is the state of one answer: text that was decoded and not released
// yet, and the ids that it belongs to.
type speller struct {
	Decoding
	tok     *tokenizer.Tokenizer
	decoder *tokenizer.Decoder
	stops   stopSearch
	count   int           // tokens generated
	timings int           // how many of them were timed
	took    time.Duration // these

	text   []byte // decoded, not released
	sure   int    // so many bytes of text cannot become part of a stop string
	tokens []spelled
	open   int      // last tokens, whose last byte is not decoded yet
	ids    []uint32 // what was given away of the array, see room
}

// spelled is a token whose text is not released, or not complete.
type spelled struct {
	id      uint32
	end     int // offset in speller.text behind its last byte; -1: not known yet
	logprob *engine.Logprob
}

func newSpeller(tok *tokenizer.Tokenizer, d Decoding) *speller {
	return &speller{Decoding: d, tok: tok, decoder: tok.NewDecoder(false), stops: newStopSearch(d.Strings)}
}

// push decodes one id and says whether the answer ended with it.
func (s *speller) push(id uint32, lp *engine.Logprob) *End {
	s.count++
	checked := s.count >= s.Stop.MinTokens
	switch {
	case checked && slices.Contains(s.Stop.IDs, id):
		s.silent(id, lp)
		return s.ended(&End{Finish: engine.FinishStop, StopID: &id})
	case checked && slices.Contains(s.Stop.Hidden, id):
		// What ends a turn may close a call, too, and the parser must see it.
		if slices.Contains(s.Markers, id) {
			s.spell(id, lp)
		} else {
			s.silent(id, lp)
		}
		return s.ended(&End{Finish: engine.FinishEOS})
	}
	s.spell(id, lp)
	if !checked {
		// Text before the minimum is no part of any stop string.
		s.sure = len(s.text)
		return nil
	}
	return s.search()
}

// pushText takes the text of an engine that gives no ids.
func (s *speller) pushText(text string) *End {
	s.text = append(s.text, text...)
	return s.search()
}

// timeEvery is one in how many tokens is timed: to look at the clock costs as much as to
// spell one.
const timeEvery = 16

// timed is push, and sometimes looks how long that takes.
func (s *speller) timed(id uint32, lp *engine.Logprob) *End {
	if s.Spelled == nil || s.count%timeEvery != 0 {
		return s.push(id, lp)
	}
	start := time.Now()
	end := s.push(id, lp)
	s.took += time.Since(start)
	s.timings++
	return end
}

// tell tells how long it took to spell the answer.
func (s *speller) tell() {
	if s.timings > 0 {
		s.Spelled(s.count, s.took*time.Duration(s.count)/time.Duration(s.timings))
	}
}

// spell decodes one id.
func (s *speller) spell(id uint32, lp *engine.Logprob) {
	if s.hides(id) {
		s.silent(id, lp)
		return
	}
	before := len(s.text)
	s.text = s.decoder.Append(s.text, id)
	if len(s.text) > before {
		s.complete()
	}
	t := spelled{id: id, end: len(s.text), logprob: lp}
	if s.decoder.Pending() > 0 {
		t.end = -1
		s.open++
	}
	s.tokens = append(s.tokens, t)
}

// complete says that whatever waited for its last byte has it now.
func (s *speller) complete() {
	for ; s.open > 0; s.open-- {
		s.tokens[len(s.tokens)-s.open].end = len(s.text)
	}
}

// silent notes an id that has no text. Behind one that waits for its last byte
// it waits as well, since ids come up in their order.
func (s *speller) silent(id uint32, lp *engine.Logprob) {
	t := spelled{id: id, end: len(s.text), logprob: lp}
	if s.open > 0 {
		t.end = -1
		s.open++
	}
	s.tokens = append(s.tokens, t)
}

func (s *speller) hides(id uint32) bool {
	return !s.KeepSpecial && s.tok.IsSpecial(id) && !slices.Contains(s.Markers, id)
}

// search looks for stop strings in what is not sure yet.
func (s *speller) search() *End {
	if len(s.stops.strings) == 0 {
		s.sure = len(s.text)
		return nil
	}
	at, stop, found := s.stops.find(s.text[s.sure:])
	if !found {
		s.sure += at
		return nil
	}
	cut := s.sure + at
	if s.IncludeStop {
		cut += len(stop)
	}
	s.cut(cut)
	return s.ended(&End{Finish: engine.FinishStop, StopText: stop})
}

// cut drops the text from offset on, and the log probabilities of the tokens
// that lost text with it. Their ids stay: they were generated.
func (s *speller) cut(offset int) {
	s.text = s.text[:offset]
	for i := range s.tokens {
		if t := &s.tokens[i]; t.end < 0 || t.end > offset {
			t.end, t.logprob = offset, nil
		}
	}
	s.open = 0
	s.decoder.Reset()
}

// named notes the ids that an engine names for the end, if it is by these.
func (e *End) named(ids []uint32) {
	if len(ids) > 1 && e.StopID != nil && *e.StopID == ids[len(ids)-1] {
		e.StopIDs = ids
	}
}

func (s *speller) ended(e *End) *End {
	e.Usage = engine.Usage{Prompt: s.Prompt, Output: s.count}
	return e
}

// finish takes the engine's own end.
func (s *speller) finish(d *engine.Delta) *End {
	// The last characters may complete a stop string that the engine does not
	// know; the stop is then the reason.
	s.flush()
	if s.count >= s.Stop.MinTokens {
		if end := s.search(); end != nil {
			return end
		}
	}
	e := s.ended(&End{Finish: d.Finish, StopText: d.MatchedText})
	if d.Finish == engine.FinishStop && len(d.MatchedIDs) > 0 {
		e.StopID = &d.MatchedIDs[len(d.MatchedIDs)-1]
	}
	if d.Usage != nil {
		e.Usage = *d.Usage
	}
	return e
}

// flush decodes what is left of an incomplete character.
func (s *speller) flush() {
	s.text = s.decoder.Flush(s.text)
	s.complete()
}

// release gives away the text that is sure.
func (s *speller) release() chat.Piece {
	n := s.sure
	// A stop search may end inside a character.
	for n > 0 && n < len(s.text) && !utf8.RuneStart(s.text[n]) {
		n--
	}
	p := chat.Piece{Text: string(s.text[:n])}
	k := 0
	for k < len(s.tokens) && s.tokens[k].end >= 0 && s.tokens[k].end <= n {
		k++
	}
	if k > 0 {
		p.IDs = s.room(k)
		for i, t := range s.tokens[:k] {
			p.IDs[i] = t.id
			if t.logprob != nil {
				p.Logprobs = append(p.Logprobs, s.logprob(*t.logprob))
			}
		}
	}
	s.text = append(s.text[:0], s.text[n:]...)
	s.tokens = append(s.tokens[:0], s.tokens[k:]...)
	for i := range s.tokens {
		if s.tokens[i].end >= 0 {
			s.tokens[i].end -= n
		}
	}
	s.sure -= n
	return p
}

// room returns a slice for n ids, which nobody else has: most pieces have one id,
// and share an array with their neighbours.
func (s *speller) room(n int) []uint32 {
	if cap(s.ids)-len(s.ids) < n {
		s.ids = make([]uint32, 0, max(n, 32))
	}
	from := len(s.ids)
	s.ids = s.ids[:from+n]
	return s.ids[from : from+n : from+n]
}

// all gives away everything.
func (s *speller) all() chat.Piece {
	s.flush()
	s.sure = len(s.text)
	return s.release()
}

func (s *speller) logprobs(from []engine.Logprob) []chat.Logprob {
	if len(from) == 0 {
		return nil
	}
	out := make([]chat.Logprob, len(from))
	for i, lp := range from {
		out[i] = s.logprob(lp)
	}
	return out
}

func (s *speller) logprob(lp engine.Logprob) chat.Logprob {
	b := s.tok.Bytes(lp.ID)
	return chat.Logprob{
		ID: lp.ID, Text: validUTF8(b), Bytes: b,
		Logprob: lp.Logprob, Rank: lp.Rank, Top: s.logprobs(lp.Top),
	}
}
