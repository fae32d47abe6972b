package main

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/trace"
)

// told is an output that may be read while somebody writes to it.
type told struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *told) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

// take returns what was written since it was called last.
func (o *told) take() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	defer o.text.Reset()
	return o.text.String()
}

// Records are shown as they are flushed, from one segment to the next, also those of a
// session that its own sub-agents write.
func TestTraceTail(t *testing.T) {
	prefix := filepath.Join(t.TempDir(), "trace")
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		var out, problems told
		done := make(chan error, 1)
		go func() {
			c := traceTail{Session: "lead", Last: 1, Follow: true}
			c.Names = []string{prefix}
			done <- c.tail(ctx, outlet{&out, &problems})
		}()
		synctest.Wait()
		if text := problems.take(); !strings.Contains(text, "there is nothing yet, waiting for it") {
			t.Errorf("before there is a trace: %q", text)
		}
		sink, err := trace.OpenFile(trace.FileConfig{Path: prefix, BufferBytes: 1 << 20, FlushInterval: time.Second, RollBytes: 1 << 30, RollLines: 2})
		if err != nil {
			t.Fatal(err)
		}
		defer sink.Close(ctx) //nolint:errcheck // it is flushed below
		write := func(id, chain, parent string) {
			t.Helper()
			if err := sink.Write(ctx, []*trace.Record{{
				Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: 1790000000000,
				Agent:   &trace.AgentContext{SessionID: chain, ParentSessionID: parent},
				Request: &trace.Request{RequestID: id},
			}}); err != nil {
				t.Fatal(err)
			}
		}
		look := func() string {
			t.Helper()
			if err := sink.Tick(ctx); err != nil {
				t.Fatal(err)
			}
			time.Sleep(look) // of the bubble
			synctest.Wait()
			var ids []string
			for line := range strings.Lines(out.take()) {
				ids = append(ids, strings.Fields(line)[3])
			}
			return strings.Join(ids, " ")
		}
		write("a1", "lead", "")
		write("b1", "other", "")
		if got := look(); got != "a1" {
			t.Errorf("of the first segment: %q", got)
		}
		for i := range 5 {
			write(fmt.Sprint("k", i), "kid", "lead")
		}
		write("g1", "grandkid", "kid")
		if got := look(); got != "k0 k1 k2 k3 k4 g1" {
			t.Errorf("through segments: %q", got)
		}
		if got := look(); got != "" {
			t.Errorf("again: %q", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	// Who comes later sees the last ones.
	var out told
	c := traceTail{Last: 2}
	c.Names = []string{prefix}
	if err := c.tail(context.Background(), outlet{&out, io.Discard}); err != nil {
		t.Fatal(err)
	}
	if text := out.take(); strings.Count(text, "\n") != 2 || !strings.Contains(text, "  k4  ") || !strings.Contains(text, "  g1  ") {
		t.Errorf("the last two:\n%s", text)
	}
}
