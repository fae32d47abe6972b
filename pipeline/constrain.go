package pipeline

import (
	"container/list"
	"iter"
	"slices"
	"strings"
	"sync"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/guided"
	"github.com/dynago/dynago/parser"
)

// Tags says when calls of tools are held to their form by structural tags, with
// engines that know them.
type Tags struct {
	Use     bool // at all, for families that can be held in other ways too
	Always  bool // for every request with tools; else where a tool is strict, one call is all, or a call is forced
	Schemas bool // hold all arguments to their schemas; else those of strict tools
}

// constraint is what an answer is held to, and by whom.
type constraint struct {
	// format is for the engine; nil leaves the answer free.
	format *chat.OutputFormat
	// mode and named tell the parser what the engine generates then.
	mode  parser.Mode
	named string
	// check judges the answer of an engine that cannot be held to the format; nil
	// if none is needed.
	check *guided.Form
}

// by says who sees to the form of the answer; empty if it has none.
func (c *constraint) by() string {
	switch {
	case c.format != nil:
		return ByEngine
	case c.check != nil:
		return ByUs
	}
	return ""
}

// constrain decides for a worker what the answer to a request is held to.
func (j *job) constrain(card *engine.Card) (constraint, error) {
	r := j.request.Chat
	tools := callable(r)
	if len(tools) > 0 {
		if c, ok, err := j.constrainCalls(card, tools); ok || err != nil {
			return c, err
		}
	}
	if j.mustBan(card) {
		if format, ok := ban(r, j.model); ok {
			format.Member = "tools"
			return constraint{format: &format}, nil
		}
	}
	return j.constrainText(card)
}

// constrainText decides for a worker what the text of an answer is held to.
func (j *job) constrainText(card *engine.Card) (constraint, error) {
	r := j.request.Chat
	format := &r.Output
	if format.Kind == chat.FormatText || forced(r) {
		return constraint{}, nil
	}
	if card.Features.Has(guides(format)) {
		c := constraint{format: format}
		if format.Kind == chat.FormatJSONObject || format.Kind == chat.FormatJSONSchema {
			c.mode = parser.ModeJSON
		}
		return c, nil
	}
	form, err := j.p.forms.compile(format)
	return constraint{check: form}, err
}

// mustBan says whether a tag is what keeps the model from calling tools that it
// sees: where the first token of a call can be made unlikely, that is enough.
func (j *job) mustBan(card *engine.Card) bool {
	r := j.request.Chat
	return r.ToolChoice.Mode == chat.ToolNone && !r.ToolChoice.Hidden && len(offered(r.Tools)) > 0 && r.Prompt == nil &&
		card.Features.Has(engine.FeatureStructuralTag) && !(card.Features.Has(engine.FeatureLogitBias) && callTokens(j.model) != nil)
}

// forced says whether the answer has to be calls.
func forced(r *chat.Request) bool {
	return r.ToolChoice.Mode == chat.ToolRequired || r.ToolChoice.Mode == chat.ToolNamed
}

// callable lists the tools that an answer may call.
func callable(r *chat.Request) []chat.Tool {
	if r.Prompt != nil || r.ToolChoice.Mode == chat.ToolNone {
		return nil
	}
	var tools []chat.Tool
	for _, t := range r.Tools {
		if t.Callable() && (len(r.ToolChoice.Names) == 0 || slices.Contains(r.ToolChoice.Names, t.Name)) {
			tools = append(tools, t)
		}
	}
	return tools
}

// constrainCalls holds calls to their form, in the family's own writing if the
// engine can do that, and else as JSON; ok is false if they stay free.
func (j *job) constrainCalls(card *engine.Card, tools []chat.Tool) (c constraint, ok bool, err error) {
	r, family := j.request.Chat, j.model.Family
	name, policy := family.ToolParser(), j.p.Tags
	// What these models write as calls cannot be told as JSON.
	own := strings.HasPrefix(name, "kimi_k")
	free := r.Output.Kind == chat.FormatText
	if card.Features.Has(engine.FeatureStructuralTag) && (policy.Use || own && forced(r)) && (free || forced(r)) {
		o := guided.TagOptions{Always: policy.Always, Schemas: policy.Schemas}
		if j.prompt.Start == parser.StartReasoning {
			o.ThoughtEnd = family.ThoughtEnd()
		}
		if format, ok := guided.Tag(name, tools, r.ToolChoice, o); ok {
			format.Member = "tools"
			return constraint{format: &format}, true, nil
		}
	}
	if !forced(r) || own || !card.Features.Has(engine.FeatureGuidedJSON) {
		return constraint{}, false, nil
	}
	c.mode = parser.ModeCalls
	var format chat.OutputFormat
	if r.ToolChoice.Mode == chat.ToolNamed {
		c.mode, c.named = parser.ModeArgs, tools[0].Name
		format = guided.Arguments(&tools[0])
	} else if format, err = guided.Calls(tools, r.ToolChoice.Parallel != nil && !*r.ToolChoice.Parallel); err != nil {
		return c, false, unusable("tools", err)
	}
	format.Member = "tools"
	if _, err := j.p.forms.compile(&format); err != nil {
		return c, false, unusable(format.Member, err)
	}
	c.format = &format
	return c, true, nil
}

func unusable(field string, err error) *engine.Error {
	e := engine.Errorf(engine.InvalidArgument, "%s cannot be used as a constraint on the answer: %v", field, err)
	e.Param = field
	return e
}

// guides returns what an engine must be able to do for a format.
func guides(format *chat.OutputFormat) engine.Feature {
	switch format.Kind {
	case chat.FormatJSONObject:
		return engine.FeatureGuidedObject
	case chat.FormatJSONSchema:
		return engine.FeatureGuidedJSON
	case chat.FormatRegex:
		return engine.FeatureGuidedRegex
	case chat.FormatGrammar:
		return engine.FeatureGuidedGrammar
	case chat.FormatChoice:
		return engine.FeatureGuidedChoice
	}
	return ""
}

// insists says whether a client wants a format or nothing: it says so itself, or
// by a member that is there for nothing else. Any other format is looked at
// afterwards where the engine cannot be held to it.
func insists(format *chat.OutputFormat) bool {
	usual := format.Kind == chat.FormatJSONObject || format.Kind == chat.FormatJSONSchema && format.Name != ""
	return !usual || format.Strict != nil && *format.Strict
}

// checkFormat refuses a format that nobody could keep, before anything is done
// for it.
func (p *Pipeline) checkFormat(r *chat.Request) error {
	if r.Output.Kind == chat.FormatText || forced(r) {
		return nil
	}
	if _, err := p.forms.compile(&r.Output); err != nil {
		return unusable(r.Output.Field(), err)
	}
	return nil
}

// judged looks at an answer as a whole and tells with its end what is wrong with
// its form.
func judged(events iter.Seq2[chat.Event, error], form *guided.Form) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		var text strings.Builder
		for e, err := range events {
			switch {
			case err != nil:
			case e.Kind == chat.TextDelta:
				text.WriteString(e.Text)
			case e.Kind == chat.Finished && e.Finish.Reason != chat.FinishToolUse:
				if fault := form.Check(text.String()); fault != nil {
					e.Reason = fault.Error()
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

// forms are formats that were compiled before, the newest first.
type forms struct {
	mu    sync.Mutex
	order list.List // of *form
	byKey map[string]*list.Element
}

type form struct {
	key  string
	form *guided.Form
	err  error
}

// mostForms bounds what is remembered; agents use few formats, again and again.
const mostForms = 256

func (f *forms) compile(format *chat.OutputFormat) (*guided.Form, error) {
	key := string(format.Kind) + "\x00" + format.Pattern + "\x00" + string(format.Schema) + "\x00" + strings.Join(format.Choices, "\x00")
	f.mu.Lock()
	if at, ok := f.byKey[key]; ok {
		f.order.MoveToFront(at)
		f.mu.Unlock()
		known := at.Value.(*form)
		return known.form, known.err
	}
	f.mu.Unlock()
	compiled, err := guided.Compile(format)
	if len(key) > 64<<10 { // rare, and too large to keep hundreds of
		return compiled, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.byKey == nil {
		f.byKey = map[string]*list.Element{}
	}
	if _, ok := f.byKey[key]; !ok {
		f.byKey[key] = f.order.PushFront(&form{key, compiled, err})
	}
	for f.order.Len() > mostForms {
		last := f.order.Back()
		delete(f.byKey, f.order.Remove(last).(*form).key)
	}
	return compiled, err
}
