//go:build unix

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"net"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/internal/fake/vllm"
)

// carrying is one object of an answer that may have the member nvext.
type carrying struct {
	Ext     map[string]json.RawMessage `json:"nvext"`
	Choices []struct {
		Finish *string `json:"finish_reason"`
	} `json:"choices"`
	Response *carrying `json:"response"`
}

// objects returns those of an answer: the whole one, or all of its stream.
func objects(t *testing.T, body string, stream bool) (list []carrying) {
	t.Helper()
	texts := []string{body}
	if stream {
		texts = nil
		for line := range strings.Lines(body) {
			if data, ok := strings.CutPrefix(line, "data: {"); ok {
				texts = append(texts, "{"+data)
			}
		}
	}
	for _, text := range texts {
		var c carrying
		if err := json.Unmarshal([]byte(text), &c); err != nil {
			t.Fatalf("%v in %s", err, text)
		}
		if c.Response != nil {
			c.Ext = c.Response.Ext
		}
		list = append(list, c)
	}
	return list
}

// sum adds up what an answer carries, as a client does: of each member the last
// value, and all token ids.
func sum(t *testing.T, list []carrying) map[string]json.RawMessage {
	t.Helper()
	all := map[string]json.RawMessage{}
	var ids []uint32
	for _, c := range list {
		for name, value := range c.Ext {
			all[name] = value
			if name == "completion_token_ids" {
				var some []uint32
				if err := json.Unmarshal(value, &some); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, some...)
			}
		}
	}
	if ids != nil {
		all["completion_token_ids"], _ = json.Marshal(ids)
	}
	return all
}

// carried is the sum of a crossing's answer.
func (c *crossing) carried(t *testing.T) map[string]json.RawMessage {
	t.Helper()
	return sum(t, objects(t, c.reply.body, c.stream))
}

// whereabouts is the member worker_id.
type whereabouts struct {
	Prefill     uint64  `json:"prefill_worker_id"`
	PrefillRank *uint32 `json:"prefill_dp_rank"`
	Decode      uint64  `json:"decode_worker_id"`
	DecodeRank  *uint32 `json:"decode_dp_rank"`
}

func placeIn(t *testing.T, ext map[string]json.RawMessage) (w whereabouts) {
	t.Helper()
	if err := json.Unmarshal(ext["worker_id"], &w); err != nil {
		t.Fatalf("worker_id: %v in %s", err, ext["worker_id"])
	}
	return w
}

// timesOf are the members of timing of a request that one worker has served.
var timesOf = []string{
	"avg_itl_ms", "itl_ms", "kv_hit_rate", "prefill_time_ms", "prefill_wait_time_ms", "queue_depth", "queue_time_ms", "request_received_ms",
	"router_queue_depth", "routing_time_ms", "total_time_ms", "ttft_ms",
}

var chunked = []string{"chat", "completions"}

// answerRows are what is promised about what answers carry.
var answerRows = []row{
	{
		field: "no extra_fields", nvext: `{"extra_fields":["mood"]}`,
		check: func(t *testing.T, c *crossing) {
			if strings.Contains(c.reply.body, `"nvext"`) {
				t.Errorf("nobody has asked: %s", c.reply.body)
			}
		},
	},
	{
		field: "extra_fields worker_id", nvext: `{"extra_fields":["worker_id"]}`,
		check: func(t *testing.T, c *crossing) {
			w, id := placeIn(t, c.carried(t)), c.ids[c.only(t).worker]
			if w.Prefill != id || w.Decode != id || w.PrefillRank == nil || w.DecodeRank == nil {
				t.Errorf("worker %d is told as %+v", id, w)
			}
		},
	},
	{
		field: "extra_fields timing", nvext: `{"extra_fields":["timing"]}`,
		check: func(t *testing.T, c *crossing) {
			var at map[string]float64
			if err := json.Unmarshal(c.carried(t)["timing"], &at); err != nil {
				t.Fatalf("%v in %s", err, c.reply.body)
			}
			for _, name := range timesOf {
				if v, ok := at[name]; !ok || v < 0 {
					t.Errorf("%s is %v", name, at[name])
				}
			}
			if len(at) != len(timesOf) || at["ttft_ms"] > at["total_time_ms"] || at["itl_ms"] != at["avg_itl_ms"] {
				t.Errorf("times %v", at)
			}
		},
	},
	{
		field: "extra_fields completion_token_ids", nvext: `{"extra_fields":["completion_token_ids"]}`,
		check: func(t *testing.T, c *crossing) {
			var ids []uint32
			if err := json.Unmarshal(c.carried(t)["completion_token_ids"], &ids); err != nil {
				t.Fatalf("%v in %s", err, c.reply.body)
			}
			model, err := demoModel()
			if err != nil {
				t.Fatal(err)
			}
			if text := model.Tokenizer.Decode(ids, true); text != "The Seine does, and the Bièvre did." {
				t.Errorf("the ids say %q", text)
			}
		},
	},
	{
		field: "extra_fields completion_token_ids of two choices", nvext: `{"extra_fields":["completion_token_ids"]}`, more: `"n":2`, apis: chunked,
		status: 400, says: "requires exactly one generated choice",
	},
	{
		field: "extra_fields stop_reason", nvext: `{"extra_fields":["stop_reason"]}`, more: `"stop":["did"],"stop_sequences":["did"]`,
		apis: []string{"chat", "completions", "messages"},
		check: func(t *testing.T, c *crossing) {
			if got := string(c.carried(t)["stop_reason"]); got != `"did"` {
				t.Errorf("stop_reason %s", got)
			}
		},
	},
	{
		field: "extra_fields stop_reason of a length", nvext: `{"extra_fields":["stop_reason"]}`, more: `"max_tokens":2`, apis: chunked,
		check: func(t *testing.T, c *crossing) {
			if got := c.carried(t)["stop_reason"]; got != nil {
				t.Errorf("stop_reason %s", got)
			}
		},
	},
	{
		field: "extra_fields stop_reason of choices", nvext: `{"extra_fields":["stop_reason"]}`, more: `"n":2,"temperature":1,"stop":["did"]`, apis: chunked,
		check: func(t *testing.T, c *crossing) {
			if ext := c.carried(t); string(ext["stop_reasons"]) != `{"0":"did","1":"did"}` || ext["stop_reason"] != nil {
				t.Errorf("nvext %s", ext)
			}
		},
	},
	{
		field: "extra_fields prompt_logprobs", nvext: `{"extra_fields":["prompt_logprobs"]}`, more: `"prompt_logprobs":1`,
		check: func(t *testing.T, c *crossing) {
			var likely []map[string]struct {
				Logprob *float64
				Token   *string `json:"decoded_token"`
			}
			if err := json.Unmarshal(c.carried(t)["prompt_logprobs"], &likely); err != nil {
				t.Fatalf("%v in %s", err, c.reply.body)
			}
			prompt := c.only(t).TokenIDs
			if len(likely) != len(prompt) || likely[0] != nil {
				t.Fatalf("%d positions of %d tokens, the first %v", len(likely), len(prompt), likely[0])
			}
			for i, id := range prompt[1:] {
				if l := likely[i+1][fmt.Sprint(id)]; l.Logprob == nil || l.Token == nil {
					t.Fatalf("position %d has %v", i+1, likely[i+1])
				}
			}
		},
	},
	{
		field: "the chunks of extra_fields", nvext: `{"extra_fields":["worker_id","timing","completion_token_ids"]}`, modes: []bool{true},
		prompt: "ponder the chunks", apis: chunked, more: `"max_tokens":64`,
		check: func(t *testing.T, c *crossing) { c.chunks(t) },
	},
	{
		field: "the chunks of a call", nvext: `{"extra_fields":["worker_id","timing","completion_token_ids"]}`, modes: []bool{true},
		prompt: "weather?", apis: []string{"chat"},
		more: `"max_tokens":64,"tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}]`,
		says: `"tool_calls"`, check: func(t *testing.T, c *crossing) { c.chunks(t) },
	},
	{
		field: "annotations", nvext: `{"annotations":["token_ids","formatted_prompt","request_id","mood"]}`,
		check: func(t *testing.T, c *crossing) { c.annotated(t, ": ") },
	},
	{
		field: "annotations in data", nvext: `{"annotations":["token_ids","formatted_prompt","request_id"]}`, apis: chunked,
		flags: []string{"--annotation-framing", "data"},
		check: func(t *testing.T, c *crossing) { c.annotated(t, "data: ") },
	},
	{
		field: "query_instance_id", nvext: `{"annotations":["query_instance_id:"],"extra_fields":["timing"]}`, apis: chunked,
		check: func(t *testing.T, c *crossing) { c.advised(t) },
	},
	{
		field: "query_instance_id without a colon", nvext: `{"annotations":["query_instance_id"]}`, says: "ine",
		check: func(t *testing.T, c *crossing) { c.only(t) },
	},
	{
		field: "query_instance_id where nobody could tell", nvext: `{"annotations":["query_instance_id:"]}`, says: "ine", apis: []string{"responses", "messages"},
		check: func(t *testing.T, c *crossing) { c.only(t) },
	},
	{
		field: "query_instance_id of a worker that is not there", nvext: `{"annotations":["query_instance_id:"],"backend_instance_id":5}`, apis: chunked, status: 503,
	},
}

// chunks holds that every chunk with a choice names its worker, that times come with
// the end, and that the one with usage carries nothing.
func (c *crossing) chunks(t *testing.T) {
	t.Helper()
	finished := 0
	for _, chunk := range objects(t, c.reply.body, true) {
		switch {
		case len(chunk.Choices) == 0:
			if chunk.Ext != nil {
				t.Errorf("the chunk of usage has %s", chunk.Ext)
			}
			continue
		case chunk.Ext["worker_id"] == nil:
			t.Errorf("a chunk has %s", chunk.Ext)
		}
		end := chunk.Choices[0].Finish != nil
		if end {
			finished++
		}
		if times := chunk.Ext["timing"] != nil; times != end {
			t.Errorf("the end %t, the times %t", end, times)
		}
	}
	if finished != 1 {
		t.Errorf("%d ends", finished)
	}
}

// annotated holds that a stream of chunks begins with what was asked for, and nothing
// else does.
func (c *crossing) annotated(t *testing.T, value string) {
	t.Helper()
	body := c.reply.body
	if !c.stream || !slices.Contains(chunked, c.api) {
		if strings.Contains(body, "event: request_id") || strings.Contains(body, "event: token_ids") {
			t.Errorf("%s", body)
		}
		return
	}
	frames := strings.SplitN(body, "\n\n", 4)
	names := []string{"request_id", "formatted_prompt", "token_ids"}
	if c.api == "completions" { // which have no template
		names = slices.Delete(names, 1, 2)
	}
	for i, name := range names {
		rest, ok := strings.CutPrefix(frames[i], "event: "+name+"\n"+value)
		var text string
		if err := json.Unmarshal([]byte(rest), &text); !ok || err != nil {
			t.Fatalf("frame %d is %q: %v", i, frames[i], err)
		}
		switch name {
		case "formatted_prompt":
			if !strings.HasPrefix(text, "<|im_start|>user\nOf the promise") {
				t.Errorf("the prompt is %q", text)
			}
		case "token_ids":
			var ids []uint32
			if err := json.Unmarshal([]byte(text), &ids); err != nil || !slices.Equal(ids, c.only(t).TokenIDs) {
				t.Errorf("the tokens are %s: %v", text, err)
			}
		case "request_id":
			if !strings.Contains(body, "-"+text+`"`) {
				t.Errorf("the id is %q", text)
			}
		}
	}
	if !strings.HasPrefix(frames[len(names)], `data: {"id"`) {
		t.Errorf("behind the annotations comes %q", frames[len(names)])
	}
}

// advised holds that the answer says where a request would go, that nobody was asked,
// and that the request goes there when it comes, named in its body or in headers.
func (c *crossing) advised(t *testing.T) {
	t.Helper()
	list := objects(t, c.reply.body, c.stream)
	if len(c.sent) != 0 || len(list) != 1 {
		t.Fatalf("%d workers were asked: %s", len(c.sent), c.reply.body)
	}
	if strings.Contains(c.reply.body, "prompt_tokens") || list[0].Ext["timing"] != nil || len(list[0].Choices) != 1 || list[0].Choices[0].Finish != nil {
		t.Errorf("the answer is %s", c.reply.body)
	}
	if c.stream && !strings.HasSuffix(c.reply.body, "data: [DONE]\n\n") {
		t.Errorf("the stream ends with %s", c.reply.body)
	}
	w, ids := placeIn(t, list[0].Ext), list[0].Ext["token_ids"]
	worker := slices.Index(c.ids, w.Decode)
	if worker < 0 || w.Prefill != 0 {
		t.Fatalf("nobody is %+v", w)
	}
	for name, second := range map[string]crossing{
		"body":    {row: &row{nvext: fmt.Sprintf(`{"token_data":%s,"backend_instance_id":%d,"dp_rank":%d}`, ids, w.Decode, *w.DecodeRank)}},
		"headers": {row: &row{nvext: fmt.Sprintf(`{"token_data":%s}`, ids), header: []string{"X-Worker-Instance-Id", fmt.Sprint(w.Decode), "X-Dp-Rank", "0"}}},
	} {
		second.stage, second.api, second.stream, second.row.field = c.stage, c.api, c.stream, c.row.field
		second.run(t)
		var want []uint32
		if err := json.Unmarshal(ids, &want); err != nil {
			t.Fatal(err)
		}
		if got := second.only(t); got.worker != worker || !slices.Equal(got.TokenIDs, want) {
			t.Errorf("%s: worker %d was asked for %v, want worker %d and %v", name, got.worker, got.TokenIDs, worker, want)
		}
		if prompt, _ := second.usage(t); prompt != len(want) {
			t.Errorf("%s: %d tokens of usage, want %d", name, prompt, len(want))
		}
	}
}

// Where two workers share a request, both are told, ahead of it and with its answer.
func TestNvextOfLegs(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "2", "--num-prefill-workers", "2", "--log-level", "warn", "--speedup-ratio", "100", "--extra-engine-args", `{"kv_bytes_per_token":1000,"kv_transfer_bandwidth":1}`)
	ask := func(stream bool, ext string) map[string]json.RawMessage {
		t.Helper()
		r := p.send("/v1/chat/completions", fmt.Sprintf(`{"model":"dynago/demo","stream":%t,"max_tokens":8,"messages":[{"role":"user","content":"Which rivers cross Paris?"}],"nvext":%s}`, stream, ext))
		if r.status != 200 {
			t.Fatalf("%s: %d %s", ext, r.status, r.body)
		}
		return sum(t, objects(t, r.body, stream))
	}
	for _, stream := range []bool{false, true} {
		first := ask(stream, `{"annotations":["query_instance_id:"]}`)
		where := placeIn(t, first)
		if where.Prefill == 0 || where.Decode == 0 || where.Prefill == where.Decode {
			t.Fatalf("stage 1: %s", first["worker_id"])
		}
		second := ask(stream, fmt.Sprintf(`{"token_data":%s,"prefill_worker_id":%d,"decode_worker_id":"%d","dp_rank":0,"prefill_dp_rank":0,"extra_fields":["worker_id","timing"]}`, first["token_ids"], where.Prefill, where.Decode))
		if got := placeIn(t, second); got.Prefill != where.Prefill || got.Decode != where.Decode {
			t.Errorf("stage 2 went to %s, and not to %s", second["worker_id"], first["worker_id"])
		}
		var at map[string]float64
		if err := json.Unmarshal(second["timing"], &at); err != nil || at["kv_transfer_estimated_latency_ms"] <= 0 || at["kv_transfer_estimated_latency_ms"] > at["ttft_ms"] {
			t.Errorf("times %v: %v", at, err)
		}
	}
	if n := p.handoffs("done"); n != 2 {
		t.Errorf("%d hand-offs", n)
	}
	const transfers = "dynamo_component_router_kv_transfer_estimated_latency_seconds"
	if n, seconds := p.sum(transfers+"_count"), p.sum(transfers+"_sum"); n != 2 || seconds <= 0 {
		t.Errorf("%v transfers in %v s were measured, want 2", n, seconds)
	}
}

// talkative is a mock engine that tells something with each item.
type talkative struct{ *mock.Engine }

func (e talkative) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		n := 0
		for d, err := range e.Engine.Generate(ctx, r) {
			if n++; err == nil {
				d.EngineData = json.RawMessage(fmt.Sprintf(`{"item":%d,"big":12345678901234567890,"routed_experts":[[%d]]}`, n, n))
			}
			if !yield(d, err) {
				return
			}
		}
	}
}

// What engines tell reaches who asks for it, over the wire of each.
func TestNvextOfEngines(t *testing.T) {
	t.Parallel()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	config := func() mock.Config {
		c := mockOf(t, demo.Name, false)
		c.VocabSize = model.VocabularySize
		return c
	}
	served := map[string]func(t *testing.T) string{
		"vllm": func(t *testing.T) string {
			return "vllm=" + host(t, newVLLM(t, vllm.Config{Mock: config(), Experts: "AAEC"})).URL
		},
		"sglang": func(t *testing.T) string {
			s, err := sglang.New(sglang.Config{Mock: config(), Experts: "AAEC"})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { s.Close() })
			return "sglang=" + host(t, s).URL
		},
		"remote": func(t *testing.T) string {
			e, err := mock.New(config())
			if err != nil {
				t.Fatal(err)
			}
			l, err := net.Listen("tcp", "127.0.0.1:0")
			if err != nil {
				t.Fatal(err)
			}
			server := remote.NewServer(remote.ServerConfig{Engine: talkative{e}})
			go server.Serve(l) //nolint:errcheck // it ends when the test does
			t.Cleanup(func() { server.Close(); e.Close() })
			return "grpc://" + l.Addr().String()
		},
	}
	for name, engineOf := range served {
		t.Run(name, func(t *testing.T) {
			p := serve(t, "--model-path", demoFolder(t), "--engine", engineOf(t), "--log-level", "warn")
			until(t, "the worker is ready", func() bool { w := p.staff().Workers; return len(w) == 1 && w[0].State == "ready" })
			for _, stream := range []bool{false, true} {
				r := p.send("/v1/chat/completions", fmt.Sprintf(`{"model":%q,"stream":%t,"max_tokens":4,"ignore_eos":true,"prompt_logprobs":0,"messages":[{"role":"user","content":"Hello"}],"nvext":{"extra_fields":["engine_data","routed_experts","prompt_logprobs","completion_token_ids"]}}`, demo.Name, stream))
				if r.status != 200 {
					t.Fatalf("%d %s", r.status, r.body)
				}
				list := objects(t, r.body, stream)
				all := sum(t, list)
				experts, own := `"AAEC"`, `"routed_experts":"AAEC"`
				if name == "remote" {
					experts, own = `[[4]]`, `{"item":4,"big":12345678901234567890,`
				}
				if string(all["routed_experts"]) != experts || !strings.Contains(string(all["engine_data"]), own) {
					t.Errorf("stream %t: %s and %s", stream, all["routed_experts"], all["engine_data"])
				}
				var likely []json.RawMessage
				if err := json.Unmarshal(all["prompt_logprobs"], &likely); err != nil || len(likely) < 2 || string(likely[0]) != "null" || len(likely[1]) < 10 {
					t.Errorf("stream %t: prompt_logprobs %s: %v", stream, all["prompt_logprobs"], err)
				}
				var ids []uint32
				if err := json.Unmarshal(all["completion_token_ids"], &ids); err != nil || len(ids) != 4 {
					t.Errorf("stream %t: ids %v: %v", stream, ids, err)
				}
				if name == "remote" && stream {
					told := slices.DeleteFunc(list, func(c carrying) bool { return c.Ext["engine_data"] == nil })
					if len(told) < 2 {
						t.Errorf("data come with %d chunks", len(told))
					}
				}
			}
		})
	}
}
