package sglang_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/sglang"
	fake "github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/kv"
)

func TestCard(t *testing.T) {
	const info = `{"version":"0.5.21","page_size":16,"dp_size":2,"max_total_num_tokens":1001,"max_running_requests":64,
		"max_prefill_tokens":8192,"disaggregation_mode":"decode","random_seed":5,"lora_paths":{"ad":"/a"},
		"enable_priority_scheduling":true,"enable_session_radix_cache":true}`
	c := status(t, described(info).serve(t, sglang.Config{Model: "mine", BlockSize: 32}), engine.Ready).Card
	for what, ok := range map[string]bool{
		"names":    c.Model == "mine" && slices.Equal(c.Aliases, []string{"m"}) && slices.Equal(c.Adapters, []string{"ad"}),
		"engine":   c.Engine == "sglang 0.5.21" && c.Role == engine.Decode,
		"sizes":    c.BlockSize == 32 && c.ContextLength == 4096 && c.TotalBlocks == 32 && c.MaxSeqs == 32 && c.DPSize == 2,
		"features": c.Features.Has(engine.FeaturePriority) && c.Features.Has(engine.FeatureLoRA) && c.Features.Has(engine.FeatureSessions) && c.Features.Has(engine.FeatureMinTokens),
		"not said": !c.Features.Has(engine.FeatureSeed) && !c.Features.Has(engine.FeatureEvents) && !c.Features.Has(engine.FeatureHandoff),
		"controls": slices.Contains(c.Controls, engine.ControlLoadLoRA),
	} {
		if !ok {
			t.Errorf("%s: %+v", what, c)
		}
	}
	for name, tc := range map[string]struct {
		info   string
		cfg    sglang.Config
		want   engine.State
		reason string
	}{
		"block of no pages":  {`{"page_size":16}`, sglang.Config{BlockSize: 24}, engine.Failed, "page of 16"},
		"page of one":        {`{"page_size":1}`, sglang.Config{BlockSize: 24}, engine.Ready, ""},
		"block of events":    {`{"page_size":16,"kv_events":{"block_size":32}}`, sglang.Config{BlockSize: 16}, engine.Failed, "page of 32"},
		"nothing but a size": {`{}`, sglang.Config{}, engine.Ready, ""},
		"no description":     {`<html>`, sglang.Config{}, engine.Loading, "something else"},
	} {
		if s := status(t, described(tc.info).serve(t, tc.cfg), tc.want); !strings.Contains(s.Reason, tc.reason) {
			t.Errorf("%s: %q", name, s.Reason)
		}
	}
	on := status(t, described(`{}`).serve(t, sglang.Config{PriorityEnabled: ptr(true), ContextLength: 99}), engine.Ready).Card
	if !on.Features.Has(engine.FeaturePriority) || on.ContextLength != 99 {
		t.Errorf("what was declared does not hold: %+v", on)
	}
}

// An engine may be attached before there is a server, and says so.
func TestLoading(t *testing.T) {
	e := open(t, sglang.Config{HTTP: httpapi.Config{URL: "http://127.0.0.1:1"}, Every: time.Millisecond})
	if s := status(t, e, engine.Loading); s.Epoch == 0 || s.Card != nil || s.Reason == "" {
		t.Errorf("%+v", s)
	}
	var up atomic.Bool
	server := described(`{}`)
	server["/health"] = func(w http.ResponseWriter, _ *http.Request) {
		if !up.Swap(true) {
			w.WriteHeader(http.StatusServiceUnavailable)
		}
	}
	var seen []engine.State
	for s := range server.serve(t, sglang.Config{}).Card(t.Context()) {
		if seen = append(seen, s.State); s.State == engine.Ready {
			break
		}
	}
	if !slices.Equal(seen, []engine.State{engine.Loading, engine.Ready}) {
		t.Errorf("states %v", seen)
	}
}

// A look that fails is forgiven; a row of them is not.
func TestLooksThatFail(t *testing.T) {
	var looks atomic.Int32
	var bad atomic.Int32 // looks that fail, from the third on
	bad.Store(2)
	server := described(`{}`)
	server["/health"] = func(w http.ResponseWriter, _ *http.Request) {
		if n := looks.Add(1); n > 2 && n <= 2+bad.Load() {
			w.WriteHeader(http.StatusInternalServerError)
		}
	}
	e := server.serve(t, sglang.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	var seen []engine.State
	for s := range e.Card(ctx) {
		if seen = append(seen, s.State); len(seen) == 1 {
			go func() {
				for looks.Load() < 6 {
					<-time.After(time.Millisecond)
				}
				looks.Store(0)
				bad.Store(1 << 20)
			}()
		}
		if len(seen) == 2 {
			break
		}
	}
	if !slices.Equal(seen, []engine.State{engine.Ready, engine.Loading}) || looks.Load() != 2+3 {
		t.Errorf("states %v, the last at look %d", seen, looks.Load())
	}
}

// After a stream was lost, the next look finds out whether this is another life.
func TestLostStreamsAreLookedInto(t *testing.T) {
	server := described("")
	var looks, seed atomic.Int32
	server["/health"] = func(http.ResponseWriter, *http.Request) { looks.Add(1) }
	server["/server_info"] = func(w http.ResponseWriter, _ *http.Request) { fmt.Fprintf(w, `{"random_seed":%d}`, seed.Load()) }
	server["/generate"] = func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }
	e := server.serve(t, sglang.Config{})
	var first uint64
	for s := range e.Card(t.Context()) {
		if first == 0 {
			first = s.Epoch
			if _, _, err := collect(t.Context(), e, ask()); engine.KindOf(err) != engine.Disconnected {
				t.Fatal(err)
			}
			seed.Store(1)
			continue
		}
		if s.Epoch == first || looks.Load() != 2 {
			t.Errorf("epoch %d after %d at look %d", s.Epoch, first, looks.Load())
		}
		break
	}
}

// A new life of a server is not paused.
func TestPauseEndsWithTheLife(t *testing.T) {
	e := attach(t, fake.Config{})
	before := status(t, e, engine.Ready).Epoch
	if _, err := e.Control(t.Context(), engine.ControlPause, nil); err != nil {
		t.Fatal(err)
	}
	status(t, e, engine.Draining)
	e.fake.Restart()
	if s := status(t, e, engine.Ready); s.Epoch == before {
		t.Error("ready in the old life")
	}
}

func TestDenied(t *testing.T) {
	e := attach(t, fake.Config{Key: "secret"})
	for s, err := range e.Card(t.Context()) {
		if engine.KindOf(err) != engine.Denied {
			t.Errorf("%+v, %v", s, err)
		}
	}
}

func reading(t *testing.T, e engine.Engine) engine.RankLoad {
	t.Helper()
	for l := range e.Load(t.Context()) {
		return l.Ranks[0]
	}
	t.Fatal("no reading")
	return engine.RankLoad{}
}

const metrics = `# TYPE sglang:num_running_reqs gauge
sglang:num_running_reqs{engine_type="unified",model_name="a\"}b",tp_rank="0"} 4.0
sglang:num_running_reqs{model_name="m",tp_rank="1"} 9.0
sglang:num_queue_reqs{tp_rank="0",} 1 1700000000
sglang_num_used_tokens 33
sglang:max_total_num_tokens{dp_rank="0"} 1.6e2
sglang:max_total_num_tokens{dp_rank="1"} 7
sglang:cached_tokens_total 1e+06
sglang:prompt_tokens_total 2e+06 # {trace_id="x"} 1
sglang:token_usage NaN
sglang:num_running_reqs{tp_rank="0"} NaN
sglang:num_running_reqs{tp_rank="0
# EOF
`

func TestLoad(t *testing.T) {
	unknown := engine.RankLoad{
		Running: engine.Unknown, Waiting: engine.Unknown, WaitingTokens: engine.Unknown, UsedBlocks: engine.Unknown, TotalBlocks: engine.Unknown,
		PrefixHits: engine.Unknown, PrefixQueries: engine.Unknown, Preemptions: engine.Unknown,
	}
	with := func(change func(*engine.RankLoad)) engine.RankLoad {
		l := unknown
		change(&l)
		return l
	}
	for name, tc := range map[string]struct {
		routes scripted
		want   engine.RankLoad
	}{
		"loads": {scripted{"/v1/loads": say(`{"loads":[{"dp_rank":0,"num_running_reqs":2,"num_waiting_reqs":0,"num_waiting_uncached_tokens":7,"num_used_tokens":33,"max_total_num_tokens":160}]}`)}, with(func(l *engine.RankLoad) {
			l.Running, l.Waiting, l.WaitingTokens, l.UsedBlocks, l.TotalBlocks = 2, 0, 7, 3, 10
		})},
		"some":                     {scripted{"/v1/loads": say(`{"loads":[{"dp_rank":0,"num_running_reqs":2}]}`)}, with(func(l *engine.RankLoad) { l.Running = 2 })},
		"a rank that is not there": {scripted{"/v1/loads": say(`{"loads":[{"dp_rank":5,"num_running_reqs":2}]}`)}, unknown},
		"old": {scripted{"/get_load": say(`[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2,"num_tokens":17}]`)}, with(func(l *engine.RankLoad) {
			l.Running, l.Waiting, l.UsedBlocks = 3, 2, 2
		})},
		"metrics": {scripted{"/metrics": say(metrics)}, with(func(l *engine.RankLoad) {
			l.Running, l.Waiting, l.UsedBlocks, l.TotalBlocks, l.PrefixHits, l.PrefixQueries = 4, 1, 3, 10, 1e6, 2e6
		})},
		"metrics of nothing": {scripted{"/metrics": say("up 1\n")}, unknown},
		"none":               {scripted{}, unknown},
		"failed":             {scripted{"/v1/loads": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(500) }, "/get_load": say(`[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2}]`)}, unknown},
		"a page":             {scripted{"/v1/loads": say(`<html>`)}, unknown},
	} {
		server := described(`{"page_size":16}`)
		for path, h := range tc.routes {
			server[path] = h
		}
		e := server.serve(t, sglang.Config{})
		status(t, e, engine.Ready)
		if got := reading(t, e); got != tc.want {
			t.Errorf("%s: %+v, want %+v", name, got, tc.want)
		}
	}
}

func TestControls(t *testing.T) {
	for _, old := range []bool{false, true} {
		e := attach(t, fake.Config{OldNames: old})
		status(t, e, engine.Ready)
		if answer, err := e.Control(t.Context(), engine.ControlReset, nil); err != nil || !json.Valid(answer) {
			t.Errorf("flush, old %v: %s, %v", old, answer, err)
		}
		if _, err := e.Control(t.Context(), "dance", nil); engine.KindOf(err) != engine.Unsupported {
			t.Errorf("unknown control: %v", err)
		}
		for range 2 {
			if _, err := e.Control(t.Context(), engine.ControlPause, json.RawMessage(`{"mode":"in_place"}`)); err != nil {
				t.Fatal(err)
			}
		}
		// A paused server would take a request and keep it.
		if s := status(t, e, engine.Draining); s.Reason != "the server was told to pause" {
			t.Errorf("paused: %+v", s)
		}
		if _, err := e.Control(t.Context(), engine.ControlResume, nil); err != nil {
			t.Fatal(err)
		}
		status(t, e, engine.Ready)
	}
}

func TestSessions(t *testing.T) {
	server := described(`{"enable_session_radix_cache":true}`)
	bodies := make(chan map[string]any, 1)
	note := func(code int) func(w http.ResponseWriter, r *http.Request) {
		return func(w http.ResponseWriter, r *http.Request) {
			var body map[string]any
			text, _ := io.ReadAll(r.Body)
			if err := json.Unmarshal(text, &body); err != nil {
				t.Error(err)
			}
			bodies <- body
			w.WriteHeader(code)
		}
	}
	server["/open_session"], server["/close_session"], server["/generate"] = note(200), note(200), note(400)
	e := server.serve(t, sglang.Config{})
	o := engine.SessionOptions{Timeout: 90*time.Second + 1, Capacity: 1 << 24}
	turn := func(salt string) any {
		t.Helper()
		r := ask()
		r.KV = kv.Directives{Namespace: kv.Namespace{Salt: salt}, Session: kv.Session{ID: "s"}}
		collect(t.Context(), e, r)
		return (<-bodies)["session_id"]
	}
	plain, salted := kv.SessionKey{Model: "m", ID: "s"}, kv.SessionKey{Model: "m", Salt: "t", ID: "s"}
	if _, err := e.OpenSession(t.Context(), plain, o); engine.KindOf(err) != engine.Unsupported {
		t.Errorf("opened before the server told that it can: %v", err)
	}
	status(t, e, engine.Ready)
	if got := turn(""); got != nil {
		t.Errorf("a session that is not open was sent: %v", got)
	}
	if known, err := e.OpenSession(t.Context(), plain, o); known || err != nil {
		t.Fatal(known, err)
	}
	if b := <-bodies; b["session_id"] != "s" || b["timeout"] != 91.0 || b["capacity_of_str_len"] != float64(1<<24) {
		t.Errorf("open: %v", b)
	}
	if got := turn(""); got != "s" {
		t.Errorf("turn of session %v", got)
	}
	if got := turn("t"); got != nil {
		t.Errorf("another tenant got session %v", got)
	}
	e.OpenSession(t.Context(), salted, o)
	if mine := (<-bodies)["session_id"]; mine == "s" || turn("t") != mine {
		t.Errorf("two tenants share session %v", mine)
	}
	forged := kv.SessionKey{Model: "m", ID: "dynamo-cache-salt:1:t:s"}
	e.OpenSession(t.Context(), forged, o)
	if name := (<-bodies)["session_id"]; name == forged.ID {
		t.Errorf("an id may look like another tenant's: %v", name)
	}
	if known, err := e.CloseSession(t.Context(), plain); !known || err != nil || (<-bodies)["session_id"] != "s" {
		t.Error(known, err)
	}
	if known, err := e.CloseSession(t.Context(), plain); known || err != nil {
		t.Error("closed twice:", known, err)
	}
	if got := turn(""); got != nil {
		t.Errorf("a closed session was sent: %v", got)
	}
}

// A session that is there already is known; one of an earlier life is not sent.
func TestSessionsOverARestart(t *testing.T) {
	e := attach(t, fake.Config{Sessions: true})
	before := status(t, e, engine.Ready).Epoch
	key := kv.SessionKey{Model: "m", ID: "s"}
	for _, want := range []bool{false, true} {
		if known, err := e.OpenSession(t.Context(), key, engine.SessionOptions{}); known != want || err != nil {
			t.Errorf("known %v, %v; want %v", known, err, want)
		}
	}
	e.fake.Restart()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	for s := range e.Card(ctx) {
		if s.Epoch != before {
			break
		}
	}
	if known, err := e.CloseSession(t.Context(), key); known || err != nil {
		t.Errorf("a session outlived the server: %v, %v", known, err)
	}
}

func TestConfig(t *testing.T) {
	for _, cfg := range []sglang.Config{{}, {HTTP: httpapi.Config{URL: "h:1"}}, {HTTP: httpapi.Config{URL: "http://h"}, Every: -1}} {
		if _, err := sglang.New(cfg); err == nil {
			t.Errorf("%+v passes", cfg)
		}
	}
}

// Silence is told from death.
func TestSilenceIsNotDeath(t *testing.T) {
	a := attach(t, fake.Config{})
	enginetest.Silence(t, a.fake, func(t *testing.T, url string) engine.Engine {
		return open(t, sglang.Config{HTTP: httpapi.Config{URL: url}, Every: 2 * time.Millisecond})
	})
}
