package main

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/sim/trace"
)

// completion is what a server is asked.
type completion struct {
	Prompt []uint32
	Max    int  `json:"max_tokens"`
	Ignore bool `json:"ignore_eos"`
	Stream bool
	Extra  struct {
		Hints struct {
			Priority int
			Strict   int `json:"strict_priority"`
		} `json:"agent_hints"`
		Cache struct{ TTL int } `json:"cache_control"`
	} `json:"nvext"`
	header http.Header
}

// server answers each request with as many tokens as it wants, and remembers them by
// the session that they are said to be of.
func server(t *testing.T, asked *sync.Map) string {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		var c completion
		if err != nil || json.Unmarshal(text, &c) != nil || r.URL.Path != "/v1/completions" {
			t.Errorf("%s: %v, %.200s", r.URL, err, text)
		}
		c.header = r.Header
		asked.Store(r.Header.Get("x-dynamo-session-id")+fmt.Sprint(len(c.Prompt)), c)
		usage := fmt.Sprintf(`"usage":{"prompt_tokens":%d,"completion_tokens":%d,"prompt_tokens_details":{"cached_tokens":64}}`, len(c.Prompt), c.Max)
		if c.Stream {
			fmt.Fprintf(w, "event: x\n\ndata: {\"choices\":[{\"text\":\"a\"}]}\n\ndata: {\"choices\":[],%s}\n\ndata: [DONE]\n\n", usage)
			return
		}
		ids := make([]uint32, c.Max)
		for i := range ids {
			ids[i] = 20_000 + uint32(i)
		}
		list, _ := json.Marshal(ids)
		fmt.Fprintf(w, `{%s,"nvext":{"completion_token_ids":%s,"cache_control":{"pinned_blocks":3},"timing":{"ttft_ms":0.5}}}`, usage, list)
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// Requests say what they are to say, in the time of a faster world, and later prompts
// repeat what was answered.
func TestPlay(t *testing.T) {
	var asked sync.Map
	p := player{url: server(t, &asked), model: "m", speed: 100, tag: true, whole: true}
	answer := trace.Text{{Stream: 7, Len: 10}}
	w := []trace.Request{
		{
			ID: "a", Session: "s", Parent: "lead", At: time.Second, Prompt: trace.Text{{Stream: 1, Len: 130}}, Answer: answer, Priority: 120, StrictPriority: 2,
			KV: kv.Directives{Pins: []kv.Pin{{UpTo: 130, TTL: 5 * time.Minute}}},
		},
		{
			ID: "b", Session: "s", After: []string{"a"}, Delay: 2 * time.Second, Answer: trace.Text{{Stream: 8, Len: 1}},
			Prompt: trace.Text{{Stream: 1, Len: 130}, {Stream: 7, From: 4, Len: 6}}, KV: kv.Directives{EvictSession: true},
		},
	}
	all, err := p.play(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	a, b := all[0], all[1]
	if a.ID != "a" || a.Session != "s" || a.Input != 130 || a.Cached != 64 || a.Pinned != 192 || a.Arrived != time.Second || a.Admitted != a.Arrived {
		t.Errorf("%+v", a)
	}
	if got := (a.First - a.Arrived).Round(time.Millisecond); got != 50*time.Millisecond {
		t.Errorf("the first token took %v of life, want 100 times half a millisecond", got)
	}
	if d := b.Arrived - a.Ended; d < 2*time.Second || a.Ended < a.Arrived {
		t.Errorf("b came %v behind a", d)
	}
	value, _ := asked.Load("s130")
	first, _ := value.(completion)
	value, _ = asked.Load("s136")
	second, _ := value.(completion)
	if x := first.Extra; x.Hints.Priority != 1 || x.Hints.Strict != 2 || x.Cache.TTL != 3 || first.Max != 10 || !first.Ignore || first.Stream {
		t.Errorf("%+v", first)
	}
	if h := first.header; h.Get("x-dynamo-parent-session-id") != "lead" || h.Get("x-dynamo-session-final") != "false" || second.header.Get("x-dynamo-session-final") != "true" {
		t.Errorf("%v, %v", h, second.header)
	}
	if !slices.Equal(second.Prompt[:130], first.Prompt) || !slices.Equal(second.Prompt[130:], []uint32{20_004, 20_005, 20_006, 20_007, 20_008, 20_009}) {
		t.Errorf("%v does not go on from %v", second.Prompt, first.Prompt)
	}
	for _, id := range first.Prompt {
		if id < firstToken || id >= firstToken+tokens {
			t.Fatalf("token %d", id)
		}
	}
}

// Without tags nothing is said, and streams are timed by their first chunk.
func TestPlayWithoutTags(t *testing.T) {
	var asked sync.Map
	p := player{url: server(t, &asked), speed: 1000}
	w := []trace.Request{{
		ID: "a", Session: "s", Priority: 5, Prompt: trace.Text{{Stream: 1, Len: 9}}, Answer: trace.Text{{Stream: 2, Len: 3}},
		KV: kv.Directives{Pins: []kv.Pin{{UpTo: 9, TTL: time.Minute}}},
	}}
	all, err := p.play(t.Context(), w)
	if err != nil {
		t.Fatal(err)
	}
	if o := all[0]; o.Arrived != 0 || o.First <= 0 || o.Admitted != o.First || o.Ended < o.First || o.Cached != 64 {
		t.Errorf("%+v", o)
	}
	value, _ := asked.Load("9")
	if c, _ := value.(completion); !c.Stream || c.Extra.Hints.Priority != 0 || c.Extra.Cache.TTL != 0 {
		t.Errorf("%+v", c)
	}
}

// One request that fails ends it all.
func TestPlayFails(t *testing.T) {
	for name, handle := range map[string]http.HandlerFunc{
		"status 418: no tea":         func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(418); io.WriteString(w, "no tea") },
		"the stream: EOF":            func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "data: {}\n") },
		"0 tokens in, 0 out: want 9": func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "data: {}\ndata: [DONE]\n") },
		"has no usage":               func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "data: [DONE]\n") },
	} {
		s := httptest.NewServer(handle)
		p := player{url: s.URL, speed: 1}
		w := []trace.Request{
			{ID: "a", Prompt: trace.Text{{Stream: 1, Len: 9}}, Answer: trace.Text{{Stream: 2, Len: 3}}},
			{ID: "b", At: time.Hour, Prompt: trace.Text{{Stream: 1, Len: 9}}, Answer: trace.Text{{Stream: 2, Len: 3}}},
		}
		if _, err := p.play(t.Context(), w); err == nil || !strings.Contains(err.Error(), name) || !strings.HasPrefix(err.Error(), "a: ") {
			t.Errorf("%v, want %q", err, name)
		}
		s.Close()
	}
}

// What is sent is what the simulator replays.
func TestWorkloads(t *testing.T) {
	for workload, want := range map[string]func(size agents.Size) int{
		"queue":    func(s agents.Size) int { return int(1.25 * s.Rate * s.Span.Seconds()) },
		"workflow": func(s agents.Size) int { return 16 * 7 * s.Rounds },
	} {
		for _, tag := range []bool{false, true} {
			p := player{tag: tag, speed: 1}
			size := agents.Live(true)
			w, err := p.requests(workload, 1.25, size)
			if err != nil {
				t.Fatal(err)
			}
			urgent := 0
			for _, r := range w {
				if r.Priority > 0 {
					urgent++
				}
			}
			if n := want(size); math.Abs(float64(len(w)-n)) > 1 || (urgent > 0) != tag || p.whole {
				t.Errorf("%s: %d requests, want %d; %d are urgent", workload, len(w), n, urgent)
			}
		}
	}
	p := player{tag: true, speed: 1}
	w, err := p.requests("pins", 0, agents.Live(true))
	if err != nil || !p.whole {
		t.Fatal(err)
	}
	pins, ends := 0, 0
	for _, r := range w {
		pins += len(r.KV.Pins)
		if r.KV.EvictSession {
			ends++
		}
	}
	if pins == 0 || ends == 0 {
		t.Errorf("%d pins, %d ends of sessions", pins, ends)
	}
	if _, err := p.requests("tides", 0, agents.Size{}); err == nil {
		t.Error("a workload of tides")
	}
}
