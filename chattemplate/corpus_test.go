package chattemplate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/chattemplate/jinja"
	"github.com/google/go-cmp/cmp"
)

// The corpus is templates of our own, which use what real ones use, and twenty
// conversations. Each template renders each of them twice: raw, the messages as
// clients send them straight to the template, and by Render, which rewrites them
// first. Either must be what Python's Jinja2 makes of the same variables, byte for
// byte, or fail where Python fails. testdata/corpus/goldens.jsonl is what
// oracle.py said; -python asks it again, and -update keeps its answers:
//
//	go test ./chattemplate -run TestCorpus -python venv/bin/python -update
var (
	python = flag.String("python", "", "an interpreter with the packages of testdata/corpus/requirements.txt, to compare with instead of the goldens")
	update = flag.Bool("update", false, "write what -python says into the goldens")
)

const corpus = "testdata/corpus"

// conversation is a line of conversations.jsonl, in the form of the chat
// completions API.
type conversation struct {
	Name      string
	Messages  []corpusMessage
	Tools     []json.RawMessage
	Documents json.RawMessage
	Args      json.RawMessage
	Continue  bool
	Generate  bool `json:"add_generation_prompt"`
	raw       struct{ Messages, Tools json.RawMessage }
}

type corpusMessage struct {
	Role, Name       string
	Content          json.RawMessage
	ReasoningContent string `json:"reasoning_content"`
	ToolCallID       string `json:"tool_call_id"`
	ToolCalls        []struct {
		ID       string
		Function struct {
			Name      string
			Arguments json.RawMessage
		}
	} `json:"tool_calls"`
}

func conversations(t testing.TB) []conversation {
	t.Helper()
	return readLines(t, "conversations.jsonl", func(line []byte) (c conversation, err error) {
		return c, errors.Join(json.Unmarshal(line, &c), json.Unmarshal(line, &c.raw))
	})
}

func readLines[T any](t testing.TB, name string, read func([]byte) (T, error)) []T {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(corpus, name))
	if err != nil {
		t.Fatal(err)
	}
	var list []T
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		v, err := read(lines.Bytes())
		if err != nil {
			t.Fatalf("%s:%d: %v", name, len(list)+1, err)
		}
		list = append(list, v)
	}
	return list
}

// request is the conversation as the API's decoder would give it.
func (c *conversation) request(t testing.TB) *chat.Request {
	r := &chat.Request{API: chat.APIChat, TemplateArgs: c.arguments(t)}
	for _, m := range c.Messages {
		turn := chat.Turn{Role: chat.Role(m.Role)}
		if m.ReasoningContent != "" {
			turn.Blocks = append(turn.Blocks, thought(m.ReasoningContent))
		}
		blocks := m.blocks(t)
		if m.Role == "tool" {
			use := answer(m.ToolCallID, blocks...)
			use.Result.Name = m.Name
			blocks = []chat.Block{use}
		}
		turn.Blocks = append(turn.Blocks, blocks...)
		for _, call := range m.ToolCalls {
			args := string(call.Function.Arguments)
			if args[0] == '"' {
				mustRead(t, call.Function.Arguments, &args)
			}
			turn.Blocks = append(turn.Blocks, use(call.ID, call.Function.Name, args))
		}
		r.Turns = append(r.Turns, turn)
	}
	for _, wire := range c.Tools {
		r.Tools = append(r.Tools, chat.Tool{Kind: chat.ToolFunction, Wire: wire})
	}
	return r
}

// arguments are those of the template, among which clients pass documents and
// whether the last turn is to be continued.
func (c *conversation) arguments(t testing.TB) []byte {
	args := readObject(t, c.Args)
	if c.Documents != nil && string(c.Documents) != "null" {
		args.Set("documents", readValue(t, c.Documents))
	}
	if c.Continue {
		args.Set("continue_final_message", true)
	}
	return []byte(toJSON(t, args))
}

func (m *corpusMessage) blocks(t testing.TB) (blocks []chat.Block) {
	var s string
	var parts []struct{ Type, Text string }
	switch {
	case m.Content == nil, string(m.Content) == "null":
	case m.Content[0] == '"':
		mustRead(t, m.Content, &s)
		if s != "" {
			blocks = append(blocks, text(s))
		}
	default:
		mustRead(t, m.Content, &parts)
		for _, p := range parts {
			if p.Type == "text" {
				blocks = append(blocks, text(p.Text))
				continue
			}
			blocks = append(blocks, chat.Block{Kind: chat.Image, Media: &chat.Media{MediaType: p.Type + "/x"}})
		}
	}
	return blocks
}

// rawVars are the variables that transformers would give to the template.
func (c *conversation) rawVars(t testing.TB) *jinja.Dict {
	vars := jinja.NewDict(8)
	vars.Set("messages", readValue(t, c.raw.Messages))
	vars.Set("tools", readValue(t, c.raw.Tools))
	vars.Set("documents", readValue(t, c.Documents))
	vars.Set("add_generation_prompt", c.Generate)
	vars.Set("bos_token", "<s>")
	vars.Set("eos_token", "</s>")
	for k, v := range readObject(t, c.Args).All() {
		vars.Set(k, v)
	}
	return vars
}

func mustRead(t testing.TB, doc []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(doc, into); err != nil {
		t.Fatal(err)
	}
}

func readValue(t testing.TB, doc []byte) jinja.Value {
	t.Helper()
	v, err := jinja.FromJSON(doc)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func readObject(t testing.TB, doc []byte) *jinja.Dict { return readValue(t, doc).(*jinja.Dict) }

func toJSON(t testing.TB, v jinja.Value) string {
	t.Helper()
	s, err := jinja.ToJSON(v)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// outcome is what came of a render: a text or an error, of which Kind is the
// name that Python gives its type.
type outcome struct {
	Template     string `json:"template,omitempty"`
	Conversation string `json:"conversation,omitempty"`
	Way          string `json:"way,omitempty"` // raw or render
	Text         string `json:"text,omitempty"`
	Kind         string `json:"error,omitempty"`
	Message      string `json:"message,omitempty"`
}

// task is one render, and what Python needs to repeat it.
type task struct {
	template, conversation, way string
	input                       string // of oracle.py
	got                         outcome
}

// tasks renders a template's conversations in both ways.
func tasks(t testing.TB, name string, named map[string]string, list []conversation) []task {
	t.Helper()
	cfg := chattemplate.Config{BOS: "<s>", EOS: "</s>", Now: func() time.Time { return time.Date(2026, time.November, 29, 9, 5, 7, 0, time.UTC) }}
	tmpl, err := chattemplate.CompileNamed(named, cfg)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return nil
	}
	tmpl = tmpl.AsShipped()
	engines := map[string]*jinja.Template{}
	for k, source := range named {
		if engines[k], err = jinja.Compile(source); err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
	}
	pick := func(tools bool) string {
		for _, k := range []string{"tool_use", "default", "tool_use"} {
			if _, ok := named[k]; ok && (tools || k == "default") {
				return k
			}
		}
		return "tool_use"
	}
	var all []task
	add := func(c *conversation, way, source string, vars *jinja.Dict, tag, text string, err error) {
		input := fmt.Sprintf(`{"template": %s, "vars": %s, "tag": %s}`, toJSON(t, source), toJSON(t, vars), toJSON(t, tag))
		all = append(all, task{name, c.Name, way, input, outcomeOf(text, err)})
	}
	for i := range list {
		c := &list[i]
		key := pick(len(c.Tools) > 0)
		vars := c.rawVars(t)
		text, err := engines[key].Render(vars, jinja.Env{Now: cfg.Now()})
		add(c, "raw", named[key], vars, "", text, err)

		r, o := c.request(t), chattemplate.Options{AddGenerationPrompt: c.Generate || c.Continue}
		vars, toolUse, tag, err := tmpl.Prepare(r, o)
		if err != nil {
			t.Errorf("%s: %s: %v", name, c.Name, err)
			continue
		}
		text, err = tmpl.Render(r, o)
		add(c, "render", named[pick(toolUse && len(c.Tools) > 0)], vars, tag, text, err)
	}
	return all
}

func outcomeOf(text string, err error) outcome {
	var refused *chattemplate.TemplateError
	var failed *jinja.Error
	switch {
	case err == nil:
		return outcome{Text: text}
	case errors.As(err, &refused):
		return outcome{Kind: string(jinja.Raised), Message: refused.Message}
	case errors.As(err, &failed):
		return outcome{Kind: string(failed.Kind), Message: failed.Message}
	}
	return outcome{Kind: "Error", Message: err.Error()}
}

// ask has Python render the tasks.
func ask(t testing.TB, all []task) []outcome {
	t.Helper()
	var in bytes.Buffer
	for _, task := range all {
		in.WriteString(task.input + "\n")
	}
	cmd := exec.CommandContext(t.Context(), *python, filepath.Join(corpus, "oracle.py"))
	cmd.Stdin, cmd.Stderr = &in, os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatal(err)
	}
	var list []outcome
	for line := range bytes.Lines(out) {
		var o outcome
		mustRead(t, line, &o)
		list = append(list, o)
	}
	if len(list) != len(all) {
		t.Fatalf("%d outcomes of %d tasks", len(list), len(all))
	}
	return list
}

// pythonKinds are the errors that have the same names here.
var pythonKinds = map[string]bool{"UndefinedError": true, "TypeError": true, "SecurityError": true, "TemplateSyntaxError": true}

// agree tells how a render differs from Python's, if it does. What a template
// raises is the same word for word; other errors are of the same kind, and speak of
// the insides.
func agree(got, want outcome) string {
	raised := string(jinja.Raised)
	switch {
	case want.Kind == "" && got.Kind == "":
		return cmp.Diff(want.Text, got.Text)
	case strings.HasPrefix(want.Message, "No filter named 'from_json'"):
		return "" // a filter that templates use although transformers has none
	case (want.Kind == raised) != (got.Kind == raised), want.Kind == raised && got.Message != want.Message:
		return fmt.Sprintf("%+v, want %+v", got, want)
	case want.Kind == "TypeError" && strings.HasSuffix(want.Message, "'NoneType' has no len()"):
		return "" // None has a length here: clients send null for an absent content
	case (want.Kind == "") != (got.Kind == ""), pythonKinds[want.Kind] && got.Kind != want.Kind:
		return fmt.Sprintf("%+v, want %+v", got, want)
	}
	return ""
}

func TestCorpus(t *testing.T) {
	list := conversations(t)
	if len(list) != 20 {
		t.Fatalf("%d conversations", len(list))
	}
	files, err := filepath.Glob(filepath.Join(corpus, "templates", "*.jinja"))
	if err != nil || len(files) < 10 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	var all []task
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, tasks(t, filepath.Base(file), map[string]string{"default": string(source)}, list)...)
	}
	var want []outcome
	if *python != "" {
		want = ask(t, all)
	} else {
		want = readLines(t, "goldens.jsonl", func(line []byte) (o outcome, err error) { return o, json.Unmarshal(line, &o) })
	}
	if len(want) != len(all) {
		t.Fatalf("%d goldens, want %d", len(want), len(all))
	}
	var lines bytes.Buffer
	texts := 0
	for i, task := range all {
		if *python == "" && (want[i].Template != task.template || want[i].Conversation != task.conversation || want[i].Way != task.way) {
			t.Fatalf("golden %d is for %s, %s, %s; want %s, %s, %s", i, want[i].Template, want[i].Conversation, want[i].Way, task.template, task.conversation, task.way)
		}
		if diff := agree(task.got, want[i]); diff != "" {
			t.Errorf("%s: %s, %s:\n%s", task.template, task.conversation, task.way, diff)
		}
		if want[i].Kind == "" {
			texts++
		}
		want[i].Template, want[i].Conversation, want[i].Way = task.template, task.conversation, task.way
		if err := json.NewEncoder(&lines).Encode(want[i]); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d of %d renders give a text", texts, len(all))
	if *update {
		if err := os.WriteFile(filepath.Join(corpus, "goldens.jsonl"), lines.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
