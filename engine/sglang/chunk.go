package sglang

import (
	"errors"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// chunk is one event of an answer.
type chunk struct {
	IDs   []uint32       `json:"output_ids"`
	Meta  *meta          `json:"meta_info"`
	Error jsontext.Value `json:"error"`
}

type meta struct {
	Finish         *finish        `json:"finish_reason"`
	Completion     *int           `json:"completion_tokens"`
	Cached         *int           `json:"cached_tokens"`
	CachedDetails  jsontext.Value `json:"cached_tokens_details"`
	Experts        jsontext.Value `json:"routed_experts"`
	Reasoning      *int           `json:"reasoning_tokens"`
	OutputLogprobs []entry        `json:"output_token_logprobs"`
	OutputTop      [][]entry      `json:"output_top_logprobs"`
	InputLogprobs  []entry        `json:"input_token_logprobs"`
	InputTop       [][]entry      `json:"input_top_logprobs"`
}

type finish struct {
	Type    string         `json:"type"`
	Matched jsontext.Value `json:"matched"`
	Message string         `json:"message"`
	Status  int            `json:"status_code"`
}

// matched returns what ended the answer: ids, or a text, or neither.
func (f *finish) matched() (ids []uint32, text string) {
	switch f.Matched.Kind() {
	case '0':
		if id, err := strconv.ParseUint(string(f.Matched), 10, 32); err == nil {
			ids = []uint32{uint32(id)}
		}
	case '[':
		if json.Unmarshal(f.Matched, &ids) != nil {
			ids = nil
		}
	case '"':
		if json.Unmarshal(f.Matched, &text) != nil {
			text = ""
		}
	}
	return ids, text
}

// entry is a log probability as the server writes it: [logprob, id, text].
type entry struct {
	id      uint32
	logprob float64
}

// impossible stands for a log probability that the server does not name: its
// infinity has no spelling in JSON.
const impossible = -9999

// UnmarshalJSONFrom reads one. Whatever follows the id is passed over.
func (e *entry) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	var parts []jsontext.Value
	if err := json.UnmarshalDecode(d, &parts); err != nil {
		return err
	}
	if len(parts) < 2 {
		return engine.Errorf(engine.Internal, "a log probability of %d parts", len(parts))
	}
	e.logprob = impossible
	if parts[0].Kind() == '0' {
		if err := json.Unmarshal(parts[0], &e.logprob); err != nil {
			return err
		}
	}
	return json.Unmarshal(parts[1], &e.id)
}

// decode reads one event. What the server says about a failure becomes one.
func decode(data []byte) (*chunk, error) {
	var c chunk
	err := json.Unmarshal(data, &c, jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	switch {
	case errors.Is(err, io.ErrUnexpectedEOF):
		return nil, engine.Errorf(engine.StreamIncomplete, "sglang: the stream ended within a chunk")
	case err != nil:
		// The text of the error may show what was generated.
		return nil, engine.Errorf(engine.Internal, "sglang: a chunk of %d bytes is none of an answer", len(data))
	case len(c.Error) > 0 && c.Error.Kind() != 'n':
		return nil, refusal(data)
	case c.Meta == nil || c.Meta.Completion == nil && !c.Meta.aborts():
		return nil, engine.Errorf(engine.Internal, "sglang: a chunk without meta_info.completion_tokens")
	}
	return &c, nil
}

// refusal is the error that an event tells of. What is wrong with a request the
// server says in its stream, with no status, where it would have answered 400: a
// failure of its own is none of these, or names one.
func refusal(data []byte) error {
	if httpapi.Told(data).Code == "" {
		return httpapi.ErrorOf(http.StatusBadRequest, nil, data)
	}
	return httpapi.InStream(data)
}

// aborts says whether the answer ends with a failure. Some builds count nothing then.
func (m *meta) aborts() bool { return m.Finish != nil && m.Finish.Type == "abort" }

// aborted is the failure behind a finish of type abort. One that names no status
// was aborted from outside, as the server does when it goes or is paused.
func (f *finish) aborted() error {
	if f.Status < 400 {
		return &engine.Error{Kind: engine.EngineShutdown, Message: f.Message, FromEngine: true}
	}
	body, err := json.Marshal(map[string]any{"error": map[string]string{"message": f.Message}})
	if err != nil {
		return engine.Errorf(engine.Internal, "sglang: aborted with status %d", f.Status)
	}
	return httpapi.ErrorOf(f.Status, nil, body)
}

// form says what the ids of a chunk are: all so far, or the new ones.
type form uint8

const (
	undecided form = iota
	cumulative
	pieces
)

// follower tells the new ids of a stream from those that were there before.
type follower struct {
	form form
	sent int
}

// next returns how many ids at the end of a chunk of n are new, where the server
// counts total of the whole answer. It may be said by the numbers alone, from
// the second chunk with ids on.
func (f *follower) next(n, total int) (fresh int, err error) {
	all := n == total
	piece := f.sent+n == total
	switch {
	case f.sent == 0 && all:
		fresh = n
	case f.form != pieces && all:
		// Shorter than what was there: the server took the request back and
		// computes it again.
		f.form = cumulative
		fresh = max(0, n-f.sent)
	case f.form != cumulative && piece:
		if n > 0 {
			f.form = pieces
		}
		fresh = n
	case n == 0 && total <= f.sent:
		// A word about the stream and no news of it.
	case f.sent+n < total:
		// Builds that send pieces leave some out when their front cannot keep up. What
		// came before stands, and is carried on elsewhere.
		return 0, engine.Errorf(engine.StreamIncomplete, "sglang: a chunk of %d ids after %d, where the server counts %d", n, f.sent, total)
	default:
		return 0, engine.Errorf(engine.Internal, "sglang: a chunk of %d ids after %d, where the server counts %d", n, f.sent, total)
	}
	f.sent += fresh
	return fresh, nil
}

// logprobs turns entries into ours: alternatives in falling order, at most k.
func logprobs(entries []entry, tops [][]entry, k int) []engine.Logprob {
	out := make([]engine.Logprob, len(entries))
	for i, e := range entries {
		out[i] = engine.Logprob{ID: e.id, Logprob: e.logprob}
		if k == 0 || i >= len(tops) {
			continue
		}
		top := slices.Clone(tops[i])
		slices.SortStableFunc(top, func(a, b entry) int {
			switch {
			case a.logprob > b.logprob:
				return -1
			case a.logprob < b.logprob:
				return 1
			}
			return 0
		})
		for rank, t := range top {
			if t.id == e.id {
				out[i].Rank = rank + 1
			}
			if rank < k {
				out[i].Top = append(out[i].Top, engine.Logprob{ID: t.id, Logprob: t.logprob, Rank: rank + 1})
			}
		}
	}
	return out
}

// last returns the last n of s, and false if it has fewer.
func last[T any](s []T, n int) ([]T, bool) {
	if len(s) < n {
		return nil, false
	}
	return s[len(s)-n:], true
}

// promptLogprobs are those of the prompt, whose first position has none.
func promptLogprobs(m *meta, k int) []engine.Logprob {
	out := logprobs(m.InputLogprobs, m.InputTop, k)
	out[0].Logprob, out[0].Rank, out[0].Top = math.NaN(), 0, nil
	return out
}
