//go:build e2e

package e2e_test

import (
	"bufio"
	"encoding/json"
	"fmt"
	"strings"
)

// usage is what the server counted of one request.
type usage struct{ prompt, cached, output int }

// counted reads the usage from an answer in any of the three APIs, a stream or not.
func (p *trip) counted() (u usage, ok bool) {
	type counts struct {
		PromptTokens     int `json:"prompt_tokens"`
		CompletionTokens int `json:"completion_tokens"`
		InputTokens      int `json:"input_tokens"`
		OutputTokens     int `json:"output_tokens"`
		CacheRead        int `json:"cache_read_input_tokens"`
		CacheCreation    int `json:"cache_creation_input_tokens"`
		Prompt           struct {
			Cached int `json:"cached_tokens"`
		} `json:"prompt_tokens_details"`
		Input struct {
			Cached int `json:"cached_tokens"`
		} `json:"input_tokens_details"`
	}
	var event struct {
		Usage    *counts
		Response struct{ Usage *counts }
	}
	text := p.text()
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		line, isEvent := strings.CutPrefix(lines.Text(), "data: ")
		if !isEvent {
			line = lines.Text()
		}
		event.Usage, event.Response.Usage = nil, nil
		if json.Unmarshal([]byte(line), &event) != nil {
			continue
		}
		c := event.Usage
		if c == nil {
			c = event.Response.Usage
		}
		switch {
		case c == nil:
		case p.path == "/v1/messages":
			u, ok = usage{c.InputTokens + c.CacheRead + c.CacheCreation, c.CacheRead, c.OutputTokens}, true
		case p.path == "/v1/responses":
			u, ok = usage{c.InputTokens, c.Input.Cached, c.OutputTokens}, true
		default:
			u, ok = usage{c.PromptTokens, c.Prompt.Cached, c.CompletionTokens}, true
		}
	}
	return u, ok
}

// reuse is what a prompt begins with of the turn before it, in tokens.
type reuse struct {
	prompt, ofPrompt int
	output, ofOutput int
}

func (r reuse) String() string {
	return fmt.Sprintf("%d/%d+%d/%d", r.prompt, r.ofPrompt, r.output, r.ofOutput)
}

// block is the size of the blocks in which the engines count what is cached.
const block = 2

// reuses compares each turn of a conversation with the one before it, by what the
// only worker found in its cache: that is whole blocks, and never the last token
// of an answer, which is not computed.
func reuses(talk []*trip) []reuse {
	var all []reuse
	var last usage
	for _, p := range talk {
		u, ok := p.counted()
		if !ok {
			continue
		}
		if last.prompt > 0 {
			r := reuse{ofPrompt: last.prompt / block * block}
			r.ofOutput = (last.prompt+last.output-1)/block*block - r.ofPrompt
			r.prompt = min(u.cached, r.ofPrompt)
			r.output = min(u.cached-r.prompt, r.ofOutput)
			all = append(all, r)
		}
		last = u
	}
	return all
}
