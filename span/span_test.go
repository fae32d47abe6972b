package span_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/span"
)

const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

func TestParse(t *testing.T) {
	for _, c := range []struct {
		name, parent string
		valid        bool
		sampled      bool
	}{
		{"as it should be", parent, true, true},
		{"not sampled", parent[:53] + "00", true, false},
		{"other flags", parent[:53] + "fe", true, false},
		{"all flags", parent[:53] + "ff", true, true},
		{"empty", "", false, false},
		{"upper case", strings.ToUpper(parent), false, false},
		{"version ff", "ff" + parent[2:], false, false},
		{"later version", "cc" + parent[2:], true, true},
		{"later version with more", "cc" + parent[2:] + "-what", true, true},
		{"later version run on", "cc" + parent[2:] + "what", false, false},
		{"version 00 with more", parent + "-what", false, false},
		{"no version", "xx" + parent[2:], false, false},
		{"no trace", "00-" + strings.Repeat("0", 32) + parent[35:], false, false},
		{"no span", parent[:36] + strings.Repeat("0", 16) + "-01", false, false},
		{"flags that are none", parent[:53] + "0g", false, false},
		{"short trace", "00-0af7-b7ad6b7169203331-01", false, false},
		{"three parts", parent[:52], false, false},
		{"endless", "cc" + parent[2:] + "-" + strings.Repeat("a", 1000), false, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, ok := span.Parse(c.parent, "a=b")
			if ok != c.valid || got.Sampled != c.sampled || got.Valid() != c.valid {
				t.Fatalf("%q: %+v, %v", c.parent, got, ok)
			}
			if ok && (got.TraceID() != c.parent[3:35] || got.SpanID() != c.parent[36:52] || got.State != "a=b") {
				t.Errorf("%q became %+v", c.parent, got)
			}
		})
	}
}

func TestParseID(t *testing.T) {
	for text, valid := range map[string]bool{
		"b7ad6b7169203331": true, "B7AD6B7169203331": false, "0000000000000000": false, "b7ad6b716920333": false, "b7ad6b71692033312": false, "b7ad6b716920333g": false, "": false,
	} {
		id, ok := span.ParseID(text)
		if ok != valid || ok && (span.Context{ID: id}).SpanID() != text {
			t.Errorf("%q: %x, %v", text, id, ok)
		}
	}
}

func TestStateThatIsTooLong(t *testing.T) {
	c, ok := span.Parse(parent, strings.Repeat("a", 513))
	if !ok || c.State != "" {
		t.Errorf("got %v, a state of %d bytes; want it left out", ok, len(c.State))
	}
}

func TestRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tracer := &span.Tracer{Sample: func(id [16]byte) bool { return id[0]&1 == 1 }}
		root := tracer.Begin(span.Context{})
		within := tracer.Begin(root)
		if within.Trace != root.Trace || within.ID == root.ID || within.Sampled != root.Sampled {
			t.Fatalf("%+v within %+v", within, root)
		}
		back, ok := span.Parse(within.Parent(), "")
		if !ok || back != within {
			t.Fatalf("%+v came back as %+v", within, back)
		}
	})
}

func TestNobodyAsks(t *testing.T) {
	var off *span.Tracer
	none := &span.Span{Name: "none"}
	if n := testing.AllocsPerRun(100, func() {
		c := off.Begin(span.Context{})
		if c.Valid() || c.Parent() != "" || off.Wants(c) {
			t.Error("a tracer that is off makes spans")
		}
		off.End(none)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestWhoIsTold(t *testing.T) {
	var told, every int
	tracer := &span.Tracer{
		Sample: func([16]byte) bool { return false },
		Tell:   func(*span.Span) { told++ },
		Every:  func(*span.Span) { every++ },
	}
	tracer.End(&span.Span{Context: tracer.Begin(span.Context{})})
	if told != 0 || every != 1 {
		t.Errorf("of a trace that is not sampled %d and %d were told", told, every)
	}
	remote, _ := span.Parse(parent, "")
	tracer.End(&span.Span{Context: tracer.Begin(remote), Parent: remote})
	if told != 1 || every != 2 {
		t.Errorf("of a trace that another has sampled %d and %d were told", told, every)
	}
	if span.From(context.Background()) != nil {
		t.Error("a span in nothing")
	}
}

func FuzzParse(f *testing.F) {
	f.Add(parent, "a=b")
	f.Add("cc"+parent[2:]+"-x", "")
	f.Fuzz(func(t *testing.T, parent, state string) {
		c, ok := span.Parse(parent, state)
		if ok != c.Valid() {
			t.Fatalf("%q: %v, %+v", parent, ok, c)
		}
		if ok && c.Parent()[3:52] != parent[3:52] {
			t.Fatalf("%q became %q", parent, c.Parent())
		}
	})
}

func Example() {
	remote, _ := span.Parse("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "")
	tracer := &span.Tracer{Tell: func(s *span.Span) { fmt.Println(s.Name, s.TraceID(), s.Attrs) }}
	s := &span.Span{Name: "http-request", Context: tracer.Begin(remote), Parent: remote}
	s.Add("method", "POST")
	tracer.End(s)
	// Output: http-request 0af7651916cd43dd8448eb211c80319c [{method POST}]
}

func BenchmarkBegin(b *testing.B) {
	tracer := &span.Tracer{Sample: func([16]byte) bool { return true }}
	for b.Loop() {
		tracer.Begin(span.Context{})
	}
}
