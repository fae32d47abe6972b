package parser_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

// typed returns what a family makes of a value that was written as text for a
// parameter with this declaration.
func typed(t testing.TB, family *tagged, declaration, value string) string {
	t.Helper()
	p := parser.New(familyOf(t, family.name), parser.Options{ToolsOn: true, Tools: []chat.Tool{{
		Name: "f", Schema: json.RawMessage(`{"properties":{"k":` + declaration + `},"$defs":{"int":{"type":"integer"},"loop":{"$ref":"#/$defs/loop"},"a/b":{"type":"array"}}}`),
	}}})
	text := family.write([]givenCall{{name: "f", keys: []string{"k"}, values: []any{value}}})
	events, reason := p.Finish(p.Push(nil, chat.Piece{Text: text}), chat.FinishStop)
	var args strings.Builder
	for _, e := range events {
		if e.Kind == chat.ArgsDelta {
			args.WriteString(e.Text)
		}
	}
	if reason != chat.FinishToolUse {
		t.Fatalf("%q: no call, %s", text, reason)
	}
	return strings.TrimSuffix(strings.TrimPrefix(args.String(), `{"k":`), "}")
}

func TestTypedValues(t *testing.T) {
	for _, tt := range []struct{ declaration, value, want string }{
		{`{"type":"string"}`, ` 42 `, `" 42 "`},
		{`{"type":"varchar"}`, `null`, `"null"`},
		{`{"type":"string","nullable":true}`, `NULL`, `null`},
		{`{"type":"string","nullable":true}`, `nul`, `"nul"`},
		{`{"type":"string","nullable":true}`, ``, `""`},

		{`{"type":"integer"}`, ` 42 `, `42`},
		{`{"type":"integer"}`, `-0`, `-0`},
		{`{"type":"integer"}`, `+5`, `"+5"`},
		{`{"type":"integer"}`, `5.0`, `"5.0"`},
		{`{"type":"integer"}`, `1e3`, `"1e3"`},
		{`{"type":"integer"}`, ``, `""`},
		{`{"type":"uint64"}`, `18446744073709551616`, `18446744073709551616`},
		{`{"type":"number"}`, `3.0`, `3.0`},
		{`{"type":"float32"}`, `-1.5e-3`, `-1.5e-3`},
		{`{"type":"number"}`, `NaN`, `"NaN"`},
		{`{"type":"number"}`, `1,5`, `"1,5"`},
		{`{"type":"number"}`, `null`, `null`},
		{`{"type":"boolean"}`, `TRUE`, `true`},
		{`{"type":"bool"}`, ` false`, `false`},
		{`{"type":"boolean"}`, `1`, `"1"`},

		{`{"type":"object"}`, `{"a": 1.0}`, `{"a": 1.0}`},
		{`{"type":"object"}`, "{\"a\": \"x\ny\"}", `{"a": "x\ny"}`},
		{`{"type":"object"}`, `{'a': (1, "b'c"), 'd': None}`, `{"a":[1,"b'c"],"d":null}`},
		{`{"type":"object"}`, `{1: True}`, `{"1":true}`},
		{`{"type":"object"}`, `5`, `5`},
		{`{"type":"object"}`, `{a: 1}`, `"{a: 1}"`},
		{`{"type":"array"}`, `[1, 2,]`, `[1,2]`},
		{`{"type":"array"}`, `('x',)`, `["x"]`},
		{`{"type":"list[int]"}`, `[]`, `[]`},
		{`{"type":"array"}`, `a, b`, `"a, b"`},
		{`{"type":"array"}`, `['\x41é\n\'', "\q"]`, `["Aé\n'","\\q"]`},
		{`{"type":"array"}`, `['\ud800']`, `["\\ud800"]`},
		{`{"type":"array"}`, strings.Repeat("[", 200), quoted(strings.Repeat("[", 200))},
		{`{"type":"array"}`, `[`, `"["`},
		{`{"type":"array"}`, `['a' 'b']`, `"['a' 'b']"`},
		{`{"type":"array"}`, `['a`, `"['a"`},
		{`{"type":"array"}`, `['a\`, `"['a\\"`},
		{`{"type":"array"}`, `[(1), (), {}]`, `[1,[],{}]`},
		{`{"type":"object"}`, `{[1]: 2}`, `"{[1]: 2}"`},

		{`{"type":"double"}`, `1.5`, `1.5`},
		{`{"type":"double"}`, `None`, `null`},
		{`{"type":"date"}`, `2026-01-02`, `"2026-01-02"`},
		{`{}`, `5`, `"5"`},
		{`{}`, `[5]`, `[5]`},
		{`true`, `{"a":1}`, `{"a":1}`},
		{`{"type":"null"}`, `null`, `null`},
		{`{"type":"null"}`, `x`, `"x"`},

		{`{"type":["string","integer"]}`, `5`, `5`},
		{`{"type":["string","integer"]}`, `x`, `"x"`},
		{`{"type":["string","integer"]}`, `null`, `"null"`},
		{`{"type":["boolean","null"]}`, `null`, `null`},
		{`{"type":["object","string"]}`, `5`, `"5"`},
		{`{"anyOf":[{"type":"string"},{"type":"integer"}]}`, `5`, `"5"`},
		{`{"anyOf":[{"type":"string"},{"type":"null"}]}`, `null`, `null`},
		{`{"oneOf":[{"type":"integer"},{"type":"array"}]}`, `[5]`, `[5]`},
		{`{"allOf":[{"$ref":"#/$defs/int"}]}`, `5`, `5`},
		{`{"$ref":"#/$defs/a~1b"}`, `[5]`, `[5]`},
		{`{"$ref":"#/$defs/loop"}`, `5`, `"5"`},
		{`{"$ref":"#/nowhere"}`, `[5]`, `[5]`},
		{`{"$ref":"other.json"}`, `5`, `"5"`},
	} {
		if got := typed(t, taggedFamilies[0], tt.declaration, tt.value); got != tt.want {
			t.Errorf("%s, %q: %s, want %s", tt.declaration, tt.value, got, tt.want)
		}
	}
}

func TestTypedValuesOfGLM(t *testing.T) {
	for _, tt := range []struct{ declaration, value, want string }{
		{`{"type":"boolean"}`, `Yes`, `true`},
		{`{"type":"boolean"}`, `1`, `true`},
		{`{"type":"boolean"}`, `0`, `false`},
		{`{"type":"boolean"}`, `no`, `false`},
		{`{"type":"boolean"}`, `2`, `"2"`},
		{`{"type":"array"}`, `a, "b" ,`, `["a","\"b\"",""]`},
		{`{"type":"array"}`, `['a', 'b']`, `["a","b"]`},
		{`{"type":["array","string"]}`, `a, b`, `["a","b"]`},
	} {
		if got := typed(t, taggedFamilies[1], tt.declaration, tt.value); got != tt.want {
			t.Errorf("%s, %q: %s, want %s", tt.declaration, tt.value, got, tt.want)
		}
	}
}

// genValue makes a JSON value.
func genValue(t *rapid.T, depth int) any {
	kinds := 6
	if depth > 3 {
		kinds = 4
	}
	switch rapid.IntRange(0, kinds-1).Draw(t, "kind") {
	case 0:
		return nil
	case 1:
		return rapid.Bool().Draw(t, "bool")
	case 2:
		return float64(rapid.Int32().Draw(t, "number")) / 4
	case 3:
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{"a", "'", `"`, `\`, "\n", "\t", "漢", "\x01", "<", "}", "]", ",", " "}), 0, 5).Draw(t, "text"), "")
	case 4:
		list := make([]any, rapid.IntRange(0, 3).Draw(t, "items"))
		for i := range list {
			list[i] = genValue(t, depth+1)
		}
		return list
	default:
		object := map[string]any{}
		for _, key := range rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b c", "d'e", ""}), 0, 3).Draw(t, "keys") {
			object[key] = genValue(t, depth+1)
		}
		return object
	}
}

// python writes a value as Python shows it.
func python(v any) string {
	switch v := v.(type) {
	case nil:
		return "None"
	case bool:
		if v {
			return "True"
		}
		return "False"
	case string:
		s := strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\t", `\t`, "\x01", `\x01`).Replace(v)
		if strings.Contains(s, "'") && !strings.Contains(s, `"`) {
			return `"` + s + `"`
		}
		return "'" + strings.ReplaceAll(s, "'", `\'`) + "'"
	case []any:
		var items []string
		for _, item := range v {
			items = append(items, python(item))
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var items []string
		for key, value := range v {
			items = append(items, python(key)+": "+python(value))
		}
		return "{" + strings.Join(items, ", ") + "}"
	default:
		return fmt.Sprint(v)
	}
}

// An object comes back as the same value, be it written as JSON or as Python.
func TestTypedObjects(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		value := map[string]any{"v": genValue(rt, 0)}
		asJSON, _ := json.Marshal(value)
		if got := typed(t, taggedFamilies[0], `{"type":"object"}`, string(asJSON)); got != string(asJSON) {
			rt.Fatalf("JSON %s became %s", asJSON, got)
		}
		asPython := python(value)
		var got any
		if err := json.Unmarshal([]byte(typed(t, taggedFamilies[0], `{"type":"object"}`, asPython)), &got); err != nil || !reflect.DeepEqual(got, any(value)) {
			rt.Fatalf("Python %s became %#v (%v)", asPython, got, err)
		}
	})
}

// A string streams: what has arrived is told, but for what may still be markup,
// and the schema is looked up once for all of it.
func TestTaggedStringsStream(t *testing.T) {
	for _, f := range taggedFamilies {
		p := parser.New(familyOf(t, f.name), parser.Options{ToolsOn: true, KeepEntities: true, Tools: toolsOf([]givenCall{{name: "f", keys: []string{"k"}, values: []any{""}}})})
		p.Push(nil, chat.Piece{Text: f.open + f.call("f") + f.param("k", "") + f.layout})
		for i, s := range []string{"Hello", " world <", "b>]", "\n", "more"} {
			before := p.Held()
			events := p.Push(nil, chat.Piece{Text: s})
			told := 0
			for _, e := range events {
				if e.Kind == chat.ArgsDelta {
					told++
				}
			}
			if held := p.Held(); held > 1 || told == 0 && held <= before {
				t.Errorf("%s: %d bytes are held, and %d deltas told, after piece %d", f.name, held, told, i)
			}
		}
	}
}

// Parts of a string that need no escapes are handed on as they arrived.
func TestTaggedStringsDoNotAllocate(t *testing.T) {
	for _, f := range taggedFamilies {
		p := parser.New(familyOf(t, f.name), parser.Options{ToolsOn: true, Tools: toolsOf([]givenCall{{name: "f", keys: []string{"k"}, values: []any{""}}})})
		buf := p.Push(nil, chat.Piece{Text: f.open + f.call("f") + f.param("k", "") + f.layout + "x"})
		piece := chat.Piece{Text: "some words", IDs: []uint32{1, 2}}
		// The list of waiting ids is what is left.
		if n := testing.AllocsPerRun(100, func() { buf = p.Push(buf[:0], piece) }); n > 1 {
			t.Errorf("%s: %v allocations", f.name, n)
		}
		if len(buf) != 1 || buf[0].Text != piece.Text || len(buf[0].IDs) != 2 {
			t.Errorf("%s: %+v", f.name, buf)
		}
	}
}
