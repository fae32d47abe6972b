// Package jinja renders the Jinja2 templates that language models ship to lay
// out a conversation. It is exact rather than general: the same template and
// values give the bytes that Python's Jinja2 gives in the setting of Hugging
// Face transformers (trim_blocks, lstrip_blocks, loop controls, generation
// blocks, an immutable sandbox, and json.dumps behind tojson), because one
// wrong space changes tokens and loses the cache.
//
// The one idea: a template is compiled once to a tree whose variables have
// numbered slots, and rendering walks that tree over ordered values that came
// straight from JSON, so that neither key order nor the spelling of a number
// is ever lost. A template is somebody else's program: it sees no clock and no
// file, and runs within [Limits]; for the limit on time alone, Render looks at the
// clock itself.
package jinja

import (
	"sync"
	"time"
)

const (
	// maxSource bounds the size of a template in bytes.
	maxSource = 1 << 20
	// maxText bounds, in bytes, what one value prints as where nothing else does.
	maxText = 64 << 20
)

// Template is a compiled template. It never changes and may be rendered by
// several goroutines at once.
type Template struct {
	body    []stmt
	slots   int
	globals []string // names read from outside, in the order of their numbers
}

// Env is what a template sees beside its variables.
type Env struct {
	// Now is what strftime_now prints, in its location.
	Now    time.Time
	Limits Limits
}

// Compile reads a template. Its error is an *[Error] of kind [SyntaxError].
func Compile(source string) (*Template, error) {
	if len(source) > maxSource {
		return nil, fail(SyntaxError, "template is longer than %d bytes", maxSource)
	}
	return parse(source)
}

// Render runs the template over its variables and returns what it wrote. Any
// error is an *[Error].
func (t *Template) Render(vars *Dict, env Env) (string, error) {
	st := states.Get().(*state)
	defer st.release()
	st.begin(t, vars, env)
	err := execAll(st, &frame{slots: make([]Value, t.slots)}, t.body)
	if st.over != nil {
		err = st.over
	}
	if err != nil {
		return "", err
	}
	return string(st.out), nil
}

// state is one render.
type state struct {
	out      []byte
	stack    []Value // arguments of builtins that are being called
	globals  []Value // nil = undefined
	captured Value   // text of the block that is being filtered
	now      time.Time

	limits Limits
	steps  int
	depth  int
	spent  int // bytes of strings and lists made on the way
	began  time.Time
	left   int   // work until the clock is looked at
	over   error // the time is up
	tail   tail
}

var states = sync.Pool{New: func() any { return new(state) }}

func (st *state) begin(t *Template, vars *Dict, env Env) {
	st.now, st.limits = env.Now, env.Limits
	st.limits.fill()
	st.began, st.left = time.Now(), between
	for _, name := range t.globals {
		v, ok := vars.get(name)
		if !ok {
			if b, ok := globals[name]; ok {
				v = b
			}
		}
		st.globals = append(st.globals, v)
	}
}

// keptBytes is the size of the buffer that a state may keep for the next
// render.
const keptBytes = 4 << 20

func (st *state) release() {
	out, stack, globals := st.out[:0], st.stack[:cap(st.stack)], st.globals
	if cap(out) > keptBytes {
		out = nil
	}
	clear(stack)
	clear(globals)
	*st = state{out: out, stack: stack[:0], globals: globals[:0]}
	states.Put(st)
}

func (st *state) writeString(s string) error {
	if len(st.out)+len(s) > st.limits.Output {
		return fail(LimitError, "template wrote more than %d bytes", st.limits.Output)
	}
	st.out = append(st.out, s...)
	return st.work(len(s))
}

// write appends str(v) to the output.
func (st *state) write(v Value, escaped bool) error {
	if escaped {
		m, err := escape(st, v)
		if err != nil {
			return err
		}
		return st.writeString(string(m))
	}
	if s, ok := v.(string); ok {
		return st.writeString(s)
	}
	out, err := appendStr(st, st.out, v)
	if err != nil {
		return err
	}
	if err := st.work(len(out) - len(st.out)); err != nil {
		return err
	}
	st.out = out
	if len(st.out) > st.limits.Output {
		return fail(LimitError, "template wrote more than %d bytes", st.limits.Output)
	}
	return nil
}

// cut takes back what was written since the mark.
func (st *state) cut(mark int) string {
	s := string(st.out[mark:])
	st.out = st.out[:mark]
	return s
}
