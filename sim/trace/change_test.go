package trace_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/sim/trace"
)

// few is a workload of two sessions, of which the second waits for the first
// once, and a request of neither.
func few(t *testing.T) []trace.Request {
	t.Helper()
	return collect(t, trace.Read(trace.AgenticMooncake, trace.ReadOptions{BlockSize: 10}, strings.NewReader(`
	{"request_id": "a1", "session_id": "a", "timestamp": 100, "output_length": 3, "hash_ids": [1, 2], "input_length": 15}
	{"request_id": "a2", "session_id": "a", "wait_for": ["a1"], "delay": 40, "output_length": 3, "hash_ids": [1, 3]}
	{"request_id": "b1", "session_id": "b", "timestamp": 200, "output_length": 3, "hash_ids": [1]}
	{"request_id": "b2", "session_id": "b", "wait_for": ["b1", "a2"], "delay": 60, "output_length": 3, "hash_ids": [4]}
	{"request_id": "c", "timestamp": 300, "output_length": 3, "hash_ids": [1, 2]}`)))
}

func times(w []trace.Request) string {
	var b strings.Builder
	for _, r := range w {
		if len(r.After) > 0 {
			fmt.Fprintf(&b, "%s+%v ", r.ID, r.Delay)
		} else {
			fmt.Fprintf(&b, "%s@%v ", r.ID, r.At)
		}
	}
	return strings.TrimSpace(b.String())
}

func TestTimes(t *testing.T) {
	for _, tt := range []struct {
		name   string
		change func([]trace.Request)
		want   string
	}{
		{"normalise", func(w []trace.Request) { w[1].At, w[3].At = w[0].At, w[2].At; trace.Normalise(w) }, "a1@0s a2+40ms b1@100ms b2+60ms c@200ms"},
		{"speed", func(w []trace.Request) { trace.Speed(w, 2) }, "a1@50ms a2+20ms b1@100ms b2+30ms c@150ms"},
		{"slower", func(w []trace.Request) { trace.Speed(w, 0.5) }, "a1@200ms a2+80ms b1@400ms b2+120ms c@600ms"},
		{"as slow as can be", func(w []trace.Request) { w[0].At = 0; trace.Speed(w, 1e-300) }, "a1@0s a2+833333h20m0s b1@833333h20m0s b2+833333h20m0s c@833333h20m0s"},
		{"starts", func(w []trace.Request) { w[1].At, w[3].At = w[0].At, w[2].At; trace.RescaleStarts(w, time.Second) }, "a1@0s a2+40ms b1@500ms b2+60ms c@1s"},
		// b2 is ready 60 ms after the later of 100 and 40.
		{"ready", func(w []trace.Request) {
			w[1].At, w[3].At, w[4].At = w[0].At, w[2].At, w[2].At
			trace.RescaleReady(w, 320*time.Millisecond)
		}, "a1@0s a2+80ms b1@200ms b2+120ms c@200ms"},
	} {
		w := few(t)
		tt.change(w)
		if got := times(w); got != tt.want {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.want)
		}
	}
}

func TestDeepen(t *testing.T) {
	w := few(t)
	before := trace.Chains(w, 10)
	if err := trace.Deepen(w, 3); err != nil {
		t.Fatal(err)
	}
	if n := w[0].Prompt.Len(); n != 45 {
		t.Errorf("15 tokens have become %d, want 45", n)
	}
	// What prompts share is three times as much, in each pair of them.
	after := trace.Chains(w, 10)
	for i := range w {
		for j := range i {
			if got, want := common(after[i], after[j]), 3*common(before[i], before[j]); got != want && w[i].Prompt.Len()%10+w[j].Prompt.Len()%10 == 0 {
				t.Errorf("%s and %s share %d blocks, want %d", w[i].ID, w[j].ID, got, want)
			}
		}
	}
	// A piece from the middle of a stream is one from the middle of a longer one.
	middle := []trace.Request{{Prompt: trace.Text{{Stream: 1, From: 4, Len: 2}}}, {Prompt: trace.Text{{Stream: 1, Len: 6}}}}
	if err := trace.Deepen(middle, 3); err != nil {
		t.Fatal(err)
	}
	if part, whole := middle[0].Prompt.Append(nil), middle[1].Prompt.Append(nil); !slices.Equal(part, whole[12:]) {
		t.Error("the end of a stream is no longer the end of it")
	}
	if err := trace.Deepen(w, 1<<24); err == nil {
		t.Error("prompts of half a billion tokens are no error")
	}
}

func common(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestDuplicate(t *testing.T) {
	w := few(t)
	twice := trace.Duplicate(w, 3)
	if len(twice) != 3*len(w) {
		t.Fatalf("%d requests, want %d", len(twice), 3*len(w))
	}
	if err := trace.Check(twice); err != nil {
		t.Fatal(err)
	}
	if !slices.IsSortedFunc(twice, func(a, b trace.Request) int { return cmp.Compare(a.At, b.At) }) {
		t.Error("not in the order of arrival")
	}
	one, three := trace.Analyse(w, 10), trace.Analyse(twice, 10)
	if three.Blocks != 3*one.Blocks || three.Unique != 3*one.Unique || three.Reused != 3*one.Reused || three.Sessions != 3*one.Sessions {
		t.Errorf("three copies are %+v, of %+v", three, one)
	}
	i := slices.IndexFunc(twice, func(r trace.Request) bool { return r.ID == "b2:copy_2" })
	if r := twice[i]; r.Session != "b:copy_2" || !slices.Equal(r.After, []string{"b1:copy_2", "a2:copy_2"}) {
		t.Errorf("a copy is %+v", r)
	}
	answers := map[uint64]bool{}
	for _, r := range twice {
		answers[r.Answer[0].Stream] = true
	}
	if len(answers) != len(twice) {
		t.Errorf("%d requests have %d answers", len(twice), len(answers))
	}
}

func TestPartition(t *testing.T) {
	w := trace.Duplicate(few(t), 50)
	for name, random := range map[string]*rand.Rand{"in turn": nil, "drawn": rand.New(rand.NewPCG(1, 2))} {
		parts := trace.Partition(w, 4, random)
		total := 0
		for _, part := range parts {
			total += len(part)
			// Whoever waits, waits for one of the same part.
			if err := trace.Check(part); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if len(part) < len(w)/8 || len(part) > len(w)/2 {
				t.Errorf("%s: a part of four has %d of %d requests", name, len(part), len(w))
			}
		}
		if total != len(w) {
			t.Errorf("%s: %d requests in all parts, want %d", name, total, len(w))
		}
	}
}

func TestJitter(t *testing.T) {
	w := recorded(t, "conversation")
	ticks := map[time.Duration]bool{}
	for _, r := range w {
		ticks[r.At] = true
	}
	before := slices.Clone(w)
	trace.Jitter(w, rand.New(rand.NewPCG(1, 2)))
	after := map[time.Duration]bool{}
	at := map[string]time.Duration{}
	for i, r := range w {
		after[r.At] = true
		at[r.ID] = r.At
		if i > 0 && r.At < w[i-1].At {
			t.Fatal("not in the order of arrival")
		}
	}
	if len(ticks) != 1180 || len(after) < 12_000 {
		t.Errorf("%d distinct times have become %d, want 1180 and nearly one for each request", len(ticks), len(after))
	}
	for _, r := range before {
		if moved := at[r.ID] - r.At; moved < 0 || moved > 7*time.Second {
			t.Fatalf("%s has moved by %v", r.ID, moved)
		}
	}
}

// What is written is read again as it was: the same times, and prompts that
// share what they shared.
func TestWrite(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		n := rapid.IntRange(1, 8).Draw(rt, "requests")
		var w []trace.Request
		for i := range n {
			r := trace.Request{
				ID: fmt.Sprint(i), At: time.Duration(rapid.IntRange(0, 5000).Draw(rt, "at")) * time.Millisecond,
				Prompt:   append(trace.Text{{Stream: rapid.Uint64Range(0, 2).Draw(rt, "beginning"), Len: rapid.Uint32Range(1, 40).Draw(rt, "length")}}, drawText(rt)...),
				Answer:   trace.Text{{Stream: 99, Len: rapid.Uint32Range(1, 9).Draw(rt, "answer")}},
				Priority: float64(rapid.IntRange(-3, 3).Draw(rt, "priority")), Class: rapid.SampledFrom([]string{"", "batch"}).Draw(rt, "class"),
			}
			for j := range i {
				if rapid.IntRange(0, 3).Draw(rt, "waits") == 0 {
					r.After = append(r.After, fmt.Sprint(j))
					r.Delay = time.Duration(rapid.IntRange(0, 99).Draw(rt, "delay")) * time.Millisecond
				}
			}
			w = append(w, r)
		}
		const block = 8
		var file strings.Builder
		if err := trace.Write(&file, trace.AgenticMooncake, block, func(yield func(trace.Request, error) bool) {
			for _, r := range w {
				if !yield(r, nil) {
					return
				}
			}
		}); err != nil {
			rt.Fatal(err)
		}
		again := collect(t, trace.Read(trace.AgenticMooncake, trace.ReadOptions{BlockSize: block}, strings.NewReader(file.String())))
		if got, want := times(again), times(w); got != want {
			rt.Fatalf("times %s, want %s", got, want)
		}
		was, is := trace.Chains(w, block), trace.Chains(again, block)
		for i := range w {
			if !slices.Equal(was[i], is[i]) || again[i].Priority != w[i].Priority || again[i].Class != w[i].Class || again[i].Answer.Len() != w[i].Answer.Len() {
				rt.Fatalf("%+v has become %+v", w[i], again[i])
			}
		}
	})
}

func TestWriteRecorded(t *testing.T) {
	w := recorded(t, "synthetic")[:500]
	var file strings.Builder
	if err := trace.Write(&file, trace.Mooncake, 512, func(yield func(trace.Request, error) bool) {
		for _, r := range w {
			if !yield(r, nil) {
				return
			}
		}
	}); err != nil {
		t.Fatal(err)
	}
	again := collect(t, trace.Read(trace.Mooncake, trace.ReadOptions{}, strings.NewReader(file.String())))
	if show(again) != show(w) {
		t.Error("the trace is another one after it was written and read")
	}
}

// What the format does not say is not written as something else.
func TestWriteCannot(t *testing.T) {
	answer := trace.Text{{Stream: 9, Len: 1}}
	prompt := trace.Text{{Stream: 1, Len: 10}}
	apart := []trace.Request{{ID: "x", Session: "s", Prompt: prompt, Answer: answer}, {ID: "y", Session: "s", Prompt: prompt, Answer: answer}}
	for _, tt := range []struct {
		format trace.Format
		w      []trace.Request
		want   string
	}{
		{trace.Mooncake, few(t), `"b2" waits for`},
		{trace.Mooncake, apart, `"y" waits for`}, // for nobody, and a reader would let it wait for x
		{trace.Dynamo, few(t), "not written"},
	} {
		err := trace.Write(&strings.Builder{}, tt.format, 10, func(yield func(trace.Request, error) bool) {
			for _, r := range tt.w {
				if !yield(r, nil) {
					return
				}
			}
		})
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want an error with %q", tt.format, err, tt.want)
		}
	}
}
