package frontend

import (
	"fmt"
	"net/http"
	"strconv"
	"time"

	"github.com/dynago/dynago/router"
)

// mostDecisions is how many decisions are told at once where nobody says how
// many.
const mostDecisions = 100

// decisionRoutes is the route by which operators read why requests went where
// they went.
func (s *Server) decisionRoutes() []route {
	if s.Journal == nil {
		return nil
	}
	return []route{{"GET", "", "/admin/decisions", s.listDecisions}}
}

// decisions are the newest ones on the wire.
type decisions struct {
	List    []decision `json:"decisions"`
	NotKept uint64     `json:"not_kept"` // because too many came at once
}

// decision is an entry of the journal on the wire. Durations are milliseconds.
type decision struct {
	Time      string  `json:"time"`
	RequestID string  `json:"request_id"`
	Model     string  `json:"model"`
	Role      string  `json:"role,omitzero"` // "" does the whole request
	WorkerID  uint64  `json:"worker_id"`
	Rank      uint32  `json:"dp_rank"`
	Worker    string  `json:"worker"`
	Reason    string  `json:"reason"`
	Session   string  `json:"session,omitzero"`
	Class     string  `json:"policy_class,omitzero"`
	QueueMS   float64 `json:"queue_ms"`
	RoutingMS float64 `json:"routing_ms"`

	PromptTokens int     `json:"prompt_tokens"`
	CachedTokens int     `json:"predicted_cached_tokens"`
	Candidates   int     `json:"candidates"`
	Best         []price `json:"best"`
}

// price is what a request would have cost on one rank, in its blocks.
type price struct {
	WorkerID  uint64  `json:"worker_id"`
	Rank      uint32  `json:"dp_rank"`
	Worker    string  `json:"worker"`
	Cost      float64 `json:"cost"`
	Prefill   float64 `json:"prefill"`
	Decode    float64 `json:"decode"`
	Requests  float64 `json:"requests,omitzero"`
	Credit    float64 `json:"credit"`
	Cached    int     `json:"cached_blocks"`
	BlockSize int     `json:"block_size"`
}

// listDecisions answers GET /admin/decisions?n=100&model=NAME.
func (s *Server) listDecisions(w http.ResponseWriter, r *http.Request) {
	n := mostDecisions
	if text := r.URL.Query().Get("n"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil || n < 1 {
			s.tellError(w, http.StatusBadRequest, fmt.Sprintf("n: %q: want a number from 1 on", text))
			return
		}
	}
	entries, missed := s.Journal.Entries(n, r.URL.Query().Get("model"))
	told := decisions{List: make([]decision, len(entries)), NotKept: missed}
	for i := range entries {
		told.List[i] = decided(&entries[i])
	}
	s.tell(w, http.StatusOK, told)
}

func decided(e *router.Entry) decision {
	d := decision{
		Time: e.At.UTC().Format(time.RFC3339Nano), RequestID: e.ID, Model: e.Model, Role: string(e.Role),
		WorkerID: e.Target.Worker, Rank: e.Target.Rank, Worker: e.Worker,
		Reason: string(e.Reason), Session: e.Session.String(), Class: e.Class,
		QueueMS: milliseconds(e.Queue), RoutingMS: milliseconds(e.Routing),
		PromptTokens: e.PromptTokens, CachedTokens: e.CachedTokens, Candidates: e.Candidates,
		Best: make([]price, len(e.Best)),
	}
	for i, p := range e.Best {
		d.Best[i] = price{
			WorkerID: p.Target.Worker, Rank: p.Target.Rank, Worker: p.Worker, Cost: p.Cost,
			Prefill: p.Terms.Prefill, Decode: p.Terms.Decode, Requests: p.Terms.Requests, Credit: p.Terms.Credit,
			Cached: p.Cached, BlockSize: p.BlockSize,
		}
	}
	return d
}

func milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
