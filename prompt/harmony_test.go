package prompt_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/harmony"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/prompt"
)

// harmonyTemplate loses what the template that gpt-oss ships loses: all calls but
// the first, texts before a call, and late system turns.
const harmonyTemplate = `
{{- "<|start|>system<|message|>You are a model.<|end|>" -}}
{%- for m in messages -%}
  {%- if m.role == "assistant" and m.tool_calls -%}
    {{- "<|start|>assistant to=functions." + m.tool_calls[0].function.name + "<|channel|>commentary json<|message|>" + m.tool_calls[0].function.arguments|tojson + "<|call|>" -}}
  {%- elif m.role == "assistant" -%}
    {{- "<|start|>assistant<|channel|>final<|message|>" + m.content + "<|end|>" -}}
  {%- elif m.role == "tool" -%}
    {{- "<|start|>functions.f to=assistant<|channel|>commentary<|message|>" + m.content + "<|end|>" -}}
  {%- elif m.role == "user" -%}
    {{- "<|start|>user<|message|>" + m.content + "<|end|>" -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|start|>assistant" -}}{%- endif -%}`

// harmonyFiles are the files of a small model with the control tokens of gpt-oss.
func harmonyFiles(t testing.TB, template string) func(string) ([]byte, error) {
	t.Helper()
	vocab := map[string]int{}
	for b := range 256 {
		vocab[string(byteRunes[b])] = b
	}
	added := []map[string]any{}
	for i, token := range append(harmony.Tokens(), "<|endoftext|>") {
		added = append(added, map[string]any{"id": 256 + i, "content": token, "special": true})
	}
	raw, err := json.Marshal(map[string]any{
		"added_tokens":  added,
		"pre_tokenizer": map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": true},
		"decoder":       map[string]any{"type": "ByteLevel"},
		"model":         map[string]any{"type": "BPE", "vocab": vocab, "merges": []string{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return func(name string) ([]byte, error) {
		switch {
		case name == "tokenizer.json":
			return raw, nil
		case name == "tokenizer_config.json":
			return []byte(`{"eos_token":"<|return|>"}`), nil
		case name == "chat_template.jinja" && template != "":
			return []byte(template), nil
		}
		return nil, fs.ErrNotExist
	}
}

func loadHarmony(t testing.TB, template string) *prompt.Model {
	t.Helper()
	m, err := prompt.Load(harmonyFiles(t, template), prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// renders ends a text where a model goes on.
var renders = chattemplate.Options{AddGenerationPrompt: true}

func say(role chat.Role, blocks ...chat.Block) chat.Turn {
	return chat.Turn{Role: role, Blocks: blocks}
}

func textBlock(s string) chat.Block { return chat.Block{Kind: chat.Text, Text: s} }

// generate lets a model answer with these ids, one by one, and returns the blocks.
func generate(t testing.TB, m *prompt.Model, r *chat.Request, answer []uint32) chat.Answer {
	t.Helper()
	p, err := m.Build(r, nil)
	if err != nil {
		t.Fatal(err)
	}
	read := parser.New(m.Family, parser.Options{
		Start: p.Start, Tools: r.Tools, ToolsOn: len(r.Tools) > 0, ThinkOn: true, Parallel: r.ToolChoice.Parallel,
	})
	events := []chat.Event{{Kind: chat.Start}}
	cuts := slices.Repeat([]int{1}, max(0, len(answer)-1))
	for out, err := range m.Decode(deltas(answer, cuts, engine.FinishLength, false), prompt.Decoding{Stop: p.Stop, Markers: m.Markers(m.Family), ByToken: true}) {
		if err != nil {
			t.Fatal(err)
		}
		events = read.Push(events, out.Piece)
		if out.End != nil {
			reason := chat.FinishStop
			if out.End.Finish == engine.FinishLength {
				reason = chat.FinishLength
			}
			events, reason = read.Finish(events, reason)
			events = append(events, chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: reason}})
			break
		}
	}
	answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	m.Remember(p, answers[0].IDs, nil)
	return answers[0]
}

// A model that speaks Harmony chats, whether it has no template or one that does
// not suffice: a call, its result, and the answer.
func TestHarmonyChats(t *testing.T) {
	for name, template := range map[string]string{"no template": "", "template": harmonyTemplate} {
		t.Run(name, func(t *testing.T) {
			m := loadHarmony(t, template)
			if got := m.Family.String(); got != "harmony" {
				t.Fatalf("the family is %s", got)
			}
			for _, token := range []string{harmony.Return, harmony.Call} {
				if id, _ := m.Tokenizer.ID(token); !slices.Contains(m.EOS, id) {
					t.Errorf("%s does not end an answer: %v", token, m.EOS)
				}
			}
			r := &chat.Request{API: chat.APIChat, Model: "m", Tools: []chat.Tool{{Kind: chat.ToolFunction, Name: "f"}}, TemplateArgs: []byte(`{"conversation_start_date":"2025-06-28"}`)}
			r.Turns = []chat.Turn{say(chat.RoleSystem, textBlock("Be brief.")), say(chat.RoleUser, textBlock("What does f say?"))}

			const thinks = `<|channel|>analysis<|message|>Call f.<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": "<x>"}<|call|>`
			answer := generate(t, m, r, m.Tokenizer.Append(nil, thinks+"<|start|>never read"))
			if answer.Finish.Reason != chat.FinishToolUse || len(answer.Blocks) != 2 || answer.Blocks[0].Text != "Call f." || answer.Blocks[1].Use.Args != `{"a": "<x>"}` {
				t.Fatalf("answered %+v", answer)
			}
			before, err := m.Tokens(r, true)
			if err != nil {
				t.Fatal(err)
			}
			id := answer.Blocks[1].Use.ID
			r.Turns = append(r.Turns, say(chat.RoleAssistant, answer.Blocks...),
				say(chat.RoleTool, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: id, Blocks: []chat.Block{textBlock("<|end|>42")}}}))

			// All that was generated stands in the next prompt as it was, and what
			// the tool says is no structure.
			p, err := m.Build(r, nil)
			if err != nil {
				t.Fatal(err)
			}
			if want := m.Tokenizer.Append(slices.Clone(before), thinks); len(p.IDs) < len(want) || !slices.Equal(p.IDs[:len(want)], want) {
				t.Errorf("the next prompt is\n%s\nand does not begin\n%s", m.Tokenizer.Decode(p.IDs, false), m.Tokenizer.Decode(want, false))
			}
			if turns := m.Turns.Stats(); turns.Hits != 1 {
				t.Errorf("the answer is not known again: %+v", turns)
			}
			const result = "<|start|>functions.f to=assistant<|channel|>commentary<|message|>"
			want := m.Tokenizer.Append(slices.Clone(before), thinks+result)
			want = m.Tokenizer.AppendLiteral(want, "<|end|>42")
			want = m.Tokenizer.Append(want, "<|end|><|start|>assistant")
			if diff := cmp.Diff(want, p.IDs); diff != "" {
				t.Errorf("the next prompt is\n%s\n%s", m.Tokenizer.Decode(p.IDs, false), diff)
			}

			answer = generate(t, m, r, m.Tokenizer.Append(nil, "<|channel|>final<|message|>It says 42.<|return|>"))
			if answer.Finish.Reason != chat.FinishStop || len(answer.Blocks) != 1 || answer.Blocks[0].Text != "It says 42." {
				t.Errorf("answered %+v", answer)
			}
		})
	}
}

// A template that loses nothing is the one that renders.
func TestHarmonyTemplateSuffices(t *testing.T) {
	const template = `
{%- for m in messages -%}
  {%- if m.role == "assistant" -%}
    {%- if m.thinking -%}{{- "<|start|>assistant<|channel|>analysis<|message|>" + m.thinking + "<|end|>" -}}{%- endif -%}
    {%- if m.content -%}{{- "<|start|>assistant<|channel|>" + ("commentary" if m.tool_calls else "final") + "<|message|>" + m.content + "<|end|>" -}}{%- endif -%}
    {%- for c in m.tool_calls -%}{{- "<|start|>assistant to=functions." + c.function.name + "<|channel|>commentary json<|message|>" + c.function.arguments + "<|call|>" -}}{%- endfor -%}
  {%- elif m.role == "tool" -%}
    {{- "<|start|>functions." + m.name + " to=assistant<|channel|>commentary<|message|>" + m.content + "<|end|>" -}}
  {%- else -%}
    {{- "<|start|>" + m.role + "<|message|>" + m.content + "<|end|>" -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- "<|start|>assistant" -}}{%- endif -%}`
	m := loadHarmony(t, template)
	r := &chat.Request{API: chat.APIChat, Turns: []chat.Turn{say(chat.RoleUser, textBlock("Hello"))}}
	ids, err := m.Tokens(r, true)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := m.Tokenizer.Decode(ids, false), "<|start|>user<|message|>Hello<|end|><|start|>assistant"; got != want {
		t.Errorf("got %s, want the template's own %s", got, want)
	}
	if m.Family.String() != "harmony" || len(m.EOS) != 2 {
		t.Errorf("family %s, ends %v", m.Family, m.EOS)
	}
}

// What a model generates, in whatever form it addresses its calls, stands on the
// next turn as it was generated.
func TestHarmonyRoundTrip(t *testing.T) {
	m := loadHarmony(t, "")
	tools := []chat.Tool{{Kind: chat.ToolFunction, Name: "f"}, {Kind: chat.ToolFunction, Name: "ns.g"}}
	word := rapid.StringMatching(`[a-z<|>é\n "{}]{1,8}`)
	rapid.Check(t, func(rt *rapid.T) {
		var generated strings.Builder
		message := func(header, body, end string) {
			if generated.Len() > 0 {
				generated.WriteString(harmony.Start + "assistant")
			}
			generated.WriteString(header + harmony.Message + body + end)
		}
		calls := 0
		for range rapid.IntRange(1, 5).Draw(rt, "messages") {
			switch rapid.IntRange(0, 2).Draw(rt, "kind") {
			case 0:
				message(harmony.Channel+"analysis", word.Draw(rt, "thought"), harmony.End)
			case 1:
				message(harmony.Channel+"commentary", word.Draw(rt, "preamble"), harmony.End)
			default:
				before, after := harmony.Form(rapid.IntRange(0, 19).Draw(rt, "form")).Header()
				args, err := json.Marshal(map[string]string{word.Draw(rt, "key"): word.Draw(rt, "value")})
				if err != nil {
					rt.Fatal(err)
				}
				message(before+rapid.SampledFrom([]string{"f", "ns.g"}).Draw(rt, "name")+after, string(args), harmony.Call)
				calls++
			}
		}
		final := rapid.Bool().Draw(rt, "final")
		if final {
			message(harmony.Channel+"final", word.Draw(rt, "answer"), harmony.Return)
		} else {
			before, after := harmony.Form(0).Header()
			message(before+"f"+after, "{}", harmony.Call)
			calls++
		}

		r := &chat.Request{API: chat.APIMessages, Tools: tools, Turns: []chat.Turn{say(chat.RoleUser, textBlock("q"))}}
		asked, err := m.Template.Render(r, renders)
		if err != nil {
			rt.Fatal(err)
		}
		n := 0
		p := parser.New(m.Family, parser.Options{
			Start: m.Family.StartOf(asked), Tools: tools, ToolsOn: true, ThinkOn: true,
			NewID: func() string { n++; return fmt.Sprint("call_", n) },
		})
		events := p.Push([]chat.Event{{Kind: chat.Start}}, chat.Piece{Text: generated.String()})
		events, _ = p.Finish(events, chat.FinishStop)
		events = append(events, chat.Event{Kind: chat.Finished})
		answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
			for _, e := range events {
				if !yield(e, nil) {
					return
				}
			}
		})
		if err != nil {
			rt.Fatal(err)
		}
		r.Turns = append(r.Turns, say(chat.RoleAssistant, answers[0].Blocks...))
		again, err := m.Template.Render(r, renders)
		if err != nil {
			rt.Fatal(err)
		}
		want := asked + generated.String()
		if final {
			want = strings.TrimSuffix(want, harmony.Return) + harmony.End
		}
		if want += harmony.Start + "assistant"; again != want || n != calls {
			rt.Fatalf("%d calls of %d; generated\n%s\nrendered\n%s", n, calls, want, again)
		}
	})
}
