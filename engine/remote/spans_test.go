package remote_test

import (
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/span"
)

// A worker's generation is in the trace of its request, has the id that was chosen for
// it, and goes on from the one that its request names.
func TestSpansOverTheWire(t *testing.T) {
	const (
		parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
		from   = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"
		chosen = "aaf067aa0ba902b7"
	)
	told := make(chan *span.Span, 2)
	s := serve(t, args(), remote.ServerConfig{Spans: &engine.Spans{Served: true, Tracer: &span.Tracer{Tell: func(s *span.Span) { told <- s }}}})
	r := request(3)
	r.Trace = engine.Trace{Parent: parent, State: "a=b", Span: chosen, From: from}
	for _, err := range s.Generate(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
	}
	var generation, ingress *span.Span
	for range 2 {
		select {
		case s := <-told:
			if s.Name == "engine.generate" {
				generation = s
			} else {
				ingress = s
			}
		case <-time.After(10 * time.Second):
			t.Fatal("two spans are not told")
		}
	}
	if ingress.Parent.Parent() != parent || ingress.State != "a=b" || generation.Parent != ingress.Context {
		t.Errorf("%+v in %+v", generation, ingress)
	}
	if generation.SpanID() != chosen || len(generation.Links) != 1 || generation.Links[0].Parent() != from || generation.Error != "" {
		t.Errorf("the generation is %+v", generation)
	}
}
