package sglang_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/sglang"
	fake "github.com/dynago/dynago/internal/fake/sglang"
)

// Two servers that share a request give what one would have given alone.
func TestTwoLegs(t *testing.T) {
	var meet fake.Bootstrap
	prefill := attach(t, fake.Config{Mode: "prefill", Bootstrap: &meet})
	decode := attach(t, fake.Config{Mode: "decode", Bootstrap: &meet, Incremental: true})
	alone := attach(t, fake.Config{})
	for _, e := range []*attached{prefill, decode, alone} {
		status(t, e, engine.Ready)
	}
	r := engine.Request{
		ID: "r-1", TokenIDs: []uint32{1, 2, 3}, Sampling: engine.Sampling{Temperature: ptr(0.0)}, Stop: engine.Stop{MaxTokens: 20, MinTokens: 5},
	}
	want, _, err := collect(t.Context(), alone, &r)
	if err != nil {
		t.Fatal(err)
	}
	h, err := prefill.Prepare(t.Context(), engine.HandoffQuery{Request: "r-1"})
	if err != nil || !h.Concurrent {
		t.Fatal(h, err)
	}
	legs := [2]engine.Request{r, r}
	legs[0].Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: h.Prefill}
	legs[1].Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: h.Decode}
	made := make(chan int, 1)
	go func() {
		ids, _, err := collect(t.Context(), prefill, &legs[0])
		if err != nil {
			t.Error(err)
		}
		made <- len(ids)
	}()
	got, _, err := collect(t.Context(), decode, &legs[1])
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%v, %v; alone %v", got, err, want)
	}
	if n := <-made; n != 1 {
		t.Errorf("the prefill leg made %d ids", n)
	}
	if err := prefill.Release(t.Context(), h.ID); err != nil {
		t.Error(err)
	}

	// A whole request would wait for a leg that does not come.
	for _, e := range []*attached{prefill, decode} {
		if _, _, err := collect(t.Context(), e, &r); engine.KindOf(err) != engine.Unsupported {
			t.Errorf("a whole request: %v", err)
		}
	}
	for _, handoff := range []string{``, `{`, `[]`, `7`} {
		lost := legs[1]
		lost.Disagg.Handoff = json.RawMessage(handoff)
		if _, _, err := collect(t.Context(), decode, &lost); engine.KindOf(err) != engine.InvalidArgument {
			t.Errorf("hand-off %q: %v", handoff, err)
		}
	}
	if _, err := decode.Prepare(t.Context(), engine.HandoffQuery{}); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("a decode server prepares: %v", err)
	}
}

// By its remainder a room names the rank, and it is never as large as its bound.
func TestRooms(t *testing.T) {
	for _, small := range []bool{false, true} {
		for ranks := uint64(1); ranks <= 8; ranks++ {
			info := fmt.Sprintf(`{"disaggregation_mode":"prefill","dp_size":%d}`, ranks)
			e := described(info).serve(t, sglang.Config{SmallRooms: small})
			status(t, e, engine.Ready)
			rapid.Check(t, func(t *rapid.T) {
				rank := rapid.Uint64Range(0, ranks-1).Draw(t, "rank")
				h, err := e.Prepare(t.Context(), engine.HandoffQuery{Rank: uint32(rank)})
				if err != nil {
					t.Fatal(err)
				}
				var p, d struct {
					Room uint64  `json:"bootstrap_room"`
					Rank *uint64 `json:"disagg_prefill_dp_rank"`
				}
				if json.Unmarshal(h.Prefill, &p) != nil || json.Unmarshal(h.Decode, &d) != nil || p.Room != d.Room {
					t.Fatalf("%s and %s", h.Prefill, h.Decode)
				}
				if p.Room%ranks != rank || p.Room >= 1<<63-1 || small && p.Room >= 1<<31 {
					t.Errorf("room %d for rank %d of %d", p.Room, rank, ranks)
				}
				if (d.Rank != nil) != (ranks > 1) || d.Rank != nil && *d.Rank != rank || p.Rank != nil {
					t.Errorf("rank of the prefill leg: %s and %s", h.Prefill, h.Decode)
				}
			})
			if _, err := e.Prepare(t.Context(), engine.HandoffQuery{Rank: uint32(ranks)}); engine.KindOf(err) != engine.InvalidArgument {
				t.Errorf("rank %d of %d: %v", ranks, ranks, err)
			}
		}
	}
}

// The address in a hand-off is one that other machines reach.
func TestBootstrapHost(t *testing.T) {
	for _, tc := range []struct{ info, configured, want string }{
		{`"host":"10.0.0.1"`, "", "10.0.0.1"},
		{`"host":"10.0.0.1"`, "gpu7", "gpu7"},
		{`"host":"0.0.0.0","dist_init_addr":"10.0.0.2:5000"`, "", "10.0.0.2"},
		{`"host":"localhost","dist_init_addr":"[fd00::2]:5000"`, "", "fd00::2"},
		{`"host":"::","dist_init_addr":null`, "", "127.0.0.1"}, // of its URL
	} {
		e := described(`{"disaggregation_mode":"prefill",`+tc.info+`}`).serve(t, sglang.Config{BootstrapHost: tc.configured})
		d := status(t, e, engine.Ready).Card.Disagg
		if d.Host != tc.want || d.Port != 8998 || d.Style != "bootstrap" {
			t.Errorf("%s: %+v, want host %s", tc.info, d, tc.want)
		}
	}
}

// Numbers larger than a float64 holds reach the server as they are.
func TestQuirk11LargeNumbersInHandoffs(t *testing.T) {
	server := described(`{"disaggregation_mode":"decode"}`)
	var body string
	server["/generate"] = func(w http.ResponseWriter, r *http.Request) {
		text, _ := io.ReadAll(r.Body)
		body = string(text)
		w.WriteHeader(http.StatusBadRequest)
	}
	e := server.serve(t, sglang.Config{})
	status(t, e, engine.Ready)
	r := ask()
	r.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: json.RawMessage(`{ "bootstrap_host": "h", "bootstrap_room": 5813067104450311211 }`)}
	collect(t.Context(), e, r)
	if want := `{"input_ids":[1,2,3],"bootstrap_host":"h","bootstrap_room":5813067104450311211,"rid":"r-1",`; !strings.HasPrefix(body, want) {
		t.Errorf("got %s, want %s…", body, want)
	}
}
