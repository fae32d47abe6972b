package frontend_test

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// twoModels is a fleet of two models, whose first worker has two ranks.
type twoModels struct{ *fake }

func (twoModels) Workers() []pipeline.WorkerInfo {
	return []pipeline.WorkerInfo{
		{ID: 1, Name: "a", Model: "acme/demo", Ranks: []pipeline.RankInfo{{CachedBlocks: 5}, {Rank: 1, CachedBlocks: 6}}},
		{ID: 2, Name: "b", Model: "acme/other", Role: engine.Prefill, Ranks: []pipeline.RankInfo{{}}},
	}
}

func (twoModels) Caches() pipeline.CacheInfo {
	return pipeline.CacheInfo{
		Index: kvindex.Stats{Prefixes: 7, Blocks: 11},
		Views: []router.CacheView{{Target: kv.Target{Worker: 1, Rank: 1}, Answers: 3, Predicted: 100, Reported: 90, Drift: 0.25, Doubted: true}},
	}
}

// Operators see what each rank has cached, and whether that is to be believed.
func TestCacheStats(t *testing.T) {
	const (
		first  = `{"worker_id":1,"worker":"a","model":"acme/demo","dp_rank":0,"cached_blocks":5}`
		second = `{"worker_id":1,"worker":"a","model":"acme/demo","dp_rank":1,"cached_blocks":6,"prediction":{"answers":3,"predicted_tokens":100,"reported_tokens":90,"drift":0.25,"doubted":true}}`
		other  = `{"worker_id":2,"worker":"b","model":"acme/other","dp_rank":0,"cached_blocks":0}`
	)
	s := start(t, newFake(), func(c *frontend.Config) {
		c.Backend, c.Aliases = twoModels{newFake()}, []frontend.Alias{{Pattern: "*-latest", Name: "acme/other"}}
	})
	for path, ranks := range map[string]string{
		"/v1/kv/stats":                   first + "," + second + "," + other,
		"/v1/kv/stats?model=acme/demo":   first + "," + second,
		"/v1/kv/stats?model=some-latest": other,
		"/v1/kv/stats?model=nobody":      "",
	} {
		a := s.do("GET", path, "")
		var got, want any
		if err := json.Unmarshal([]byte(a.body), &got); err != nil || a.status != 200 {
			t.Fatalf("%s: %d %s: %v", path, a.status, a.body, err)
		}
		if err := json.Unmarshal([]byte(`{"index":{"prefixes":7,"blocks":11},"ranks":[`+ranks+`]}`), &want); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("%s -want +got\n%s", path, d)
		}
	}
	apart := start(t, newFake(), func(c *frontend.Config) { c.SeparateAdmin = true })
	if a := apart.do("GET", "/v1/kv/stats", ""); a.status != 404 {
		t.Errorf("with a port of its own for operators: %d", a.status)
	}
}
