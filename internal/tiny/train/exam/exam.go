// Package exam asks a model what it should have learned, and marks its answers.
//
// The one idea: what counts is what an agent would make of an answer. Of a call
// that is its name and its arguments, as JSON; of a sum the number, of a look-up
// and of a tool's result the value. Only where nothing but the words matter, the
// words must be the same.
package exam

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/internal/tiny/train/talk"
	"github.com/dynago/dynago/tokenizer"
)

// Question is the beginning of a conversation, up to where the model answers.
type Question struct {
	Task   talk.Task
	Prompt string // as the template renders it
	Want   string // the answer, up to the token that ends it
	Key    string // what must be in its text, or empty
}

// end is the token that ends a turn.
const end = "<|im_end|>"

// Questions returns one question for each answer in a conversation that is an
// example of one.
func Questions(t *talk.Talk, template *chattemplate.Template) ([]Question, error) {
	var out []Question
	n := 0
	for i, turn := range t.Request.Turns {
		if turn.Role != "assistant" {
			continue
		}
		a := t.Answers[n]
		n++
		if a.Given || a.Formed {
			continue
		}
		before, with := t.Request, t.Request
		before.Turns, with.Turns = t.Request.Turns[:i], t.Request.Turns[:i+1]
		prompt, err := template.Render(&before, chattemplate.Options{AddGenerationPrompt: true})
		if err != nil {
			return nil, err
		}
		whole, err := template.Render(&with, chattemplate.Options{})
		if err != nil {
			return nil, err
		}
		want, ok := strings.CutPrefix(whole, prompt)
		want, _, ended := strings.Cut(want, end)
		if !ok || !ended {
			return nil, fmt.Errorf("the answer does not follow its prompt in %q", whole)
		}
		out = append(out, Question{a.Task, prompt, want, a.Key})
	}
	return out, nil
}

// Right tells whether what the model said, up to the token that ends it, is right.
func (q *Question) Right(said string) bool {
	text, calls, ok := read(said)
	wantText, wantCalls, _ := read(q.Want)
	switch {
	case !ok || !reflect.DeepEqual(calls, wantCalls):
		return false
	case len(wantCalls) > 0:
		return true
	case q.Task == talk.Sum || q.Task == talk.Head:
		return lastNumber(text) == q.Key
	case q.Key != "":
		return strings.Contains(text, q.Key)
	}
	return text == wantText
}

// call is a call of a tool.
type call struct {
	Name      string         `json:"name"`
	Arguments map[string]any `json:"arguments"`
}

// read takes an answer apart: its text without the thought, and its calls. It is
// not ok if a call is no JSON.
func read(said string) (text string, calls []call, ok bool) {
	if thought, rest, found := strings.Cut(said, "</think>"); found && strings.HasPrefix(thought, "<think>") {
		said = rest
	}
	text, rest, _ := strings.Cut(said, "<tool_call>")
	for rest != "" {
		body, more, closed := strings.Cut(rest, "</tool_call>")
		var c call
		dec := json.NewDecoder(strings.NewReader(body))
		dec.DisallowUnknownFields()
		if !closed || dec.Decode(&c) != nil {
			return text, nil, false
		}
		calls = append(calls, c)
		_, rest, _ = strings.Cut(more, "<tool_call>")
	}
	return strings.TrimSpace(text), calls, true
}

var number = regexp.MustCompile(`-?[0-9]+`)

func lastNumber(text string) string {
	all := number.FindAllString(text, -1)
	if len(all) == 0 {
		return ""
	}
	return strings.TrimPrefix(all[len(all)-1], "-")
}

// Pupil answers by a model, always with the token that is most likely. It is for
// one goroutine at a time.
type Pupil struct {
	model  *llama.Model
	tok    *tokenizer.Tokenizer
	cache  *llama.Cache
	blocks []int32
	logits []float32
}

const blockSize = 16

// NewPupil returns a pupil that reads and writes by a tokenizer.
func NewPupil(model *llama.Model, tok *tokenizer.Tokenizer) *Pupil {
	n := (model.Config().Context + blockSize - 1) / blockSize
	p := &Pupil{model: model, tok: tok, cache: model.NewCache(n, blockSize), logits: make([]float32, model.Config().Vocab)}
	for i := range n {
		p.blocks = append(p.blocks, int32(i))
	}
	return p
}

// limit is the longest answer, in tokens. The longest right one is shorter.
const limit = 400

// Answer returns what the model says to a prompt, up to the token that ends it or
// to the limit.
func (p *Pupil) Answer(prompt string) (string, error) {
	stop, ok := p.tok.ID(end)
	if !ok {
		return "", errors.New("the tokenizer has no " + end)
	}
	ids := p.tok.Append(nil, prompt)
	at := 0
	var said bytes.Buffer
	for range limit {
		if at+len(ids) > p.model.Config().Context {
			break
		}
		if err := p.model.Forward(p.cache, []llama.Span{{Tokens: ids, Start: at, Blocks: p.blocks, Logits: p.logits}}); err != nil {
			return "", err
		}
		at += len(ids)
		best := likeliest(p.logits)
		if best == stop {
			break
		}
		said.Write(p.tok.Bytes(best))
		ids = append(ids[:0], best)
	}
	return said.String(), nil
}

func likeliest(logits []float32) uint32 {
	best := 0
	for i, l := range logits {
		if l > logits[best] {
			best = i
		}
	}
	return uint32(best)
}

// Marks are the answers of one task, and how many of them were right.
type Marks struct{ Right, Asked int }

// Report tells how a model did.
type Report map[talk.Task]Marks

// Add counts one answer.
func (r Report) Add(task talk.Task, right bool) {
	m := r[task]
	m.Asked++
	if right {
		m.Right++
	}
	r[task] = m
}

// Percent returns the share of right answers over all tasks.
func (r Report) Percent() float64 {
	var all Marks
	for _, m := range r {
		all.Asked += m.Asked
		all.Right += m.Right
	}
	return 100 * float64(all.Right) / float64(max(all.Asked, 1))
}

// String lists the tasks in their order, a line for each.
func (r Report) String() string {
	var b strings.Builder
	for _, task := range slices.Sorted(maps.Keys(r)) {
		m := r[task]
		fmt.Fprintf(&b, "%-20s %5.1f %% of %d\n", task, 100*float64(m.Right)/float64(m.Asked), m.Asked)
	}
	fmt.Fprintf(&b, "%-20s %5.1f %%\n", "all", r.Percent())
	return b.String()
}
