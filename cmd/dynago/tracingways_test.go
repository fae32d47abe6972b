//go:build unix

package main

import (
	"context"
	"encoding/json"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/dynago/dynago/internal/fake/vllm"
	"github.com/dynago/dynago/trace"
)

// What is answered later, over a WebSocket or over gRPC has one row for each answer, as
// what is answered at once.
func TestTraceByAllWays(t *testing.T) {
	t.Parallel()
	p, rows := traced(t, "--kserve-grpc-server", "--grpc-port", "0", "--grpc-metrics-port", "0", "--tensor-echo", "echo")
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	seen := 0
	// next returns the newest row, and fails if there are others beside it.
	next := func(t *testing.T, endpoint string) *trace.Record {
		t.Helper()
		all := rows(seen + 1)
		if seen++; len(all) != seen {
			t.Fatalf("%d rows, want %d", len(all), seen)
		}
		row := all[seen-1]
		wellTold(t, row)
		if row.Request.Dynago.Endpoint != endpoint || row.Request.Replay == nil || row.Request.Finish == nil || row.Request.Finish.Reason == "" {
			t.Errorf("endpoint %q, replay %v, finish %+v", row.Request.Dynago.Endpoint, row.Request.Replay, row.Request.Finish)
		}
		return row
	}

	t.Run("in the background", func(t *testing.T) {
		var begun struct{ ID, Status string }
		r := p.send("/v1/responses", `{"model":"dynago/demo","background":true,"input":"one"}`, "Session-Id", "later")
		if err := json.Unmarshal([]byte(r.body), &begun); err != nil || r.status != 200 || begun.ID == "" {
			t.Fatalf("%d %s", r.status, r.body)
		}
		until(t, "it is complete", func() bool {
			_, body := p.get(p.url + "/v1/responses/" + begun.ID)
			return strings.Contains(body, `"status":"completed"`)
		})
		if row := next(t, "responses"); row.Agent == nil || row.Agent.SessionID != "later" || *row.Request.OutputTokens == 0 || row.Request.Dynago.Error != "" {
			t.Errorf("agent %+v, request %+v", row.Agent, row.Request)
		}
	})
	t.Run("over a WebSocket", func(t *testing.T) {
		conn, _, err := websocket.Dial(ctx, p.url+"/v1/responses", &websocket.DialOptions{HTTPHeader: http.Header{"Thread-Id": {"talk"}}}) //nolint:bodyclose // there is none
		if err != nil {
			t.Fatal(err)
		}
		defer conn.CloseNow() //nolint:errcheck // the test is over
		var calls, ids []string
		for _, input := range []string{
			`"input":"weather","tools":[{"type":"function","name":"sky"},{"type":"function","name":"sea"}]`,
			`"input":[{"type":"function_call_output","call_id":"CALL","output":"blue"}],"previous_response_id":"LAST"`,
		} {
			if len(calls) > 0 {
				input = strings.NewReplacer("CALL", calls[0], "LAST", ids[0]).Replace(input)
			}
			if err := conn.Write(ctx, websocket.MessageText, []byte(`{"type":"response.create","model":"dynago/demo",`+input+`}`)); err != nil {
				t.Fatal(err)
			}
			for last := ""; last != "response.completed"; {
				_, text, err := conn.Read(ctx)
				if err != nil {
					t.Fatal(err)
				}
				var m struct {
					Type     string
					Response struct {
						ID     string
						Output []struct {
							CallID string `json:"call_id"`
						}
					}
				}
				if err := json.Unmarshal(text, &m); err != nil || m.Type == "error" {
					t.Fatalf("%v: %s", err, text)
				}
				if last = m.Type; last == "response.completed" {
					ids = append(ids, m.Response.ID)
					for _, o := range m.Response.Output {
						if o.CallID != "" {
							calls = append(calls, o.CallID)
						}
					}
				}
			}
			row := next(t, "responses")
			if row.Agent == nil || row.Agent.SessionID != "talk" {
				t.Errorf("agent %+v", row.Agent)
			}
			if len(ids) == 1 {
				if got := row.Request.Finish.ToolCalls; len(got) != 2 || len(calls) != 2 || got[0].ID != calls[0] || row.Agent.InputTrigger != "user_message" {
					t.Errorf("it asks for %+v, and the client was told %q; trigger %q", got, calls, row.Agent.InputTrigger)
				}
			} else if got := row.Request.Dynago.ToolResults; !slices.Equal(got, calls[:1]) || row.Agent.InputTrigger != "tool_result" {
				t.Errorf("it brings the results of %q, want %q; trigger %q", got, calls[:1], row.Agent.InputTrigger)
			}
		}
	})
	client := kserveClient(t, regexp.MustCompile(`kserve +(\S+)`).FindStringSubmatch(p.banner)[1])
	t.Run("over gRPC", func(t *testing.T) {
		if _, err := client.ModelInfer(ctx, completion("one", "Once", false)); err != nil {
			t.Fatal(err)
		}
		if row := next(t, "completions"); row.Request.Dynago.Stream || row.Request.Finish.Reason != "stop" {
			t.Errorf("%+v", row.Request)
		}
	})
	t.Run("in a stream over gRPC", func(t *testing.T) {
		stream, err := client.ModelStreamInfer(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := stream.Send(completion("pieces", "Once", true)); err != nil {
				t.Fatal(err)
			}
			for said := ""; !strings.Contains(said, "does."); {
				out, err := stream.Recv()
				if err != nil || out.GetErrorMessage() != "" {
					t.Fatalf("%v %s", err, out.GetErrorMessage())
				}
				for _, o := range out.GetInferResponse().GetOutputs() {
					for _, b := range o.GetContents().GetBytesContents() {
						said += string(b)
					}
				}
			}
			if row := next(t, "completions"); !row.Request.Dynago.Stream {
				t.Errorf("%+v", row.Request)
			}
		}
	})
	// Who asks for no answer of a model in words has no row.
	if _, err := client.ModelInfer(ctx, echoCall(true)); err != nil {
		t.Fatal(err)
	}
	for _, ask := range []struct{ path, body string }{
		{"/v1/messages/count_tokens", `{"model":"dynago/demo",` + askParis + `}`},
		{"/v1/chat/completions", `{"model":"dynago/demo",` + askParis + `,"nvext":{"annotations":["query_instance_id:"]}}`},
	} {
		if r := p.send(ask.path, ask.body); r.status != 200 {
			t.Errorf("%s: %d %s", ask.path, r.status, r.body)
		}
	}
	p.send("/v1/chat/completions", `{"model":"dynago/demo",`+askParis+`}`)
	next(t, "chat_completions")
}

// What is used again only to keep it cached has no rows.
func TestTraceLeavesOutWhatKeepsWarm(t *testing.T) {
	t.Parallel()
	config := mockOf(t, "dynago/demo", false)
	config.Args.NumGPUBlocks, config.ContextLength = 128, 128*16
	v := newVLLM(t, vllm.Config{Mock: config, PromptTokensDetails: true})
	p, rows := traced(t, "--keep-warm-budget", "0.5", "--model-path", demoFolder(t), "--engine", "vllm="+host(t, v).URL+",load.interval=20ms")
	p.asked("chat", prose("one", 100), `,"nvext":{"cache_control":{"ttl":"1h"}}`)
	sent := 1
	for p.counter("dynago_keep_warm_total") < 2 {
		if sent++; sent > 200 {
			t.Fatal("nothing is kept warm")
		}
		p.asked("chat", prose("other", 100+sent), "")
	}
	p.asked("chat", prose("last", 100), "")
	if got := rows(sent + 1); len(got) != sent+1 {
		t.Errorf("%d rows of %d requests", len(got), sent+1)
	}
}
