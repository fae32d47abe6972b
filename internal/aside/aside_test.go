package aside_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/aside"
	"github.com/dynago/dynago/nvext"
)

func wants(names ...string) *nvext.Ext { return &nvext.Ext{ExtraFields: names} }

func tell(choice int, name, value string) chat.Event {
	return chat.Event{Kind: chat.Aside, Choice: choice, Reason: name, Text: value}
}

func says(choice int, ids ...uint32) chat.Event {
	return chat.Event{Kind: chat.TextDelta, Choice: choice, Text: "a", IDs: ids}
}

func ends(choice int, f chat.Finish) chat.Event {
	return chat.Event{Kind: chat.Finished, Choice: choice, Finish: f}
}

func ExampleGatherer() {
	g := aside.New(wants("worker_id", "completion_token_ids"), 1)
	for _, e := range []chat.Event{
		tell(0, nvext.MemberWorkerID, `{"decode_worker_id":7}`), says(0, 5), says(0, 6, 7),
	} {
		g.Note(&e)
		if e.Kind == chat.TextDelta {
			fmt.Printf("{\"choices\":[]%s}\n", g.AppendChunk(nil, 0))
		}
	}
	fmt.Printf("{\"choices\":[]%s}\n", g.AppendWhole(nil))
	// Output:
	// {"choices":[],"nvext":{"worker_id":{"decode_worker_id":7},"completion_token_ids":[5]}}
	// {"choices":[],"nvext":{"worker_id":{"decode_worker_id":7},"completion_token_ids":[6,7]}}
	// {"choices":[],"nvext":{"worker_id":{"decode_worker_id":7},"completion_token_ids":[5,6,7]}}
}

// Which chunk carries what. A chunk is sent for each event that says something, and
// none for those that are held.
func TestChunks(t *testing.T) {
	const held = chat.BlockStart
	id := uint32(576)
	for name, tc := range map[string]struct {
		ext    *nvext.Ext
		count  int // choices
		events []chat.Event
		chunks []string
		whole  string
	}{
		"nothing is asked for": {
			nil, 1,
			[]chat.Event{says(0, 1), ends(0, chat.Finish{StopText: "x"})},
			[]string{``, ``},
			``,
		},
		"what nobody has asked for and comes all the same": {
			nil, 1,
			[]chat.Event{says(0, 1), tell(0, "token_ids", `[1,2]`), ends(0, chat.Finish{})},
			[]string{``, `{"token_ids":[1,2]}`},
			`{"token_ids":[1,2]}`,
		},
		"a worker goes with every chunk, and the next one from when it answers": {
			wants("worker_id"), 1,
			[]chat.Event{tell(0, "worker_id", `1`), says(0), says(0), tell(0, "worker_id", `2`), says(0), ends(0, chat.Finish{})},
			[]string{`{"worker_id":1}`, `{"worker_id":1}`, `{"worker_id":2}`, `{"worker_id":2}`},
			`{"worker_id":2}`,
		},
		"tokens go with what they say, those of held events with the next": {
			wants("completion_token_ids"), 1,
			[]chat.Event{{Kind: held, IDs: []uint32{9}}, says(0, 1), says(0), {Kind: chat.BlockStop, IDs: []uint32{2}}, ends(0, chat.Finish{})},
			[]string{`{"completion_token_ids":[9,1]}`, ``, `{"completion_token_ids":[2]}`},
			`{"completion_token_ids":[9,1,2]}`,
		},
		"data of engines go with the next chunk, and the last counts": {
			wants("engine_data"), 1,
			[]chat.Event{tell(0, "engine_data", `{"a":1}`), {Kind: held}, tell(0, "engine_data", `{"a":2}`), says(0), says(0), tell(0, "engine_data", `3`), ends(0, chat.Finish{})},
			[]string{`{"engine_data":{"a":2}}`, ``, `{"engine_data":3}`},
			`{"engine_data":3}`,
		},
		"a stop text": {
			wants("stop_reason"), 1,
			[]chat.Event{says(0), ends(0, chat.Finish{StopText: "a\"\u2028"})},
			[]string{``, `{"stop_reason":"a\"\u2028"}`},
			`{"stop_reason":"a\"\u2028"}`,
		},
		"a stop id": {
			wants("stop_reason"), 1,
			[]chat.Event{says(0), ends(0, chat.Finish{StopID: &id})},
			[]string{``, `{"stop_reason":576}`},
			`{"stop_reason":576}`,
		},
		"several stop ids": {
			wants("stop_reason"), 1,
			[]chat.Event{says(0), ends(0, chat.Finish{StopID: &id, StopIDs: []uint32{12, 576}})},
			[]string{``, `{"stop_reason":[12,576]}`},
			`{"stop_reason":[12,576]}`,
		},
		"no stop of the client's": {
			wants("stop_reason"), 1,
			[]chat.Event{says(0), ends(0, chat.Finish{Reason: chat.FinishLength})},
			[]string{``, ``},
			``,
		},
		"stops of several choices go with the end of the last": {
			wants("stop_reason"), 3,
			[]chat.Event{says(0), ends(2, chat.Finish{StopID: &id}), says(1), ends(0, chat.Finish{StopID: &id, StopIDs: []uint32{12, 576}}), ends(1, chat.Finish{StopText: "x"})},
			[]string{``, ``, ``, ``, `{"stop_reasons":{"0":[12,576],"1":"x","2":576}}`},
			`{"stop_reasons":{"0":[12,576],"1":"x","2":576}}`,
		},
		"times go with the first choice that has ended": {
			wants("timing"), 2,
			[]chat.Event{says(0), tell(1, "timing", `1`), ends(1, chat.Finish{}), tell(0, "timing", `2`), ends(0, chat.Finish{})},
			[]string{``, `{"timing":1}`, ``},
			`{"timing":1}`,
		},
		"choices have workers of their own": {
			wants("worker_id"), 2,
			[]chat.Event{tell(0, "worker_id", `1`), tell(1, "worker_id", `2`), says(1), says(0), ends(0, chat.Finish{}), ends(1, chat.Finish{})},
			[]string{`{"worker_id":2}`, `{"worker_id":1}`, `{"worker_id":1}`, `{"worker_id":2}`},
			`{"worker_id":2}`,
		},
		"foreign JSON stays on one line": {
			wants("engine_data"), 1,
			[]chat.Event{tell(0, "engine_data", "{\n\"a\": \"\u2028\\ud800\"}"), ends(0, chat.Finish{})},
			[]string{`{"engine_data":{ "a": "\u2028\ufffd"}}`},
			`{"engine_data":{ "a": "\u2028\ufffd"}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			member := func(b []byte) string { return strings.TrimPrefix(string(b), `,"nvext":`) }
			g := aside.New(tc.ext, tc.count)
			var chunks []string
			for _, e := range tc.events {
				if g.Note(&e); e.Kind == chat.TextDelta || e.Kind == chat.Finished {
					chunks = append(chunks, member(g.AppendChunk(nil, e.Choice)))
				}
			}
			if d := cmp.Diff(tc.chunks, chunks); d != "" {
				t.Errorf("chunks -want +got\n%s", d)
			}
			if whole := member(g.AppendWhole(nil)); whole != tc.whole {
				t.Errorf("whole %s, want %s", whole, tc.whole)
			}
			for _, chunk := range append(chunks, member(g.AppendWhole(nil))) {
				if chunk != "" && !json.Valid([]byte(chunk)) {
					t.Errorf("%s is no JSON", chunk)
				}
			}
		})
	}
}

// Whoever adds up the chunks, the last value of each member and all tokens in their
// order, has what goes with the whole answer.
func TestWholeIsTheSumOfChunks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := aside.New(wants("worker_id", "engine_data", "timing", "completion_token_ids", "stop_reason"), 1)
		sum := map[string]any{}
		var ids []any
		add := func(chunk []byte) {
			var got struct {
				Ext map[string]any `json:"nvext"`
			}
			if err := json.Unmarshal([]byte(`{"x":0`+string(chunk)+`}`), &got); err != nil {
				t.Fatal(err)
			}
			for name, value := range got.Ext {
				if name == "completion_token_ids" {
					ids = append(ids, value.([]any)...)
					continue
				}
				sum[name] = value
			}
		}
		sure := func(e chat.Event) { g.Note(&e); add(g.AppendChunk(nil, 0)) }
		for range rapid.IntRange(0, 12).Draw(t, "events") {
			e := chat.Event{Kind: rapid.SampledFrom([]chat.EventKind{chat.TextDelta, chat.BlockStart, chat.Aside}).Draw(t, "kind")}
			if e.Kind == chat.Aside {
				e.Reason = rapid.SampledFrom([]string{"worker_id", "engine_data", "timing"}).Draw(t, "name")
				e.Text = fmt.Sprint(rapid.IntRange(0, 9).Draw(t, "value"))
			} else {
				e.IDs = rapid.SliceOfN(rapid.Uint32(), 0, 3).Draw(t, "ids")
			}
			if e.Kind == chat.TextDelta {
				sure(e)
			} else {
				g.Note(&e)
			}
		}
		sure(ends(0, chat.Finish{StopText: rapid.SampledFrom([]string{"", "x"}).Draw(t, "stop")}))
		if ids != nil {
			sum["completion_token_ids"] = ids
		}
		var whole struct {
			Ext map[string]any `json:"nvext"`
		}
		if err := json.Unmarshal([]byte(`{"x":0`+string(g.AppendWhole(nil))+`}`), &whole); err != nil {
			t.Fatal(err)
		}
		if whole.Ext == nil {
			whole.Ext = map[string]any{}
		}
		if d := cmp.Diff(whole.Ext, sum); d != "" {
			t.Fatalf("-whole +sum\n%s", d)
		}
	})
}

// Who asks for nothing pays nothing.
func TestNothingCostsNothing(t *testing.T) {
	g := aside.New(nil, 1)
	e := says(0, 1, 2, 3)
	var dst []byte
	if n := testing.AllocsPerRun(100, func() {
		g.Note(&e)
		dst = g.AppendWhole(g.AppendChunk(dst[:0], 0))
	}); n != 0 || len(dst) != 0 || g.Holds(0) {
		t.Errorf("%v allocations, %q", n, dst)
	}
}
