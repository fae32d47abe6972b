package prompt_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/prompt"
)

// demoModel returns a copy of the built-in model, to be changed.
func demoModel(t testing.TB) prompt.Model {
	t.Helper()
	m, err := prompt.Load(demo.File, prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	return *m
}

func ask(text string) *chat.Request {
	return &chat.Request{Model: demo.Name, Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: text}}}}}
}

// forgetful is a template that shows what users say alone.
func forgetful(t *testing.T) *chattemplate.Template {
	t.Helper()
	tmpl, err := chattemplate.Compile(`{% for m in messages %}{% if m.role == "user" %}{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}|{% endif %}`, chattemplate.Config{})
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func TestBuild(t *testing.T) {
	demo := demoModel(t)
	yes, no := true, false
	number := func(n int) *int { return &n }
	hello := demo.Tokenizer.Append(nil, "hello")
	for name, tc := range map[string]struct {
		model   func(*prompt.Model)
		request func(*chat.Request)
		ext     nvext.Ext

		text  string // of the ids; "" = the rendered conversation
		start parser.Start
		stop  engine.Stop // MaxTokens 0 = all the room
	}{
		"a conversation": {},
		"a thought that is switched off": {
			request: func(r *chat.Request) { r.Thinking.Enabled = &no },
			text:    "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\n", start: parser.StartResponse,
		},
		"a turn to go on with": {
			request: func(r *chat.Request) {
				r.Turns = append(r.Turns, said(chat.RoleAssistant, "Well, "))
				r.TemplateArgs = []byte(`{"continue_final_message":true}`)
			},
			text: "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\nWell, ",
		},
		"a turn to go on with that is not shown": {
			model: func(m *prompt.Model) { m.Template = forgetful(t) },
			request: func(r *chat.Request) {
				r.API, r.TemplateArgs = chat.APIMessages, []byte(`{"continue_final_message":true}`)
				r.Turns = append(r.Turns, said(chat.RoleAssistant, "Well, "))
			},
			text: "hello|",
		},
		"raw":                        {ext: nvext.Ext{UseRawPrompt: &yes}, text: "hello"},
		"a bare prompt":              {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{Text: "hello <think>"} }, text: "hello <think>", start: parser.StartReasoning},
		"ids":                        {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{IDs: hello} }, text: "hello"},
		"token data":                 {ext: nvext.Ext{TokenData: hello}, text: "hello"},
		"token data and equal ids":   {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{IDs: hello} }, ext: nvext.Ext{TokenData: slices.Clone(hello)}, text: "hello"},
		"max_tokens":                 {request: func(r *chat.Request) { r.Sampling.MaxTokens = number(7) }, stop: engine.Stop{MaxTokens: 7}},
		"max_tokens beyond room":     {request: func(r *chat.Request) { r.Sampling.MaxTokens = number(1 << 30) }},
		"the model's own limit":      {model: func(m *prompt.Model) { m.MaxNewTokens = 9 }, stop: engine.Stop{MaxTokens: 9}},
		"no more than there is room": {model: func(m *prompt.Model) { m.MaxNewTokens = 1 << 30 }},
		"ids that open a thought":    {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{IDs: demo.Tokenizer.Append(nil, "hello <think>\n")} }, text: "hello <think>\n", start: parser.StartReasoning},
		"tools that may not be called": {
			request: func(r *chat.Request) {
				r.Tools, r.ToolChoice.Hidden = []chat.Tool{{Name: "ls", Wire: []byte(`{"type":"function","function":{"name":"ls"}}`)}}, true
			},
		},
		"the client's goes first":    {model: func(m *prompt.Model) { m.MaxNewTokens = 9 }, request: func(r *chat.Request) { r.Sampling.MaxTokens = number(12) }, stop: engine.Stop{MaxTokens: 12}},
		"no context length":          {model: func(m *prompt.Model) { m.ContextLength = 0 }, stop: engine.Stop{MaxTokens: 1 << 20}},
		"min_tokens":                 {request: func(r *chat.Request) { r.Sampling.MinTokens = 3 }, stop: engine.Stop{MinTokens: 3}},
		"ids that stop":              {request: func(r *chat.Request) { r.Sampling.StopIDs = []uint32{5} }, stop: engine.Stop{IDs: []uint32{5}, Hidden: demo.EOS}},
		"the model's and client's":   {request: func(r *chat.Request) { r.Sampling.StopIDs = demo.EOS[:1] }, stop: engine.Stop{IDs: demo.EOS[:1], Hidden: demo.EOS[1:]}},
		"ignore_eos":                 {request: func(r *chat.Request) { r.Sampling.IgnoreEOS = true }, stop: engine.Stop{Hidden: []uint32{}}},
		"ignore_eos spares a listed": {request: func(r *chat.Request) { r.Sampling.IgnoreEOS, r.Sampling.StopIDs = true, demo.EOS }, stop: engine.Stop{IDs: demo.EOS, Hidden: []uint32{}}},
	} {
		t.Run(name, func(t *testing.T) {
			m, r := demo, ask("hello")
			if tc.model != nil {
				tc.model(&m)
			}
			if tc.request != nil {
				tc.request(r)
			}
			p, err := m.Build(r, &tc.ext)
			if err != nil {
				t.Fatal(err)
			}
			if tc.text == "" {
				tc.text = "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"
			}
			if got := m.Tokenizer.Decode(p.IDs, false); got != tc.text || p.Start != tc.start {
				t.Errorf("prompt %q, start %d; want %q, %d", got, p.Start, tc.text, tc.start)
			}
			if tc.stop.MaxTokens == 0 {
				tc.stop.MaxTokens = m.ContextLength - len(p.IDs)
			}
			if tc.stop.Hidden == nil {
				tc.stop.Hidden = m.EOS
			}
			if p.Stop.MaxTokens != tc.stop.MaxTokens || p.Stop.MinTokens != tc.stop.MinTokens || !slices.Equal(p.Stop.IDs, tc.stop.IDs) || !slices.Equal(p.Stop.Hidden, tc.stop.Hidden) {
				t.Errorf("stop %+v, want %+v", p.Stop, tc.stop)
			}
		})
	}
}

// What cannot be served is the client's mistake, and the field at fault is named.
func TestBuildRefusals(t *testing.T) {
	demo := demoModel(t)
	yes := true
	raw := nvext.Ext{UseRawPrompt: &yes}
	for name, tc := range map[string]struct {
		model       func(*prompt.Model)
		request     func(*chat.Request)
		ext         nvext.Ext
		param, want string
		code        string
	}{
		"too long":                  {request: func(r *chat.Request) { r.Turns[0].Blocks[0].Text = strings.Repeat("word ", 40000) }, param: "messages", want: "maximum context length is 32768 tokens", code: "context_length_exceeded"},
		"a prompt that is too long": {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{IDs: make([]uint32, 32768)} }, param: "prompt", want: "32768", code: "context_length_exceeded"},
		"hopelessly too long":       {model: func(m *prompt.Model) { m.ContextLength = 10 }, request: func(r *chat.Request) { r.Turns[0].Blocks[0].Text = strings.Repeat(" ", 100_000) }, param: "messages", want: "resulted in at least ", code: "context_length_exceeded"},
		"an empty prompt":           {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{} }, param: "prompt", want: "empty"},
		"no ids":                    {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{IDs: []uint32{}} }, param: "prompt", want: "at least one"},
		"no token data":             {ext: nvext.Ext{TokenData: []uint32{}}, param: "nvext.token_data", want: "at least one"},
		"unknown id":                {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{IDs: []uint32{1, 8192}} }, param: "prompt", want: "token id 8192 at index 1 is not in the vocabulary of 8192"},
		"unknown id in token data":  {ext: nvext.Ext{TokenData: []uint32{9999}}, param: "nvext.token_data", want: "9999"},
		"ids and other token data":  {request: func(r *chat.Request) { r.Prompt = &chat.Prompt{IDs: []uint32{1}} }, ext: nvext.Ext{TokenData: []uint32{2}}, param: "nvext.token_data", want: "differ"},
		"raw, two turns":            {request: func(r *chat.Request) { r.Turns = append(r.Turns, r.Turns...) }, ext: raw, param: "nvext.use_raw_prompt", want: "exactly one"},
		"raw, a system text":        {request: func(r *chat.Request) { r.System = r.Turns[0].Blocks }, ext: raw, param: "nvext.use_raw_prompt", want: "exactly one"},
		"raw, no text":              {request: func(r *chat.Request) { r.Turns[0].Blocks[0].Kind = chat.ToolCall }, ext: raw, param: "nvext.use_raw_prompt", want: "exactly one"},
		"a tool that nests": {request: func(r *chat.Request) {
			r.Tools = []chat.Tool{{Name: "f", Schema: []byte(strings.Repeat("[", 1000) + strings.Repeat("]", 1000))}}
		}, param: "tools", want: "tools[0] (f): the schema cannot be read"},
		"tools too long to declare": {model: func(m *prompt.Model) { m.Template = chattemplate.Harmony(chattemplate.Config{}) }, request: func(r *chat.Request) {
			r.Tools = []chat.Tool{{Name: "f"}, {Name: "g", Description: strings.Repeat("d", 5<<20)}}
		}, param: "tools", want: "tools[1] (g): the declarations of the tools up to this one are longer than 4194304 bytes"},
		"arguments that nest": {request: func(r *chat.Request) {
			r.TemplateArgs = []byte(`{"a":` + strings.Repeat("[", 1000) + strings.Repeat("]", 1000) + `}`)
		}, param: "chat_template_args", want: "nested more than 450 levels"},
		"arguments that exclude": {request: func(r *chat.Request) {
			r.TemplateArgs = []byte(`{"continue_final_message":true,"add_generation_prompt":true}`)
		}, param: "chat_template_args", want: "exclude each other"},
		"no template": {model: func(m *prompt.Model) { m.Template = nil }, param: "model", want: "no chat template; use the completions API"},
	} {
		t.Run(name, func(t *testing.T) {
			m, r := demo, ask("hello")
			if tc.model != nil {
				tc.model(&m)
			}
			if tc.request != nil {
				tc.request(r)
			}
			_, err := m.Build(r, &tc.ext)
			e, ok := err.(*engine.Error)
			if !ok || e.Kind != engine.InvalidArgument || e.Param != tc.param || e.Code != tc.code || !strings.Contains(e.Message, tc.want) {
				t.Errorf("%#v, want invalid_argument of %s with %q, code %q", err, tc.param, tc.want, tc.code)
			}
		})
	}
}

// No prompt that fits is refused for its length in bytes.
func TestLongTokensFit(t *testing.T) {
	m := demoModel(t)
	longest := ""
	for id := range m.Tokenizer.Size() {
		if b := m.Tokenizer.Bytes(uint32(id)); len(b) > len(longest) && !m.Tokenizer.IsSpecial(uint32(id)) {
			longest = string(b)
		}
	}
	r := ask("")
	r.Prompt = &chat.Prompt{Text: strings.Repeat(longest, 5000)}
	ids, err := m.Tokens(r, true)
	if err != nil {
		t.Fatal(err)
	}
	m.ContextLength = len(ids) + 1
	if p, err := m.Build(r, nil); err != nil || len(p.IDs) != len(ids) {
		t.Errorf("%q 5000 times: %v", longest, err)
	}
}

// Tokenize and detokenize are each other's inverse, and need no room for an
// answer.
func TestTokensAndText(t *testing.T) {
	m := demoModel(t)
	m.ContextLength = 1
	for generation, want := range map[bool]string{
		true:  "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n",
		false: "<|im_start|>user\nhello<|im_end|>\n",
	} {
		ids, err := m.Tokens(ask("hello"), generation)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := m.Text(ids); err != nil || got != want {
			t.Errorf("%q, %v; want %q", got, err, want)
		}
	}
	if _, err := m.Text([]uint32{1, 8192}); err == nil || !strings.Contains(err.Error(), "token id 8192 at index 1") {
		t.Errorf("an unknown id: %v", err)
	}
}

// A prompt may leave room for one token, and not for none; an answer gets what
// room there is, on both APIs.
func TestRoom(t *testing.T) {
	number := func(n int) *int { return &n }
	for name, change := range map[string]func(*chat.Request){
		"messages": func(*chat.Request) {},
		"prompt":   func(r *chat.Request) { r.Prompt = &chat.Prompt{Text: "hello hello hello"} },
	} {
		m, r := demoModel(t), ask("hello hello hello")
		change(r)
		ids, err := m.Tokens(r, true)
		if err != nil {
			t.Fatal(err)
		}
		for room := -1; room <= 3; room++ {
			m.ContextLength = len(ids) + room
			for _, want := range []*int{nil, number(1), number(2), number(1000)} {
				r.Sampling.MaxTokens = want
				p, err := m.Build(r, nil)
				if room < 1 {
					if e, ok := err.(*engine.Error); !ok || e.Param != name || e.Code != "context_length_exceeded" {
						t.Errorf("%s, room for %d: %v", name, room, err)
					}
					continue
				}
				most := room
				if want != nil {
					most = min(room, *want)
				}
				if err != nil || p.Stop.MaxTokens != most {
					t.Errorf("%s, room for %d: %v, at most %d tokens, want %d", name, room, err, p.Stop.MaxTokens, most)
				}
			}
		}
	}
}
