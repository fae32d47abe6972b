//go:build e2e

package prompt_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/models"
	"github.com/dynago/dynago/parser"
)

// What a chat template writes for the calls of an earlier answer is what its model
// was trained to write. The parsers that are chosen by the template read the same
// calls out of it, whole, and leave none of its markers in the text. Shown to the
// model again, what was read is what was written, byte for byte.
func TestFetchedTemplatesAreRead(t *testing.T) {
	read := map[string]int{}
	for name, source := range templateSources(t) {
		family := parser.Detect(source, nil)
		tmpl, err := chattemplate.Compile(source, chattemplate.Config{BOS: "<s>", EOS: "</s>"})
		if err != nil || !family.Calls() || !tmpl.Traits(true).Calls {
			continue
		}
		for _, uses := range [][]use{
			{{"ls", `{"path":"/tmp","n":3,"deep":true}`, "call_1"}},
			{{"ls", `{"path":"/tmp","n":3,"deep":true}`, "call_1"}, {"write_file", `{"name":"a.txt","text":"x \"y\" <b>\n\tz","o":{"k":["u","v"]}}`, "call_2"}},
		} {
			if len(uses) > 1 && !tmpl.Traits(true).ParallelCalls {
				continue
			}
			text, start, ok := written(tmpl, family, uses)
			if !ok {
				continue
			}
			got, said, lost := readCalls(family, start, text)
			if diff := cmp.Diff(uses, got, cmp.Comparer(sameUse)); diff != "" || lost != "" {
				t.Errorf("%s, read as %s:\n%q\nlost %q, calls (-want +got):\n%s", name, family, text, lost, diff)
				continue
			}
			for _, m := range family.Markers() {
				if len(m) > 4 && strings.Contains(said, m) {
					t.Errorf("%s, read as %s:\n%q\n%q leaked into %q", name, family, text, m, said)
				}
			}
			if again, _, _ := written(tmpl, family, got); again != text {
				t.Errorf("%s, read as %s and shown again (-first +again):\n%s", name, family, cmp.Diff(text, again))
			}
			read[family.String()]++
		}
	}
	t.Log(read)
	for _, name := range []string{
		"hermes", "qwen3_coder", "harmony", "glm47", "kimi_k2", "deepseek_v3", "deepseek_v3_2", "deepseek_v4", "minimax_m2", "minimax_m3",
		"mistral", "llama3_json", "gemma4", "nemotron_deci", "kimi_k3", "muse",
	} {
		if read[name] == 0 {
			t.Errorf("no template was read as %s", name)
		}
	}
}

// use is a call of a tool, as a client knows it.
type use struct{ name, args, id string }

// sameUse says whether calls are equal but for the spelling of their arguments.
func sameUse(a, b use) bool {
	var x, y any
	return a.name == b.name && json.Unmarshal([]byte(a.args), &x) == nil && json.Unmarshal([]byte(b.args), &y) == nil && cmp.Equal(x, y)
}

// templateSources are the chat templates that packages have.
func templateSources(t *testing.T) map[string]string {
	t.Helper()
	dir := filepath.Join("..", models.Dir)
	var files []models.File
	for _, f := range models.Files() {
		if strings.HasSuffix(f.Name, ".jinja") || strings.HasSuffix(f.Name, "/tokenizer_config.json") {
			files = append(files, f)
		}
	}
	if err := models.Fetch(t.Context(), dir, files, os.Stderr); err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{}
	for _, f := range files {
		text, err := models.Read(dir, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		if strings.HasSuffix(f.Name, ".jinja") {
			sources[f.Name] = string(text)
			continue
		}
		var config struct {
			Template any `json:"chat_template"`
		}
		if err := json.Unmarshal(text, &config); err != nil {
			t.Fatalf("%s: %v", f.Name, err)
		}
		if source, ok := config.Template.(string); ok {
			sources[f.Name] = source
		}
	}
	return sources
}

var calledTools = []chat.Tool{
	{Kind: chat.ToolFunction, Name: "ls", Description: "d", Schema: []byte(`{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"},"deep":{"type":"boolean"}}}`)},
	{Kind: chat.ToolFunction, Name: "write_file", Description: "d", Schema: []byte(`{"type":"object","properties":{"name":{"type":"string"},"text":{"type":"string"},"o":{"type":"object"}}}`)},
}

// written returns what a template writes for an answer with calls, and in which
// state its text begins. It is not ok if the template writes no such answer, or
// writes it in several turns.
func written(tmpl *chattemplate.Template, family parser.Family, uses []use) (text string, start parser.Start, ok bool) {
	ids := chat.NewNativeIDs(family.IDs())
	answer := chat.Turn{Role: chat.RoleAssistant}
	for _, u := range uses {
		call := &chat.ToolUse{ID: u.id, Name: u.name, Kind: chat.ToolFunction, Args: u.args}
		if id := ids.Call(call); id != "" {
			call.ID = id
		}
		answer.Blocks = append(answer.Blocks, chat.Block{Kind: chat.ToolCall, Use: call})
	}
	r := &chat.Request{API: chat.APIChat, Tools: calledTools, Turns: []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "Look."}}}}}
	before, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true})
	if err != nil {
		return "", 0, false
	}
	r.Turns = append(r.Turns, answer)
	after, err := tmpl.Render(r, chattemplate.Options{})
	if err != nil {
		return "", 0, false
	}
	text, ok = strings.CutPrefix(after, before)
	start = family.StartOf(before)
	if !ok { // the generation prompt begins a thought that the history has not
		n := 0
		for n < len(before) && n < len(after) && before[n] == after[n] {
			n++
		}
		for n > 0 && !strings.ContainsRune(">]\n", rune(after[n-1])) { // in the middle of a marker
			n--
		}
		text, start = after[n:], family.StartOf(after[:n])
	}
	return text, start, strings.Contains(text, uses[0].name) && !strings.Contains(text, "<|start_header_id|>")
}

// readCalls reads an answer.
func readCalls(family parser.Family, start parser.Start, text string) (calls []use, said, lost string) {
	p := parser.New(family, parser.Options{Start: start, Tools: calledTools, ToolsOn: true, ThinkOn: true})
	events, _ := p.Finish(p.Push(nil, chat.Piece{Text: text}), chat.FinishStop)
	for _, e := range events {
		switch {
		case e.Kind == chat.BlockStart && e.Tool != nil:
			calls = append(calls, use{name: e.Tool.Name, id: e.Tool.ID})
		case e.Kind == chat.ArgsDelta:
			calls[len(calls)-1].args += e.Text
		case e.Kind == chat.TextDelta:
			said += e.Text
		case e.Kind == chat.Dropped:
			lost += e.Text
		}
	}
	return calls, said, lost
}
