package pipeline

import (
	"bytes"
	"container/list"
	"sync"

	"github.com/dynago/dynago/chat"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/zeebo/xxh3"
)

// spellingBytes is what a pipeline spends on remembering how calls were spelled.
const spellingBytes = 32 << 20

// spellings remember the arguments of calls as models wrote them, by the ids under
// which clients know the calls. Most clients parse arguments and write them anew
// when they send a conversation back, with other blanks, escapes and numbers, and
// then the prompt would part from what the engine has in its cache.
//
// Arguments that mean the same are put back; what a client changed is the client's.
// An id is random, so that no conversation needs to be told from another. It is
// safe for concurrent use.
type spellings struct {
	limit int

	mu    sync.Mutex
	known map[string]*list.Element
	used  list.List // of *spelling, the latest in use first
	bytes int
}

// spelling is what a model wrote.
type spelling struct {
	id, args string
	same     uint64 // sum of another text that means the same; 0: none is known
}

// spellingOverhead is about what a spelling takes beside its texts.
const spellingOverhead = 200

func (s *spelling) bytes() int { return len(s.id) + len(s.args) + spellingOverhead }

func newSpellings(limit int) *spellings {
	return &spellings{limit: limit, known: map[string]*list.Element{}}
}

// put remembers the arguments of a call.
func (s *spellings) put(id, args string) {
	call := &spelling{id: id, args: args}
	if id == "" || call.bytes() > s.limit {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.known[id]; e != nil {
		s.drop(e)
	}
	s.known[id] = s.used.PushFront(call)
	s.bytes += call.bytes()
	for s.bytes > s.limit {
		s.drop(s.used.Back())
	}
}

func (s *spellings) drop(e *list.Element) {
	call := s.used.Remove(e).(*spelling)
	delete(s.known, call.id)
	s.bytes -= call.bytes()
}

// of returns what the model wrote where the client's arguments mean that and are
// spelled in another way.
func (s *spellings) of(use *chat.ToolUse) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[use.ID]
	if e == nil {
		return "", false
	}
	s.used.MoveToFront(e)
	call := e.Value.(*spelling)
	if use.Kind != chat.ToolCustom && call.args == use.Args {
		return "", false
	}
	sum := xxh3.HashString(use.Args) | 1
	if call.same != sum {
		if !means(call.args, use) {
			return "", false
		}
		call.same = sum
	}
	return call.args, true
}

// means tells that a client's call has these arguments. A tool that takes free text
// is called by the model with an object that holds it.
func means(args string, use *chat.ToolUse) bool {
	theirs := jsontext.Value(use.Args)
	if use.Kind == chat.ToolCustom {
		text, err := jsontext.AppendQuote(nil, use.Args)
		if err != nil {
			return false
		}
		theirs = append(append([]byte(`{"input":`), text...), '}')
	} else {
		theirs = theirs.Clone()
	}
	ours := jsontext.Value(args)
	return ours.Canonicalize() == nil && theirs.Canonicalize() == nil && bytes.Equal(ours, theirs)
}

// restore returns a request whose calls are spelled as the model did. One that
// needs nothing is returned as it is.
func (s *spellings) restore(r *chat.Request) *chat.Request {
	c := r
	for i := range r.Turns {
		for j := range r.Turns[i].Blocks {
			use := r.Turns[i].Blocks[j].Use
			if use == nil {
				continue
			}
			args, ok := s.of(use)
			if !ok {
				continue
			}
			if c == r {
				changed := copied(r)
				c = &changed
			}
			use = c.Turns[i].Blocks[j].Use
			use.Args, use.Kind = args, chat.ToolFunction
		}
	}
	return c
}

// listener gathers the calls of one answer.
type listener struct {
	to   *spellings
	id   string // of the call that is being written, "" where none is
	args []byte
}

// event takes an event of the answer.
func (l *listener) event(e *chat.Event) {
	switch {
	case e.Kind == chat.BlockStart && e.Tool != nil:
		l.id, l.args = e.Tool.ID, l.args[:0]
	case e.Kind == chat.ArgsDelta:
		l.args = append(l.args, e.Text...)
	case e.Kind == chat.BlockStop && l.id != "":
		l.to.put(l.id, string(l.args))
		l.id = ""
	}
}
