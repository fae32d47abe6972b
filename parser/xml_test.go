package parser_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// A tagged family writes calls in tags. The tests know it by what its models'
// templates write, and by a reader that sees the whole text at once.
type tagged struct {
	name        string
	open, close string
	call        func(name string) string
	callEnd     string
	param       func(key string, value any) string
	paramEnd    func(key string) string
	layout      string // on either side of a value
	// ends are what a value ends before: its own end tag, and what ends it if that
	// was forgotten, unless an end tag was data before.
	own, others *regexp.Regexp
	lenient     bool
	fragments   []string
}

var taggedFamilies = []*tagged{
	{
		name: "qwen3_coder", open: "<tool_call>\n", close: "</tool_call>", layout: "\n", lenient: true,
		call: func(name string) string { return "<function=" + name + ">\n" }, callEnd: "</function>\n",
		param:    func(key string, _ any) string { return "<parameter=" + key + ">" },
		paramEnd: func(string) string { return "</parameter>\n" },
		own:      regexp.MustCompile(`^</parameter>\s*(<parameter=|</function>|<function=|<tool_call>|</tool_call>\s*(<function=|<tool_call>|$)|$)`),
		others:   regexp.MustCompile(`^(<parameter=[^<>\n]+>|</function>\s*(</tool_call>|<function=|<tool_call>|$)|</tool_call>\s*(<function=|<tool_call>|$))`),
		fragments: []string{
			"<tool_call>", "</tool_call>", "<function=", "<function=f>", "</function>", "<parameter=", "<parameter=k>", "</parameter>", "<parameter=n>\n", "\n</parameter>",
		},
	},
	{
		name: "glm47", open: "<tool_call>", close: "</tool_call>",
		call:     func(name string) string { return name + "\n" },
		param:    func(key string, _ any) string { return "<arg_key>" + key + "</arg_key>\n<arg_value>" },
		paramEnd: func(string) string { return "</arg_value>\n" },
		own:      regexp.MustCompile(`^</arg_value>\s*(<arg_key>|</tool_call>|<tool_call>|$)`),
		others:   regexp.MustCompile(`^(<arg_key>\s*[^<\s][^<]*</arg_key>\s*<arg_value>|</tool_call>\s*(<tool_call>|$))`),
		fragments: []string{
			"<tool_call>", "<tool_call>f\n", "</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>", "<arg_key>k</arg_key>", "<arg_key>n</arg_key><arg_value>",
		},
	},
	{
		name: "minimax_m2", open: "<minimax:tool_call>\n", close: "</minimax:tool_call>",
		call: func(name string) string { return `<invoke name="` + name + "\">\n" }, callEnd: "</invoke>\n",
		param:    func(key string, _ any) string { return `<parameter name="` + key + `">` },
		paramEnd: func(string) string { return "</parameter>\n" },
		own:      regexp.MustCompile(`^</parameter>\s*(<parameter name=|</invoke>|<invoke name=|<minimax:tool_call>|</minimax:tool_call>\s*(<invoke name=|<minimax:tool_call>|$)|$)`),
		others:   regexp.MustCompile(`^(<parameter\s+name=("[^"]+"|'[^']+'|[^\s<>"']+)\s*>|</invoke>\s*(</minimax:tool_call>|<invoke name=|<minimax:tool_call>|$)|<invoke name=("[^"]+"|'[^']+'|[^\s<>"']+)\s*>\s*(<parameter name=|</invoke>|$)|</minimax:tool_call>\s*(<invoke name=|<minimax:tool_call>|$))`),
		fragments: []string{
			"<minimax:tool_call>", "</minimax:tool_call>", "<invoke name=", `<invoke name="f">`, "</invoke>", "<parameter name=", `<parameter name="k">`, `<parameter name=n>`, "</parameter>",
		},
	},
	{
		name: "deepseek_v4", open: "<｜DSML｜tool_calls>\n", close: "</｜DSML｜tool_calls>",
		call: func(name string) string { return `<｜DSML｜invoke name="` + name + "\">\n" }, callEnd: "</｜DSML｜invoke>\n",
		param: func(key string, value any) string {
			_, text := value.(string)
			return fmt.Sprintf(`<｜DSML｜parameter name="%s" string="%t">`, key, text)
		},
		paramEnd: func(string) string { return "</｜DSML｜parameter>\n" },
		own:      regexp.MustCompile(`^</｜DSML｜ ?parameter>\s*(<｜DSML｜ ?(parameter|invoke|(tool_|function_)?calls>)|</｜DSML｜ ?invoke>|</｜DSML｜ ?(tool_|function_)?calls>\s*(<｜DSML｜ ?invoke|<｜DSML｜ ?(tool_|function_)?calls>|$)|$)`),
		others:   regexp.MustCompile(`^(<｜DSML｜ ?parameter name="[^"]+"( string="(true|false)")?>|</｜DSML｜ ?invoke>\s*(</｜DSML｜ ?(tool_|function_)?calls>|<｜DSML｜ ?invoke|<｜DSML｜ ?(tool_|function_)?calls>|$)|<｜DSML｜ ?invoke name="[^"]+">\s*(<｜DSML｜ ?parameter|</｜DSML｜ ?invoke>|$)|</｜DSML｜ ?(tool_|function_)?calls>\s*(<｜DSML｜ ?invoke|<｜DSML｜ ?(tool_|function_)?calls>|$))`),
		fragments: []string{
			"<｜DSML｜tool_calls>", "</｜DSML｜tool_calls>", "\n\n<｜DSML｜function_calls>", "<｜DSML｜ calls>", "</｜DSML｜ calls>", "<｜DSML｜", `<｜DSML｜invoke name="f">`, `<｜DSML｜ invoke name="g">`,
			"</｜DSML｜invoke>", "</｜DSML｜ invoke>", `<｜DSML｜parameter name="k" string="true">`, `<｜DSML｜parameter name="n" string="false">`, `<｜DSML｜ parameter name="k">`, "</｜DSML｜parameter>", "</｜DSML｜ parameter>",
		},
	},
	{
		name: "minimax_m3", open: ns + "<tool_call>\n", close: ns + "</tool_call>",
		call: func(name string) string { return ns + `<invoke name="` + name + "\">\n" }, callEnd: ns + "</invoke>\n",
		param:    func(key string, _ any) string { return ns + "<" + key + ">" },
		paramEnd: func(key string) string { return ns + "</" + key + ">\n" },
		own:      nil,
		fragments: []string{
			ns, ns + "<tool_call>", ns + "</tool_call>", ns + "<invoke name=", ns + `<invoke name="f">`, ns + "</invoke>", ns + "<k>", ns + "</k>", ns + "<n>", ns + "</n>", ns + "<item>", ns + "</item>", "]<", "]<]minimax[>",
		},
	},
}

// ns is what stands before every tag of MiniMax M3.
const ns = "]<]minimax[>["

// moreFragments are what values and texts consist of beside tags.
var moreFragments = []string{
	"\n", " ", "\t", "a", "text", "漢字 naïve", "<", ">", "</", "<t", "]", "&", "&lt;", "&amp;", "&amp;lt;", `"`, `\`, "{", "}", "\x01", "1", "-2.5e3", "null", "true", `{"a": [1]}`, "['x', None]", "<think>", "</think>", "x = y",
}

// A givenCall is a call that a test writes and wants back.
type givenCall struct {
	name   string
	keys   []string
	values []any // a string, or JSON as a json.RawMessage
}

// write writes calls as the family's template does.
func (f *tagged) write(calls []givenCall) string {
	var out strings.Builder
	for i, c := range calls {
		if i == 0 || f.callEnd == "" {
			out.WriteString(f.open)
		}
		out.WriteString(f.call(c.name))
		for i, key := range c.keys {
			value := fmt.Sprint(c.values[i])
			if raw, ok := c.values[i].(json.RawMessage); ok {
				value = string(raw)
			}
			out.WriteString(f.param(key, c.values[i]) + f.layout + value + f.layout + f.paramEnd(key))
		}
		out.WriteString(f.callEnd)
		if i == len(calls)-1 || f.callEnd == "" {
			out.WriteString(f.close)
		}
	}
	return out.String()
}

// survives says whether the value that begins at a place in a text ends where it
// should, according to the rules, and before that all tags in it are data.
func (f *tagged) survives(text string, from, to int, key string) bool {
	own := f.own
	if own == nil {
		q := regexp.QuoteMeta
		own = regexp.MustCompile(`^` + q(ns+"</"+key+">") + `\s*(` + q(ns) + `(<[^\s<>/="']+>|</invoke>|<invoke name=|<tool_call>|</tool_call>\s*(` + q(ns) + `(<invoke name=|<tool_call>)|$))|$)`)
	}
	others := f.others
	if others == nil {
		q := regexp.QuoteMeta(ns)
		others = regexp.MustCompile(`^` + q + `(</invoke>\s*(` + q + `(</tool_call>|<invoke name=|<tool_call>)|$)|<invoke name="[^"]+">\s*(` + q + `</invoke>|$)|</tool_call>\s*(` + q + `(<invoke name=|<tool_call>)|$))`)
	}
	closed := false
	for at := from; at < len(text); at++ {
		switch rest := text[at:]; {
		case own.MatchString(rest):
			return at == to
		case strings.HasPrefix(rest, strings.TrimRight(f.paramEnd(key), "\n")):
			closed = true
		case !closed && others.MatchString(rest):
			return false
		}
	}
	return false
}

func genCalls(t *rapid.T, f *tagged) []givenCall {
	fragments := append(moreFragments, f.fragments...)
	calls := make([]givenCall, rapid.IntRange(1, 3).Draw(t, "calls"))
	for i := range calls {
		c := &calls[i]
		c.name = rapid.SampledFrom([]string{"f", "g.h", "ns::do_it-2"}).Draw(t, "name")
		c.keys = rapid.SliceOfNDistinct(rapid.SampledFrom([]string{"k", "n", "path", "x_1", "ключ"}), 0, 4, rapid.ID).Draw(t, "keys")
		for range c.keys {
			if rapid.IntRange(0, 3).Draw(t, "kind") == 0 {
				c.values = append(c.values, json.RawMessage(rapid.SampledFrom([]string{
					"1", "-2.50", "12345678901234567890", "true", "null", `{"a": [1, {"b": "c\n<"}]}`, "[]", `["</x>", null]`,
				}).Draw(t, "json")))
				continue
			}
			c.values = append(c.values, strings.Join(rapid.SliceOfN(rapid.SampledFrom(fragments), 0, 6).Draw(t, "value"), ""))
		}
	}
	return calls
}

// toolsOf returns tools for calls, whose parameters have the types that the values
// have; nil if a key has several.
func toolsOf(calls []givenCall) []chat.Tool {
	var tools []chat.Tool
	for _, name := range []string{"f", "g.h", "ns::do_it-2"} {
		properties := map[string]any{}
		for _, c := range calls {
			if c.name != name {
				continue
			}
			for i, key := range c.keys {
				typ := []string{"string"}
				if raw, ok := c.values[i].(json.RawMessage); ok {
					typ = []string{map[byte]string{'{': "object", '[': "array", 't': "boolean", 'n': "null"}[raw[0]]}
					if typ[0] == "" {
						typ[0] = "number"
					}
				}
				if old, ok := properties[key]; ok {
					// Another call gives the key another type.
					if fmt.Sprint(old) != fmt.Sprint(map[string]any{"type": typ[0]}) {
						return nil
					}
				}
				properties[key] = map[string]any{"type": typ[0]}
			}
		}
		schema, _ := json.Marshal(map[string]any{"type": "object", "properties": properties})
		tools = append(tools, chat.Tool{Name: name, Schema: schema})
	}
	return tools
}

// want returns what the events of the calls look like.
func (f *tagged) want(calls []givenCall) []string {
	var lines []string
	for _, c := range calls {
		var args strings.Builder
		args.WriteByte('{')
		for i, key := range c.keys {
			if i > 0 {
				args.WriteByte(',')
			}
			args.WriteString(quoted(key) + ":")
			if raw, ok := c.values[i].(json.RawMessage); ok {
				args.Write(raw)
			} else {
				args.WriteString(quoted(c.values[i].(string)))
			}
		}
		lines = append(lines, "C "+c.name+" "+args.String()+"}")
	}
	return append(lines, "= tool_use")
}

// quoted returns a string as JSON, with nothing escaped that need not be.
func quoted(s string) string {
	var out strings.Builder
	enc := json.NewEncoder(&out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(s)
	return strings.TrimSuffix(out.String(), "\n")
}

// What a template writes comes back, however it is cut, with any text in the
// values that the rules take for data.
func TestTaggedCallsComeBack(t *testing.T) {
	for _, f := range taggedFamilies {
		t.Run(f.name, func(t *testing.T) {
			family := familyOf(t, f.name)
			tricky, all := 0, 0
			rapid.Check(t, func(rt *rapid.T) {
				calls := genCalls(rt, f)
				c := &testCase{family: family, reason: chat.FinishStop, opts: parser.Options{ToolsOn: true, KeepEntities: true, Tools: toolsOf(calls)}}
				if c.opts.Tools == nil {
					return
				}
				text := f.write(calls)
				at := 0
				for _, call := range calls {
					for i, key := range call.keys {
						value, isText := call.values[i].(string)
						if !isText {
							value = string(call.values[i].(json.RawMessage))
						}
						begin := f.param(key, call.values[i]) + f.layout
						from := at + strings.Index(text[at:], begin+value+f.layout+strings.TrimRight(f.paramEnd(key), "\n")) + len(begin)
						at = from + len(value)
						if !f.survives(text, from, at+len(f.layout), key) {
							return
						}
						if strings.Contains(value, "</") {
							tricky++
						}
					}
				}
				all++
				want := f.want(calls)
				if diff := cmp.Diff(want, parse(t, c, text)); diff != "" {
					rt.Fatalf("%q (-want +got):\n%s", text, diff)
				}
				pieces := cutUp(rt, text)
				if diff := cmp.Diff(want, parse(t, c, pieces...)); diff != "" {
					rt.Fatalf("%q (-want +got):\n%s", pieces, diff)
				}
			})
			if all < 20 || tricky < 5 {
				t.Errorf("%d texts, %d values with tags that are data: too few to say anything", all, tricky)
			}
		})
	}
}

// cutUp cuts a text into pieces.
func cutUp(t *rapid.T, text string) []string {
	var pieces []string
	for text != "" {
		n := min(len(text), rapid.IntRange(1, 12).Draw(t, "cut"))
		pieces = append(pieces, text[:n])
		text = text[n:]
	}
	return pieces
}

// taggedOptions are options for tests with any text: declared keys of several
// types, and calls that are or are not wanted.
func taggedOptions(bits uint8) parser.Options {
	o := parser.Options{ToolsOn: bits&1 == 0, ThinkOn: bits&2 == 0, KeepEntities: bits&4 != 0}
	if bits&8 == 0 {
		o.Tools = []chat.Tool{{Name: "f", Schema: json.RawMessage(`{"properties":{"n":{"type":"integer"},"k":{"type":["string","null"]},"item":{"type":"array"}}}`)}}
	}
	if bits&16 != 0 {
		o.Parallel = new(false)
	}
	if bits&32 != 0 {
		o.Start = parser.StartReasoning
	}
	return o
}

// checkTagged parses a text whole and in pieces, and checks what must always
// hold: the same blocks, no byte lost, and complete calls with valid arguments.
func checkTagged(t testing.TB, c *testCase, text string, pieces []string) {
	t.Helper()
	want := parse(t, c, text)
	if diff := cmp.Diff(want, parse(t, c, pieces...)); diff != "" {
		t.Fatalf("%q as %q (-whole +cut):\n%s", text, pieces, diff)
	}
	for _, line := range want {
		if call, ok := strings.CutPrefix(line, "C "); ok {
			i := strings.LastIndex(call, " {")
			for ; i > 0 && !json.Valid([]byte(call[i+1:])); i = strings.LastIndex(call[:i], " {") {
			}
			if i < 0 {
				t.Fatalf("%q: arguments are not JSON: %s", text, line)
			}
		}
	}
}

// However a text is cut, be it nonsense, the blocks are the same.
func TestTaggedSplitInvariance(t *testing.T) {
	for _, f := range append(taggedFamilies, &tagged{name: "minimax_m3_nom", fragments: []string{"<tool_call>", "</tool_call>", `<invoke name="f">`, "</invoke>", "<k>", "</k>", "<n>", "</n>", "<item>", "</item>"}}) {
		t.Run(f.name, func(t *testing.T) {
			family := familyOf(t, f.name+"+qwen3")
			fragments := append(moreFragments, f.fragments...)
			rapid.Check(t, func(rt *rapid.T) {
				c := &testCase{family: family, reason: chat.FinishStop, opts: taggedOptions(rapid.Uint8().Draw(rt, "options"))}
				text := strings.Join(rapid.SliceOfN(rapid.OneOf(rapid.SampledFrom(f.fragments), rapid.SampledFrom(fragments)), 0, 16).Draw(rt, "fragments"), "")
				checkTagged(t, c, text, cutUp(rt, text))
			})
		})
	}
}

func FuzzTagged(f *testing.F) {
	names := []string{"qwen3_coder", "glm47", "minimax_m2", "minimax_m3", "minimax_m3_nom", "deepseek_v4"}
	families := make([]parser.Family, len(names))
	for i, name := range names {
		families[i] = familyOf(f, name+"+qwen3")
	}
	for _, c := range readCases(f) {
		for i, name := range names {
			if c.family.String() == name {
				f.Add(c.text, uint64(0x123456789), uint8(i), uint8(0))
			}
		}
	}
	f.Fuzz(func(t *testing.T, text string, cuts uint64, family, options uint8) {
		c := &testCase{family: families[int(family)%len(families)], reason: chat.FinishStop, opts: taggedOptions(options)}
		var pieces []string
		for rest := text; rest != ""; cuts = cuts>>3 | cuts<<61 {
			n := min(len(rest), int(cuts&7)+1)
			pieces = append(pieces, rest[:n])
			rest = rest[n:]
		}
		checkTagged(t, c, text, pieces)
	})
}

// White space that may be layout or data is bounded, so that a model that writes
// nothing else keeps nobody waiting. These take half a second, and many minutes
// if each piece read all white space before it again.
func TestTaggedBlanks(t *testing.T) {
	blanks := strings.Repeat("\n ", 200_000)
	for _, f := range taggedFamilies {
		family := familyOf(t, f.name)
		opts := parser.Options{ToolsOn: true, Tools: toolsOf([]givenCall{{name: "f", keys: []string{"k"}, values: []any{""}}})}
		call := f.write([]givenCall{{name: "f", keys: []string{"k"}, values: []any{"x"}}})
		for _, text := range []string{
			f.open, // at its end
			strings.TrimSuffix(call, f.close),
			f.open + f.call("f") + f.param("k", "") + "x" + f.paramEnd("k"),
			f.open + f.call("f"),
		} {
			began := time.Now()
			p := parser.New(family, opts)
			events := p.Push(nil, chat.Piece{Text: text})
			for i := range blanks {
				events = p.Push(events[:0], chat.Piece{Text: blanks[i : i+1]})
			}
			_, _ = p.Finish(events, chat.FinishLength)
			if took := time.Since(began); took > 10*time.Second {
				t.Errorf("%s: blanks behind %q took %v", f.name, text, took)
			}
		}
	}
}

// A first word that is the name of no tool is told at once.
func TestFirstWords(t *testing.T) {
	p := parser.New(familyOf(t, "glm47"), parser.Options{ToolsOn: true, Tools: []chat.Tool{{Name: "list_files"}}})
	if events := p.Push(nil, chat.Piece{Text: "lis"}); len(events) > 0 || p.Held() != 3 {
		t.Errorf("what may be a name is told: %+v", events)
	}
	if events := p.Push(nil, chat.Piece{Text: "ten"}); len(events) != 2 || p.Held() != 0 {
		t.Errorf("what is no name is held: %+v", events)
	}
}

// Qwen's models forget tags. As long as something is left that tells where a value
// and a call end, the calls are the same.
func TestForgottenTags(t *testing.T) {
	family := familyOf(t, "qwen3_coder")
	rapid.Check(t, func(rt *rapid.T) {
		forget := func(what string) bool { return rapid.IntRange(0, 2).Draw(rt, what) == 0 }
		var text strings.Builder
		var calls []givenCall
		open := false
		n := rapid.IntRange(1, 4).Draw(rt, "calls")
		for i := range n {
			c := givenCall{name: "f"}
			for _, key := range []string{"a", "b"}[:rapid.IntRange(0, 2).Draw(rt, "keys")] {
				c.keys, c.values = append(c.keys, key), append(c.values, "1 < 2\n3")
			}
			calls = append(calls, c)
			if !open && !forget("opener") {
				text.WriteString("<tool_call>\n")
				open = true
			}
			text.WriteString("<function=f>\n")
			told := len(c.keys) == 0 // where the last value ends
			for i, key := range c.keys {
				text.WriteString("<parameter=" + key + ">\n1 < 2\n3\n")
				last := i == len(c.keys)-1
				if !forget("parameter") {
					text.WriteString("</parameter>\n")
					told = told || last
				}
			}
			// Something must tell that the call has ended, too: its own end tag, or that
			// of its wrapper where nothing but another call follows.
			ended := !forget("function")
			if ended {
				text.WriteString("</function>\n")
			}
			if closes := open && !forget("wrapper"); closes || !told && !ended || !ended && i == n-1 {
				text.WriteString("</tool_call>\n")
				open = false
			}
		}
		f := taggedFamilies[0]
		c := &testCase{family: family, reason: chat.FinishStop, opts: parser.Options{ToolsOn: true}}
		if diff := cmp.Diff(f.want(calls), parse(t, c, cutUp(rt, text.String())...)); diff != "" {
			rt.Fatalf("%q (-want +got):\n%s", text.String(), diff)
		}
	})
}
