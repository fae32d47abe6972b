package frontend

import (
	"net/http"

	"github.com/dynago/dynago/kv"
)

// kvStatsPath is where operators see at once what the router knows of caches; the
// metrics page has the same, and more.
const kvStatsPath = "/v1/kv/stats"

// kvStats are the caches of a fleet on the wire.
type kvStats struct {
	Index struct {
		Prefixes int `json:"prefixes"` // distinct blocks, with everything before them
		Blocks   int `json:"blocks"`   // over all ranks
	} `json:"index"`
	Ranks []kvRank `json:"ranks"`
}

// kvRank is the cache of one rank.
type kvRank struct {
	WorkerID     uint64 `json:"worker_id"`
	Worker       string `json:"worker"`
	Model        string `json:"model"`
	Rank         uint32 `json:"dp_rank"`
	CachedBlocks int    `json:"cached_blocks"`
	// Prediction is what answers have shown, absent before the first of them.
	Prediction *kvPrediction `json:"prediction,omitzero"`
}

// kvPrediction compares what the router expected to be cached with what was.
type kvPrediction struct {
	Answers   uint64  `json:"answers"`
	Predicted uint64  `json:"predicted_tokens"`
	Reported  uint64  `json:"reported_tokens"`
	Drift     float64 `json:"drift"` // of late, 0 to 1
	Doubted   bool    `json:"doubted"`
}

// kvStats answers GET /v1/kv/stats?model=NAME; without a model it tells of all.
func (s *Server) kvStats(w http.ResponseWriter, r *http.Request) {
	caches := s.Backend.Caches()
	predictions := make(map[kv.Target]*kvPrediction, len(caches.Views))
	for _, v := range caches.Views {
		predictions[v.Target] = &kvPrediction{v.Answers, v.Predicted, v.Reported, v.Drift, v.Doubted}
	}
	out := kvStats{Ranks: []kvRank{}}
	out.Index.Prefixes, out.Index.Blocks = caches.Index.Prefixes, caches.Index.Blocks
	model := r.URL.Query().Get("model")
	for _, worker := range s.Backend.Workers() {
		if model != "" && worker.Model != s.resolve(model) {
			continue
		}
		for _, rank := range worker.Ranks {
			out.Ranks = append(out.Ranks, kvRank{
				WorkerID: worker.ID, Worker: worker.Name, Model: worker.Model, Rank: rank.Rank,
				CachedBlocks: rank.CachedBlocks, Prediction: predictions[kv.Target{Worker: worker.ID, Rank: rank.Rank}],
			})
		}
	}
	s.object(w, http.StatusOK, out)
}
