package selection

import "net/http"

// health says that the service answers.
func (s *Service) health(w http.ResponseWriter, _ *http.Request) { done(w) }

// readiness says whether somebody can be given a request.
type readiness struct {
	Ready       bool     `json:"ready"`
	Schedulable int      `json:"schedulable_workers"`
	Workers     []record `json:"workers"`
}

// ready is for load balancers: 503 until there is a worker to choose.
func (s *Service) ready(w http.ResponseWriter, _ *http.Request) {
	out := readiness{Workers: s.catalog.list("", "")}
	for _, r := range out.Workers {
		if r.Lifecycle == schedulable {
			out.Schedulable++
		}
	}
	out.Ready = out.Schedulable > 0
	status := http.StatusOK
	if !out.Ready {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, out)
}
