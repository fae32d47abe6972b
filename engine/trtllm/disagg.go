package trtllm

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine"
)

// handoff is what a prefill leg leaves for the decode leg: the server's own two
// values, byte for byte. Numbers in them are larger than a float64 holds.
type handoff struct {
	Prompt jsontext.Value `json:"prompt_token_ids"`
	Params jsontext.Value `json:"disaggregated_params"`
}

// leg makes the body one of a leg.
func (b *body) leg(r *engine.Request) error {
	switch r.Disagg.Phase {
	case engine.PhaseWhole:
	case engine.PhasePrefill:
		b.Stream, b.StreamOptions = false, nil
		b.MaxTokens, b.MinTokens = 1, 0
		b.Disagg = jsontext.Value(r.Disagg.Handoff)
	case engine.PhaseDecode:
		var h handoff
		if err := json.Unmarshal(r.Disagg.Handoff, &h); err != nil || len(h.Params) == 0 {
			return &engine.Error{Kind: engine.Unsupported, Op: "decode leg", Message: "the hand-off is none of TensorRT-LLM", Err: err}
		}
		params, err := replaceMember(h.Params, "request_type", `"generation_only"`)
		if err != nil {
			return &engine.Error{Kind: engine.Unsupported, Op: "decode leg", Message: "the hand-off is none of TensorRT-LLM", Err: err}
		}
		b.Disagg = params
		if ids := flat(h.Prompt); len(ids) > 0 {
			b.Prompt = ids
		}
	default:
		return engine.Errorf(engine.Unsupported, "phase %q is not available on TensorRT-LLM", r.Disagg.Phase)
	}
	return nil
}

// flat returns the ids of a prompt, which some versions wrap in a list of
// prompts; nil if there are none.
func flat(prompt jsontext.Value) jsontext.Value {
	var many []jsontext.Value
	if json.Unmarshal(prompt, &many) != nil || len(many) == 0 {
		return nil
	}
	if many[0].Kind() == '[' {
		return many[0]
	}
	return prompt
}

// replaceMember returns an object with one member changed, or added, and all
// others as they were.
func replaceMember(object jsontext.Value, name, value string) (jsontext.Value, error) {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if d.PeekKind() != '{' {
		return nil, fmt.Errorf("want an object, have %.20q", object)
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	out := []byte{'{'}
	member := func(name string, value []byte) {
		if len(out) > 1 {
			out = append(out, ',')
		}
		out, _ = jsontext.AppendQuote(out, name) // a name that was read can be written
		out = append(append(out, ':'), value...)
	}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return nil, err
		}
		k := key.String()
		v, err := d.ReadValue()
		if err != nil {
			return nil, err
		}
		if k != name {
			member(k, v)
		}
	}
	if _, err := d.ReadToken(); err != nil {
		return nil, err
	}
	member(name, []byte(value))
	return append(out, '}'), nil
}

// epochOfLegs is when the numbers of pairs of legs began to count.
var epochOfLegs = time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)

// legID numbers a pair of legs as the server's own proxy does: 41 bits of
// milliseconds, 10 of the node, 12 that count.
func legID(now time.Time, node, count uint64) int64 {
	ms := uint64(now.Sub(epochOfLegs).Milliseconds()) & (1<<41 - 1)
	return int64(ms<<22 | node&(1<<10-1)<<12 | count&(1<<12-1))
}

// Prepare implements [engine.Disaggregator]: it names the pair of legs. The
// decode leg begins with what the prefill leg hands over.
func (e *Engine) Prepare(_ context.Context, q engine.HandoffQuery) (engine.Handoff, error) {
	id := legID(time.Now(), e.node, e.legs.Add(1))
	params := fmt.Sprintf(`{"request_type":"context_only","disagg_request_id":%d}`, id)
	return engine.Handoff{ID: strconv.FormatInt(id, 10), Prefill: []byte(params)}, nil
}

// Release implements [engine.Disaggregator]. The server lets go by itself, once
// the blocks have been fetched or its own time for that is over.
func (e *Engine) Release(context.Context, string) error { return nil }
