//go:build unix

package main

import (
	"encoding/json"
	"testing"

	"github.com/dynago/dynago/internal/demo"
)

// What a worker has cached of a prompt and its answer is there for operators to see.
func TestCachesOfWorkers(t *testing.T) {
	t.Parallel()
	p := serve(t, "--speedup-ratio", "0")
	cached := func() (blocks int) {
		var stats struct {
			Ranks []struct {
				Model  string
				Blocks int `json:"cached_blocks"`
			}
		}
		_, body := p.get(p.url + "/v1/kv/stats?model=" + demo.Name)
		if err := json.Unmarshal([]byte(body), &stats); err != nil || len(stats.Ranks) == 0 || stats.Ranks[0].Model != demo.Name {
			t.Fatalf("%s: %v", body, err)
		}
		for _, rank := range stats.Ranks {
			blocks += rank.Blocks
		}
		return blocks
	}
	if n := cached(); n != 0 {
		t.Errorf("%d blocks before the first prompt", n)
	}
	r := p.send("/v1/completions", `{"model":"`+demo.Name+`","max_tokens":200,"ignore_eos":true,"prompt":"Which rivers cross Paris?"}`)
	if r.status != 200 {
		t.Fatalf("%d %s", r.status, r.body)
	}
	until(t, "the router knows of blocks", func() bool { return cached() > 2 })
}
