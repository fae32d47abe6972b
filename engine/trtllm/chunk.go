package trtllm

import (
	"errors"
	"io"
	"math"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// chunk is one event of a stream, or a whole answer.
type chunk struct {
	Choices []choice       `json:"choices"`
	Usage   *usage         `json:"usage"`
	Prompt  jsontext.Value `json:"prompt_token_ids"`
}

type choice struct {
	TokenIDs []uint32 `json:"token_ids"`
	Logprobs *struct {
		Token []*float64           `json:"token_logprobs"`
		Top   []map[string]float64 `json:"top_logprobs"`
	} `json:"logprobs"`
	Finish string         `json:"finish_reason"`
	Stop   jsontext.Value `json:"stop_reason"`
	Params jsontext.Value `json:"disaggregated_params"`
}

type usage struct {
	Completion int `json:"completion_tokens"`
	Details    *struct {
		Cached *int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

// decodeChunk reads an event, which may tell of a failure instead.
func decodeChunk(data []byte) (*chunk, error) {
	c := new(chunk)
	err := json.Unmarshal(data, c)
	if err == nil && (len(c.Choices) > 0 || c.Usage != nil) {
		return c, nil
	}
	if httpapi.Told(data).Found {
		return nil, httpapi.InStream(data)
	}
	if err != nil {
		// The text of the error may show what was generated.
		kind := engine.Internal
		if errors.Is(err, io.ErrUnexpectedEOF) {
			kind = engine.StreamIncomplete // cut, and whole elsewhere
		}
		return nil, &engine.Error{Kind: kind, Op: "read " + completions, Message: "an event of the stream is no JSON of an answer", FromEngine: true}
	}
	return c, nil
}

// stopID returns the id that the server says ended the choice.
func (c *choice) stopID() (id uint32, told bool) {
	return id, len(c.Stop) > 0 && c.Stop.Kind() == '0' && json.Unmarshal(c.Stop, &id) == nil
}

// logprobs returns one entry for each id. The server names alternatives by their
// texts; those of the ids that were chosen are all that can be told.
func (c *choice) logprobs() ([]engine.Logprob, error) {
	if len(c.TokenIDs) == 0 {
		return nil, nil
	}
	if c.Logprobs == nil || len(c.Logprobs.Token) != len(c.TokenIDs) {
		return nil, &engine.Error{Kind: engine.Internal, Op: "read " + completions, Message: "the server gives not one log probability for each id", FromEngine: true}
	}
	out := make([]engine.Logprob, len(c.TokenIDs))
	for i, lp := range c.Logprobs.Token {
		out[i] = engine.Logprob{ID: c.TokenIDs[i], Logprob: math.Inf(-1)}
		if lp != nil {
			out[i].Logprob = *lp
		}
		if i < len(c.Logprobs.Top) {
			out[i].Rank = rank(out[i].Logprob, c.Logprobs.Top[i])
		}
	}
	return out, nil
}

// rank returns the place of a probability among those listed, from 1 on; 0 if
// none are.
func rank(lp float64, listed map[string]float64) int {
	if len(listed) == 0 {
		return 0
	}
	n := 1
	for _, other := range listed {
		if other > lp {
			n++
		}
	}
	return n
}
