package selection_test

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// student is a policy that takes the first and notes what it hears.
type student struct{ heard []router.Outcome }

func (*student) Pick(context.Context, *router.Query, []router.Candidate) (int, error) { return 0, nil }

func (s *student) Learn(o router.Outcome) { s.heard = append(s.heard, o) }

// A policy that learns hears how the dispatcher's requests went.
func TestOutcomes(t *testing.T) {
	s := &student{}
	h := newHouse(t, func(_ *selection.Config, rc *router.Config) { rc.Policy = s })
	h.register(1)
	for i, tt := range []struct {
		query string
		want  router.End
	}{
		{"", router.Completed},
		{"?outcome=completed", router.Completed},
		{"?outcome=failed", router.Failed},
		{"?outcome=abandoned", router.Abandoned},
	} {
		h.object(200, "POST", "/select_and_reserve", `{"selection_id":"a","token_ids":[1,2,3,4]}`)
		h.object(200, "POST", "/reservations/a/prefill_complete", `{"cached_tokens":3}`)
		h.object(200, "POST", "/reservations/a/output_block", "")
		h.object(200, "DELETE", "/reservations/a"+tt.query, "")
		if len(s.heard) != i+1 {
			t.Fatalf("%d outcomes were heard, want %d", len(s.heard), i+1)
		}
		o := s.heard[i]
		if o.ID != "a" || o.End != tt.want || o.PromptTokens != 4 || o.CachedTokens != 3 || o.OutputTokens != 4 || o.First <= 0 {
			t.Errorf("%q: heard %+v", tt.query, o)
		}
	}
}

// Who leaves at the moment of the decision leaves nothing behind.
func TestClientLeaves(t *testing.T) {
	ctx, leave := context.WithCancel(t.Context())
	h := newHouse(t, func(_ *selection.Config, rc *router.Config) {
		rc.Policy = policyFunc(func() (int, error) { leave(); return 0, nil })
	})
	h.register(1)
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, httptest.NewRequestWithContext(ctx, "POST", "/select_and_reserve", strings.NewReader(`{"selection_id":"a","token_ids":[1]}`)))
	if w.Code != 499 {
		t.Errorf("status %d: %s", w.Code, w.Body)
	}
	if l := h.router.Loads()[0]; l.Requests != 0 {
		t.Errorf("%d requests are booked", l.Requests)
	}
	h.object(404, "DELETE", "/reservations/a", "")
}

// A selection is void once its id was booked elsewhere.
func TestExplicitVoidsSelection(t *testing.T) {
	h := newHouse(t)
	h.register(1)
	h.register(2)
	for _, body := range []string{`{"selection_id":"a","worker_id":2,"token_ids":[1]}`, ``} {
		h.object(200, "POST", "/select", `{"selection_id":"a","token_ids":[1],"pinned_worker":{"worker_id":1}}`)
		if body != "" {
			h.object(201, "POST", "/reservations", body)
		} else {
			h.object(200, "POST", "/select_and_reserve", `{"selection_id":"a","token_ids":[1]}`)
		}
		h.object(200, "DELETE", "/reservations/a", "")
		h.object(404, "POST", "/reservations", `{"selection_id":"a"}`)
	}
}

// Media in prompts for workers that draft from pairs of tokens are found by the
// names that such workers give their blocks, unless the request says otherwise.
func TestEagleMedia(t *testing.T) {
	h := newHouse(t)
	w := h.engines(1, func(c *engine.Card) { c.HashScheme = engine.SchemeXXH3Eagle })
	prompt, text := count(3, 9) // two blocks, and the token that completes the second
	local := []kv.LocalHash{
		kv.HashMediaBlock(prompt[0:5], []uint64{7}, kv.HashSeed),
		kv.HashMediaBlock(prompt[4:9], nil, kv.HashSeed),
	}
	e := kv.Event{}
	for i, seq := range kv.AppendSeqHashes(nil, local) {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(seq), Local: local[i]})
	}
	if err := w.Events(kv.Batch{Epoch: 1, First: 1, Last: 1, Events: []kv.Event{e}}); err != nil {
		t.Fatal(err)
	}
	for more, want := range map[string]float64{"": 8, `,"is_eagle":true`: 8, `,"is_eagle":false`: 0} {
		out := h.object(200, "POST", "/select", `{"token_ids":`+text+`,"block_mm_infos":[{"mm_objects":[{"mm_hash":7}]}]`+more+`}`)
		if got := out["overlap"].(map[string]any)["gpu"]; got != want {
			t.Errorf("%q: %v tokens are cached, want %v", more, got, want)
		}
	}
}
