package frontend

import (
	"net/http"

	"github.com/dynago/dynago/internal/gen/inferencepb"
	"github.com/dynago/dynago/kserve"
)

// ModelStatistics returns how the requests of a model fared as KServe tells it, or
// those of all models if name is empty.
func (s *Server) ModelStatistics(name string) (*inferencepb.ModelStatisticsResponse, error) {
	all := &inferencepb.ModelStatisticsResponse{}
	for _, m := range s.v2List() {
		if name == "" || name == m.Name {
			all.ModelStats = append(all.ModelStats, s.Statistics(m.Name).message(m.Name))
		}
	}
	if len(all.ModelStats) == 0 && name != "" {
		return nil, kserve.NotFound(name)
	}
	return all, nil
}

// message returns statistics as KServe tells them. Who reads them subtracts two
// readings of all that Triton has, so what is not known here is there as well; and
// Triton's benchmark gives up where the three of compute differ in their counts.
func (s Statistics) message(model string) *inferencepb.ModelStatistics {
	tally := func(t Tally) *inferencepb.StatisticDuration {
		return &inferencepb.StatisticDuration{Count: t.Count, Ns: uint64(t.Time)}
	}
	m := &inferencepb.ModelStatistics{
		Name: model, Version: kserve.Version,
		InferenceCount: s.Success.Count, ExecutionCount: s.Success.Count,
		InferenceStats: &inferencepb.InferStatistics{
			Success: tally(s.Success), Fail: tally(s.Fail), Queue: tally(s.Queue), ComputeInfer: tally(s.Infer),
			ComputeInput: tally(Tally{Count: s.Infer.Count}), ComputeOutput: tally(Tally{Count: s.Infer.Count}),
			CacheHit: tally(Tally{}), CacheMiss: tally(Tally{}),
		},
	}
	if !s.Last.IsZero() {
		m.LastInference = uint64(s.Last.UnixMilli())
	}
	return m
}

func (s *Server) v2Statistics(w http.ResponseWriter, at v2Path) {
	all, err := s.ModelStatistics(at.model)
	s.v2Answer(w, all, err)
}
