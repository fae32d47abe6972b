package kserve_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kserve"
	"github.com/dynago/dynago/openai"
)

// river is an answer of one choice, whose end comes with its last delta.
var river = []chat.Event{
	begins(0, 4), opens(0), says(0, "Rhine", 1, 2), says(0, ", Elbe", 3), last(says(0, ", Oder", 4)), closes(0),
	ends(0, chat.FinishStop, 4, 5),
}

func response(parameters engine.Parameters, outputs ...engine.Tensor) *kserve.Response {
	return &kserve.Response{ID: "job-7", Model: "tiny", Version: "1", Outputs: outputs, Parameters: parameters}
}

func piece(text, reason string) *kserve.Response {
	return response(nil, texts("text_output", text), texts("finish_reason", reason))
}

func TestFold(t *testing.T) {
	two := engine.Parameters{"n": int64(2)}
	for name, tc := range map[string]struct {
		call   *kserve.Request
		events []chat.Event
		want   *kserve.Response
	}{
		"one": {
			asks(), river,
			response(used(4, 5), texts("text_output", "Rhine, Elbe, Oder"), texts("finish_reason", "stop")),
		},
		"two": {
			asks(two),
			[]chat.Event{
				begins(0, 4), begins(1, 4), opens(1), opens(0), says(1, "b"), says(0, "a"), says(1, "B"), closes(1), ends(1, chat.FinishLength, 0, 2),
				closes(0), ends(0, chat.FinishContentFilter, 4, 1),
			},
			response(used(4, 3), texts("text_output", "a", "bB"), texts("finish_reason", "content_filter", "length")),
		},
		"two, counted": {
			asks(two, flag("return_num_input_tokens", true), flag("return_num_output_tokens", true)),
			[]chat.Event{begins(0, 4), begins(1, 4), ends(0, chat.FinishStopSequence, 4, 7), ends(1, chat.FinishContext, 0, 9)},
			response(
				used(4, 16), texts("text_output", "", ""), texts("finish_reason", "stop", "length"),
				numbers("num_input_tokens", 4), numbers("num_output_tokens", 7, 9),
			),
		},
		"of what is wanted":      {asks("finish_reason"), river, response(used(4, 5), texts("finish_reason", "stop"))},
		"in the order of wishes": {asks("finish_reason", "text_output", "finish_reason"), river, response(used(4, 5), texts("finish_reason", "stop"), texts("text_output", "Rhine, Elbe, Oder"))},
		"counts that are listed": {asks("num_output_tokens"), river, response(used(4, 5), numbers("num_output_tokens", 5))},
		"counts that are not":    {asks("text_output", flag("return_num_input_tokens", true)), river, response(used(4, 5), texts("text_output", "Rhine, Elbe, Oder"))},
		"where it would be": {
			asks(engine.Parameters{"nvext": `{"annotations":["query_instance_id:"]}`}),
			[]chat.Event{
				begins(0, 0),
				{Kind: chat.Aside, Reason: "worker_id", Text: `{"decode_worker_id":7}`},
				{Kind: chat.Aside, Reason: "token_ids", Text: `[1,2]`},
				ends(0, chat.FinishPlaced, 0, 0),
			},
			response(engine.Parameters{"nvext": `{"worker_id":{"decode_worker_id":7},"token_ids":[1,2]}`}, texts("text_output", ""), texts("finish_reason", "")),
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := decoded(t, tc.call, openai.Options{}).Fold(stream(nil, tc.events...))
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestDeltas(t *testing.T) {
	end := func(parameters engine.Parameters, text, reason string) *kserve.Response {
		return response(parameters, texts("text_output", text), texts("finish_reason", reason))
	}
	counted := func(parameters engine.Parameters, text, reason string, prompt uint32, output ...uint32) *kserve.Response {
		r := end(parameters, text, reason)
		r.Outputs = append(r.Outputs, numbers("num_input_tokens", prompt), numbers("num_output_tokens", output...))
		return r
	}
	for name, tc := range map[string]struct {
		call   *kserve.Request
		events []chat.Event
		want   []*kserve.Response
	}{
		"the end comes with the last delta": {
			asks(), river,
			[]*kserve.Response{piece("Rhine", ""), piece(", Elbe", ""), end(used(4, 5), ", Oder", "stop")},
		},
		"or alone": {
			asks(),
			[]chat.Event{begins(0, 4), opens(0), says(0, "a"), says(0, ""), closes(0), ends(0, chat.FinishLength, 4, 1)},
			[]*kserve.Response{piece("a", ""), end(used(4, 1), "", "length")},
		},
		"thoughts and refusals are text": {
			asks(),
			[]chat.Event{
				begins(0, 4),
				{Kind: chat.BlockStart, BlockKind: chat.Thought},
				{Kind: chat.ThinkingDelta, Text: "Hm"},
				{Kind: chat.BlockStop},
				{Kind: chat.BlockStart, Index: 1, BlockKind: chat.Refusal},
				{Kind: chat.RefusalDelta, Index: 1, Text: "No"},
				{Kind: chat.BlockStop, Index: 1},
				{Kind: chat.Dropped, Text: "x"},
				ends(0, chat.FinishStop, 4, 2),
			},
			[]*kserve.Response{piece("Hm", ""), piece("No", ""), end(used(4, 2), "", "stop")},
		},
		"each choice has its place": {
			asks(engine.Parameters{"n": int64(2)}),
			[]chat.Event{
				begins(1, 4), opens(1), says(1, "b"), begins(0, 4), opens(0), last(says(0, "a")), says(1, "B"), closes(0), ends(0, chat.FinishStop, 4, 1),
				closes(1), ends(1, chat.FinishLength, 0, 2),
			},
			[]*kserve.Response{
				response(nil, texts("text_output", "", "b"), texts("finish_reason", "", "")),
				response(nil, texts("text_output", "", "B"), texts("finish_reason", "", "")),
				response(nil, texts("text_output", "a", ""), texts("finish_reason", "stop", "")),
				response(used(4, 3), texts("text_output", "", ""), texts("finish_reason", "", "length")),
			},
		},
		"tokens count where they are told of, and the rest at the end": {
			asks(flag("return_num_input_tokens", true), flag("return_num_output_tokens", true)), river,
			[]*kserve.Response{
				counted(nil, "Rhine", "", 4, 2), counted(nil, ", Elbe", "", 4, 1), counted(used(4, 5), ", Oder", "stop", 4, 2),
			},
		},
		"tokens that nobody sees": {
			asks(flag("return_num_output_tokens", true), "num_output_tokens"),
			[]chat.Event{begins(0, 4), {Kind: chat.Dropped, IDs: []uint32{1, 2}}, opens(0), says(0, "", 3), says(0, "a", 4), closes(0), ends(0, chat.FinishStop, 4, 2)},
			[]*kserve.Response{response(nil, numbers("num_output_tokens", 4)), response(used(4, 2), numbers("num_output_tokens", 0))},
		},
		"where it would be": {
			asks(engine.Parameters{"nvext": `{"annotations":["query_instance_id:"]}`}),
			[]chat.Event{begins(0, 0), {Kind: chat.Aside, Reason: "worker_id", Text: `{"decode_worker_id":7}`}, ends(0, chat.FinishPlaced, 0, 0)},
			[]*kserve.Response{end(engine.Parameters{"nvext": `{"worker_id":{"decode_worker_id":7}}`}, "", "")},
		},
		"the extension goes with the last": {
			asks(engine.Parameters{"nvext": `{"extra_fields":["worker_id","completion_token_ids","stop_reason"]}`, "stop": "x"}),
			[]chat.Event{
				begins(0, 4),
				{Kind: chat.Aside, Reason: "worker_id", Text: `{"decode_worker_id":7}`},
				opens(0), says(0, "a", 1), last(says(0, "b", 2)), closes(0),
				{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishStopSequence, StopText: "x"}, Usage: chat.Usage{Prompt: 4, Output: 2}},
			},
			[]*kserve.Response{
				piece("a", ""),
				end(engine.Parameters{
					"prompt_tokens": int64(4), "completion_tokens": int64(2),
					"nvext": `{"worker_id":{"decode_worker_id":7},"stop_reason":"x","completion_token_ids":[1,2]}`,
				}, "b", "stop"),
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := collect(decoded(t, tc.call, openai.Options{}).Deltas(stream(nil, tc.events...)))
			if diff := cmp.Diff(tc.want, got); err != nil || diff != "" {
				t.Error(err, diff)
			}
		})
	}
}

func TestFailedAnswers(t *testing.T) {
	broken := engine.Errorf(engine.Internal, "worker tripped")
	for name, tc := range map[string]struct {
		err    error
		events []chat.Event
		fold   string // what errors contain
		stream string
	}{
		"before it":     {broken, nil, "worker tripped", "worker tripped"},
		"within it":     {broken, river[:3], "worker tripped", "worker tripped"},
		"nothing comes": {nil, nil, "no response received", "1 of 1 choices did not end"},
		"no end comes":  {nil, river[:3], "choice 0 ended without a finish", "1 of 1 choices did not end"},
	} {
		t.Run(name, func(t *testing.T) {
			c := decoded(t, asks(), openai.Options{})
			r, err := c.Fold(stream(tc.err, tc.events...))
			if r != nil || err == nil || !strings.Contains(err.Error(), tc.fold) || tc.err != nil && err != tc.err {
				t.Errorf("folded: %v, %v", r, err)
			}
			pieces, err := collect(c.Deltas(stream(tc.err, tc.events...)))
			if err == nil || !strings.Contains(err.Error(), tc.stream) || tc.err != nil && err != tc.err || len(pieces) != min(1, len(tc.events)) {
				t.Errorf("streamed: %v, %v", pieces, err)
			}
		})
	}
}

// What waits for the end of its choice is not lost if something else comes.
func TestNothingIsHeldBack(t *testing.T) {
	broken := engine.Errorf(engine.Internal, "worker tripped")
	for _, err := range []error{broken, nil} {
		got, err := collect(decoded(t, asks(), openai.Options{}).Deltas(stream(err, river[:5]...)))
		if err == nil || len(got) != 3 {
			t.Fatal(got, err)
		}
		if diff := cmp.Diff(piece(", Oder", ""), got[2]); diff != "" {
			t.Error(diff)
		}
	}
	// Nor is it sent twice.
	two := append(slices.Clone(river), begins(1, 4))
	got, err := collect(decoded(t, asks(engine.Parameters{"n": int64(2)}), openai.Options{}).Deltas(stream(broken, two...)))
	if err == nil || len(got) != 3 {
		t.Error(got, err)
	}
}

// A client that leaves stops the answer.
func TestLeavingStopsAnswers(t *testing.T) {
	seen := 0
	events := func(yield func(chat.Event, error) bool) {
		for _, e := range river {
			if seen++; !yield(e, nil) {
				return
			}
		}
	}
	for range decoded(t, asks(), openai.Options{}).Deltas(events) {
		break
	}
	if seen != 3 {
		t.Errorf("%d events were read", seen)
	}
}

// The deltas of each choice are its folded text, whatever the order in which choices
// speak; so are the numbers of tokens, of which the last response has the sums.
func TestDeltasAddUp(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 4).Draw(t, "n")
		waiting := make([][]chat.Event, n)
		naive, tokens := make([]string, n), make([]uint32, n)
		for i := range waiting {
			events := []chat.Event{begins(i, 3), opens(i)}
			said := rapid.SliceOfN(rapid.StringMatching(`[ab\x{fffd}]{0,3}`), 0, 5).Draw(t, "said")
			for k, s := range said {
				ids := make([]uint32, rapid.IntRange(0, 2).Draw(t, "ids"))
				e := says(i, s, ids...)
				e.Last = k == len(said)-1 && rapid.Bool().Draw(t, "last")
				events = append(events, e)
				naive[i] += s
				tokens[i] += uint32(len(ids))
			}
			if extra := rapid.IntRange(0, 2).Draw(t, "unseen"); extra > 0 {
				tokens[i] += uint32(extra)
			}
			prompt := 0
			if i == 0 {
				prompt = 3
			}
			waiting[i] = append(events, closes(i), ends(i, chat.FinishLength, prompt, int(tokens[i])))
		}
		var events []chat.Event
		for left := n; left > 0; {
			i := rapid.IntRange(0, n-1).Draw(t, "next")
			if len(waiting[i]) == 0 {
				continue
			}
			events = append(events, waiting[i][0])
			if waiting[i] = waiting[i][1:]; len(waiting[i]) == 0 {
				left--
			}
		}

		call := asks(engine.Parameters{"n": int64(n)}, flag("return_num_output_tokens", true), flag("return_num_input_tokens", true))
		c, err := kserve.DecodeCompletion(call, openai.Options{})
		if err != nil {
			t.Fatal(err)
		}
		whole, err := c.Fold(stream(nil, events...))
		if err != nil {
			t.Fatal(err)
		}
		reasons := strings.Split(strings.Repeat("length ", n), " ")[:n]
		sum := uint32(0)
		for _, n := range tokens {
			sum += n
		}
		want := response(used(3, int64(sum)), texts("text_output", naive...), texts("finish_reason", reasons...), numbers("num_input_tokens", 3), numbers("num_output_tokens", tokens...))
		if diff := cmp.Diff(want, whole); diff != "" {
			t.Fatal(diff)
		}

		pieces, err := collect(c.Deltas(stream(nil, events...)))
		if err != nil {
			t.Fatal(err)
		}
		said, ended, counted := make([]string, n), make([]string, n), make([]uint32, n)
		for k, p := range pieces {
			if last := k == len(pieces)-1; last != (p.Parameters != nil) {
				t.Fatalf("parameters of response %d of %d: %v", k, len(pieces), p.Parameters)
			}
			for i, s := range elements(t, p.Outputs[0]) {
				said[i] += s
			}
			for i, s := range elements(t, p.Outputs[1]) {
				ended[i] += s
			}
			for i := range counted {
				counted[i] += uint32(p.Outputs[3].Data[4*i]) // few enough for one byte
			}
		}
		got := response(pieces[len(pieces)-1].Parameters, texts("text_output", said...), texts("finish_reason", ended...), numbers("num_input_tokens", 3), numbers("num_output_tokens", counted...))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatal(diff)
		}
	})
}

// elements returns the elements of a tensor of texts.
func elements(t interface{ Fatalf(string, ...any) }, tensor engine.Tensor) (all []string) {
	data := tensor.Data
	for len(data) >= 4 {
		n := int(data[0]) | int(data[1])<<8 | int(data[2])<<16 | int(data[3])<<24
		all, data = append(all, string(data[4:4+n])), data[4+n:]
	}
	if len(data) > 0 || int64(len(all)) != tensor.Shape[0] {
		t.Fatalf("%+v has %d elements", tensor, len(all))
	}
	return all
}

func TestExtensionOfCalls(t *testing.T) {
	hints := engine.Parameters{"nvext": `{"agent_hints":{"priority":3},"later":1}`}
	c := decoded(t, asks(hints), openai.Options{})
	if c.ExtDropped || c.Ext == nil || *c.Ext.AgentHints.Priority != 3 || !cmp.Equal(c.Unknown, []string{"nvext.later"}) {
		t.Errorf("%+v", c)
	}
	_, err := kserve.DecodeCompletion(asks(hints), openai.Options{StrictNVExt: true})
	if err == nil || !strings.Contains(err.Error(), "invalid nvext: nvext.later: unknown field") {
		t.Error(err)
	}
	// What cannot be read at all has no effect either where it is to have none.
	for _, value := range []any{hints["nvext"], "{", int64(1)} {
		c := decoded(t, asks(engine.Parameters{"nvext": value}), openai.Options{DisableNVExt: true, StrictNVExt: true})
		if c.Ext != nil || !c.ExtDropped {
			t.Errorf("%v: %+v", value, c)
		}
	}
	c = decoded(t, asks(texts("sampling_parameters", `{"nvext":{"agent_hints":{"priority":3}},"cache_salt":"s"}`)), openai.Options{})
	if c.Ext == nil || *c.Ext.AgentHints.Priority != 3 || c.Ext.CacheSalt != "s" {
		t.Errorf("%+v", c)
	}
	c = decoded(t, asks(texts("sampling_parameters", `{"nvext":{"agent_hints":{"priority":3}}}`)), openai.Options{DisableNVExt: true})
	if c.Ext != nil || !c.ExtDropped {
		t.Errorf("%+v", c)
	}
	greedy := decoded(t, asks(engine.Parameters{"nvext": `{"greed_sampling":true}`, "temperature": 0.9}), openai.Options{})
	if s := greedy.Chat.Sampling; s.Temperature == nil || *s.Temperature != 0 {
		t.Errorf("%+v", s)
	}
}

func FuzzDecodeCompletion(f *testing.F) {
	f.Add("a", "{}", "nvext", "{}", int64(1), 0.5)
	f.Add("", `{"max_tokens":"1","stop":["a"]}`, "stop", `["a"]`, int64(-1), -0.5)
	f.Add("\x00\xff", `{"n":3}`, "timeout", "12", int64(1<<62), 1e300)
	f.Add("a", `{"temperature":`, "temperature", "1e5", int64(0), 2.0)
	f.Fuzz(func(t *testing.T, text, sampling, name, value string, i int64, d float64) {
		for _, v := range []any{value, i, uint64(i), d, i > 0} {
			r := asks(texts("sampling_parameters", sampling), engine.Parameters{name: v, "top_k": i, "top_p": d})
			r.Inputs[0] = texts("text_input", text)
			c, err := kserve.DecodeCompletion(r, openai.Options{})
			if err != nil {
				e, ok := errors.AsType[*engine.Error](err)
				if c != nil || !ok || e.Kind != engine.InvalidArgument || !strings.HasPrefix(e.Message, "Failed to parse request: ") {
					t.Fatalf("%+v, %v", c, err)
				}
				continue
			}
			if s := &c.Chat.Sampling; s.Choices() < 1 || s.Choices() > 128 || s.Temperature != nil && !(*s.Temperature >= 0 && *s.Temperature <= 2) {
				t.Fatalf("%+v", s)
			}
			if strings.ContainsRune(c.Chat.Prompt.Text, 0) || c.Timeout < 0 {
				t.Fatalf("%+v", c)
			}
			if _, err := json.Marshal(c.Chat.Prompt.Text); err != nil {
				t.Fatal(err)
			}
		}
	})
}

func Example() {
	call := asks(flag("streaming", true), engine.Parameters{"max_tokens": int64(12)})
	c, err := kserve.DecodeCompletion(call, openai.Options{})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(c.Chat.Prompt.Text, *c.Chat.Sampling.MaxTokens)
	for r := range c.Deltas(stream(nil, river...)) {
		fmt.Printf("%s %q %q\n", r.ID, r.Outputs[0].Data[4:], r.Outputs[1].Data[4:])
	}
	// Output:
	// Name three rivers 12
	// job-7 "Rhine" ""
	// job-7 ", Elbe" ""
	// job-7 ", Oder" "stop"
}

// A response of a stream, on its way to a message.
func BenchmarkDeltas(b *testing.B) {
	c, err := kserve.DecodeCompletion(asks(flag("stream", true)), openai.Options{})
	if err != nil {
		b.Fatal(err)
	}
	events := func(yield func(chat.Event, error) bool) {
		if !yield(begins(0, 4), nil) || !yield(opens(0), nil) {
			return
		}
		for yield(says(0, " river", 7), nil) {
		}
	}
	b.ReportAllocs()
	left := b.N
	for r, err := range c.Deltas(events) {
		if err != nil {
			b.Fatal(err)
		}
		if _, err := kserve.ToProto(r, true); err != nil {
			b.Fatal(err)
		}
		if left--; left <= 0 {
			break
		}
	}
}
