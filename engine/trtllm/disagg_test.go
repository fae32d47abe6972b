package trtllm_test

import (
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/trtllm"
	fake "github.com/dynago/dynago/internal/fake/trtllm"
)

// Both legs together give what one server does, and leave nothing behind.
func TestLegs(t *testing.T) {
	between := new(fake.Transceiver)
	prefill := attach(t, fake.Config{Transceiver: between}, trtllm.Config{Role: engine.Prefill})
	decode := attach(t, fake.Config{Transceiver: between}, trtllm.Config{Role: engine.Decode})
	if c := prefill.ready(t); !c.Features.Has(engine.FeatureHandoff) || c.Disagg.Style != "context" || c.Role != engine.Prefill {
		t.Fatalf("card %+v", c)
	}
	decode.ready(t)
	r := engine.Request{ID: "u-1", TokenIDs: []uint32{5, 6, 7}, Stop: engine.Stop{MaxTokens: 20, MinTokens: 3}}
	want, _, err := collect(t.Context(), decode, &r)
	if err != nil {
		t.Fatal(err)
	}

	h, err := prefill.Prepare(t.Context(), engine.HandoffQuery{Request: r.ID})
	if err != nil || h.Concurrent {
		t.Fatalf("%+v, %v", h, err)
	}
	first := r
	first.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: h.Prefill}
	ids, last, err := collect(t.Context(), prefill, &first)
	if err != nil || len(ids) != 1 || len(last.Handoff) == 0 || last.Usage.Cached == nil {
		t.Fatalf("prefill leg: %v, %+v, %v", ids, last, err)
	}
	if m := asked(t, prefill); string(m["max_tokens"]) != "1" || string(m["stream"]) != "false" || string(m["min_tokens"]) != "1" || m["stream_options"] != nil {
		t.Errorf("prefill leg asked %s", prefill.server.Last())
	}
	if between.Held() != 1 {
		t.Fatalf("%d prompts held, want 1", between.Held())
	}
	second := r
	second.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: last.Handoff}
	got, _, err := collect(t.Context(), decode, &second)
	if err != nil || !slices.Equal(got, want) || between.Held() != 0 {
		t.Errorf("decode leg: %v, %v, %d held; want %v", got, err, between.Held(), want)
	}
	// What has been fetched is not there for another one. That is not the client's
	// fault, and another worker may compute it anew.
	if _, _, err := collect(t.Context(), decode, &second); engine.KindOf(err) != engine.Unavailable {
		t.Errorf("a hand-off used twice: %v", err)
	}
	if err := prefill.Release(t.Context(), h.ID); err != nil {
		t.Error(err)
	}
}

// Numbers larger than a float64 holds and members that nobody here knows come
// back as they were; the request's type alone is another one.
func TestQuirk11LargeNumbersInHandoffs(t *testing.T) {
	const params = `{"request_type":"context_only","ctx_request_id":9007199254740993,"unheard_of":[1.0,18446744073709551615,"\u00e9"],"first_gen_tokens":[7]}`
	var sent []byte
	e := stub(t, func(w http.ResponseWriter, r *http.Request) {
		sent, _ = io.ReadAll(r.Body)
		if strings.Contains(string(sent), "generation_only") {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, events(end))
			return
		}
		io.WriteString(w, `{"prompt_token_ids":[[1,2,3]],"choices":[{"token_ids":[7],"finish_reason":"not_finished","disaggregated_params":`+params+`}]}`)
	})
	r := engine.Request{TokenIDs: []uint32{1, 2, 3}, Stop: engine.Stop{MaxTokens: 5}, Disagg: engine.Disagg{Phase: engine.PhasePrefill, Handoff: json.RawMessage(`{"request_type":"context_only"}`)}}
	_, last, err := collect(t.Context(), e, &r)
	if err != nil {
		t.Fatal(err)
	}
	r.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: last.Handoff}
	if _, _, err := collect(t.Context(), e, &r); err != nil {
		t.Fatal(err)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(sent, &m); err != nil {
		t.Fatal(err)
	}
	want := `{"ctx_request_id":9007199254740993,"unheard_of":[1.0,18446744073709551615,"\u00e9"],"first_gen_tokens":[7],"request_type":"generation_only"}`
	if string(m["disaggregated_params"]) != want || string(m["prompt"]) != "[1,2,3]" {
		t.Errorf("decode leg asked %s", sent)
	}
}

// Where the first token is the last there is no decode leg, and where nothing is
// handed over there can be none.
func TestPrefillEnds(t *testing.T) {
	for name, c := range map[string]struct {
		answer string
		finish engine.Finish
		err    engine.ErrorKind
	}{
		"ended":     {`{"choices":[{"token_ids":[2],"finish_reason":"stop","disaggregated_params":null}],"usage":{"completion_tokens":1}}`, engine.FinishEOS, ""},
		"no params": {`{"choices":[{"token_ids":[7],"finish_reason":"length"}]}`, "", engine.Internal},
		"no end":    {`{"choices":[{"token_ids":[7]}]}`, "", engine.StreamIncomplete},
		"failure":   {`{"error":{"message":"x","code":400}}`, "", engine.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			e := stub(t, func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, c.answer) })
			r := engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 5, Hidden: []uint32{2}}, Disagg: engine.Disagg{Phase: engine.PhasePrefill, Handoff: json.RawMessage(`{}`)}}
			ids, last, err := collect(t.Context(), e, &r)
			if c.err != "" {
				if err == nil || engine.KindOf(err) != c.err {
					t.Errorf("%v, want %s", err, c.err)
				}
				return
			}
			if err != nil || len(ids) != 0 || last.Finish != c.finish || last.Handoff != nil || last.Usage.Output != 1 {
				t.Errorf("%v, %+v, %v", ids, last, err)
			}
		})
	}
}

func TestForeignHandoff(t *testing.T) {
	e := stub(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	for _, h := range []string{``, `null`, `[]`, `{"remote_block_ids":[1]}`, `{"disaggregated_params":[1]}`} {
		r := engine.Request{TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 5}, Disagg: engine.Disagg{Phase: engine.PhaseDecode, Handoff: json.RawMessage(h)}}
		if _, _, err := collect(t.Context(), e, &r); engine.KindOf(err) != engine.Unsupported {
			t.Errorf("%s: %v", h, err)
		}
	}
}

// Pairs of legs have numbers of their own, which the server does not take for its
// local ones.
func TestPairs(t *testing.T) {
	e := stub(t, func(http.ResponseWriter, *http.Request) { t.Error("the server was asked") })
	seen := map[int64]bool{}
	for range 1000 {
		h, err := e.Prepare(t.Context(), engine.HandoffQuery{})
		if err != nil {
			t.Fatal(err)
		}
		var p struct {
			Type string `json:"request_type"`
			ID   int64  `json:"disagg_request_id"`
		}
		if err := json.Unmarshal(h.Prefill, &p); err != nil {
			t.Fatal(err)
		}
		if p.Type != "context_only" || p.ID < 1<<42 || seen[p.ID] || h.ID != strconv.FormatInt(p.ID, 10) {
			t.Fatalf("%+v, %+v; seen before: %v", h, p, seen[p.ID])
		}
		seen[p.ID] = true
	}
}
