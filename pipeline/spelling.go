package pipeline

import (
	"bytes"
	"container/list"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/chat"
	"github.com/go-json-experiment/json"
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
// Arguments that mean the same are put back, also where the client has added what
// a tool's schema gives as default; what a client changed is the client's.
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
	// same is the sum of another text that means the same; 0: none is known.
	same atomic.Uint64
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
// spelled in another way. The tools are those of the request.
func (s *spellings) of(use *chat.ToolUse, tools []chat.Tool) (string, bool) {
	call := s.find(use.ID)
	if call == nil || use.Kind != chat.ToolCustom && call.args == use.Args {
		return "", false
	}
	if sum := xxh3.HashString(use.Args) | 1; call.same.Load() != sum {
		if !means(call.args, use, tools) {
			return "", false
		}
		call.same.Store(sum)
	}
	return call.args, true
}

func (s *spellings) find(id string) *spelling {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.known[id]
	if e == nil {
		return nil
	}
	s.used.MoveToFront(e)
	return e.Value.(*spelling)
}

// means tells that a client's call has these arguments. A tool that takes free text
// is called by the model with an object that holds it.
func means(args string, use *chat.ToolUse, tools []chat.Tool) bool {
	theirs := jsontext.Value(use.Args)
	if use.Kind == chat.ToolCustom {
		text, err := jsontext.AppendQuote(nil, use.Args)
		if err != nil {
			return false
		}
		theirs = append(append([]byte(`{"input":`), text...), '}')
	}
	var ours, given map[string]jsontext.Value
	if json.Unmarshal([]byte(args), &ours) != nil || json.Unmarshal(theirs, &given) != nil {
		return false
	}
	for name, value := range ours {
		if theirs, ok := given[name]; !ok || !equal(value, theirs) {
			return false
		}
	}
	if len(given) == len(ours) {
		return true
	}
	defaults := defaultsOf(use, tools)
	for name, value := range given {
		if _, ok := ours[name]; !ok && !equal(value, defaults[name]) {
			return false
		}
	}
	return true
}

// equal tells that two values mean the same. Nothing is equal to no value.
func equal(a, b jsontext.Value) bool {
	if len(a) == 0 || len(b) == 0 {
		return false
	}
	a, b = a.Clone(), b.Clone()
	return a.Canonicalize() == nil && b.Canonicalize() == nil && bytes.Equal(a, b)
}

// defaultsOf returns what the schema of the tool that is called gives as defaults
// of its arguments.
func defaultsOf(use *chat.ToolUse, tools []chat.Tool) map[string]jsontext.Value {
	i := slices.IndexFunc(tools, func(t chat.Tool) bool { return t.Name == use.Name && t.Namespace == use.Namespace })
	if i < 0 {
		return nil
	}
	var schema struct {
		Properties map[string]jsontext.Value `json:"properties"`
	}
	if json.Unmarshal(tools[i].Schema, &schema) != nil {
		return nil
	}
	defaults := map[string]jsontext.Value{}
	for name, property := range schema.Properties {
		var p struct {
			Default jsontext.Value `json:"default"`
		}
		if json.Unmarshal(property, &p) == nil {
			defaults[name] = p.Default
		}
	}
	return defaults
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
			args, ok := s.of(use, r.Tools)
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
