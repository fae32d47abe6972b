package remote

import (
	"errors"
	"fmt"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/router"
)

type question struct {
	Request    request     `json:"request"`
	Candidates []candidate `json:"candidates"`
}

type request struct {
	ID             string   `json:"id"`
	Model          string   `json:"model"`
	Role           string   `json:"role"`
	PromptTokens   int      `json:"prompt_tokens"`
	Expected       uint32   `json:"expected_output_tokens,omitzero"`
	Choices        int      `json:"choices"`
	Priority       float64  `json:"priority,omitzero"`
	StrictPriority uint32   `json:"strict_priority,omitzero"`
	Background     bool     `json:"background"`
	Advisory       bool     `json:"advisory,omitzero"`
	Class          string   `json:"class,omitzero"`
	Temperature    *float64 `json:"temperature,omitzero"`
	TTFT           float64  `json:"ttft_target,omitzero"` // milliseconds
	ITL            float64  `json:"itl_target,omitzero"`
	Session        *session `json:"session,omitzero"`
}

type session struct {
	ID     string `json:"id"`
	Parent string `json:"parent,omitzero"`
	Final  bool   `json:"final"`
	Input  string `json:"input"`
}

type candidate struct {
	WorkerID       uint64  `json:"worker_id"`
	Worker         string  `json:"worker,omitzero"`
	Rank           uint32  `json:"dp_rank"`
	BlockSize      int     `json:"block_size"`
	Cached         cached  `json:"cached_blocks"`
	PrefillTokens  int     `json:"prefill_tokens"`
	ActiveBlocks   int     `json:"active_blocks"`
	TotalBlocks    int     `json:"total_blocks,omitzero"`
	ActiveRequests int     `json:"active_requests"`
	DecodeBlocks   int     `json:"decode_blocks"`
	Preference     float64 `json:"preference"`
	Cost           float64 `json:"cost"`
}

type cached struct {
	Device int `json:"device"`
	Host   int `json:"host"`
	Disk   int `json:"disk"`
	Shared int `json:"shared"`
}

var inputs = map[router.Input]string{router.UserInput: "user", router.ToolInput: "tool", router.OtherInput: "other"}

// appendQuestion appends what the server is asked. Text that is not UTF-8 is
// mended.
func appendQuestion(dst []byte, q *router.Query, c []router.Candidate) ([]byte, error) {
	w := question{
		Request: request{
			ID: q.ID, Model: q.Model, Role: string(q.Role), PromptTokens: q.Length(), Expected: q.Expected,
			Choices: max(1, q.Choices), Priority: finite(q.Priority), StrictPriority: q.StrictPriority,
			Background: q.Background, Advisory: q.Advisory, Class: q.Class,
			TTFT: float64(q.TTFT) / milliseconds, ITL: float64(q.ITL) / milliseconds,
		},
		Candidates: make([]candidate, len(c)),
	}
	if q.Role == engine.Aggregated {
		w.Request.Role = "aggregated"
	}
	if q.Overrides != nil {
		w.Request.Temperature = q.Overrides.Temperature
	}
	if s := &q.Session; s.ID != "" {
		w.Request.Session = &session{s.ID, s.Parent, s.Final, inputs[s.Input]}
	}
	for i := range c {
		c := &c[i]
		w.Candidates[i] = candidate{
			WorkerID: c.Target.Worker, Rank: c.Target.Rank, BlockSize: c.BlockSize,
			Cached:        cached{c.Device, c.Host, c.Disk, c.Shared},
			PrefillTokens: c.PrefillTokens, ActiveBlocks: c.ActiveBlocks, TotalBlocks: c.TotalBlocks,
			ActiveRequests: c.Requests, DecodeBlocks: c.DecodeBlocks, Preference: finite(c.Preference), Cost: finite(c.Cost),
		}
		if c.Worker != nil {
			w.Candidates[i].Worker = c.Worker.Name()
		}
	}
	text, err := json.Marshal(&w, jsontext.AllowInvalidUTF8(true))
	return append(dst, text...), err
}

// finite bounds a number, as JSON has no others.
func finite(x float64) float64 {
	switch {
	case math.IsNaN(x):
		return 0
	case math.IsInf(x, 0):
		return math.Copysign(math.MaxFloat64, x)
	}
	return x
}

type answer struct {
	Choice   *int64  `json:"choice"`
	WorkerID *uint64 `json:"worker_id"`
	Rank     *uint32 `json:"dp_rank"`
	Outcomes bool    `json:"outcomes"`
}

func parseAnswer(text []byte) (*answer, error) {
	a := new(answer)
	if err := json.Unmarshal(text, a); err != nil {
		return nil, err
	}
	switch {
	case a.Choice != nil && a.WorkerID != nil:
		return nil, errors.New("the answer has choice and worker_id, want one of them")
	case a.WorkerID == nil && a.Rank != nil:
		return nil, errors.New("the answer has dp_rank without worker_id")
	}
	return a, nil
}

// row returns the index of the candidate that is meant.
func (a *answer) row(c []router.Candidate) (int, error) {
	switch {
	case a.Choice != nil:
		if *a.Choice < 0 || *a.Choice >= int64(len(c)) {
			return 0, &refusal{wrongRow, fmt.Errorf("choice %d, want 0 to %d", *a.Choice, len(c)-1)}
		}
		return int(*a.Choice), nil
	case a.WorkerID == nil:
		return 0, errDeclined
	}
	found := -1
	for i := range c {
		t := &c[i].Target
		if t.Worker != *a.WorkerID || a.Rank != nil && t.Rank != *a.Rank {
			continue
		}
		if found >= 0 {
			return 0, &refusal{wrongRow, fmt.Errorf("worker_id %d has several ranks, want dp_rank as well", *a.WorkerID)}
		}
		found = i
	}
	if found < 0 {
		return 0, &refusal{wrongRow, fmt.Errorf("worker_id %d with this dp_rank is no candidate", *a.WorkerID)}
	}
	return found, nil
}
