package store_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/openai/responses/store"
)

func event(i, size int) string {
	return fmt.Sprintf("event: x\ndata: {\"sequence_number\":%d,\"delta\":%q}\n\n", i, strings.Repeat("w", size))
}

// readAll reads a tape from one event to its end.
func readAll(t interface{ Fatal(...any) }, tape *store.Tape, n int) string {
	var b strings.Builder
	for n < tape.Len() {
		events, next, err := tape.From(n)
		if err != nil || next <= n {
			t.Fatal(n, next, err)
		}
		b.Write(events)
		n = next
	}
	return b.String()
}

func TestTapeFromAnyEvent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var events []string
		tape := &store.Tape{}
		for len(events) < rapid.IntRange(0, 40).Draw(t, "events") {
			var batch string
			for range rapid.IntRange(1, 3).Draw(t, "batch") {
				e := event(len(events), rapid.SampledFrom([]int{0, 10, 7_000, 40_000}).Draw(t, "size"))
				events = append(events, e)
				batch += e
			}
			tape.Append([]byte(batch))
		}
		n := rapid.IntRange(0, len(events)).Draw(t, "from")
		want := strings.Join(events[n:], "")
		if tape.Len() != len(events) {
			t.Fatalf("%d events, want %d", tape.Len(), len(events))
		}
		if got := readAll(t, tape, n); got != want {
			t.Fatalf("from %d: %d bytes, want %d", n, len(got), len(want))
		}
		again, err := store.OpenTape(tape.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		if got := readAll(t, again, n); got != want {
			t.Fatalf("opened again, from %d: %d bytes, want %d", n, len(got), len(want))
		}
		// It goes on after its bytes were taken.
		tape.Append([]byte(event(len(events), 5)))
		if got := readAll(t, tape, n); got != want+event(len(events), 5) {
			t.Fatal("a tape does not go on")
		}
	})
}

func FuzzOpenTape(f *testing.F) {
	tape := &store.Tape{}
	tape.Append([]byte(event(0, 10) + event(1, 3)))
	f.Add(tape.Bytes(), 1)
	f.Add([]byte{1, 2, 3}, 0)
	f.Fuzz(func(t *testing.T, b []byte, n int) {
		tape, err := store.OpenTape(b)
		if err != nil {
			return
		}
		for n = max(0, min(n, tape.Len())); n < tape.Len(); {
			events, next, err := tape.From(n)
			if err != nil {
				return
			}
			if next <= n || bytes.Count(events, []byte("\n\n")) != next-n {
				t.Fatalf("from %d to %d: %q", n, next, events)
			}
			n = next
		}
	})
}

// BenchmarkTape records an answer of 10,000 tokens.
func BenchmarkTape(b *testing.B) {
	events := make([][]byte, 10_000)
	for i := range events {
		events[i] = fmt.Appendf(nil, "event: response.output_text.delta\ndata: {\"type\":\"response.output_text.delta\",\"sequence_number\":%d,\"item_id\":\"msg_0123456789abcdef0123456789abcdef\",\"output_index\":0,\"content_index\":0,\"delta\":\" w%d\",\"logprobs\":[]}\n\n", i, i*7919%1000)
	}
	size := 0
	for b.Loop() {
		tape := &store.Tape{}
		for _, e := range events {
			tape.Append(e)
		}
		size = len(tape.Bytes())
	}
	b.ReportMetric(float64(size)/float64(len(events)), "B/event")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(events)), "ns/event")
}
