package parser_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// A writer writes calls the way the models of a family do.
type writer struct {
	family string
	write  func(calls []writtenCall) string
	// markers are what is mixed into strings: they must be read as data.
	markers []string
	// typed families write values by kind; for others args are bytes.
	typed bool
}

type writtenCall struct {
	name string
	args string // a JSON object, with a member on each level
	list []member
}

type member struct {
	key   string
	value string // JSON
}

// object writes the members as JSON without white space.
func object(list []member) string {
	var b strings.Builder
	for i, m := range list {
		b.WriteString(map[bool]string{true: "{", false: ","}[i == 0])
		fmt.Fprintf(&b, "%q:%s", m.key, m.value)
	}
	if len(list) == 0 {
		b.WriteByte('{')
	}
	return b.String() + "}"
}

func each(calls []writtenCall, between string, f func(i int, c writtenCall) string) string {
	var parts []string
	for i, c := range calls {
		parts = append(parts, f(i, c))
	}
	return strings.Join(parts, between)
}

func jsonCall(argsKey string) func(i int, c writtenCall) string {
	return func(_ int, c writtenCall) string { return fmt.Sprintf(`{"name": %q, %q: %s}`, c.name, argsKey, c.args) }
}

var writers = []writer{
	{
		"hermes", func(calls []writtenCall) string {
			return each(calls, "\n", func(i int, c writtenCall) string {
				return "<tool_call>\n" + jsonCall("arguments")(i, c) + "\n</tool_call>"
			})
		}, []string{"<tool_call>", "</tool_call>"}, false,
	},
	{
		"kimi_k2", func(calls []writtenCall) string {
			return "<|tool_calls_section_begin|>" + each(calls, "", func(i int, c writtenCall) string {
				return fmt.Sprintf("<|tool_call_begin|>functions.%s:%d<|tool_call_argument_begin|>%s<|tool_call_end|>", c.name, i, c.args)
			}) + "<|tool_calls_section_end|>"
		}, []string{"<|tool_call_end|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>"}, false,
	},
	{
		"deepseek_v3_1", func(calls []writtenCall) string {
			return "<｜tool▁calls▁begin｜>" + each(calls, "", func(_ int, c writtenCall) string {
				return "<｜tool▁call▁begin｜>" + c.name + "<｜tool▁sep｜>" + c.args + "<｜tool▁call▁end｜>"
			}) + "<｜tool▁calls▁end｜>"
		}, []string{"<｜tool▁call▁end｜>", "<｜tool▁calls▁end｜>"}, false,
	},
	{
		"deepseek_v3", func(calls []writtenCall) string {
			return "<｜tool▁calls▁begin｜>" + each(calls, "\n", func(_ int, c writtenCall) string {
				return "<｜tool▁call▁begin｜>function<｜tool▁sep｜>" + c.name + "\n```json\n" + c.args + "\n```<｜tool▁call▁end｜>"
			}) + "<｜tool▁calls▁end｜><｜end▁of▁sentence｜>"
		}, []string{"```<｜tool▁call▁end｜>", "\n```"}, false,
	},
	{
		"mistral", func(calls []writtenCall) string {
			return each(calls, "", func(_ int, c writtenCall) string { return "[TOOL_CALLS]" + c.name + "[ARGS]" + c.args })
		}, []string{"[TOOL_CALLS]", "[ARGS]"}, false,
	},
	{
		"mistral", func(calls []writtenCall) string {
			return "[TOOL_CALLS][" + each(calls, ", ", jsonCall("arguments")) + "]"
		}, []string{"]", "[TOOL_CALLS]"}, false,
	},
	{
		"llama3_json", func(calls []writtenCall) string {
			return "<|python_tag|>" + each(calls, "; ", jsonCall("parameters")) + "<|eom_id|>"
		}, []string{";", "<|eom_id|>"}, false,
	},
	{
		"nemotron_deci", func(calls []writtenCall) string {
			return "<TOOLCALL>[" + each(calls, ", ", jsonCall("arguments")) + "]</TOOLCALL>"
		}, []string{"]", "</TOOLCALL>"}, false,
	},
	{
		"jamba", func(calls []writtenCall) string {
			return "<tool_calls>[\n" + each(calls, ",\n", jsonCall("arguments")) + "\n]</tool_calls>"
		}, []string{"]", "</tool_calls>"}, false,
	},
	{
		"phi4", func(calls []writtenCall) string { return "functools[" + each(calls, ",", jsonCall("arguments")) + "]" },
		[]string{"functools[", "]"},
		false,
	},
	{
		"pythonic", func(calls []writtenCall) string {
			return "[" + each(calls, ", ", func(_ int, c writtenCall) string {
				var args []string
				for _, m := range c.list {
					args = append(args, m.key+"="+pythonOf(m.value))
				}
				return c.name + "(" + strings.Join(args, ", ") + ")"
			}) + "]"
		}, []string{"]", ")", "'", "<|python_end|>"}, true,
	},
	{
		"gemma4", func(calls []writtenCall) string {
			return each(calls, "", func(_ int, c writtenCall) string {
				return "<|tool_call>call:" + c.name + gemmaOf(object(c.list)) + "<tool_call|>"
			})
		}, []string{"<tool_call|>", "}", "<|tool_call>"}, true,
	},
	{
		"kimi_k3", func(calls []writtenCall) string {
			return "<|open|>tools<|sep|>" + each(calls, "", func(i int, c writtenCall) string {
				var b strings.Builder
				for _, m := range c.list {
					kind, value := "other", m.value
					var text string
					if json.Unmarshal([]byte(m.value), &text) == nil && m.value != "null" {
						kind, value = "string", text
					}
					fmt.Fprintf(&b, `<|open|>argument key="%s" type="%s"<|sep|>%s<|close|>argument<|sep|>`, m.key, kind, value)
				}
				return fmt.Sprintf(`<|open|>call tool="%s" index="%d"<|sep|>%s<|close|>call<|sep|>`, c.name, i+1, b.String())
			}) + "<|close|>tools<|sep|>"
		}, []string{"<|close|>call<|sep|>", "<|close|>tools<|sep|>", "<|sep|>", "<|close|>argument<|sep|>x"}, true,
	},
	{
		"inkling", func(calls []writtenCall) string {
			return each(calls, "", func(_ int, c writtenCall) string {
				return fmt.Sprintf(`<|message_model|>%s<|content_invoke_tool_json|>{"name":%q,"args":%s}<|end_message|>`, c.name, c.name, c.args)
			}) + "<|content_model_end_sampling|>"
		}, []string{"<|end_message|>", "<|message_model|>", "<|content_text|>"}, false,
	},
	{
		"muse", func(calls []writtenCall) string {
			return each(calls, "<|eom|>", func(_ int, c writtenCall) string {
				var b strings.Builder
				for _, m := range c.list {
					value := m.value
					var text string
					if json.Unmarshal([]byte(m.value), &text) == nil && m.value != "null" {
						value = text
					}
					fmt.Fprintf(&b, "<atem:parameter name=%q>%s</atem:parameter>\n", m.key, value)
				}
				return fmt.Sprintf("<|start|>assistant to=%s<|message|><atem:function_calls>\n<atem:invoke name=%q>\n%s</atem:invoke>\n</atem:function_calls>", c.name, c.name, b.String())
			}) + "<|eot|>"
		}, []string{"<|eot|>", "</atem:parameter>x", "<|message|>"}, true,
	},
}

// pythonOf writes JSON as Python.
func pythonOf(text string) string {
	var v any
	_ = json.Unmarshal([]byte(text), &v)
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		return map[bool]string{true: "True", false: "False"}[v]
	case string:
		return "'" + strings.NewReplacer(`\`, `\\`, "'", `\'`, "\n", `\n`, "\x00", `\x00`).Replace(v) + "'"
	}
	return text
}

// gemmaOf writes a flat JSON object in Gemma's notation.
func gemmaOf(text string) string {
	var b strings.Builder
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	depth, key := 0, true
	for {
		t, err := d.Token()
		if err != nil {
			return b.String()
		}
		switch t := t.(type) {
		case json.Delim:
			if depth++; t == '{' {
				b.WriteByte('{')
			} else {
				b.WriteByte('}')
			}
			continue
		case string:
			if key {
				if s := b.String(); s[len(s)-1] != '{' {
					b.WriteByte(',')
				}
				b.WriteString(t + ":")
			} else {
				b.WriteString(`<|"|>` + t + `<|"|>`)
			}
		case nil:
			b.WriteString("None")
		default:
			fmt.Fprint(&b, t)
		}
		key = !key
	}
}

// genWritten makes calls whose strings hold markers, quotes and more.
func genWritten(t *rapid.T, w writer) []writtenCall {
	key := rapid.StringMatching(`[a-z][a-z0-9_]{0,5}`)
	name := rapid.StringMatching(`[a-z]{1,5}[a-z0-9]`)
	words := append([]string{"a", " ", "\n", `"`, `\`, "漢", "{", "}", "\\n", "é", ",", ":", "<", "|"}, w.markers...)
	text := rapid.Map(rapid.SliceOfN(rapid.SampledFrom(words), 0, 8), func(s []string) string { return strings.Join(s, "") })
	scalar := rapid.OneOf(
		rapid.Map(text, quoteString),
		rapid.SampledFrom([]string{"0", "-1.5", "1e3", "12345678901234567890", "true", "false", "null"}),
	)
	var calls []writtenCall
	named := map[string]bool{}
	for range rapid.IntRange(1, 3).Draw(t, "calls") {
		c := writtenCall{name: name.Draw(t, "name")}
		seen := map[string]bool{}
		for range rapid.IntRange(0, 3).Draw(t, "members") {
			m := member{key.Draw(t, "key"), scalar.Draw(t, "value")}
			if !seen[m.key] {
				c.list = append(c.list, m)
			}
			seen[m.key] = true
		}
		if named[c.name] {
			continue
		}
		named[c.name] = true
		c.args = object(c.list)
		if !w.typed && rapid.Bool().Draw(t, "spaces") {
			c.args = strings.Replace(c.args, `":`, `" : `, 1)
		}
		calls = append(calls, c)
	}
	return calls
}

// toolOf returns the tool of a call, with a schema that tells strings from others.
func toolOf(c writtenCall) chat.Tool {
	properties := map[string]any{}
	for _, m := range c.list {
		properties[m.key] = map[string]any{"type": []string{"number", "boolean", "null"}}
		if m.value[0] == '"' {
			properties[m.key] = map[string]any{"type": "string"}
		}
	}
	schema, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
	return chat.Tool{Kind: chat.ToolFunction, Name: c.name, Schema: schema}
}

// quoteString writes a string as JSON, escaping what must be.
func quoteString(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteString(`\` + string(r))
		case r == '\n':
			b.WriteString(`\n`)
		default:
			b.WriteRune(r)
		}
	}
	return b.String() + `"`
}

// What a model writes in its own notation comes back as the calls it meant, byte
// for byte, however the text is cut and whatever stands in its strings.
func TestCallsComeBack(t *testing.T) {
	for _, w := range writers {
		t.Run(w.family, func(t *testing.T) {
			f, err := parser.Family{}.With(w.family, "none")
			if err != nil {
				t.Fatal(err)
			}
			rapid.Check(t, func(rt *rapid.T) {
				calls := genWritten(rt, w)
				c := &testCase{family: f, reason: chat.FinishStop, opts: parser.Options{ToolsOn: true}}
				for _, call := range calls {
					c.opts.Tools = append(c.opts.Tools, toolOf(call))
				}
				before := rapid.SampledFrom([]string{"", "Let me see. "}).Draw(rt, "before")
				text := before + w.write(calls)
				var want []string
				if before != "" {
					want = append(want, "T "+strconv.Quote(before))
				}
				for _, call := range calls {
					want = append(want, "C "+call.name+" "+call.args)
				}
				want = append(want, "= tool_use")
				got := parse(t, c, cutUp(rt, text)...)
				for i, line := range got {
					if name, rest, ok := strings.Cut(line, " @"); ok && strings.HasPrefix(line, "C ") {
						_, args, _ := strings.Cut(rest, " ")
						got[i] = name + " " + args
					}
				}
				if diff := cmp.Diff(want, got); diff != "" {
					rt.Fatalf("%q (-want +got):\n%s", text, diff)
				}
			})
		})
	}
}

// tokenLike finds what is a special token in the vocabularies of the families.
var tokenLike = regexp.MustCompile(`<\|[^<>|]*\|?>|<[a-z_]*\|>|<｜[^<>｜]*｜>|｜DSML｜|\[/?[A-Z_]+\]`)

// Special tokens are taken out of the text before a parser sees it, unless it asks
// for them. Those that calls are made of all have to be asked for.
func TestTokensOfCallsAreSeen(t *testing.T) {
	texts := map[string]string{
		"deepseek_v4": "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"ls\">\n<｜DSML｜parameter name=\"p\" string=\"true\">1</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
		"mistral":     "[TOOL_CALLS]ls[CALL_ID]abc123XYZ[ARGS]{\"p\":\"1\"}[/TOOL_CALLS]",
	}
	for _, w := range writers {
		call := writtenCall{name: "ls", list: []member{{"p", `"1"`}}}
		call.args = object(call.list)
		if _, ok := texts[w.family]; !ok {
			texts[w.family] = w.write([]writtenCall{call})
		}
	}
	for name, text := range texts {
		f, err := parser.Family{}.With(name, "none")
		if err != nil {
			t.Fatal(err)
		}
		shown := tokenLike.ReplaceAllStringFunc(text, func(token string) string {
			if slices.Contains(f.Markers(), token) {
				return token
			}
			return ""
		})
		c := &testCase{family: f, reason: chat.FinishStop, opts: parser.Options{ToolsOn: true, Tools: []chat.Tool{{Name: "ls", Schema: json.RawMessage(`{"properties":{"p":{"type":"string"}}}`)}}}}
		got := parse(t, c, shown)
		if len(got) != 2 || !strings.HasPrefix(got[0], "C ls ") || !strings.HasSuffix(got[0], ` {"p":"1"}`) {
			t.Errorf("%s: of %q a parser sees %q, and reads %q", name, text, shown, got)
		}
		if byID := readByID(t, f, c.opts, text); !slices.Equal(byID, got) {
			t.Errorf("%s: of %q is read by its ids %q, and else %q", name, text, byID, got)
		}
	}
}

// readByID reads a text whose special tokens are known by their ids.
func readByID(t *testing.T, f parser.Family, o parser.Options, text string) []string {
	t.Helper()
	ids := map[string]uint32{}
	for _, token := range tokenLike.FindAllString(text, -1) {
		if ids[token] == 0 {
			ids[token] = uint32(1000 + len(ids))
		}
	}
	f = f.Bind(func(text string) (uint32, bool) { id, ok := ids[text]; return id, ok })
	p := parser.New(f, numbered(o))
	var events []chat.Event
	push := func(text string) {
		for _, s := range strings.Split(text, "") {
			events = p.Push(events, chat.Piece{Text: s, IDs: []uint32{uint32(s[0])}})
		}
	}
	last := 0
	for _, at := range tokenLike.FindAllStringIndex(text, -1) {
		push(text[last:at[0]])
		token := text[at[0]:at[1]]
		events = p.Push(events, chat.Piece{Text: token, IDs: []uint32{ids[token]}})
		last = at[1]
	}
	push(text[last:])
	events, reason := p.Finish(events, chat.FinishStop)
	return slices.DeleteFunc(render(t, events, reason), func(line string) bool { return line == `D markup ""` }) // ids alone
}

// nonsense are the fragments of texts that are almost in the notation of a family.
var nonsense = map[string][]string{
	"kimi_k2": {
		"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>",
		"functions.ls:0", "functions_ls_1", "call_1", "<|tool_call_begin|>functions.ls:0<|tool_call_argument_begin|>{",
	},
	"deepseek_v3": {
		"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>",
		"<｜end▁of▁sentence｜>", "function", "ls", "```json\n", "```", "`", "<｜tool▁call▁begin｜>function<｜tool▁sep｜>ls\n```json\n{",
	},
	"mistral":       {"[TOOL_CALLS]", "[/TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[TOOL_CALLS]ls", "abc123XYZ", "[{", "[TOOL_CALLS][", `,"id":"abc123XYZ"`},
	"llama3_json":   {"<|python_tag|>", "<|eom_id|>", "<|eot_id|>", ";", "; ", `{"type": "function", "name": "ls", "parameters": {`},
	"nemotron_deci": {"<TOOLCALL>", "</TOOLCALL>", "<TOOLCALL>[", `[{"name":"ls","arguments":{}}`},
	"jamba":         {"<tool_calls>", "</tool_calls>", "<tool_calls>["},
	"phi4":          {"functools", "functools[", "functools[{"},
	"pythonic": {
		"<|python_start|>", "<|python_end|>", "<|eom|>", "[ls(", "[ls()", "ls(", "p=", "'a", "'", `"""`, "(1, 2)", "None", "[rm(p=1)]", "[ls(p=[1, {'a': 'b'}])", ")",
	},
	"gemma4": {
		"<|tool_call>", "<tool_call|>", "call:", "call:ls{", `<|"|>`, "p:", "k:<|\"|>v<|\"|>", "<|tool_call>call:ls{p:", "None", "1", `"x"`,
	},
	"inkling": {
		"<|message_model|>", "<|content_text|>", "<|content_thinking|>", "<|content_invoke_tool_json|>", "<|end_message|>", "<|content_model_end_sampling|>",
		"ls", "<|message_model|>ls<|content_invoke_tool_json|>", "<|message_model|>ls<|content_invoke_tool_json|>{\"name\":\"ls\",\"args\":", "ls<|content_invoke_tool_json|>",
	},
	"muse": {
		"<|start|>", "<|start|>assistant", " to=", "to=", "self", "user", "ls", "<|message|>", "<|eom|>", "<|eot|>", "<atem:function_calls>", "</atem:function_calls>",
		"<atem:invoke name=\"ls\">", "<atem:parameter name=\"p\">", "</atem:parameter>", "</atem:invoke>", "<|start|>assistant to=", "<|start|>assistant to=ls<|message|><atem:function_calls>",
	},
	"kimi_k3": {
		"<|open|>", "<|close|>", "<|sep|>", "<|open|>tools<|sep|>", "<|close|>tools<|sep|>", `<|open|>call tool="ls" index="1"<|sep|>`, "<|close|>call<|sep|>",
		`<|open|>argument key="p" type="string"<|sep|>`, `<|open|>argument key="q" type="number"<|sep|>`, "<|close|>argument<|sep|>",
		`<|open|>json type="object"<|sep|>`, "<|close|>json<|sep|>", "<|open|>response<|sep|>", "<|end_of_msg|>", "<|close|> message <|sep|>", "<|close|>think<|sep|>",
	},
}

// common fragments go with all of them.
var commonFragments = []string{
	"<think>", "</think>", "\n", " ", "<", "<|", "|>", "text", "漢", `{"name": "ls", "arguments": {"p": "/tmp"}}`, `{"p": 1}`, `{"p":"a`, `{"s":"</think>`,
	"{", "}", "[", "]", ",", `"`, `\`, ":", "x", `"name"`, `"arguments"`, `"ls"`,
}

// anyCase makes a case with any options out of bits.
func anyCase(f parser.Family, bits uint8) *testCase {
	c := &testCase{family: f, reason: chat.FinishStop, opts: parser.Options{ToolsOn: bits&1 == 0, ThinkOn: bits&2 == 0}}
	if bits&4 == 0 {
		c.opts.Tools = []chat.Tool{{Name: "ls", Schema: json.RawMessage(`{"properties":{"p":{}}}`)}, {Name: "cat"}}
	}
	if bits&8 != 0 {
		c.opts.Parallel = new(false)
	}
	c.opts.Start = parser.Start(bits >> 4 % 3)
	return c
}

// familyBeside returns a family with the reasoning grammar that goes with it.
func familyBeside(t testing.TB, name string) parser.Family {
	t.Helper()
	thought := "qwen3"
	switch name {
	case "kimi_k3", "gemma4", "inkling", "muse":
		thought = name
	}
	return familyOf(t, name+"+"+thought)
}

// However a text is cut, be it nonsense, the blocks are the same and no byte is
// lost.
func TestNonsenseIsReadAlike(t *testing.T) {
	for name, fragments := range nonsense {
		t.Run(name, func(t *testing.T) {
			f := familyBeside(t, name)
			from := rapid.OneOf(rapid.SampledFrom(fragments), rapid.SampledFrom(append(commonFragments, fragments...)))
			rapid.Check(t, func(rt *rapid.T) {
				c := anyCase(f, rapid.Uint8().Draw(rt, "options"))
				text := strings.Join(rapid.SliceOfN(from, 0, 16).Draw(rt, "fragments"), "")
				pieces := cutUp(rt, text)
				if diff := cmp.Diff(parse(t, c, text), parse(t, c, pieces...)); diff != "" {
					rt.Fatalf("%q as %q (-whole +cut):\n%s", text, pieces, diff)
				}
			})
		})
	}
}

// fuzzFamily reads any text whole and in pieces.
func fuzzFamily(f *testing.F, name string) {
	family := familyBeside(f, name)
	for _, c := range readCases(f) {
		if c.family.ToolParser() == name {
			f.Add(c.text, uint64(0x123456789), uint8(0))
		}
	}
	f.Fuzz(func(t *testing.T, text string, cuts uint64, options uint8) {
		c := anyCase(family, options)
		var pieces []string
		for rest := text; rest != ""; cuts = cuts>>3 | cuts<<61 {
			n := min(len(rest), int(cuts&7)+1)
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		if diff := cmp.Diff(parse(t, c, text), parse(t, c, pieces...)); diff != "" {
			t.Fatalf("%q as %q (-whole +cut):\n%s", text, pieces, diff)
		}
	})
}

func FuzzKimiK2(f *testing.F)       { fuzzFamily(f, "kimi_k2") }
func FuzzDeepSeekV3(f *testing.F)   { fuzzFamily(f, "deepseek_v3") }
func FuzzMistral(f *testing.F)      { fuzzFamily(f, "mistral") }
func FuzzLlama3(f *testing.F)       { fuzzFamily(f, "llama3_json") }
func FuzzNemotronDeci(f *testing.F) { fuzzFamily(f, "nemotron_deci") }
func FuzzJamba(f *testing.F)        { fuzzFamily(f, "jamba") }
func FuzzPhi4(f *testing.F)         { fuzzFamily(f, "phi4") }
func FuzzPythonic(f *testing.F)     { fuzzFamily(f, "pythonic") }
func FuzzGemma4(f *testing.F)       { fuzzFamily(f, "gemma4") }
func FuzzKimiK3(f *testing.F)       { fuzzFamily(f, "kimi_k3") }
func FuzzInkling(f *testing.F)      { fuzzFamily(f, "inkling") }
func FuzzMuse(f *testing.F)         { fuzzFamily(f, "muse") }
