// Package chattemplate lays out a conversation as one model was trained to read
// it, with the Jinja template that the model ships.
//
// The one idea: templates differ in what they can take (content as text or as
// parts, arguments as text or as objects, thoughts in a field of their own or
// inside the text, system turns anywhere or only first), and none of them says
// so. Compile finds out by rendering small made-up conversations; Render then
// rewrites each conversation into the form that this template shows in full. The
// rewriting looks at one turn at a time and never at what follows, so that a
// longer conversation renders to an extension of the shorter one wherever the
// template itself allows it.
package chattemplate

import (
	"errors"
	"fmt"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate/jinja"
)

// Config is what a template needs to know of its model.
type Config struct {
	// BOS, EOS and UNK are the texts of the special tokens, empty if there are
	// none.
	BOS, EOS, UNK string
	// Now is the clock behind strftime_now; nil means time.Now.
	Now func() time.Time
}

// Template is the chat template of one model. It is safe for concurrent use.
type Template struct {
	cfg    Config
	plain  *variant
	tools  *variant // used when tools are passed; may be the same
	shapes shapes
	native bool // Harmony, without the template
}

// variant is one of the templates of a model with what was found out about it.
type variant struct {
	tmpl *jinja.Template
	traits
}

// Compile reads a template that serves with and without tools.
func Compile(source string, cfg Config) (*Template, error) {
	return CompileNamed(map[string]string{"default": source}, cfg)
}

// CompileNamed reads the templates of a model that has several: "tool_use"
// serves when tools are passed, "default" otherwise. One alone serves both;
// other names are ignored.
func CompileNamed(named map[string]string, cfg Config) (*Template, error) {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	t := &Template{cfg: cfg}
	for name, use := range map[string]**variant{"default": &t.plain, "tool_use": &t.tools} {
		source, ok := named[name]
		if !ok {
			continue
		}
		tmpl, err := jinja.Compile(source)
		if err != nil {
			return nil, fmt.Errorf("chat template %q: %w", name, err)
		}
		found, err := probe(tmpl, source, cfg, probeLimits)
		if err != nil {
			return nil, fmt.Errorf("chat template %q: in a conversation of a few words: %w", name, err)
		}
		*use = &variant{tmpl, found}
	}
	switch {
	case t.plain == nil && t.tools == nil:
		return nil, errors.New(`chat template: neither "default" nor "tool_use" is given`)
	case t.plain == nil:
		t.plain = t.tools
	case t.tools == nil:
		t.tools = t.plain
	}
	var err error
	t.native, err = t.goesNative(named)
	return t, err
}

// Options says how a conversation is rendered.
type Options struct {
	// AddGenerationPrompt ends the prompt with the opening of an answer.
	AddGenerationPrompt bool
	// HideTools leaves the tools out of the prompt.
	HideTools bool
}

// TemplateError is a template's own refusal of a conversation: what it said to
// raise_exception.
type TemplateError struct {
	Message string
	Line    int // of the template source
}

func (e *TemplateError) Error() string { return e.Message }

// Render returns the text of the prompt for a request's System, Turns, Tools,
// Thinking and TemplateArgs. Of the latter, continue_final_message does what it
// does in transformers: the prompt ends with the text of the last turn, which
// the model goes on with. The same request always renders alike, but for
// what the template makes of the clock. The error is a *[TemplateError] where
// the template refuses the conversation, a *[ToolError] where a tool cannot be
// shown, an *[ArgsError] where TemplateArgs are no use, and else wraps a
// *[jinja.Error].
func (t *Template) Render(r *chat.Request, o Options) (string, error) {
	if t.native {
		out, err := t.harmonyText(r, o, nil)
		return out.Text, err
	}
	text, _, err := t.render(r, o, nil)
	return text, err
}

// Rendered is the text of a prompt in which the template's control tokens can be
// told from those that a client typed.
type Rendered struct {
	Text string
	// Inert are offsets into Text, in order. A control token that one of them
	// lies inside of is, in part at least, what a client said: it is text, and
	// no structure.
	Inert []int
}

// RenderInert is [Template.Render] for a model with these control tokens. Where
// a client spelled one, the template sees text like any other: what it would do
// on finding the token there it does not do. Only then can Text differ from what
// Render returns.
func (t *Template) RenderInert(r *chat.Request, o Options, controls *Controls) (Rendered, error) {
	if t.native {
		return t.harmonyText(r, o, controls)
	}
	g := &guard{controls: controls}
	text, ran, err := t.render(r, o, g)
	if ran {
		return Rendered{Text: text}, err
	}
	g.marking = true
	text, _, err = t.render(r, o, g)
	if err != nil {
		return Rendered{}, err
	}
	return unmarked(text), nil
}

// render gives up, ran being false, as soon as it is known that marks are needed
// and not made.
func (t *Template) render(r *chat.Request, o Options, g *guard) (text string, ran bool, err error) {
	p, err := t.prepare(r, o, g)
	if err != nil {
		return "", true, err
	}
	if g != nil && g.found && !g.marking {
		return "", false, nil
	}
	text, err = p.variant.tmpl.Render(p.vars, jinja.Env{Now: t.today(r)})
	if err == nil && p.continues {
		text, err = cutAtTag(text)
		return text, true, err
	}
	return text, true, asTemplateError(err)
}

// today is the date that a prompt tells.
func (t *Template) today(r *chat.Request) time.Time {
	if !r.Date.IsZero() {
		return r.Date
	}
	return t.cfg.Now()
}

// prepared is a conversation in the form that its template shows.
type prepared struct {
	variant   *variant
	vars      *jinja.Dict
	continues bool // the last turn ends with the tag
}

func (t *Template) prepare(r *chat.Request, o Options, g *guard) (prepared, error) {
	args, err := readArgs(r.TemplateArgs)
	if err != nil {
		return prepared{}, err
	}
	v, tools := t.plain, jinja.None
	if !o.HideTools {
		list, err := t.shapes.tools(r.Tools)
		if err != nil {
			return prepared{}, err
		}
		if list != nil {
			v, tools = t.tools, g.value(list)
		}
	}
	messages := v.rewrite(flatten(r, g))
	continues, err := continueFinal(messages, args)
	if err != nil {
		return prepared{}, err
	}
	vars := t.variables(v, r, g)
	vars.Set("messages", v.values(messages))
	vars.Set("tools", tools)
	vars.Set("add_generation_prompt", o.AddGenerationPrompt && !continues)
	for k, v := range args.All() {
		vars.Set(k, g.value(v))
	}
	return prepared{v, vars, continues}, nil
}

func asTemplateError(err error) error {
	var e *jinja.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &e) && e.Kind == jinja.Raised:
		return &TemplateError{Message: e.Message, Line: e.Line}
	}
	return fmt.Errorf("render chat template: %w", err)
}

// variables returns what a template sees beside the conversation.
func (t *Template) variables(v *variant, r *chat.Request, g *guard) *jinja.Dict {
	vars := specials(t.cfg)
	v.setThinking(vars, r, g)
	return vars
}

func specials(cfg Config) *jinja.Dict {
	vars := jinja.NewDict(8)
	vars.Set("bos_token", cfg.BOS)
	vars.Set("eos_token", cfg.EOS)
	vars.Set("unk_token", cfg.UNK)
	vars.Set("documents", jinja.None)
	return vars
}

// ArgsError tells what is wrong with a request's TemplateArgs themselves, whatever
// the conversation.
type ArgsError struct{ Err error }

func (e *ArgsError) Error() string { return e.Err.Error() }

func (e *ArgsError) Unwrap() error { return e.Err }

// argsErrorf makes an [*ArgsError] as fmt.Errorf makes errors.
func argsErrorf(format string, args ...any) error {
	return &ArgsError{fmt.Errorf(format, args...)}
}

// readArgs reads the client's own variables, which go over all others.
func readArgs(args []byte) (*jinja.Dict, error) {
	if len(args) == 0 {
		return jinja.NewDict(0), nil
	}
	v, err := jinja.FromJSON(args)
	if err != nil {
		return nil, argsErrorf("template arguments: %w", err)
	}
	d, ok := v.(*jinja.Dict)
	if !ok {
		return nil, argsErrorf("template arguments must be a JSON object")
	}
	return d, nil
}
