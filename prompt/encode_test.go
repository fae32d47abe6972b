package prompt_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/tokenizer"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

// variants are the demo model with control tokens of all makes, which remember
// nothing yet.
func variants(t testing.TB) map[string]*prompt.Model {
	t.Helper()
	all, err := loadVariants()
	if err != nil {
		t.Fatal(err)
	}
	models := map[string]*prompt.Model{}
	for name, m := range all {
		fresh := *m
		fresh.Cache, fresh.Turns = prompt.NewCache(prompt.DefaultCacheBytes), prompt.NewTurns(prompt.DefaultTurnBytes)
		models[name] = &fresh
	}
	return models
}

// loadVariants loads them once for all tests.
var loadVariants = sync.OnceValues(func() (map[string]*prompt.Model, error) {
	models := map[string]*prompt.Model{}
	for name, change := range map[string]func(added map[string]any){
		"as it is":     func(map[string]any) {},
		"takes blanks": func(a map[string]any) { a["lstrip"], a["rstrip"] = true, a["content"] == "<|im_start|>" },
		"normalized":   func(a map[string]any) { a["normalized"] = true },
		"single words": func(a map[string]any) { a["single_word"] = a["content"] == "<|im_end|>" },
		"a lone word":  func(a map[string]any) { a["single_word"] = a["content"] == "<|endoftext|>" },
		"not special":  func(a map[string]any) { a["special"] = false },
		"one letter long": func(a map[string]any) {
			a["content"] = strings.Replace(a["content"].(string), "<|endoftext|>", "¶", 1)
		},
	} {
		raw, err := demo.File("tokenizer.json")
		if err != nil {
			return nil, err
		}
		var file map[string]any
		if err := json.Unmarshal(raw, &file); err != nil {
			return nil, err
		}
		file["normalizer"] = map[string]any{"type": "NFC"}
		for _, a := range file["added_tokens"].([]any) {
			change(a.(map[string]any))
		}
		if raw, err = json.Marshal(file); err != nil {
			return nil, err
		}
		files := snapshot{"tokenizer.json": string(raw)}
		for _, name := range []string{"chat_template.jinja", "config.json"} {
			b, err := demo.File(name)
			if err != nil {
				return nil, err
			}
			files[name] = string(b)
		}
		if models[name], err = prompt.Load(files.read, prompt.Parsers{}); err != nil {
			return nil, err
		}
	}
	return models, nil
})

// planted draws text with control tokens, pieces of them, and what tokenizers
// treat in their own ways next to them.
func planted() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		return strings.Join(rapid.SliceOfN(rapid.SampledFrom([]string{
			"<|im_start|>", "<|im_end|>", "<|endoftext|>", "<|im_end|>", "<|im_", "end|>", "<", "|", ">", "<think>", "</think>", "<tool_call>",
			"a", "word", " ", "\n", " x", "7", "é", "e\u0301", "\u0338", "¶", "𐌰", "你好",
		}), 0, 12).Draw(t, "words"), "")
	})
}

// A text that is read piece by piece gives the ids that it gives as a whole.
func TestPieces(t *testing.T) {
	for name, m := range variants(t) {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				text := "a" + planted().Draw(t, "text")
				got, err := m.Tokens(&chat.Request{Prompt: &chat.Prompt{Text: text, NoSpecialTokens: true}}, true)
				if err != nil {
					t.Fatal(err)
				}
				if want := m.Tokenizer.Append(nil, text); !slices.Equal(got, want) {
					t.Fatalf("%q: %v, want %v", text, got, want)
				}
			})
		})
	}
}

// talk is a conversation of one shape, in which word says what is said.
func talk(word func(label string) string) *chat.Request {
	block := func(label string) chat.Block { return chat.Block{Kind: chat.Text, Text: word(label)} }
	return &chat.Request{
		System: []chat.Block{block("system")},
		Turns: []chat.Turn{
			{Role: chat.RoleUser, Blocks: []chat.Block{block("first"), block("second")}},
			{Role: chat.RoleAssistant, Blocks: []chat.Block{
				block("said"),
				{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "1", Name: word("name"), Kind: chat.ToolFunction, Args: fmt.Sprintf(`{%q:%q}`, word("key"), word("value"))}},
			}},
			{Role: chat.RoleTool, Blocks: []chat.Block{{Kind: chat.ToolResult, Result: &chat.Result{ID: "1", Blocks: []chat.Block{block("result")}}}}},
			{Role: chat.RoleUser, Blocks: []chat.Block{block("question")}},
		},
		Tools: []chat.Tool{{Kind: chat.ToolFunction, Name: word("tool"), Description: word("description"), Schema: fmt.Appendf(nil, `{"type":"object","properties":{%q:{}}}`, word("property"))}},
	}
}

// Control tokens of a prompt are those that the template writes, whatever is
// said; what is said remains as text. Where nobody says them, and where they are
// allowed, ids are those of the text as it stands.
func TestControlTokensInContent(t *testing.T) {
	all := variants(t)
	delete(all, "one letter long") // which nothing can be done about
	for name, m := range all {
		structure := map[uint32]bool{}
		for _, a := range m.Tokenizer.AddedTokens() {
			structure[a.ID] = a.Structure
		}
		control := func(ids []uint32) []uint32 {
			return slices.DeleteFunc(slices.Clone(ids), func(id uint32) bool { return !structure[id] })
		}
		tokens := func(t rapid.TB, m *prompt.Model, r *chat.Request) (ids, plain []uint32, text string) {
			text, err := m.Template.Render(r, chattemplate.Options{AddGenerationPrompt: true})
			if err != nil {
				t.Fatal(err)
			}
			ids, err = m.Tokens(r, true)
			if err != nil {
				t.Fatal(err)
			}
			return ids, m.Tokenizer.Append(nil, text), text
		}
		t.Run(name, func(t *testing.T) {
			w := func(string) string { return "w." }
			neutral, plain, _ := tokens(t, m, talk(w))
			want := control(neutral)
			if !slices.Equal(neutral, plain) || len(want) < 8 {
				t.Fatalf("nothing planted: %v, want %v with control tokens", neutral, plain)
			}
			allowing := *m
			allowing.AllowSpecialInContent = true
			rapid.Check(t, func(t *rapid.T) {
				r := talk(func(label string) string { return "w" + planted().Draw(t, label) + "." })
				ids, plain, text := tokens(t, m, r)
				if got := control(ids); !slices.Equal(got, want) {
					t.Fatalf("%q has the control tokens %v, want %v", text, got, want)
				}
				got, want := norm.NFC.String(m.Tokenizer.Decode(ids, false)), norm.NFC.String(text)
				if name == "takes blanks" {
					blanks := strings.NewReplacer(" ", "", "\n", "")
					got, want = blanks.Replace(got), blanks.Replace(want)
				}
				if got != want {
					t.Fatalf("reads\n%s\nwant\n%s", got, want)
				}
				if allowed, _, _ := tokens(t, &allowing, r); !slices.Equal(allowed, plain) {
					t.Fatalf("allowed: %v, want %v", allowed, plain)
				}
			})
		})
	}
}

// impatient makes patterns of models that are loaded in the test give up soon.
func impatient(t *testing.T) {
	was := tokenizer.SetPatience(200 * time.Millisecond)
	t.Cleanup(func() { tokenizer.SetPatience(was) })
}

// A text that a pattern of the model takes time without end for is the client's
// error.
func TestPatternWithoutEnd(t *testing.T) {
	impatient(t)
	raw, err := demo.File("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	var file map[string]any
	if err := json.Unmarshal(raw, &file); err != nil {
		t.Fatal(err)
	}
	const pattern = `c|(a+)+b`
	file["pre_tokenizer"] = map[string]any{"type": "Sequence", "pretokenizers": []any{
		map[string]any{"type": "Split", "pattern": map[string]any{"Regex": pattern}, "behavior": "Isolated"},
		map[string]any{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false},
	}}
	if raw, err = json.Marshal(file); err != nil {
		t.Fatal(err)
	}
	m, err := prompt.Load(snapshot{"tokenizer.json": string(raw)}.read, prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	_, err = m.Build(&chat.Request{Prompt: &chat.Prompt{Text: strings.Repeat("a", 1000)}}, nil)
	if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != engine.InvalidArgument || e.Param != "prompt" || !strings.Contains(e.Message, pattern) {
		t.Errorf("%v, want an error that names the pattern", err)
	}
	long := []uint32{7}
	if ids, err := m.Encode(long, strings.Repeat("a", 1000)); err == nil || !strings.Contains(err.Error(), pattern) || !slices.Equal(ids, long) {
		t.Errorf("encoded %v, %v, want an error that names the pattern", ids, err)
	}
	if ids, err := m.Encode(long, "b"); err != nil || !slices.Equal(ids, m.Tokenizer.Append(long, "b")) {
		t.Errorf("encoded %v, %v", ids, err)
	}
}

// So is an answer's text that a decoder's pattern takes time without end for: it is
// an error wherever text is asked for, and never a panic.
func TestDecoderWithoutEnd(t *testing.T) {
	impatient(t)
	m, err := prompt.Load(snapshot{"tokenizer.json": `{
		"decoder":{"type":"Sequence","decoders":[{"type":"Fuse"},{"type":"Replace","pattern":{"Regex":"c|(a+)+b"},"content":"-"}]},
		"model":{"type":"BPE","vocab":{"a":0,"b":1,"c":2},"merges":[]}}`}.read, prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	m.ContextLength = 1000
	endless := make([]uint32, 60)
	const gaveUp = "the model's pattern c|(a+)+b takes more than 20"
	fails := func(what string, err error, kind engine.ErrorKind, param string) {
		t.Helper()
		if e, ok := errors.AsType[*engine.Error](err); !ok || e.Kind != kind || e.Param != param || !strings.Contains(e.Message, gaveUp) {
			t.Errorf("%s: %#v, want an error of %q", what, err, param)
		}
	}
	_, err = m.Text(endless)
	fails("text", err, engine.InvalidArgument, "tokens")
	_, err = m.Echo(&chat.Prompt{IDs: endless}, true)
	fails("echo", err, engine.InvalidArgument, "prompt")
	_, err = m.Build(&chat.Request{Prompt: &chat.Prompt{IDs: endless}}, nil)
	fails("build", err, engine.InvalidArgument, "prompt")

	var outs []prompt.Output
	for out, fault := range m.Decode(func(yield func(engine.Delta, error) bool) {
		_ = yield(engine.Delta{TokenIDs: endless}, nil) && yield(engine.Delta{Finish: engine.FinishEOS}, nil)
	}, prompt.Decoding{}) {
		outs, err = append(outs, out), fault
	}
	fails("answer", err, engine.Internal, "")
	if n := len(outs); n == 0 || outs[n-1].End != nil {
		t.Errorf("got %+v", outs)
	}
	// What whoever takes the answer does wrong stays theirs.
	theirs := &tokenizer.PatternError{Pattern: "theirs"}
	func() {
		defer func() {
			if got := recover(); got != theirs {
				t.Errorf("recovered %v", got)
			}
		}()
		for range m.Decode(func(yield func(engine.Delta, error) bool) {
			yield(engine.Delta{TokenIDs: []uint32{1}, Finish: engine.FinishEOS}, nil)
		}, prompt.Decoding{}) {
			panic(theirs)
		}
	}()

	if got, err := m.Text([]uint32{0, 0, 1, 2, 0}); got != "--a" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
	if got, err := m.Echo(&chat.Prompt{Text: "as it is"}, false); got != "as it is" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}
