// Package span is the vocabulary of distributed traces: the context of W3C that says
// which trace a request belongs to, and spans, which tell what took how long in it.
//
// The one idea: spans are told after the fact. What is known at the beginning is an id
// alone, which others can be told of; when the work has ended, all that is known of it
// becomes one [Span], and somebody else may make of it what collectors want. So no
// layer holds open objects of a library, and where nobody asks for ids a zero
// [Context] goes the same way and costs nothing.
package span

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"math/rand/v2"
	"strings"
	"time"
)

// Context names a span, and the trace that it is in. The zero value is no span.
type Context struct {
	Trace   [16]byte
	ID      [8]byte
	Sampled bool
	State   string // tracestate, as it came
}

// Valid says whether there is a span.
func (c Context) Valid() bool { return c.Trace != [16]byte{} && c.ID != [8]byte{} }

// TraceID returns the id of the trace in hexadecimal.
func (c Context) TraceID() string { return hex.EncodeToString(c.Trace[:]) }

// SpanID returns the id of the span in hexadecimal.
func (c Context) SpanID() string { return hex.EncodeToString(c.ID[:]) }

// Flags returns the two digits of the trace flags.
func (c Context) Flags() string {
	if c.Sampled {
		return "01"
	}
	return "00"
}

// Parent returns the header traceparent that names the span, or "" if there is none.
func (c Context) Parent() string {
	if !c.Valid() {
		return ""
	}
	b := make([]byte, 0, parentLength)
	b = hex.AppendEncode(append(b, "00-"...), c.Trace[:])
	b = hex.AppendEncode(append(b, '-'), c.ID[:])
	return string(append(append(b, '-'), c.Flags()...))
}

// parentLength is the length of version 00 of traceparent.
const parentLength = 55

// mostState is how long a tracestate may be that is passed on.
const mostState = 512

// Parse reads the headers traceparent and tracestate. What is not valid is as if it
// were not there: want version-traceid-parentid-flags in lower-case hexadecimal, of any
// version but ff; later ones than 00 may have more behind it.
func Parse(parent, state string) (Context, bool) {
	var c Context
	s := parent
	if len(s) < parentLength || len(s) > mostState || s[2] != '-' || s[35] != '-' || s[52] != '-' {
		return c, false
	}
	version, trace, id, flags := s[:2], s[3:35], s[36:52], s[53:55]
	if version == "ff" || version == "00" && len(s) != parentLength || len(s) > parentLength && s[parentLength] != '-' {
		return c, false
	}
	if !lower(version) || !lower(trace) || !lower(id) || !lower(flags) {
		return c, false
	}
	hex.Decode(c.Trace[:], []byte(trace)) //nolint:errcheck // it is hexadecimal
	hex.Decode(c.ID[:], []byte(id))       //nolint:errcheck // it is hexadecimal
	if !c.Valid() {
		return Context{}, false
	}
	c.Sampled = strings.ContainsRune("13579bdf", rune(flags[1]))
	if len(state) <= mostState { // longer ones need not be passed on
		c.State = state
	}
	return c, true
}

// ParseID reads the id of a span: 16 lower-case hexadecimal digits, not all of them 0.
func ParseID(s string) (id [8]byte, ok bool) {
	if len(s) != 2*len(id) || !lower(s) {
		return id, false
	}
	hex.Decode(id[:], []byte(s)) //nolint:errcheck // it is hexadecimal
	return id, id != [8]byte{}
}

func lower(s string) bool { return strings.Trim(s, "0123456789abcdef") == "" }

// Kind says on which side of a call a span is.
type Kind uint8

// Kinds of spans.
const (
	Internal Kind = iota
	Server
	Client
)

// Attr is one attribute; Value is a string, an int64 or a bool.
type Attr struct {
	Key   string
	Value any
}

// Span is work that has ended. Whoever is told of it owns it.
type Span struct {
	Name string
	Context
	// Parent is the span within which it was; the zero value where it is the first of
	// its trace.
	Parent     Context
	Kind       Kind
	Start, End time.Time
	Attrs      []Attr
	// Links name spans that it goes on from.
	Links []Context
	// Error says why the work failed; "" if it did not.
	Error string
	// Target is the part of the program that tells of it, as logs name parts.
	Target string
	// Debug says that it is of interest to few, as those of probes are.
	Debug bool
}

// Add appends an attribute. Empty texts are left out.
func (s *Span) Add(key string, value any) {
	switch v := value.(type) {
	case string:
		if v == "" {
			return
		}
	case int:
		value = int64(v)
	}
	s.Attrs = append(s.Attrs, Attr{key, value})
}

// Tracer makes ids of spans and takes spans. A nil one makes none. It is safe for
// concurrent use.
type Tracer struct {
	// Sample says whether a new trace is told of; nil: it is not. Traces that others
	// have begun are, if they say so.
	Sample func(trace [16]byte) bool
	// Tell takes the spans of traces that are told of, and must not wait.
	Tell func(*Span)
	// Every, if not nil, takes all spans, as logs do that show them.
	Every func(*Span)
}

// Begin returns the context of a new span within another one, which may be that of
// another process, or of the first span of a new trace if there is none. It is the zero
// value for a nil tracer.
func (t *Tracer) Begin(within Context) Context {
	if t == nil {
		return Context{}
	}
	c := within
	if !within.Valid() {
		c = Context{}
		// Zero would be no trace. Samplers go by the second half, all of which is random.
		binary.LittleEndian.PutUint64(c.Trace[:8], rand.Uint64()|1)
		binary.LittleEndian.PutUint64(c.Trace[8:], rand.Uint64())
		c.Sampled = t.Sample != nil && t.Sample(c.Trace)
	}
	binary.LittleEndian.PutUint64(c.ID[:], rand.Uint64()|1)
	return c
}

// Wants says whether anybody wants to be told of a span.
func (t *Tracer) Wants(c Context) bool {
	return t != nil && c.Valid() && (t.Every != nil || c.Sampled && t.Tell != nil)
}

// End tells of a span that has ended.
func (t *Tracer) End(s *Span) {
	if t == nil || !s.Valid() {
		return
	}
	if t.Every != nil {
		t.Every(s)
	}
	if s.Sampled && t.Tell != nil {
		t.Tell(s)
	}
}

// Within is the span that work goes on in, as logs tell of it.
type Within struct {
	Context
	Name   string
	Parent Context
	Attrs  []Attr // must not be changed
}

type key struct{}

// With returns a context of work within a span.
func With(ctx context.Context, w *Within) context.Context { return context.WithValue(ctx, key{}, w) }

// From returns the span that a context's work goes on in, or nil.
func From(ctx context.Context) *Within {
	w, _ := ctx.Value(key{}).(*Within)
	return w
}
