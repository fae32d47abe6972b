package ollama

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// The tags between which the model thinks and calls.
const (
	openThought, closeThought = "<think>", "</think>"
	openCall, closeCall       = "<tool_call>", "</tool_call>"
)

// output writes an answer: what the model says goes out as soon as it is clear
// that it is no tag, and a call once it is whole.
type output struct {
	s            *Server
	w            http.ResponseWriter
	q            *question
	as           *events // nil: lines
	conversation bool
	thinks       bool

	begun    bool
	prompt   int
	made     int
	held     []byte // not clear yet
	thinking bool
	calls    int
	text     strings.Builder // that is ready to go out
	thought  strings.Builder
	// all are the calls of an answer that goes out as a whole.
	all []object
}

// whole says whether the answer goes out in one piece.
func (o *output) whole() bool { return o.q.Stream != nil && !*o.q.Stream }

// token adds a byte, and says whether a stop string ends the answer with it.
func (o *output) token(b byte) (stopped bool) {
	o.held = append(o.held, b)
	for _, stop := range o.q.Options.Stop {
		if i := bytes.Index(o.held, []byte(stop)); i >= 0 {
			o.held = o.held[:i]
			return true
		}
	}
	return false
}

// flush says what is clear.
func (o *output) flush() {
	o.parse(false)
	if !o.whole() && o.text.Len()+o.thought.Len() > 0 {
		o.say(nil, nil)
	}
}

// parse moves what is held to where it belongs, as far as it is clear; all of it
// at the end.
func (o *output) parse(last bool) {
	for len(o.held) > 0 {
		tags := o.tags()
		at, tag := first(o.held, tags)
		if tag == "" {
			o.move(len(o.held)-partial(o.held, append(tags, o.q.Options.Stop...), last), last)
			return
		}
		if tag == openCall {
			end := bytes.Index(o.held, []byte(closeCall))
			switch {
			case end < 0 && last:
				o.move(len(o.held), true) // what is cut is a text
				return
			case end < 0:
				o.move(at, true)
				return
			}
			o.move(at, true)
			o.tool(bytes.Clone(o.held[len(openCall) : end-at]))
			o.held = o.held[end-at+len(closeCall):]
			continue
		}
		o.move(at, true)
		o.held = o.held[len(tag):]
		o.thinking = tag == openThought
	}
}

// tags are those that mean something now.
func (o *output) tags() []string {
	switch {
	case o.thinking:
		return []string{closeThought}
	case !o.conversation:
		return nil
	case len(o.q.Tools) > 0 && o.thinks:
		return []string{openThought, openCall}
	case len(o.q.Tools) > 0:
		return []string{openCall}
	case o.thinks:
		return []string{openThought}
	}
	return nil
}

func first(text []byte, tags []string) (at int, tag string) {
	at = len(text)
	for _, t := range tags {
		if i := bytes.Index(text, []byte(t)); i >= 0 && i < at {
			at, tag = i, t
		}
	}
	return at, tag
}

// partial returns how many bytes at the end may begin a tag.
func partial(text []byte, tags []string, last bool) (n int) {
	if last {
		return 0
	}
	for _, t := range tags {
		for k := min(len(t)-1, len(text)); k > n; k-- {
			if strings.HasPrefix(t, string(text[len(text)-k:])) {
				n = k
			}
		}
	}
	return n
}

// move lets n bytes go out, but for a character that is not whole.
func (o *output) move(n int, whole bool) {
	for k := 1; !whole && k <= min(n, utf8.UTFMax-1); k++ {
		if c := o.held[n-k]; utf8.RuneStart(c) {
			if c >= utf8.RuneSelf && !utf8.FullRune(o.held[n-k:n]) {
				n -= k
			}
			break
		}
	}
	to := &o.text
	if o.thinking {
		to = &o.thought
	}
	to.Write(o.held[:n])
	o.held = o.held[n:]
}

// tool says a call, once what was said before it is out.
func (o *output) tool(text []byte) {
	var c struct {
		Name string         `json:"name"`
		Args jsontext.Value `json:"arguments"`
	}
	if json.Unmarshal(text, &c) != nil || c.Name == "" {
		o.text.WriteString(openCall + string(text) + closeCall)
		return
	}
	call := object{"id": "call_" + strconv.Itoa(o.calls), "function": object{"index": o.calls, "name": c.Name, "arguments": c.Args}}
	if o.calls++; o.whole() {
		o.all = append(o.all, call)
		return
	}
	o.say([]object{call}, nil)
}

// end says the last word.
func (o *output) end(why string, d *engine.Delta) {
	o.parse(true)
	if !o.whole() && o.text.Len()+o.thought.Len() > 0 {
		o.say(nil, nil)
	}
	counted := o.prompt
	if u := d.Usage; u != nil && u.Cached != nil && o.s.cfg.OmitsCached {
		counted -= *u.Cached
	}
	last := object{"done": true, "done_reason": why, "total_duration": 3, "load_duration": 1, "prompt_eval_duration": 1, "eval_count": o.made, "eval_duration": 1}
	if counted > 0 {
		last["prompt_eval_count"] = counted
	}
	o.say(o.all, last)
}

// fail tells of an error: by a status while nothing was said, by a line later, and
// by nothing at all when the server itself goes.
func (o *output) fail(err error) {
	e, ok := errors.AsType[*engine.Error](err)
	switch {
	case !ok || e.Kind == engine.EngineShutdown || e.Kind == engine.Cancelled:
		panic(http.ErrAbortHandler)
	case o.begun:
		o.line(object{"error": e.Message})
	case e.Kind == engine.InvalidArgument, e.Kind == engine.Unsupported:
		refuse(o.w, http.StatusBadRequest, "%s", e.Message)
	default:
		refuse(o.w, http.StatusInternalServerError, "%s", e.Message)
	}
}

// say writes a line with what is ready.
func (o *output) say(calls []object, more object) {
	l := object{"model": o.q.Model, "created_at": time.Now().UTC(), "done": false}
	if o.conversation {
		m := object{"role": "assistant", "content": o.text.String()}
		if o.thought.Len() > 0 {
			m["thinking"] = o.thought.String()
		}
		if len(calls) > 0 {
			m["tool_calls"] = calls
		}
		l["message"] = m
	} else {
		l["response"] = o.text.String()
	}
	o.text.Reset()
	o.thought.Reset()
	for name, v := range more {
		l[name] = v
	}
	if o.as == nil {
		o.line(l)
		return
	}
	l["called"] = o.calls > 0
	for _, e := range o.as.line(l, o.conversation) {
		o.line(e)
	}
	if l["done"] == true {
		io.WriteString(o.w, "data: [DONE]\n\n") //nolint:errcheck // the client has gone then
	}
}

// line writes and flushes one. That nobody reads it is seen by the request's
// context.
func (o *output) line(l object) {
	o.begun = true
	text, err := json.Marshal(l, json.Deterministic(true), jsontext.AllowInvalidUTF8(true))
	if err != nil {
		panic(err) // it is made here
	}
	kind := "application/x-ndjson"
	switch {
	case o.as != nil:
		kind = "text/event-stream"
		text = append(append([]byte("data: "), text...), '\n')
	case o.whole():
		kind = "application/json; charset=utf-8"
	}
	o.w.Header().Set("Content-Type", kind)
	o.w.Write(append(text, '\n')) //nolint:errcheck // see above
	if f, ok := o.w.(http.Flusher); ok {
		f.Flush()
	}
}
