package chattemplate

import (
	"errors"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate/jinja"
	"github.com/dynago/dynago/harmony"
)

// Harmony is the prompt format of the gpt-oss models: every message has a
// header with a role, a channel (analysis, commentary or final) and, for calls, a
// recipient.
//
// The rule: a conversation is laid out natively when the model ships no template
// but has the control tokens of Harmony, or when the template that it ships
// loses something of a turn that thinks, speaks and makes two calls. The template
// that came with gpt-oss does: of several calls it shows the first, of a text
// before a call it makes a thought, it names every result after the last call,
// and it leaves late system turns out. Which of the two renders is decided once
// for a model and not for each conversation, since a conversation that changed
// hands would lose its prefix.
//
// The layout is that of OpenAI's openai-harmony library, byte for byte, where it
// and the template differ: text of tool results and arguments as it is (not as
// a JSON string), types of TypeScript in the library's spelling, <|constrain|>
// before json, names of users in the header, <|end|> and never <|return|> behind
// an answer. In two things it is not the library's:
//
//   - A function without parameters is () => any, also if its schema is an object
//     without properties: the format guide and the template say so.
//   - Thoughts are dropped answer by answer, as the format guide describes it:
//     all of an answer that ended in the final channel, once the user speaks
//     again, and none of the others. The library looks only at the first final
//     message and the last assistant message of a whole conversation, so that it
//     brings old thoughts back while a later answer is calling tools.
//
// A call whose id tells in which form the model addressed it (see package harmony)
// is shown in that form, and any other in the library's. Calls of built-in tools and
// their results are part of the analysis channel, and go when its thoughts go.
//
// What neither knows: a system turn behind the first other turn is a developer
// message where it stands, and response formats are a section at the end of the
// developer message, as the guide describes it.

// Harmony returns the layout of a model that speaks Harmony and ships no
// template.
func Harmony(cfg Config) *Template {
	// The template stands in for whatever is found out by rendering one; it is
	// never rendered for a client.
	t, err := Compile(`{%- for m in messages %}{{ "`+harmony.Start+`" + m.role + "`+harmony.Message+`" + m.content + "`+harmony.End+`" }}{% endfor %}`, cfg)
	if err != nil {
		panic(err)
	}
	t.native = true
	return t
}

// goesNative tells that a template of these sources writes Harmony, and less of it
// than a conversation holds.
func (t *Template) goesNative(sources map[string]string) (bool, error) {
	for _, source := range sources {
		if harmony.Writes(source) {
			enough, err := t.suffices()
			return !enough, err
		}
	}
	return false, nil
}

// suffices tells that the template shows in order, and under the right names, all
// that a turn with several calls says, and a system turn behind it.
func (t *Template) suffices() (bool, error) {
	say := func(kind chat.Kind, text string) chat.Block { return chat.Block{Kind: kind, Text: text} }
	use := func(name string) chat.Block {
		return chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "call_" + name, Name: name, Args: "{}"}}
	}
	result := func(name string) chat.Turn {
		return chat.Turn{Role: chat.RoleTool, Blocks: []chat.Block{{
			Kind: chat.ToolResult, Result: &chat.Result{ID: "call_" + name, Blocks: []chat.Block{say(chat.Text, "zqResult-"+name)}},
		}}}
	}
	text, err := t.Render(&chat.Request{API: chat.APIChat, Turns: []chat.Turn{
		{Role: chat.RoleUser, Blocks: []chat.Block{say(chat.Text, "zqQuestion")}},
		{Role: chat.RoleAssistant, Blocks: []chat.Block{say(chat.Thought, "zqThought"), say(chat.Text, "zqPreamble"), use("zqFirst"), use("zqSecond")}},
		result("zqFirst"), result("zqSecond"),
		{Role: chat.RoleSystem, Blocks: []chat.Block{say(chat.Text, "zqLate")}},
	}}, Options{AddGenerationPrompt: true})
	if tooSlow(err) {
		return false, err
	}
	if err != nil {
		return false, nil
	}
	for _, part := range []string{
		"zqQuestion", harmony.Channel + "analysis" + harmony.Message + "zqThought", harmony.Channel + "commentary" + harmony.Message + "zqPreamble",
		"functions.zqFirst", "functions.zqSecond", "functions.zqFirst", "zqResult-zqFirst", "functions.zqSecond", "zqResult-zqSecond", "zqLate",
	} {
		_, rest, ok := strings.Cut(text, part)
		if !ok {
			return false, nil
		}
		text = rest
	}
	return true, nil
}

// harmonyText lays a conversation out natively.
func (t *Template) harmonyText(r *chat.Request, o Options, controls *Controls) (Rendered, error) {
	args, err := readArgs(r.TemplateArgs)
	if err != nil {
		return Rendered{}, err
	}
	settings, err := readHarmony(r, args)
	if err != nil {
		return Rendered{}, err
	}
	w := &harmonyWriter{request: r, harmonySettings: settings, names: map[string]string{}}
	if !o.HideTools {
		w.tools = callable(r.Tools)
	}
	w.text.Grow(sizeOf(r))
	if w.date == "" {
		w.date = t.today(r).Format("2006-01-02")
	}
	w.system()
	turns, err := w.developer()
	if err != nil {
		return Rendered{}, err
	}
	kept := w.keptThoughts(turns)
	before := w.text.Len()
	for i := range turns {
		before = w.text.Len()
		w.turn(&turns[i], kept[i])
	}
	switch continues, _ := args.Get("continue_final_message"); {
	case continues == true && isTrue(args, "add_generation_prompt"):
		return Rendered{}, errContinuesAndBegins
	case continues == true && (w.text.Len() == before || w.ending != harmony.End):
		return Rendered{}, errors.New("continue_final_message needs a last turn with text to go on with")
	case continues == true:
		w.ending = ""
	}
	w.ours(w.ending)
	opens := o.AddGenerationPrompt && !isTrue(args, "continue_final_message")
	if v, ok := args.Get("add_generation_prompt"); ok {
		opens = opens && v != false && v != jinja.None
	}
	if opens {
		w.ours(harmony.Start, "assistant")
	}
	return w.rendered(controls), nil
}

func isTrue(args *jinja.Dict, name string) bool {
	v, _ := args.Get(name)
	return v == true
}

// callable returns the tools that the model may call.
func callable(tools []chat.Tool) []chat.Tool {
	var list []chat.Tool
	for _, t := range tools {
		if t.Kind != chat.ToolServer {
			list = append(list, t)
		}
	}
	return list
}

// harmonySettings is what a request says about the prompt beside its turns.
type harmonySettings struct {
	identity, cutoff, date, effort string
	browser, python                bool
	keepThoughts                   bool
}

// readHarmony reads the template arguments that the template of gpt-oss and
// the library know.
func readHarmony(r *chat.Request, args *jinja.Dict) (harmonySettings, error) {
	h := harmonySettings{
		identity: "You are ChatGPT, a large language model trained by OpenAI.",
		cutoff:   "2024-06",
		effort:   r.Thinking.Effort,
	}
	for name, into := range map[string]*string{
		"model_identity": &h.identity, "knowledge_cutoff": &h.cutoff,
		"conversation_start_date": &h.date, "reasoning_effort": &h.effort,
	} {
		switch v, ok := args.Get(name); v := v.(type) {
		case string:
			*into = v
		default:
			if ok && v != jinja.None {
				return h, argsErrorf("template arguments: %s must be a string", name)
			}
		}
	}
	switch h.effort {
	case "":
		h.effort = "medium"
		if on := r.Thinking.Enabled; on != nil && !*on {
			h.effort = "low" // these models cannot but think
		}
	case "none", "minimal":
		h.effort = "low"
	case "xhigh", "max":
		h.effort = "high"
	case "low", "medium", "high":
	default:
		return h, argsErrorf("reasoning_effort %q: want low, medium or high", h.effort)
	}
	if v, ok := args.Get("builtin_tools"); ok && v != jinja.None {
		list, ok := v.(*jinja.List)
		if !ok {
			return h, argsErrorf(`template arguments: builtin_tools must be a list of "browser" and "python"`)
		}
		for item := range list.All() {
			h.browser = h.browser || item == "browser"
			h.python = h.python || item == "python"
		}
	}
	h.keepThoughts = keepsSome(r)
	if v, ok := args.Get("truncate_history_thinking"); ok {
		h.keepThoughts = v == false
	}
	return h, nil
}
