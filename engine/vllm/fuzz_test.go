package vllm

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// Whatever a server writes, the answer counts what it gives out, keeps log
// probabilities beside their ids, and never gives a hidden id twice or out of turn.
func FuzzAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"choices":[{"index":0,"token_ids":[1,2],"logprobs":null,"finish_reason":"stop"}]}`,
		`{"choices":[],"usage":{"prompt_tokens":1,"prompt_tokens_details":{"cached_tokens":9}}}`,
		`{"choices":[{"index":0,"token_ids":[2],"logprobs":{"tokens":["token_id:2"],"token_logprobs":[null],"top_logprobs":[{"token_id:2":-1}]}}]}`,
		`{"choices":[{"token_ids":[2],"logprobs":{"content":[{"token":"x","logprob":1,"top_logprobs":[{"token":"token_id:99999999999"}]}]}}]}`,
		`{"prompt_logprobs":[null,{"8":{"logprob":-1,"rank":1}}],"choices":[{"token_ids":[4]}]}`,
		`{"error":{"code":"503","message":7}}`, `{"object":"error"}`, `[]`, `{`, ``,
	} {
		f.Add([]byte(seed), []byte(seed), true)
	}
	f.Fuzz(func(t *testing.T, first, second []byte, logprobs bool) {
		r := &engine.Request{TokenIDs: []uint32{7, 8}, Stop: engine.Stop{MaxTokens: 9, Hidden: []uint32{2}}}
		if k := 1; logprobs {
			r.Logprobs, r.PromptLogprobs = &k, &k
		}
		a := answer{r: r, tellsCached: true}
		given := 0
		for _, data := range [][]byte{first, second} {
			d, err := a.read(data)
			if err != nil {
				continue
			}
			given += len(d.TokenIDs)
			if logprobs && len(d.Logprobs) != len(d.TokenIDs) {
				t.Fatalf("%d log probabilities for %d ids", len(d.Logprobs), len(d.TokenIDs))
			}
			if n := len(d.PromptLogprobs); n != 0 && n != len(r.TokenIDs) {
				t.Fatalf("%d positions of a prompt of %d", n, len(r.TokenIDs))
			}
		}
		held := 0
		if a.held != nil {
			held = len(a.held.TokenIDs)
		}
		if given+held != a.received || held > 1 {
			t.Fatalf("%d given and %d held of %d", given, held, a.received)
		}
		if d, err := a.terminal(); err == nil && (d.Finish == engine.Running || d.Usage == nil) {
			t.Fatalf("terminal %+v", d)
		}
	})
}

// Whatever a server says of its connector, of where it publishes and of what it hands
// over, what is handed over stays as it came.
func FuzzHandoff(f *testing.F) {
	f.Add([]byte(`{"kv_connector":"MultiConnector","kv_connector_extra_config":{"connectors":[{"kv_connector":"NixlConnector"}]}}`), []byte(`{"remote_host":"h","remote_port":"5600"}`))
	f.Add([]byte(`[{"data_parallel_rank":4294967295,"endpoint":"tcp://*:65535"}]`), []byte(`{"remote_prefiller":{"remote_host":"::1","remote_port":1e9}}`))
	f.Add([]byte(`{"sources":[{"endpoint":"tcp://[::]:1"}]}`), []byte(`null`))
	f.Fuzz(func(t *testing.T, told, handoff []byte) {
		var c connector
		if json.Unmarshal(told, &c) == nil {
			if s := c.style(true); s != "" && !slices.Contains(Styles, s) {
				t.Fatalf("style %q", s)
			}
		}
		for _, s := range sourcesOf(told) {
			if list, err := endpointsOf([]rankSource{s}, "h", s.Rank, 1); err == nil && (len(list) != 1 || list[0].Rank != s.Rank) {
				t.Fatalf("%+v of %+v", list, s)
			}
		}
		_ = source(handoff)
		r := &engine.Request{ID: "x", TokenIDs: []uint32{1}, Stop: engine.Stop{MaxTokens: 1}, Disagg: engine.Disagg{Phase: engine.PhaseDecode, Handoff: handoff}}
		card := &engine.Card{Disagg: engine.Transfer{Style: StyleNIXL}}
		if checkLeg(r, card) != nil {
			return
		}
		for _, d := range []dialect{{generate: true}, {}} {
			body := d.body(r, card)
			if !jsontext.Value(body).IsValid(lenient) || len(handoff) > 0 && !bytes.Contains(body, handoff) {
				t.Fatalf("%s in %s", handoff, body)
			}
		}
	})
}

// A page of any kind is read without harm, and never says less than nothing.
func FuzzMetrics(f *testing.F) {
	f.Add([]byte("vllm:num_requests_running{engine=\"0\"} 3\n"))
	f.Add([]byte("# TYPE vllm:kv_cache_usage_perc gauge\nvllm:kv_cache_usage_perc{engine=\"0\"} 1e300\n"))
	f.Add([]byte("vllm:cache_config_info{engine=\"4294967295\",block_size=\"-1\"} 1\n"))
	f.Fuzz(func(t *testing.T, page []byte) {
		m := readMetrics(page)
		l := m.load(&engine.Card{DPSize: 2, TotalBlocks: 10})
		for _, r := range l.Ranks {
			for _, n := range []int64{r.Running, r.Waiting, r.UsedBlocks, r.TotalBlocks, r.PrefixHits, r.PrefixQueries, r.Preemptions} {
				if n < engine.Unknown {
					t.Fatalf("%+v", r)
				}
			}
			if r.UsedBlocks > r.TotalBlocks {
				t.Fatalf("%d of %d blocks", r.UsedBlocks, r.TotalBlocks)
			}
		}
	})
}

func TestVersions(t *testing.T) {
	for _, tt := range []struct {
		version string
		since   []int
		want    bool
	}{
		{"0.31.0", []int{0, 11}, true},
		{"0.10.2", []int{0, 10, 2}, true},
		{"0.10.1.1", []int{0, 10, 2}, false},
		{"0.9.2rc1", []int{0, 10}, false},
		{"1.0", []int{0, 99}, true},
		{"0.11", []int{0, 11, 0}, true},
		{"dev", []int{0, 11}, true},
		{"", []int{0, 11}, true},
	} {
		if got := atLeast(tt.version, tt.since); got != tt.want {
			t.Errorf("%q at least %v: %v", tt.version, tt.since, got)
		}
	}
}
