package trace_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/sim/trace"
)

func ptr[T any](v T) *T { return &v }

// What a client asks of caches comes with its row, in the words of the client.
func TestReadDirectives(t *testing.T) {
	for nvext, want := range map[string]kv.Directives{
		`null`: {},
		`{}`:   {},
		`{"agent_hints": {"priority": 7, "next_request_in": "8s"}}`:                                        {Priority: ptr[int32](7), NextIn: 8 * time.Second},
		`{"cache_control": {"type": "ephemeral", "ttl": "1h"}}`:                                            {Pins: []kv.Pin{{UpTo: 100, TTL: time.Hour}}},
		`{"cache_control": {}, "cache_salt": "a"}`:                                                         {Pins: []kv.Pin{{UpTo: 100, TTL: 5 * time.Minute}}, Namespace: kv.Namespace{Salt: "a"}},
		`{"cache_control": {"ttl": 0}}`:                                                                    {Pins: []kv.Pin{{UpTo: 100}}},
		`{"session_control": {"session_id": "s", "timeout": 60, "ephemeral": true}}`:                       {Session: kv.Session{ID: "s", Timeout: time.Minute, Ephemeral: true}},
		`{"session_control": {"session_id": "s", "action": "close"}}`:                                      {Session: kv.Session{ID: "s"}, EvictSession: true},
		`{"retention": {"ranges": [{"start": 3, "priority": 90, "duration_ms": 1500}]}}`:                   {Ranges: []kv.Range{{Start: 3, Priority: 90, TTL: 1500 * time.Millisecond}}},
		`{"retention": {"ranges": [{"priority": 60, "ttl": "45s"}], "decode": {"priority": 1, "ttl": 5}}}`: {Ranges: []kv.Range{{Priority: 60, TTL: 45 * time.Second}}, DecodePriority: ptr[uint8](1), DecodeTTL: 5 * time.Second},
		`{"agent_hints": {"next_request_in": "8"}}`:                                                        {NextIn: 8 * time.Second},
		`{"retention": {"decode": {"priority": 1}, "ranges": [{"end": 4, "priority": 0}]}}`:                {Ranges: []kv.Range{{End: ptr[uint32](4)}}, DecodePriority: ptr[uint8](1)},
	} {
		for format, row := range map[trace.Format]string{
			trace.Mooncake: `{"input_length": 100, "output_length": 1, "hash_ids": [1], "nvext": ` + nvext + `}`,
			trace.Dynamo: `{"schema": "dynamo.request.trace.v1", "event_type": "request_end", "event_time_unix_ms": 5, "request": {"request_id": "a", "output_tokens": 1, "request_received_ms": 1,
				"replay": {"trace_block_size": 100, "input_length": 100, "input_sequence_hashes": [5]}, "nvext": ` + nvext + `}}`,
		} {
			row = strings.ReplaceAll(row, "\n", " ")
			got := collect(t, trace.Read(format, trace.ReadOptions{}, strings.NewReader(row)))
			if diff := cmp.Diff(want, got[0].KV); diff != "" {
				t.Errorf("%s, %s:\n%s", format, nvext, diff)
			}
		}
	}
}

// A hint is the router's, too, where the row says nothing else.
func TestReadHints(t *testing.T) {
	const hints = `"nvext": {"agent_hints": {"priority": 5, "strict_priority": 2}}`
	for more, want := range map[string][2]float64{``: {5, 2}, `"priority": -1, "strict_priority": 1, `: {-1, 1}} {
		row := `{"output_length": 1, "hash_ids": [1], ` + more + hints + `}`
		r := collect(t, trace.Read(trace.Mooncake, trace.ReadOptions{}, strings.NewReader(row)))[0]
		if got := [2]float64{r.Priority, float64(r.StrictPriority)}; got != want || *r.KV.Priority != 5 {
			t.Errorf("%s: priorities %v, and %d for caches, want %v and 5", row, got, *r.KV.Priority, want)
		}
	}
}

// Directives that clients can give are read again as they were written.
func TestWriteDirectives(t *testing.T) {
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		seconds := func(name string) time.Duration {
			return time.Duration(rapid.IntRange(0, 4000).Draw(t, name)) * time.Second
		}
		r := trace.Request{ID: "x", Session: "s", Prompt: trace.Text{{Len: 10}}, Answer: trace.Text{{Len: 1}}}
		d := &r.KV
		if rapid.Bool().Draw(t, "priority") {
			d.Priority = ptr(rapid.Int32().Draw(t, "of the request"))
			r.Priority = float64(rapid.Int32Range(1, 9).Draw(t, "for the router"))
		}
		if rapid.Bool().Draw(t, "pin") {
			d.Pins = []kv.Pin{{UpTo: 10, TTL: seconds("ttl")}}
		}
		if rapid.Bool().Draw(t, "session") {
			d.Session = kv.Session{ID: rapid.SampledFrom([]string{"s", "t"}).Draw(t, "id"), Timeout: seconds("timeout"), Ephemeral: rapid.Bool().Draw(t, "ephemeral")}
			d.EvictSession = rapid.Bool().Draw(t, "close")
		}
		for i := range rapid.IntRange(0, 3).Draw(t, "ranges") {
			d.Ranges = append(d.Ranges, kv.Range{Start: uint32(10 * i), End: ptr(uint32(10*i + 5)), Priority: rapid.Uint8Range(0, 100).Draw(t, "of range"), TTL: seconds("of range")})
		}
		if rapid.Bool().Draw(t, "decode") {
			d.DecodePriority, d.DecodeTTL = ptr(rapid.Uint8Range(0, 100).Draw(t, "of the answer")), seconds("of the answer")
		}
		d.NextIn, d.Namespace.Salt = seconds("next"), rapid.SampledFrom([]string{"", "tenant"}).Draw(t, "salt")
		again := collect(outer, trace.Read(trace.Mooncake, trace.ReadOptions{BlockSize: 8}, strings.NewReader(written(t, r))))[0]
		if diff := cmp.Diff(*d, again.KV); diff != "" || again.Priority != r.Priority {
			t.Fatalf("priority %v for the router, was %v\n%s", again.Priority, r.Priority, diff)
		}
	})
}

func written(t rapid.TB, r trace.Request) string {
	t.Helper()
	var file strings.Builder
	if err := trace.Write(&file, trace.Mooncake, 8, func(yield func(trace.Request, error) bool) { yield(r, nil) }); err != nil {
		t.Fatal(err)
	}
	return file.String()
}

// What no client can say is not written as something else.
func TestWriteNoDirectives(t *testing.T) {
	for _, d := range []kv.Directives{
		{Pins: []kv.Pin{{UpTo: 9, TTL: time.Second}}},
		{Pins: []kv.Pin{{UpTo: 10, TTL: time.Second, Hard: true}}},
		{Pins: []kv.Pin{{UpTo: 10, TTL: time.Millisecond}}},
		{Pins: []kv.Pin{{UpTo: 10}, {UpTo: 10}}},
		{Class: kv.ClassEphemeral},
		{SkipWrite: true},
	} {
		r := trace.Request{ID: "x", Prompt: trace.Text{{Len: 10}}, Answer: trace.Text{{Len: 1}}, KV: d}
		err := trace.Write(&strings.Builder{}, trace.Mooncake, 8, func(yield func(trace.Request, error) bool) { yield(r, nil) })
		if err == nil || !strings.Contains(err.Error(), `"x" asks of caches`) {
			t.Errorf("%s: %v", fmt.Sprintf("%+v", d), err)
		}
	}
}
