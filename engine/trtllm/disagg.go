package trtllm

import (
	"bytes"
	"context"
	"fmt"
	"strconv"
	"sync"
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

// leg makes the body one of a leg, with the members that the server knows.
func (b *body) leg(r *engine.Request, known fields) error {
	switch r.Disagg.Phase {
	case engine.PhaseWhole:
	case engine.PhasePrefill:
		b.Stream, b.StreamOptions = false, nil
		b.MaxTokens, b.MinTokens = 1, min(b.MinTokens, 1)
		params, err := keepMembers(jsontext.Value(r.Disagg.Handoff), known)
		if err != nil {
			return &engine.Error{Kind: engine.Unsupported, Op: "prefill leg", Message: "the hand-off is none of TensorRT-LLM", Err: err}
		}
		b.Disagg = params
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
	out := []byte{'{'}
	err := eachMember(object, func(k string, v jsontext.Value) {
		if k != name {
			out = appendMember(out, k, v)
		}
	})
	return append(appendMember(out, name, jsontext.Value(value)), '}'), err
}

// keepMembers returns an object without the members that are not known.
func keepMembers(object jsontext.Value, known fields) (jsontext.Value, error) {
	out := []byte{'{'}
	err := eachMember(object, func(k string, v jsontext.Value) {
		if known.has(k) {
			out = appendMember(out, k, v)
		}
	})
	return append(out, '}'), err
}

func appendMember(out []byte, name string, value jsontext.Value) []byte {
	if len(out) > 1 {
		out = append(out, ',')
	}
	out, _ = jsontext.AppendQuote(out, name) // a name that was read can be written
	return append(append(out, ':'), value...)
}

// eachMember reads those of an object, in order.
func eachMember(object jsontext.Value, take func(name string, value jsontext.Value)) error {
	d := jsontext.NewDecoder(bytes.NewReader(object))
	if d.PeekKind() != '{' {
		return fmt.Errorf("want an object, have %.20q", object)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	for d.PeekKind() == '"' {
		key, err := d.ReadToken()
		if err != nil {
			return err
		}
		name := key.String()
		value, err := d.ReadValue()
		if err != nil {
			return err
		}
		take(name, value)
	}
	_, err := d.ReadToken()
	return err
}

// epochOfLegs is when the numbers of pairs of legs began to count.
var epochOfLegs = time.Date(2023, 1, 1, 0, 0, 0, 0, time.UTC)

// legID numbers a pair of legs as the server's own proxy does: 41 bits of
// milliseconds, 10 of the node, 12 that count.
func legID(now time.Time, node, count uint64) int64 {
	ms := uint64(now.Sub(epochOfLegs).Milliseconds()) & (1<<41 - 1)
	return int64(ms<<22 | node&(1<<10-1)<<12 | count&(1<<12-1))
}

// bothAtOnce is the number of the style [GenerationFirst].
const bothAtOnce = 1

// Prepare implements [engine.Disaggregator]: it names the pair of legs. The decode
// leg begins with what the prefill leg hands over; or at once, if the servers do
// that, with where it is to meet the other.
func (e *Engine) Prepare(_ context.Context, q engine.HandoffQuery) (engine.Handoff, error) {
	id := strconv.FormatInt(legID(time.Now(), e.node, e.legs.Add(1)), 10)
	prefill := `{"request_type":"context_only","disagg_request_id":` + id
	if !e.config.GenerationFirst {
		return engine.Handoff{ID: id, Prefill: []byte(prefill + "}")}, nil
	}
	meeting := e.about.Load().meeting
	if meeting == nil {
		return engine.Handoff{}, engine.Errorf(engine.Unavailable, "it is not known yet where decode servers meet this one")
	}
	style := fmt.Sprintf(`,"schedule_style":%d`, bothAtOnce)
	decode := `{"disaggregated_params":{"request_type":"generation_only","ctx_request_id":` + id + `,"disagg_request_id":` + id + style + "," + string(meeting[1:]) + "}"
	return engine.Handoff{ID: id, Concurrent: true, Prefill: []byte(prefill + style + "}"), Decode: []byte(decode)}, nil
}

// meeting asks a prefill server where decode servers meet it; nil if it does not
// tell.
func (e *Engine) meeting(ctx context.Context) []byte {
	text, err := e.client.Get(ctx, "/server_info")
	if err != nil {
		return nil
	}
	var info struct {
		Params struct {
			Rank *int64         `json:"ctx_dp_rank"`
			At   jsontext.Value `json:"ctx_info_endpoint"`
		} `json:"disaggregated_params"`
	}
	if json.Unmarshal(text, &info) != nil {
		return nil
	}
	at := info.Params.At
	var several []jsontext.Value
	if json.Unmarshal(at, &several) == nil && len(several) > 0 {
		at = several[0] // a list from the server, one of them in a request
	}
	if at.Kind() != '"' {
		return nil
	}
	out := appendMember([]byte{'{'}, "ctx_info_endpoint", at)
	if r := info.Params.Rank; r != nil {
		out = appendMember(out, "ctx_dp_rank", strconv.AppendInt(nil, *r, 10))
	}
	return append(out, '}')
}

// linger says how long a leg goes on without its client: one that has to fetch a
// prompt until it has it, and one that the other waits for to its end.
func (e *Engine) linger(phase engine.Phase) engine.Outliving[engine.Delta] {
	o := engine.Outliving[engine.Delta]{Life: e.alone, Group: &e.outer, Most: 300 * time.Second}
	if phase == engine.PhaseDecode {
		o.Enough, o.Most = func(engine.Delta) bool { return true }, 30*time.Second
	}
	return o
}

// hold keeps Close from returning while a leg begins, until what it returns is
// called.
func (e *Engine) hold() (release func()) {
	e.gate.Lock()
	defer e.gate.Unlock()
	if e.closed.Load() {
		return func() {}
	}
	e.outer.Add(1)
	return sync.OnceFunc(e.outer.Done)
}

// Release implements [engine.Disaggregator]. The server lets go by itself, once
// the blocks have been fetched or its own time for that is over.
func (e *Engine) Release(context.Context, string) error { return nil }
