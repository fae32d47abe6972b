package openai_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai"
)

func tells(choice int, name, value string) chat.Event {
	return chat.Event{Kind: chat.Aside, Choice: choice, Reason: name, Text: value}
}

// asking returns a call with these members of nvext.
func asking(t *testing.T, completion bool, members string, o openai.Options) *openai.Call {
	t.Helper()
	decode, said := openai.DecodeChat, `"messages":[{"role":"user","content":"a"}]`
	if completion {
		decode, said = openai.DecodeCompletion, `"prompt":"a"`
	}
	c, err := decode([]byte(`{"model":"m","stream":true,"stream_options":{"include_usage":true},`+said+`,"nvext":{`+members+`}}`), o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// telling is an answer that thinks, speaks and calls, with what is told on the way:
// data of its engine with a block that gives no chunk, and between pieces of a call.
var telling = []chat.Event{
	start(0, 21), tells(0, "worker_id", `{"decode_worker_id":7}`),
	open(0, 0, chat.Thought), delta(chat.ThinkingDelta, 0, 0, "Hm"), stop(0, 0),
	tells(0, "engine_data", `{"step":1}`), open(0, 1, chat.Text), delta(chat.TextDelta, 0, 1, "Yes"), stop(0, 1),
	openTool(0, 2, "call_1", "read"), delta(chat.ArgsDelta, 0, 2, `{"a":`), tells(0, "engine_data", `{"step":2}`),
	delta(chat.ArgsDelta, 0, 2, `1}`), stop(0, 2),
	tells(0, "timing", `{"ttft_ms":1}`), finish(0, chat.FinishToolUse, chat.Usage{Prompt: 21, Output: 5}),
}

// Every chunk says what of nvext belongs to it, whatever else it is: thought, text or
// call; the chunk of usage says nothing.
func TestChunksCarry(t *testing.T) {
	for name, tc := range map[string]struct {
		completion bool
		members    string
		events     []chat.Event
		chunks     []string // what each chunk says, "" for nothing
	}{
		"chat": {
			false, `"extra_fields":["worker_id","engine_data","timing","completion_token_ids"]`, telling,
			[]string{
				`{"worker_id":{"decode_worker_id":7},"completion_token_ids":[0]}`,
				`{"worker_id":{"decode_worker_id":7},"engine_data":{"step":1},"completion_token_ids":[0]}`,
				`{"worker_id":{"decode_worker_id":7}}`, // begins the call
				`{"worker_id":{"decode_worker_id":7},"completion_token_ids":[0]}`,
				`{"worker_id":{"decode_worker_id":7},"engine_data":{"step":2},"completion_token_ids":[0]}`,
				`{"worker_id":{"decode_worker_id":7},"timing":{"ttft_ms":1}}`,
				``,
			},
		},
		"completions": {
			true, `"extra_fields":["worker_id","completion_token_ids"]`,
			[]chat.Event{start(0, 3), tells(0, "worker_id", `1`), open(0, 0, chat.Text), delta(chat.TextDelta, 0, 0, "a"), stop(0, 0), finish(0, chat.FinishStop, chat.Usage{})},
			[]string{`{"worker_id":1,"completion_token_ids":[0]}`, `{"worker_id":1}`, ``},
		},
		"tokens that show nothing have a chunk": {
			false, `"extra_fields":["completion_token_ids"]`,
			[]chat.Event{start(0, 3), open(0, 0, chat.Text), delta(chat.TextDelta, 0, 0, ""), stop(0, 0), finish(0, chat.FinishStop, chat.Usage{})},
			[]string{`{"completion_token_ids":[0]}`, ``, ``},
		},
		"nobody has asked": {
			false, ``, plain, []string{``, ``, ``, ``},
		},
		"a place that was asked for": {
			false, `"annotations":["query_instance_id:"]`,
			[]chat.Event{start(0, 0), tells(0, "worker_id", `1`), tells(0, "token_ids", `[5]`), finish(0, chat.FinishPlaced, chat.Usage{})},
			[]string{`{"worker_id":1,"token_ids":[5]}`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			c := asking(t, tc.completion, tc.members, openai.Options{})
			e := c.Encoder(header)
			var stream []byte
			for _, event := range tc.events {
				stream = e.AppendEvent(stream, event)
			}
			stream = e.AppendEnd(stream)
			var got []string
			for frame := range strings.SplitSeq(strings.TrimSuffix(string(stream), "\n\n"), "\n\n") {
				data := strings.TrimPrefix(frame, "data: ")
				if data == "[DONE]" {
					continue
				}
				var chunk struct {
					Ext json.RawMessage `json:"nvext"`
				}
				if err := json.Unmarshal([]byte(data), &chunk); err != nil {
					t.Fatalf("%s: %v", data, err)
				}
				got = append(got, string(chunk.Ext))
			}
			if d := cmp.Diff(tc.chunks, got); d != "" {
				t.Errorf("-want +got\n%s\n%s", d, stream)
			}
		})
	}
}

// A whole answer carries the sum.
func TestAnswersCarry(t *testing.T) {
	c := asking(t, false, `"extra_fields":["worker_id","engine_data","timing","completion_token_ids"]`, openai.Options{})
	e := c.Encoder(header)
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		for _, event := range telling {
			e.Note(event)
			if !yield(event, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	body := string(e.AppendAnswer(nil, answers))
	want := `"nvext":{"worker_id":{"decode_worker_id":7},"engine_data":{"step":2},"timing":{"ttft_ms":1},"completion_token_ids":[0,0,0,0]}`
	if !strings.Contains(body, want) || !json.Valid([]byte(body)) {
		t.Errorf("%s has no %s", body, want)
	}
}

// What is no answer has a choice that says nothing, does not end, and costs nothing.
func TestPlaced(t *testing.T) {
	for completion, want := range map[bool][2]string{
		false: {`"choices":[{"index":0,"delta":{"role":"assistant","content":""},"finish_reason":null,"logprobs":null}]`, `"choices":[{"index":0,"message":{"role":"assistant","content":""},"finish_reason":null,"logprobs":null}]`},
		true:  {`"choices":[{"index":0,"text":"","finish_reason":null,"logprobs":null}]`, `"choices":[{"index":0,"text":"","finish_reason":null,"logprobs":null}]`},
	} {
		c := asking(t, completion, `"annotations":["query_instance_id:"]`, openai.Options{})
		e := c.Encoder(header)
		stream := string(e.AppendEnd(e.AppendEvent(nil, finish(0, chat.FinishPlaced, chat.Usage{}))))
		if frames := strings.Split(stream, "\n\n"); len(frames) != 3 || !strings.Contains(frames[0], want[0]) || !strings.Contains(frames[0], `"usage":null`) || frames[1] != "data: [DONE]" {
			t.Errorf("%q, want %q", stream, want[0])
		}
		whole := string(c.Encoder(header).AppendAnswer(nil, []chat.Answer{{Finish: chat.Finish{Reason: chat.FinishPlaced}}}))
		if !strings.Contains(whole, want[1]) || strings.Contains(whole, "usage") || !json.Valid([]byte(whole)) {
			t.Errorf("%s, want %s", whole, want[1])
		}
	}
}

// The bytes of annotations, and their order.
func TestAnnotations(t *testing.T) {
	all := openai.Annotations{Prompt: "a\n\"b\"", TokenIDs: []uint32{9906, 1917, 0}}
	for name, tc := range map[string]struct {
		members string
		framing openai.Framing
		of      openai.Annotations
		want    string
	}{
		"comments": {
			`"annotations":["token_ids","formatted_prompt","request_id","mood"]`, "", all,
			"event: request_id\n: \"" + header.ID + "\"\n\nevent: formatted_prompt\n: \"a\\n\\\"b\\\"\"\n\nevent: token_ids\n: \"[9906,1917,0]\"\n\n",
		},
		"data": {
			`"annotations":["token_ids","request_id"]`, openai.FramingData, all,
			"event: request_id\ndata: \"" + header.ID + "\"\n\nevent: token_ids\ndata: \"[9906,1917,0]\"\n\n",
		},
		"what is not known":  {`"annotations":["token_ids","formatted_prompt"]`, "", openai.Annotations{}, ""},
		"none are asked for": {``, "", all, ""},
	} {
		t.Run(name, func(t *testing.T) {
			e := asking(t, false, tc.members, openai.Options{Annotations: tc.framing}).Encoder(header)
			if got := string(e.AppendAnnotations(e.AppendOpening(nil), tc.of)); got != tc.want {
				t.Errorf("got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// Tokens of several choices cannot be told apart.
func TestTokensOfOneChoice(t *testing.T) {
	for _, body := range []string{
		`{"model":"m","n":2,"messages":[{"role":"user","content":"a"}],"nvext":{"extra_fields":["completion_token_ids"]}}`,
		`{"model":"m","prompt":["a","b"],"nvext":{"extra_fields":["completion_token_ids"]}}`,
	} {
		decode := openai.DecodeChat
		if strings.Contains(body, "prompt") {
			decode = openai.DecodeCompletion
		}
		_, err := decode([]byte(body), openai.Options{})
		if err == nil || !strings.HasSuffix(err.Error(), "`nvext.extra_fields=[\"completion_token_ids\"]` requires exactly one generated choice") {
			t.Errorf("%s: %v", body, err)
		}
	}
}

// A stream whose client has asked for nothing is what it was, and allocates nothing.
func TestNobodyAsks(t *testing.T) {
	e := asking(t, false, ``, openai.Options{}).Encoder(header)
	var buf []byte
	for _, event := range plain[:2] {
		buf = e.AppendEvent(buf[:0], event)
	}
	event := plain[slices.IndexFunc(plain, func(e chat.Event) bool { return e.Kind == chat.TextDelta })]
	if n := testing.AllocsPerRun(100, func() { buf = e.AppendEvent(buf[:0], event) }); n != 0 {
		t.Errorf("%v allocations a chunk", n)
	}
	if strings.Contains(string(buf), "nvext") {
		t.Errorf("%s", buf)
	}
}
