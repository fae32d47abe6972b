package mock_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
)

func load(t testing.TB, text string) *mock.Script {
	t.Helper()
	s, err := mock.LoadScript(strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func scripted(t testing.TB, text string, change ...func(*mock.Args)) *mock.Engine {
	t.Helper()
	return open(t, mock.Config{Encode: encodeBytes, EOS: []uint32{eos}, Script: load(t, text)}, change...)
}

func turn(role chat.Role, blocks ...chat.Block) chat.Turn {
	return chat.Turn{Role: role, Blocks: blocks}
}
func said(text string) chat.Block { return chat.Block{Kind: chat.Text, Text: text} }
func called(id, name string) chat.Block {
	return chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: id, Name: name}}
}

func result(id, text string) chat.Block {
	return chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: id, Blocks: []chat.Block{said(text)}}}
}

// ask returns a request for a conversation. The prompt stands for the rendered
// one and does not matter.
func ask(turns ...chat.Turn) *engine.Request {
	return &engine.Request{
		TokenIDs: []uint32{1, 2, 3},
		Chat:     &chat.Request{Model: "demo", Turns: turns},
		Stop:     engine.Stop{MaxTokens: 500, Hidden: []uint32{eos}},
	}
}

// item is what one delta said and when.
type item struct {
	text string
	at   time.Duration
}

func listen(e *mock.Engine, r *engine.Request) (items []item, finish engine.Finish, err error) {
	begin := time.Now()
	for d, err := range e.Generate(context.Background(), r) {
		if err != nil {
			return items, "", err
		}
		items = append(items, item{decodeBytes(d.TokenIDs), time.Since(begin)})
		finish = d.Finish
	}
	return items, finish, nil
}

func reply(t testing.TB, e *mock.Engine, r *engine.Request) (string, engine.Finish) {
	t.Helper()
	items, finish, err := listen(e, r)
	if err != nil {
		t.Fatal(err)
	}
	var s strings.Builder
	for _, i := range items {
		s.WriteString(i.text)
	}
	return s.String(), finish
}

const agent = `
rules:
  - name: call
    when: {user_regexp: 'read (?P<file>\S+)', turn: 0, offers: read_file}
    emit: |-
      <think>I need {{user.file}}.</think><tool_call>{"name":"read_file","arguments":{"path":"{{user.1|json}}"}}</tool_call>
  - name: retry
    when: {tool: read_file, result: "no such file"}
    times: 1
    emit: <tool_call>{"name":"ls","arguments":{}}</tool_call>
  - name: summary
    when: {result_regexp: '^(?P<first>.*)'}
    emit: "It begins with {{result.first}} (turn {{turn}}, from {{tool}})."
  - when: {has_tools: false}
    emit: No tools here.
  - when: {system: terse, model: demo}
    emit: Ok.
default:
  emit: "You said: {{user}}"
`

func TestScriptRules(t *testing.T) {
	e := scripted(t, agent)
	tools := []chat.Tool{{Name: "ls"}, {Name: "read_file"}}
	for _, tc := range []struct {
		name, want string
		turns      []chat.Turn
		tools      []chat.Tool
		system     string
	}{
		{
			name:  "captured groups, as they are and in JSON",
			turns: []chat.Turn{turn(chat.RoleUser, said(`please read a"b.txt now`))}, tools: tools,
			want: `<think>I need a"b.txt.</think><tool_call>{"name":"read_file","arguments":{"path":"a\"b.txt"}}</tool_call>`,
		},
		{
			name:  "a tool's result, by the tool's name",
			turns: []chat.Turn{turn(chat.RoleUser, said("read x")), turn(chat.RoleAssistant, called("1", "read_file")), turn(chat.RoleTool, result("1", "no such file"))}, tools: tools,
			want: `<tool_call>{"name":"ls","arguments":{}}</tool_call>`,
		},
		{
			name:  "the same once more: the rule is used up",
			turns: []chat.Turn{turn(chat.RoleUser, said("read x")), turn(chat.RoleAssistant, called("1", "read_file")), turn(chat.RoleTool, result("1", "no such file"))}, tools: tools,
			want: "It begins with no such file (turn 1, from read_file).",
		},
		{
			name: "a result that was answered is gone",
			turns: []chat.Turn{
				turn(chat.RoleUser, said("read x")), turn(chat.RoleAssistant, called("1", "read_file")), turn(chat.RoleTool, result("1", "abc")),
				turn(chat.RoleAssistant, said("done")), turn(chat.RoleUser, said("thanks")),
			},
			tools: tools,
			want:  "You said: thanks",
		},
		{name: "no tools", turns: []chat.Turn{turn(chat.RoleUser, said("read x"))}, want: "No tools here."},
		{name: "system text", turns: []chat.Turn{turn(chat.RoleUser, said("hi"))}, tools: tools, system: "be terse", want: "Ok."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := ask(tc.turns...)
			r.Chat.Tools = tc.tools
			if tc.system != "" {
				r.Chat.System = []chat.Block{said(tc.system)}
			}
			got, finish := reply(t, e, r)
			if got != tc.want || finish != engine.FinishEOS {
				t.Errorf("got %q, %s\nwant %q", got, finish, tc.want)
			}
		})
	}
}

func TestScriptWithoutConversation(t *testing.T) {
	e := scripted(t, agent)
	r := ask()
	r.Chat = &chat.Request{Prompt: &chat.Prompt{Text: "once upon a time"}, Tools: []chat.Tool{{Name: "x"}}}
	if got, _ := reply(t, e, r); got != "You said: once upon a time" {
		t.Errorf("a bare prompt: %q", got)
	}
	e = scripted(t, "rules: [{when: {turn: 7}, emit: never}]")
	if got, finish := reply(t, e, ask(turn(chat.RoleUser, said("hi")))); !strings.HasSuffix(got, ".") || finish != engine.FinishEOS {
		t.Errorf("no rule matches: %q, %s, want readable text", got, finish)
	}
}

func TestScriptPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := scripted(t, `
default:
  pace: {ttft: 100ms, itl: 10ms}
  emit:
    - text: abc
    - {text: defghi, pace: {ttft: 1s, itl: 50ms, tokens_per_delta: 4}}
    - text: jk
`)
		got, finish, err := listen(e, ask(turn(chat.RoleUser, said("x"))))
		const ms = time.Millisecond
		want := []item{
			{"a", 100 * ms},
			{"b", 110 * ms},
			{"c", 120 * ms},
			{"defg", 1120 * ms},
			{"hi", 1170 * ms},
			{"j", 1270 * ms},
			{"k", 1280 * ms},
			{"", 1290 * ms},
		}
		if !slices.Equal(got, want) || finish != engine.FinishEOS || err != nil {
			t.Errorf("got  %v, %s, %v\nwant %v", got, finish, err, want)
		}
	})
}

func TestScriptCuts(t *testing.T) {
	kinds := map[string]engine.ErrorKind{
		"stream_incomplete": engine.StreamIncomplete, "disconnected": engine.Disconnected, "worker_overloaded": engine.WorkerOverloaded,
		"internal": engine.Internal, "death": engine.EngineShutdown,
	}
	for as, kind := range kinds {
		for _, after := range []string{"0", "3"} {
			t.Run(as+after, func(t *testing.T) {
				e := scripted(t, "default: {emit: abcdef, cut: {after: "+after+", as: "+as+", message: gone}}")
				epoch := e.Epoch()
				items, _, err := listen(e, ask(turn(chat.RoleUser, said("x"))))
				var text string
				for _, i := range items {
					text += i.text
				}
				if want := map[string]string{"0": "", "3": "abc"}[after]; text != want || engine.KindOf(err) != kind {
					t.Errorf("got %q and %v, want %q and %s", text, err, want, kind)
				}
				if as == "death" {
					awaitLife(t, e, epoch)
				} else if e.Epoch() != epoch {
					t.Error("the epoch has changed")
				}
			})
		}
	}
	t.Run("length", func(t *testing.T) {
		e := scripted(t, "default: {emit: abcdef, cut: {after: 2, as: length}}")
		if got, finish := reply(t, e, ask(turn(chat.RoleUser, said("x")))); got != "ab" || finish != engine.FinishLength {
			t.Errorf("got %q, %s", got, finish)
		}
	})
	t.Run("stall", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			e := scripted(t, "default: {emit: abcdef, cut: {after: 2, as: stall}}")
			ctx, cancel := context.WithTimeoutCause(t.Context(), time.Hour, engine.ErrInactive)
			defer cancel()
			var text string
			for d, err := range e.Generate(ctx, ask(turn(chat.RoleUser, said("x")))) {
				text += decodeBytes(d.TokenIDs)
				if err != nil && !errors.Is(err, engine.ErrInactive) {
					t.Error(err)
				}
			}
			if text != "ab" {
				t.Errorf("before the stall: %q", text)
			}
		})
	})
}

// awaitLife waits for an epoch that is another one: streams of the old life end
// before the new one is told.
func awaitLife(t *testing.T, e *mock.Engine, old uint64) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for status := range e.Card(ctx) {
		if status.Epoch != old {
			return
		}
	}
	t.Error("the engine lives on")
}

// A prompt that ends with the beginning of the emission gets the rest: that is
// how an attempt on another worker looks. The fault lies behind it by then.
func TestScriptGoesOn(t *testing.T) {
	e := scripted(t, "default: {emit: abcabd, cut: {after: 4, as: disconnected}}")
	r := ask(turn(chat.RoleUser, said("x")))
	r.TokenIDs = encodeBytes(nil, "prompt abca")
	if got, finish := reply(t, e, r); got != "bd" || finish != engine.FinishEOS {
		t.Errorf("got %q, %s, want the rest, bd", got, finish)
	}
	r.Stop.MinTokens = 5
	if got, _ := reply(t, e, r); !strings.HasPrefix(got, "bd") || len(got) < 5 || strings.Contains(got, "<eos>") {
		t.Errorf("at least 5 tokens: %q", got)
	}
	r.Stop.Hidden, r.Stop.MaxTokens = nil, 40
	if got, finish := reply(t, e, r); !strings.HasPrefix(got, "bd") || len(got) != 40 || finish != engine.FinishLength {
		t.Errorf("ignoring the end: %q, %s, want 40 tokens", got, finish)
	}
}

func TestScriptErrors(t *testing.T) {
	for _, tc := range []struct{ name, text, want string }{
		{"empty", "", "mock script"},
		{"no rules", "rules: []", "no rules"},
		{"no mapping", "- emit: x", "line 1: the script: is a list, want a mapping of rules, default"},
		{"no list", "rules: {emit: x}", "line 1: rules: is a mapping, want a list of rules"},
		{"unknown key above", "rulez: []", "line 1: rulez: is unknown, want rules, default"},
		{"unknown key", "rules:\n  - emit: x\n    emti: y", "line 3: rules[0].emti: is unknown, want name, when, times, emit, pace, cut"},
		{"unknown condition", "rules:\n  - emit: x\n    when: {usr: y}", "line 3: rules[0].when.usr: is unknown, want user, "},
		{"unknown key in a step", "rules:\n  - emit:\n      - txt: y", "line 3: rules[0].emit[0].txt: is unknown, want text, pace"},
		{"wrong type", "rules:\n  - emit: x\n    times: often", `line 3: rules[0].times: is "often", want a whole number`},
		{"no time", "rules:\n  - emit: x\n    pace: {ttft: 5 parsecs}", `line 3: rules[0].pace.ttft: is "5 parsecs", want a time such as 300ms`},
		{"no word", "rules:\n  - emit: x\n    when: {has_tools: maybe}", `rules[0].when.has_tools: is "maybe", want true or false`},
		{"no cut", "rules:\n  - emit: x\n    cut: death", `rules[0].cut: is "death", want a mapping of after, as, message`},
		{"no text", "rules:\n  - emit: {text: x}", "line 2: rules[0].emit: is a mapping, want a text"},
		{"expression", "rules:\n  - emit: x\n    when:\n      user_regexp: '('", "line 4: rules[0].when.user_regexp: is no regular expression: "},
		{"no expression", "rules:\n  - emit: x\n    when: {result_regexp: [x]}", "line 3: rules[0].when.result_regexp: is a list, want a regular expression"},
		{"empty rule", "rules:\n  - ~", "line 2: rules[0]: is empty"},
		{"unknown form", "default:\n  emit: '{{user|xml}}'", "line 2: default.emit: {{user|xml}} asks for a form"},
		{"nothing emitted", "rules:\n  - when: {turn: 1}", "line 2: rules[0].emit"},
		{"negative times", "rules:\n  - emit: x\n  - emit: x\n    times: -1", "line 4: rules[1].times"},
		{"negative pace", "rules:\n  - emit:\n      - text: x\n        pace: {itl: -1s}", "line 4: rules[0].emit[0].pace"},
		{"unknown cut", "default:\n  emit: x\n  cut:\n    after: 1\n    as: explode", "line 5: default.cut.as"},
		{"empty length", "default:\n  emit: x\n  cut: {after: 0, as: length}", "line 3: default.cut.after"},
		{"conditions of the default", "default:\n  emit: x\n  when: {turn: 1}", "line 3: default.when"},
		{"unknown placeholder", "default:\n  emit: '{{user.1}}'", "line 2: default.emit"},
		{"not YAML", "rules: [", "L2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := mock.LoadScript(strings.NewReader(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want something with %q", err, tc.want)
			}
		})
	}
}

func FuzzScript(f *testing.F) {
	f.Add(agent)
	f.Add("default: {emit: abcdef, cut: {after: 2, as: stall}}")
	f.Add("default: {pace: {ttft: 1ms}, emit: [{text: a}, {text: b, pace: {tokens_per_delta: 3}}]}")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := mock.LoadScript(strings.NewReader(text))
		if (s == nil) != (err != nil) {
			t.Errorf("script %v and error %v", s, err)
		}
	})
}

// The examples of the README are loaded, and its agent goes through the motions.
func TestReadme(t *testing.T) {
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	var scripts []string
	for _, part := range strings.Split(string(text), "```yaml\n")[1:] {
		script, _, _ := strings.Cut(part, "```")
		load(t, script)
		scripts = append(scripts, script)
	}
	e := scripted(t, scripts[len(scripts)-1])
	turns := []chat.Turn{turn(chat.RoleUser, said("please fix main.go"))}
	answer := func(tool, text string) {
		id := fmt.Sprint(len(turns))
		turns = append(turns, turn(chat.RoleAssistant, called(id, tool)), turn(chat.RoleTool, result(id, text)))
	}
	say := func() string {
		r := ask(turns...)
		r.Chat.Tools = []chat.Tool{{Name: "read_file"}}
		items, _, err := listen(e, r)
		var s strings.Builder
		for _, i := range items {
			s.WriteString(i.text)
		}
		if err != nil {
			return s.String() + "!" + string(engine.KindOf(err))
		}
		return s.String()
	}
	expect := func(what, want string) {
		t.Helper()
		if got := say(); !strings.Contains(got, want) {
			t.Errorf("%s: %q, want something with %q", what, got, want)
		}
	}
	expect("the task", `"arguments": {"path": "main.go"}`)
	answer("read_file", "no such file")
	expect("no file", "git ls-files")
	answer("read_file", "package main\nfunc broken() {}")
	expect("the file", `"find": "func broken", "replace": "func Fixedbroken"`)
	answer("shell", "FAIL")
	expect("a failure", "{\"find\": \"func\n</tool_call>")
	answer("shell", "ok")
	expect("the end, cut", "The te!engine_shutdown")
	expect("the end", "left everything else as it was.")
}
