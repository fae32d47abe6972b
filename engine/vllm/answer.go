package vllm

import (
	"cmp"
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// piece is one event of a stream, or an answer given whole, on either route.
type piece struct {
	Error   jsontext.Value `json:"error"`
	Object  string         `json:"object"`
	Choices []choice       `json:"choices"`
	Usage   *usage         `json:"usage"`
	// PromptLogprobs stands here on one route and in the choice on the other.
	PromptLogprobs []likelihoods `json:"prompt_logprobs"`
	// Transfer is what a prefill leg hands over, byte for byte.
	Transfer jsontext.Value `json:"kv_transfer_params"`
}

type choice struct {
	Index          int            `json:"index"`
	TokenIDs       []uint32       `json:"token_ids"`
	Text           string         `json:"text"`
	Logprobs       *tokenLogprobs `json:"logprobs"`
	FinishReason   string         `json:"finish_reason"`
	PromptLogprobs []likelihoods  `json:"prompt_logprobs"`
	// Experts is which experts have computed each token, of servers that tell.
	Experts jsontext.Value `json:"routed_experts"`
}

type usage struct {
	Prompt  int `json:"prompt_tokens"`
	Output  int `json:"completion_tokens"`
	Details *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// tokenLogprobs are under content, or in the shape of completions.
type tokenLogprobs struct {
	Content []struct {
		named
		Top []named `json:"top_logprobs"`
	} `json:"content"`
	Tokens   []string              `json:"tokens"`
	Logprobs []*float64            `json:"token_logprobs"`
	Top      []map[string]*float64 `json:"top_logprobs"`
}

// named is how likely an id is, which builds tell as a number or in a text.
type named struct {
	ID      *uint32  `json:"token_id"`
	Token   string   `json:"token"` // token_id:<number>
	Logprob *float64 `json:"logprob"`
	Rank    int      `json:"rank"` // 0: not told
}

// likelihoods are those at one position of a prompt, by id.
type likelihoods map[string]struct {
	Logprob *float64 `json:"logprob"`
	Rank    int      `json:"rank"`
}

// lenient reads what engines write: numbers of every kind are told as they are.
var lenient = json.JoinOptions(jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))

// answer reads the pieces of one answer. It is plain data.
type answer struct {
	r           *engine.Request
	tellsCached bool

	received int // ids, with those that are left out
	// held is a hidden stop id that came last, until the next id shows that it
	// has stopped nothing.
	held   *engine.Delta
	last   uint32 // the newest id
	reason string // why it ended; "" while it runs
	usage  *usage
	// transfer is what a prefill leg hands over; nil if it is nothing.
	transfer jsontext.Value
	// ids are those of the piece that is being read, if it is a quick one.
	ids   []uint32
	alike alike
}

func (a *answer) finished() bool { return a.reason != "" }

// take returns what several pieces bring that have come together, as one delta. An
// error comes with what was before it; behind the end nothing is one.
func (a *answer) take(pieces [][]byte) (all engine.Delta, err error) {
	for _, data := range pieces {
		over := a.finished()
		d, err := a.read(data)
		switch {
		case err != nil && over:
			continue
		case err != nil:
			return all, err
		}
		if all.TokenIDs == nil && len(d.TokenIDs) > 0 {
			all.TokenIDs = make([]uint32, 0, max(len(pieces), len(d.TokenIDs)))
		}
		all.TokenIDs = append(all.TokenIDs, d.TokenIDs...)
		all.Logprobs = append(all.Logprobs, d.Logprobs...)
		if d.PromptLogprobs != nil {
			all.PromptLogprobs = d.PromptLogprobs
		}
		if d.EngineData != nil {
			all.EngineData = d.EngineData
		}
	}
	return all, nil
}

// read returns what a piece brings, which may be nothing. Its ids may be used until
// the next one is read.
func (a *answer) read(data []byte) (engine.Delta, error) {
	if a.r.Logprobs == nil && streams(a.r) {
		if ids, ok := a.alike.ids(data, a.ids[:0]); ok {
			a.ids = ids
			return a.add(engine.Delta{TokenIDs: ids}, false, "")
		}
		if t, ok := quick(data, a.ids[:0]); ok {
			a.ids = t.ids
			a.alike.learn(data, &t)
			return a.add(engine.Delta{TokenIDs: t.ids}, t.text, t.reason)
		}
	}
	var p piece
	if err := json.Unmarshal(data, &p, lenient); err != nil {
		kind := engine.Internal
		if errors.Is(err, io.ErrUnexpectedEOF) {
			kind = engine.StreamIncomplete
		}
		return engine.Delta{}, &engine.Error{Kind: kind, Message: "vLLM: a piece of the answer cannot be read", Err: err}
	}
	if p.Object == "error" || len(p.Error) > 0 && string(p.Error) != "null" {
		return engine.Delta{}, faultIn(data)
	}
	if p.Usage != nil {
		a.usage = p.Usage
	}
	if p.Transfer != nil {
		a.transfer = p.Transfer
	}
	i := slices.IndexFunc(p.Choices, func(c choice) bool { return c.Index == 0 })
	if i < 0 {
		return engine.Delta{}, nil
	}
	c := &p.Choices[i]
	d := engine.Delta{TokenIDs: c.TokenIDs}
	if err := a.addLogprobs(&d, c.Logprobs); err != nil {
		return engine.Delta{}, err
	}
	if k := a.r.PromptLogprobs; k != nil {
		all := p.PromptLogprobs
		if all == nil {
			all = c.PromptLogprobs
		}
		var err error
		if d.PromptLogprobs, err = promptLogprobs(a.r.TokenIDs, all, *k); err != nil {
			return engine.Delta{}, err
		}
	}
	if c.Experts != nil && c.Experts.Kind() != 'n' {
		var o object
		o.raw("routed_experts", c.Experts)
		d.EngineData = o.end()
	}
	return a.add(d, c.Text != "", c.FinishReason)
}

// add takes in what a piece has brought, and returns what of it is given out: nothing
// of one that comes behind the end.
func (a *answer) add(d engine.Delta, text bool, reason string) (engine.Delta, error) {
	if a.finished() {
		return engine.Delta{}, nil
	}
	if len(d.TokenIDs) == 0 && text {
		return engine.Delta{}, engine.Errorf(engine.Internal, "vLLM: the answer has text and no token ids; builds before 0.10.2 give none")
	}
	if reason != "" {
		a.reason = reason
	}
	return a.hold(d), nil
}

// hold keeps back a hidden stop id at the end of d, and gives out one that has
// turned out to stop nothing.
func (a *answer) hold(d engine.Delta) engine.Delta {
	n := len(d.TokenIDs)
	if n == 0 {
		return d
	}
	a.received += n
	a.last = d.TokenIDs[n-1]
	if a.held != nil {
		d.TokenIDs = append(a.held.TokenIDs, d.TokenIDs...)
		if d.Logprobs != nil {
			d.Logprobs = append(a.held.Logprobs, d.Logprobs...)
		}
		a.held = nil
	}
	if !a.hidden() {
		return d
	}
	n = len(d.TokenIDs)
	a.held = &engine.Delta{TokenIDs: slices.Clone(d.TokenIDs[n-1:])}
	d.TokenIDs = d.TokenIDs[:n-1]
	if d.Logprobs != nil {
		a.held.Logprobs = slices.Clone(d.Logprobs[n-1:])
		d.Logprobs = d.Logprobs[:n-1]
	}
	return d
}

// hidden says whether the newest id ends the answer and is not for the client.
func (a *answer) hidden() bool {
	s := &a.r.Stop
	return a.received >= s.MinTokens && slices.Contains(s.Hidden, a.last) && !slices.Contains(s.IDs, a.last)
}

// terminal returns the last delta of an answer that has finished, or the error
// that its reason stands for. What ended it is found by comparison: builds differ
// in what they say of it.
func (a *answer) terminal() (engine.Delta, error) {
	d := engine.Delta{Usage: a.count()}
	switch a.reason {
	case "abort":
		return engine.Delta{}, engine.Errorf(engine.EngineShutdown, "vLLM has aborted the request")
	case "error":
		return engine.Delta{}, engine.Errorf(engine.Internal, "vLLM has failed at the request")
	}
	switch {
	case a.received > 0 && a.hidden():
		d.Finish = engine.FinishEOS
	case a.reason == "length":
		d.Finish = engine.FinishLength
	case a.reason != "stop":
		d.Finish = engine.FinishStop
		var o object
		o.value("finish_reason", a.reason)
		d.EngineData = o.end()
	case a.received > 0 && slices.Contains(a.r.Stop.IDs, a.last):
		d.Finish, d.MatchedIDs = engine.FinishStop, []uint32{a.last}
	default:
		d.Finish = engine.FinishEOS // one of the engine's own
	}
	return d, nil
}

func (a *answer) count() *engine.Usage {
	u := &engine.Usage{Prompt: len(a.r.TokenIDs), Output: a.received}
	if a.usage == nil {
		return u
	}
	u.Prompt = max(u.Prompt, a.usage.Prompt) // images have more tokens than their place
	if a.tellsCached {
		cached := 0 // older builds leave a zero out
		if a.cachedSeen() {
			cached = min(*a.usage.Details.Cached, u.Prompt)
		}
		u.Cached = &cached
	}
	return u
}

func (a *answer) cachedSeen() bool {
	return a.usage != nil && a.usage.Details != nil && a.usage.Details.Cached != nil
}

// faultIn returns the error that the engine tells inside of a stream.
func faultIn(data []byte) error {
	told := httpapi.Told(data)
	status, err := strconv.Atoi(told.Code)
	if err != nil || status < 400 || status > 599 {
		status = http.StatusInternalServerError
	}
	e := httpapi.ErrorOf(status, nil, data)
	if e.Kind == engine.Internal && strings.Contains(strings.ToLower(told.Type+told.Message), "enginecore") || strings.Contains(told.Type, "EngineDead") {
		e.Kind = engine.EngineShutdown // it will not come back by itself
	}
	return e
}

func statusOf(err error) int {
	if e, ok := errors.AsType[*engine.Error](err); ok {
		return e.Status
	}
	return 0
}

// addLogprobs adds one entry for each id, if they were asked for.
func (a *answer) addLogprobs(d *engine.Delta, told *tokenLogprobs) error {
	if a.r.Logprobs == nil || len(d.TokenIDs) == 0 {
		return nil
	}
	k := *a.r.Logprobs
	if told == nil || max(len(told.Content), len(told.Logprobs)) != len(d.TokenIDs) {
		return engine.Errorf(engine.Internal, "vLLM: %d ids without as many log probabilities", len(d.TokenIDs))
	}
	d.Logprobs = make([]engine.Logprob, len(d.TokenIDs))
	for i, id := range d.TokenIDs {
		var top []engine.Logprob
		var own named
		if len(told.Content) > 0 {
			own = told.Content[i].named
			for j := range told.Content[i].Top {
				top = addNamed(top, &told.Content[i].Top[j])
			}
		} else {
			own.Logprob = told.Logprobs[i]
			if i < len(told.Top) {
				for token, lp := range told.Top[i] {
					top = addNamed(top, &named{Token: token, Logprob: lp})
				}
			}
		}
		d.Logprobs[i] = ranked(id, value(own.Logprob), top, k)
		// The rank of one that is not among the alternatives only the engine knows.
		d.Logprobs[i].Rank = cmp.Or(own.Rank, d.Logprobs[i].Rank)
	}
	return nil
}

// floor is what vLLM says of ids that cannot come.
const floor = -9999

func value(lp *float64) float64 {
	if lp == nil {
		return floor
	}
	return max(*lp, floor)
}

// addNamed adds an alternative. What is named by a text of its own is left out: two
// ids may have one text.
func addNamed(top []engine.Logprob, n *named) []engine.Logprob {
	if n.ID != nil {
		return append(top, engine.Logprob{ID: *n.ID, Logprob: value(n.Logprob), Rank: n.Rank})
	}
	number, ok := strings.CutPrefix(n.Token, "token_id:")
	id, err := strconv.ParseUint(number, 10, 32)
	if !ok || err != nil {
		return top
	}
	return append(top, engine.Logprob{ID: uint32(id), Logprob: value(n.Logprob)})
}

// ranked puts alternatives in falling order and keeps k of them.
func ranked(id uint32, lp float64, top []engine.Logprob, k int) engine.Logprob {
	slices.SortFunc(top, func(a, b engine.Logprob) int {
		return cmp.Or(cmp.Compare(b.Logprob, a.Logprob), cmp.Compare(a.ID, b.ID))
	})
	out := engine.Logprob{ID: id, Logprob: lp}
	for i := range top {
		top[i].Rank = cmp.Or(top[i].Rank, i+1)
		if top[i].ID == id {
			out.Rank = top[i].Rank
		}
	}
	out.Top = top[:min(len(top), k)]
	return out
}

// promptLogprobs returns one entry for each id of the prompt; nothing predicts
// the first.
func promptLogprobs(prompt []uint32, told []likelihoods, k int) ([]engine.Logprob, error) {
	if len(told) != len(prompt) {
		return nil, engine.Errorf(engine.Internal, "vLLM: log probabilities of %d positions for a prompt of %d", len(told), len(prompt))
	}
	out := make([]engine.Logprob, len(prompt))
	for i, id := range prompt {
		if i == 0 || told[i] == nil {
			out[i] = engine.Logprob{ID: id, Logprob: math.NaN()}
			continue
		}
		own := floor + 0.0
		rank := 0
		var top []engine.Logprob
		for name, l := range told[i] {
			other, err := strconv.ParseUint(name, 10, 32)
			if err != nil {
				continue
			}
			top = append(top, engine.Logprob{ID: uint32(other), Logprob: value(l.Logprob)})
			if uint32(other) == id {
				own, rank = value(l.Logprob), l.Rank
			}
		}
		out[i] = ranked(id, own, top, k)
		out[i].Rank = cmp.Or(rank, out[i].Rank)
	}
	return out, nil
}
