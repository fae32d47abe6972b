package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strconv"
	"time"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/sim/trace"
)

// The tokens of workloads are those of large vocabularies. They are folded into these,
// which every model has, none of them a control token of the demo model.
const (
	firstToken = 100
	tokens     = 8000
)

// blockTokens is how many tokens a block of the workers has.
const blockTokens = 64

// body writes a request.
func (p *player) body(r *trace.Request) []byte {
	b := make([]byte, 0, 6*r.Prompt.Len()+400)
	b = append(b, `{"model":`...)
	b = strconv.AppendQuote(b, p.model)
	b = append(b, `,"ignore_eos":true,"max_tokens":`...)
	b = strconv.AppendInt(b, int64(r.Answer.Len()), 10)
	b = append(b, `,"prompt":[`...)
	for _, id := range p.tokens(r.Prompt) {
		b = append(strconv.AppendUint(b, uint64(id), 10), ',')
	}
	b[len(b)-1] = ']'
	if !p.whole {
		b = append(b, `,"stream":true,"stream_options":{"include_usage":true}`...)
	}
	if said := p.said(r); len(said) > 0 {
		text, err := json.Marshal(said)
		if err != nil {
			panic(err) // texts and numbers always marshal
		}
		b = append(append(b, `,"nvext":`...), text...)
	}
	return append(b, '}')
}

// said is what a request says in its extension object.
func (p *player) said(r *trace.Request) map[string]any {
	said := map[string]any{}
	if p.whole {
		said["extra_fields"] = []string{"completion_token_ids", "timing"}
	}
	if !p.tag {
		return said
	}
	hints := map[string]int{}
	if r.Priority > 0 { // seconds
		hints["priority"] = int(math.Round(r.Priority / p.speed))
	}
	if r.StrictPriority > 0 {
		hints["strict_priority"] = int(r.StrictPriority)
	}
	if len(hints) > 0 {
		said["agent_hints"] = hints
	}
	if len(r.KV.Pins) > 0 {
		said["cache_control"] = map[string]any{"ttl": int(math.Round(p.faster(r.KV.Pins[0].TTL).Seconds()))}
	}
	return said
}

// tokens writes a prompt out, with what the server has answered where it repeats that.
func (p *player) tokens(t trace.Text) []uint32 {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := make([]uint32, 0, t.Len())
	for _, piece := range t {
		if answer, ok := p.answers[piece.Stream]; ok {
			all = append(all, answer[piece.From:piece.From+piece.Len]...)
			continue
		}
		from := len(all)
		all = trace.Text{piece}.Append(all)
		for i := range all[from:] {
			all[from+i] = firstToken + all[from+i]%tokens
		}
	}
	return all
}

// ask sends a request that was due at some time, and returns what came of it.
func (p *player) ask(ctx context.Context, r *trace.Request, body []byte, due time.Time) (o agents.Outcome, err error) {
	o = agents.Outcome{ID: r.ID, Session: r.Session, Input: r.Prompt.Len(), Arrived: p.at(due)}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/v1/completions", bytes.NewReader(body))
	if err != nil {
		return o, err
	}
	request.Header.Set("Content-Type", "application/json")
	if p.tag && r.Session != "" {
		request.Header.Set("x-dynamo-session-id", r.Session)
		request.Header.Set("x-dynamo-parent-session-id", r.Parent)
		request.Header.Set("x-dynamo-session-final", strconv.FormatBool(r.KV.EvictSession))
	}
	resp, err := p.client.Do(request)
	if err != nil {
		return o, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(resp.Body, 300))
		return o, fmt.Errorf("status %d: %s", resp.StatusCode, text)
	}
	var a answer
	if p.whole {
		err = a.read(resp.Body)
	} else {
		err = a.follow(resp.Body)
	}
	end := time.Now()
	switch {
	case err != nil:
		return o, err
	case a.Usage.Completion != r.Answer.Len() || a.Usage.Prompt != o.Input:
		return o, fmt.Errorf("%d tokens in, %d out: want %d, %d", a.Usage.Prompt, a.Usage.Completion, o.Input, r.Answer.Len())
	}
	o.Cached, o.Pinned = a.Usage.Details.Cached, a.Extra.CacheControl.Pinned*blockTokens
	o.First, o.Ended = p.at(a.first), p.at(end)
	// Of an answer that streams the wait for a batch was no longer than this. Of one that
	// does not, all else is short beside what was computed.
	o.Admitted = o.First
	if p.whole {
		o.Admitted = o.Arrived
		o.First = p.at(due.Add(time.Duration(a.Extra.Timing.TTFT * float64(time.Millisecond))))
		p.mu.Lock()
		p.answers[r.Answer[0].Stream] = a.Extra.IDs
		p.mu.Unlock()
	}
	return o, nil
}

// answer is what an answer, or the last chunk of a stream, tells.
type answer struct {
	Usage struct {
		Prompt     int `json:"prompt_tokens"`
		Completion int `json:"completion_tokens"`
		Details    struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
	} `json:"usage"`
	Extra struct {
		IDs          []uint32 `json:"completion_token_ids"`
		CacheControl struct {
			Pinned int `json:"pinned_blocks"`
		} `json:"cache_control"`
		Timing struct {
			TTFT float64 `json:"ttft_ms"`
		} `json:"timing"`
	} `json:"nvext"`

	first time.Time // when the first chunk of a stream came
}

func (a *answer) read(from io.Reader) error {
	if err := json.NewDecoder(from).Decode(a); err != nil {
		return fmt.Errorf("the answer: %w", err)
	}
	if len(a.Extra.IDs) != a.Usage.Completion {
		return fmt.Errorf("%d ids of %d tokens", len(a.Extra.IDs), a.Usage.Completion)
	}
	return nil
}

// follow reads a stream to its end.
func (a *answer) follow(from io.Reader) error {
	lines := bufio.NewReader(from)
	var last []byte
	for {
		line, err := lines.ReadSlice('\n')
		if err != nil {
			return fmt.Errorf("the stream: %w", err)
		}
		data, ok := bytes.CutPrefix(line, []byte("data: "))
		if !ok {
			continue
		}
		if a.first.IsZero() {
			a.first = time.Now()
		}
		if bytes.HasPrefix(data, []byte("[DONE]")) {
			break
		}
		last = append(last[:0], data...)
	}
	if err := json.Unmarshal(last, a); err != nil {
		return errors.Join(errors.New("the last chunk of a stream has no usage"), err)
	}
	return nil
}
