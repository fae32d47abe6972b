package chattemplate_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/harmony"
)

// golden is a conversation of testdata/harmony.jsonl, which harmony.py writes.
type golden struct {
	Name     string
	API      chat.API
	System   []string
	Turns    []goldenTurn
	Tools    []goldenTool
	Args     json.RawMessage
	Effort   string
	Thinking *bool
	Hide     bool `json:"hide_tools"`
	Generate *bool
	Format   *struct {
		Name   string
		Schema json.RawMessage
	}
	Want string
	IDs  string
}

type goldenTurn struct {
	Role   chat.Role
	Name   string
	Blocks []struct {
		Text, Thought, Refusal *string
		Call                   *struct {
			ID, Name, Args string
			Custom         bool
		}
		Result *struct {
			ID    string
			Texts []string
		}
	}
}

type goldenTool struct {
	Name, Description string
	Parameters        json.RawMessage
	Custom            bool
}

func goldens(t testing.TB) []golden {
	t.Helper()
	f, err := os.Open("testdata/harmony.jsonl")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var list []golden
	sc := bufio.NewScanner(f)
	sc.Buffer(nil, 1<<20)
	for sc.Scan() {
		var g golden
		if err := json.Unmarshal(sc.Bytes(), &g); err != nil {
			t.Fatal(err)
		}
		list = append(list, g)
	}
	if len(list) < 60 {
		t.Fatalf("%d conversations", len(list))
	}
	return list
}

func (g *golden) request() (*chat.Request, chattemplate.Options) {
	r := &chat.Request{API: g.API, TemplateArgs: g.Args, Thinking: chat.Thinking{Enabled: g.Thinking, Effort: g.Effort}}
	for _, s := range g.System {
		r.System = append(r.System, text(s))
	}
	for _, gt := range g.Turns {
		turn := chat.Turn{Role: gt.Role, Name: gt.Name}
		for _, b := range gt.Blocks {
			switch {
			case b.Text != nil:
				turn.Blocks = append(turn.Blocks, text(*b.Text))
			case b.Thought != nil:
				turn.Blocks = append(turn.Blocks, thought(*b.Thought))
			case b.Refusal != nil:
				turn.Blocks = append(turn.Blocks, chat.Block{Kind: chat.Refusal, Text: *b.Refusal})
			case b.Call != nil:
				call := use(b.Call.ID, b.Call.Name, b.Call.Args)
				if b.Call.Custom {
					call.Use.Kind = chat.ToolCustom
				}
				turn.Blocks = append(turn.Blocks, call)
			case b.Result != nil:
				result := answer(b.Result.ID)
				for _, s := range b.Result.Texts {
					result.Result.Blocks = append(result.Result.Blocks, text(s))
				}
				turn.Blocks = append(turn.Blocks, result)
			}
		}
		r.Turns = append(r.Turns, turn)
	}
	for _, gt := range g.Tools {
		tool := chat.Tool{Kind: chat.ToolFunction, Name: gt.Name, Description: gt.Description, Schema: gt.Parameters}
		if gt.Custom {
			tool.Kind = chat.ToolCustom
		}
		r.Tools = append(r.Tools, tool)
	}
	if g.Format != nil {
		r.Output = chat.OutputFormat{Kind: chat.FormatJSONSchema, Name: g.Format.Name}
		var schema bytes.Buffer
		if err := json.Compact(&schema, g.Format.Schema); err != nil {
			panic(err)
		}
		r.Output.Schema = schema.Bytes()
	}
	return r, chattemplate.Options{AddGenerationPrompt: g.Generate == nil || *g.Generate, HideTools: g.Hide}
}

// harmonyAt is a model that speaks Harmony, on the day of the goldens.
func harmonyAt() *chattemplate.Template {
	day := time.Date(2025, time.June, 28, 23, 59, 0, 0, time.UTC)
	return chattemplate.Harmony(chattemplate.Config{Now: func() time.Time { return day }})
}

// The text is that of the openai-harmony library.
func TestHarmonyGolden(t *testing.T) {
	tmpl := harmonyAt()
	controls := chattemplate.NewControls(harmony.Tokens())
	for _, g := range goldens(t) {
		r, o := g.request()
		got, err := tmpl.Render(r, o)
		if err != nil {
			t.Errorf("%s: %v", g.Name, err)
			continue
		}
		if diff := cmp.Diff(g.Want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", g.Name, diff)
		}
		marked, err := tmpl.RenderInert(r, o, controls)
		if err != nil || marked.Text != got || marked.Inert != nil {
			t.Errorf("%s: with controls %v, inert %v, another text: %v", g.Name, err, marked.Inert, marked.Text != got)
		}
	}
}
