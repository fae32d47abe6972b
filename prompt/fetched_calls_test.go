//go:build e2e

package prompt_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/models"
	"github.com/dynago/dynago/parser"
)

// What a template writes of calls that a model made is what the model was taught
// to write. The parser that the template's markers choose must read it back as
// the same calls: from every template that packages have, cut anywhere.
func TestFetchedCalls(t *testing.T) {
	root := filepath.Join("..", models.Dir)
	var files []models.File
	for _, f := range models.Files() {
		if strings.HasSuffix(f.Name, ".jinja") {
			files = append(files, f)
		}
	}
	if err := models.Fetch(t.Context(), root, files, os.Stderr); err != nil {
		t.Fatal(err)
	}
	read := map[string]int{}
	for _, f := range files {
		t.Run(f.Name, func(t *testing.T) {
			source, err := os.ReadFile(filepath.Join(root, filepath.FromSlash(f.Name)))
			if err != nil {
				t.Fatal(err)
			}
			family := parser.Detect(string(source), nil)
			template, err := chattemplate.Compile(string(source), chattemplate.Config{BOS: "<bos>", EOS: "<eos>"})
			if err != nil || !family.Calls() || !template.Traits(true).Calls {
				return // for others to say whether that is as it should be
			}
			callsComeBack(t, template, family)
			read[family.ToolParser()]++
		})
	}
	t.Logf("calls of %v were read", read)
	for _, name := range []string{"qwen3_coder", "glm47", "minimax_m2", "minimax_m3", "deepseek_v3_2", "deepseek_v4", "hermes", "kimi_k2"} {
		if read[name] == 0 {
			t.Errorf("no template of %s", name)
		}
	}
}

func callsComeBack(t *testing.T, template *chattemplate.Template, family parser.Family) {
	schema := json.RawMessage(`{"type":"object","properties":{"path":{"type":"string"},"text":{"type":"string"},"n":{"type":"integer"},"b":{"type":"boolean"},
		"o":{"type":"object","properties":{"a":{"type":"array","items":{"type":"integer"}},"s":{"type":"string"}}},"l":{"type":"array","items":{"type":"string"}}}}`)
	calls := []*chat.ToolUse{
		{ID: "call_1", NativeID: "functions.write:0", Name: "write", Kind: chat.ToolFunction, Args: `{"path":"/tmp/a b.txt","text":"if a < b && c > \"d\" {\n\treturn '漢字'\n}\n","n":42,"b":true,"o":{"a":[1,2],"s":"x"},"l":["p","q r"]}`},
		{ID: "call_2", NativeID: "functions.write:1", Name: "write", Kind: chat.ToolFunction, Args: `{"path":"/tmp/b","text":""}`},
	}
	if !template.Traits(true).ParallelCalls {
		calls = calls[:1]
	}
	const result = "what the tool said"
	r := &chat.Request{
		Tools: []chat.Tool{{Kind: chat.ToolFunction, Name: "write", Description: "Write a file.", Schema: schema}},
		Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "Hi"}}}},
	}
	prompt, err := template.Render(r, chattemplate.Options{AddGenerationPrompt: true})
	if err != nil {
		t.Fatal(err)
	}
	answer, results := chat.Turn{Role: chat.RoleAssistant}, chat.Turn{Role: chat.RoleTool}
	for _, c := range calls {
		answer.Blocks = append(answer.Blocks, chat.Block{Kind: chat.ToolCall, Use: c})
		results.Blocks = append(results.Blocks, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: c.ID, Blocks: []chat.Block{{Kind: chat.Text, Text: result}}}})
	}
	r.Turns = append(r.Turns, answer, results)
	text, err := template.Render(r, chattemplate.Options{})
	if err != nil {
		t.Fatal(err)
	}
	same := 0
	for same < min(len(prompt), len(text)) && prompt[same] == text[same] {
		same++
	}
	if i := strings.LastIndexByte(text[:same], '<'); i >= 0 && !strings.Contains(text[i:same], ">") {
		same = i // the prompt opens a thought there, and the answer a call
	}
	start := family.StartOf(text[:same])
	text, _, _ = strings.Cut(text[same:], result)
	for _, size := range []int{len(text), 7, 1} {
		p := parser.New(family, parser.Options{Start: start, ToolsOn: true, ThinkOn: true, Tools: r.Tools, KeepEntities: true})
		var events []chat.Event
		for rest := text; rest != ""; {
			n := min(size, len(rest))
			events = p.Push(events, chat.Piece{Text: rest[:n]})
			rest = rest[n:]
		}
		events, _ = p.Finish(events, chat.FinishStop)
		var got []*chat.ToolUse
		for _, e := range events {
			switch e.Kind {
			case chat.BlockStart:
				if e.Tool != nil {
					got = append(got, e.Tool)
				}
			case chat.ArgsDelta:
				got[len(got)-1].Args += e.Text
			case chat.Dropped:
				if e.Text != "" {
					t.Errorf("dropped: %q", e.Text)
				}
			}
		}
		if len(got) != len(calls) {
			t.Fatalf("%s: %d calls, want %d, in %q", family, len(got), len(calls), text)
		}
		for i, c := range calls {
			if got[i].Name != c.Name || !reflect.DeepEqual(decoded(t, got[i].Args), decoded(t, c.Args)) {
				t.Errorf("%s: %s %s, want %s %s, in %q", family, got[i].Name, got[i].Args, c.Name, c.Args, text)
			}
		}
	}
}

func decoded(t *testing.T, text string) (v any) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Errorf("%v in %s", err, text)
	}
	return v
}
