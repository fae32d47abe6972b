package prompt

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/tokenizer"
)

// Prompt is a request as an engine sees it, and what the way up must know of
// the way down.
type Prompt struct {
	IDs []uint32
	// Text is the conversation as the template lays it out, for clients that have
	// asked for it; empty for all others.
	Text string
	// Start is the state in which the answer begins: a template may have opened
	// a thought already.
	Start parser.Start
	Stop  engine.Stop
	// Render and Tokenize are how long the two steps took.
	Render, Tokenize time.Duration

	// Marked is the offset of the last of the places in the request's Cache, as
	// [Model.Offsets] tells it; 0 if there is none. Each place costs two renderings of
	// the conversation up to there, and nobody asks for the others.
	Marked int
	// Offsets are those of the places that Build was asked for.
	Offsets []int

	opening *opening // where the answer begins; nil if no text of it is known
}

// tailIDs is how many ids at the end of a prompt decide how its answer begins,
// where no text of it exists.
const tailIDs = 32

// unknownRoom is how long an answer may be where the context length is unknown:
// engines want a number, and will refuse what they cannot hold.
const unknownRoom = 1 << 20

// Build makes the prompt of a request, and tells where places are in it, as
// [Model.Offsets] does. Failures are the client's: errors of kind invalid_argument
// that name the field at fault.
func (m *Model) Build(r *chat.Request, ext *nvext.Ext, places ...chat.Breakpoint) (_ *Prompt, err error) {
	defer catchPattern(r, &err)
	p := &Prompt{}
	w, err := m.fill(p, r, ext, true, len(r.Cache) > 0 || len(places) > 0)
	if err != nil {
		return nil, err
	}
	if err := m.limit(p, r); err != nil {
		return nil, err
	}
	if len(places) > 0 {
		if p.Offsets, err = m.offsets(w, r, places); err != nil {
			return nil, err
		}
	}
	if len(r.Cache) > 0 {
		if p.Marked, err = m.marked(w, r); err != nil {
			return nil, err
		}
	}
	if !r.Sampling.IgnoreEOS {
		for _, id := range m.EOS {
			// An id that is both the model's and the client's counts as the
			// client's.
			if !slices.Contains(r.Sampling.StopIDs, id) {
				p.Stop.Hidden = append(p.Stop.Hidden, id)
			}
		}
	}
	p.Stop.IDs = r.Sampling.StopIDs
	p.Stop.MinTokens = r.Sampling.MinTokens
	return p, nil
}

// fill sets IDs and Start from whatever the request carries: ids, a raw text,
// or turns for the chat template. With limited set it gives up on a text that
// cannot fit. It returns the walk through the text of a conversation, nil for
// what else a prompt can be, with its places if they are wanted.
func (m *Model) fill(p *Prompt, r *chat.Request, ext *nvext.Ext, limited, places bool) (*walk, error) {
	field := fieldOf(r)
	var data []uint32
	if r.Prompt != nil {
		data = r.Prompt.IDs
	}
	if ext != nil && ext.TokenData != nil {
		field = "nvext.token_data"
		if data != nil && !slices.Equal(data, ext.TokenData) {
			return nil, invalid(field, "prompt and nvext.token_data differ; send one of them")
		}
		data = ext.TokenData
	}
	if data != nil {
		if len(data) == 0 {
			return nil, invalid(field, "%s must have at least one token id", field)
		}
		for i, id := range data {
			if int(id) >= m.VocabularySize {
				return nil, invalid(field, "token id %d at index %d is not in the vocabulary of %d tokens", id, i, m.VocabularySize)
			}
		}
		p.IDs = data
		if r.Prompt == nil && ext.Annotated(nvext.AnnotatePrompt) {
			var err error
			if p.Text, _, err = m.text(p, r, ext); err != nil {
				return nil, err
			}
		}
		p.Start = m.Family.StartOf(m.Tokenizer.Decode(data[max(0, len(data)-tailIDs):], false))
		return nil, nil
	}

	text, how, err := m.text(p, r, ext)
	if err != nil {
		return nil, err
	}
	if r.Prompt == nil && ext.Annotated(nvext.AnnotatePrompt) {
		p.Text = text
	}
	if limited {
		if n := m.fewest(text); m.ContextLength > 0 && n >= m.ContextLength {
			return nil, m.tooLong(r, n, "at least ")
		}
	}
	begin := time.Now()
	var w *walk
	// A template writes its own special tokens; a bare prompt gets those of the
	// post-processor.
	if r.Prompt != nil && !r.Prompt.NoSpecialTokens {
		p.IDs = m.Tokenizer.AppendWithSpecial(make([]uint32, 0, len(text)/3+16), text)
	} else {
		w = m.walk(r, text, how)
		w.note = places
		w.run()
		p.IDs, p.opening = w.ids, w.opening(len(r.Turns))
	}
	p.Tokenize = time.Since(begin)
	if len(p.IDs) == 0 {
		return nil, invalid(field, "the prompt is empty")
	}
	p.Start = m.Family.StartOf(text)
	if r.Prompt != nil || how.raw {
		return nil, nil
	}
	return w, nil
}

// text returns the prompt as text, and how it is to be read.
func (m *Model) text(p *Prompt, r *chat.Request, ext *nvext.Ext) (string, encoding, error) {
	switch {
	case r.Prompt != nil:
		return r.Prompt.Text, encoding{}, nil
	case ext != nil && ext.UseRawPrompt != nil && *ext.UseRawPrompt:
		if len(r.System) != 0 || len(r.Turns) != 1 {
			return "", encoding{}, invalid("nvext.use_raw_prompt", "nvext.use_raw_prompt requires exactly one text message")
		}
		var b strings.Builder
		for _, block := range r.Turns[0].Blocks {
			if block.Kind != chat.Text {
				return "", encoding{}, invalid("nvext.use_raw_prompt", "nvext.use_raw_prompt requires exactly one text message")
			}
			b.WriteString(block.Text)
		}
		return b.String(), encoding{raw: true}, nil
	case m.Template == nil:
		return "", encoding{}, invalid("model", "model %q has no chat template; use the completions API", r.Model)
	}
	begin := time.Now()
	text, how, err := m.render(r, chattemplate.Options{AddGenerationPrompt: true, HideTools: r.ToolChoice.Hidden})
	p.Render = time.Since(begin)
	return text, how, err
}

// render lays a conversation out by the chat template. Only a conversation says
// things that must not be structure: who sends a bare prompt writes all of it.
func (m *Model) render(r *chat.Request, o chattemplate.Options) (string, encoding, error) {
	var (
		out chattemplate.Rendered
		how encoding
		err error
	)
	if m.AllowSpecialInContent || m.encoder.controls == nil {
		out.Text, err = m.Template.Render(r, o)
	} else {
		out, err = m.Template.RenderInert(r, o, m.encoder.controls)
		how = encoding{literal: true, inert: out.Inert}
	}
	var (
		raised *chattemplate.TemplateError
		tool   *chattemplate.ToolError
		args   *chattemplate.ArgsError
	)
	switch {
	case err == nil:
		return out.Text, how, nil
	case errors.Is(err, chattemplate.ErrNotShown) && r.API == chat.APIMessages:
		// There the last turn is gone on with where that can be, and nobody has
		// said that it must.
		history := *r
		history.TemplateArgs = nil
		return m.render(&history, o)
	case errors.As(err, &tool):
		return "", encoding{}, invalid("tools", "%v", tool)
	case errors.As(err, &args):
		return "", encoding{}, invalid("chat_template_args", "chat template: %v", args)
	case errors.As(err, &raised):
		return "", encoding{}, invalid("messages", "the chat template refused the conversation: %v", raised)
	}
	return "", encoding{}, invalid("messages", "chat template: %v", err)
}

// limit refuses a prompt that leaves no room for an answer, and resolves how
// long the answer may be.
func (m *Model) limit(p *Prompt, r *chat.Request) error {
	room := unknownRoom
	if m.ContextLength > 0 {
		room = m.ContextLength - len(p.IDs)
		if room <= 0 {
			return m.tooLong(r, len(p.IDs), "")
		}
	}
	p.Stop.MaxTokens = room
	switch {
	case r.Sampling.MaxTokens != nil:
		p.Stop.MaxTokens = min(room, *r.Sampling.MaxTokens)
	case m.MaxNewTokens > 0:
		p.Stop.MaxTokens = min(room, m.MaxNewTokens)
	}
	return nil
}

// TooLong tells by how much a prompt is longer than its model's context. Tokens is
// how many it has at least.
type TooLong struct{ Tokens, Limit int }

// Error returns both numbers.
func (e *TooLong) Error() string {
	return fmt.Sprintf("%d tokens in a context of %d", e.Tokens, e.Limit)
}

// tooLong is the error of a prompt that has so many tokens, or at least so many.
// It wraps a [TooLong].
func (m *Model) tooLong(r *chat.Request, tokens int, atLeast string) *engine.Error {
	e := invalid(fieldOf(r), "This model's maximum context length is %d tokens. However, your messages resulted in %s%d tokens. Please reduce the length of the messages.", m.ContextLength, atLeast, tokens)
	e.Code = "context_length_exceeded"
	e.Err = &TooLong{tokens, m.ContextLength}
	return e
}

// shrinkage is more than normalization can shorten a text by.
const shrinkage = 8

// fewest returns how many tokens a text has at least: as if all of them were the
// longest one. A compressed body of a few kilobytes can hold a text that takes
// minutes to tokenize; this tells at once that it will not fit. It takes no
// account of the whitespace that special tokens may swallow: a prompt of nothing
// else is none.
func (m *Model) fewest(text string) int {
	if m.longest == 0 {
		return 0
	}
	return len(text) / (m.longest * shrinkage)
}

// fieldOf is the field of a request that its text comes from.
func fieldOf(r *chat.Request) string {
	if r.Prompt != nil {
		return "prompt"
	}
	return "messages"
}

// catchPattern, deferred, makes an error of a text that one of the model's own
// patterns takes time without end for.
func catchPattern(r *chat.Request, err *error) {
	if e := patternError(recover()); e != nil {
		*err = invalid(fieldOf(r), "the text cannot be tokenized: %v", e)
	}
}

// patternError returns what a pattern gave up with, nil for no panic. Any other
// panic goes on.
func patternError(recovered any) *tokenizer.PatternError {
	switch e := recovered.(type) {
	case nil:
		return nil
	case *tokenizer.PatternError:
		return e
	default:
		panic(e)
	}
}

func invalid(param, format string, args ...any) *engine.Error {
	e := engine.Errorf(engine.InvalidArgument, format, args...)
	e.Param = param
	return e
}

// Tokens returns the ids of a request's prompt, without checking its length.
// Without generation prompt a conversation ends with its last turn.
func (m *Model) Tokens(r *chat.Request, generationPrompt bool) (_ []uint32, err error) {
	defer catchPattern(r, &err)
	if r.Prompt == nil && m.Template != nil && !generationPrompt {
		text, how, err := m.render(r, chattemplate.Options{})
		if err != nil {
			return nil, err
		}
		w := m.walk(r, text, how)
		w.run()
		return w.ids, nil
	}
	var p Prompt
	_, err = m.fill(&p, r, nil, false, false)
	return p.IDs, err
}

// Text returns the text of ids, special tokens included.
func (m *Model) Text(ids []uint32) (string, error) {
	return m.spelled(ids, "tokens", true)
}

// Echo returns the text of a prompt that is shown before its answer, with or
// without special tokens.
func (m *Model) Echo(p *chat.Prompt, special bool) (string, error) {
	if p.IDs == nil {
		return p.Text, nil
	}
	return m.spelled(p.IDs, "prompt", special)
}

func (m *Model) spelled(ids []uint32, field string, special bool) (_ string, err error) {
	defer func() {
		if e := patternError(recover()); e != nil {
			err = invalid(field, "the tokens have no text: %v", e)
		}
	}()
	if i := slices.IndexFunc(ids, func(id uint32) bool { return int(id) >= m.VocabularySize }); i >= 0 {
		return "", invalid(field, "token id %d at index %d is not in the vocabulary of %d tokens", ids[i], i, m.VocabularySize)
	}
	return m.Tokenizer.Decode(ids, !special), nil
}

// Encode appends the ids of a text, in which control tokens have their effect.
func (m *Model) Encode(dst []uint32, text string) (ids []uint32, err error) {
	defer func() {
		if e := patternError(recover()); e != nil {
			ids, err = dst, fmt.Errorf("the text cannot be tokenized: %w", e)
		}
	}()
	return m.Tokenizer.Append(dst, text), nil
}

// IDStyle returns in which form prompts with or without tools show the ids of
// calls; [chat.NoIDs] if they show none, or the model has no form of its own.
func (m *Model) IDStyle(tools bool) chat.IDStyle {
	if m.Template == nil || !m.Template.Traits(tools).RendersIDs {
		return chat.NoIDs
	}
	return m.Family.IDs()
}

// Markers returns the special tokens that a parser must see in the text.
func (m *Model) Markers(f parser.Family) []uint32 {
	var ids []uint32
	for _, marker := range f.Markers() {
		if id, ok := m.Tokenizer.ID(marker); ok && m.Tokenizer.IsSpecial(id) {
			ids = append(ids, id)
		}
	}
	return ids
}
