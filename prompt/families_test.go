package prompt_test

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
	"pgregory.net/rapid"
)

// families are small models of all makes with the demo's template and its control
// tokens: over bytes, over characters with each way to mark the first word, over
// pieces of words, and Unigram.
func families(t testing.TB) map[string]*prompt.Model {
	t.Helper()
	models := map[string]*prompt.Model{"bytes": variants(t)["as it is"]}
	for name, file := range map[string]string{
		"characters, first": "text", "characters, always": "text", "characters, never": "text", "characters, prepended": "text",
		"pieces of words": "bert", "unigram": "unigram",
	} {
		raw, err := os.ReadFile("../tokenizer/testdata/" + file + ".json")
		if err != nil {
			t.Fatal(err)
		}
		var tokenizer map[string]any
		if err := json.Unmarshal(raw, &tokenizer); err != nil {
			t.Fatal(err)
		}
		space := func(scheme string) {
			tokenizer["pre_tokenizer"] = map[string]any{"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false}
			tokenizer["normalizer"] = nil
		}
		switch _, how, _ := strings.Cut(name, ", "); how {
		case "first", "always", "never":
			space(how)
		case "prepended":
			tokenizer["pre_tokenizer"] = nil
			tokenizer["normalizer"] = map[string]any{"type": "Sequence", "normalizers": []any{
				map[string]any{"type": "Prepend", "prepend": "▁"},
				map[string]any{"type": "Replace", "pattern": map[string]any{"String": " "}, "content": "▁"},
			}}
		}
		added, _ := tokenizer["added_tokens"].([]any)
		for i, content := range []string{"<|im_start|>", "<|im_end|>", "<think>", "</think>", "<tool_call>", "</tool_call>"} {
			added = append(added, map[string]any{
				"id": 50_000 + i, "content": content, "special": i < 2,
				"single_word": false, "lstrip": false, "rstrip": false, "normalized": false,
			})
		}
		tokenizer["added_tokens"] = added
		if raw, err = json.Marshal(tokenizer); err != nil {
			t.Fatal(err)
		}
		template, err := demo.File("chat_template.jinja")
		if err != nil {
			t.Fatal(err)
		}
		files := snapshot{"tokenizer.json": string(raw), "chat_template.jinja": string(template), "generation_config.json": `{"eos_token_id": 50001}`}
		if models[name], err = prompt.Load(files.read, prompt.Parsers{}); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return models
}

// Of no make does what a client says become structure. Where nobody says such
// things, the ids are those of the text in one go.
func TestNoStructureFromContent(t *testing.T) {
	for name, m := range families(t) {
		structure := map[uint32]bool{}
		for _, a := range m.Tokenizer.AddedTokens() {
			// A model without bytes has nothing else for what it cannot spell.
			structure[a.ID] = a.Structure && !strings.Contains(strings.ToLower(a.Content), "unk")
		}
		plainOf := func(t rapid.TB, r *chat.Request) []uint32 {
			text, err := m.Template.Render(r, chattemplate.Options{AddGenerationPrompt: true})
			if err != nil {
				t.Fatal(err)
			}
			return m.Tokenizer.Append(nil, text)
		}
		tokens := func(t rapid.TB, r *chat.Request) []uint32 {
			ids, err := m.Tokens(r, true)
			if err != nil {
				t.Fatal(err)
			}
			return ids
		}
		shape := func(ids []uint32) []uint32 {
			return slices.DeleteFunc(slices.Clone(ids), func(id uint32) bool { return !structure[id] })
		}
		t.Run(name, func(t *testing.T) {
			neutral := talk(func(string) string { return "w." })
			want := tokens(t, neutral)
			if !slices.Equal(want, plainOf(t, neutral)) || len(shape(want)) < 12 {
				t.Fatalf("nothing planted: %v, want %v", want, plainOf(t, neutral))
			}
			rapid.Check(t, func(t *rapid.T) {
				r := talk(func(label string) string { return "w" + planted().Draw(t, label) + "." })
				if got := shape(tokens(t, r)); !slices.Equal(got, shape(want)) {
					t.Fatalf("structure %v, want %v", got, shape(want))
				}
				words := rapid.SliceOfN(rapid.SampledFrom([]string{"a", "word", " ", "\n", " x", "7", "é", "你好", "<b>", "a < b", "</p>", "|"}), 0, 9)
				r = talk(func(label string) string { return "w" + strings.Join(words.Draw(t, label), "") + "." })
				if got, want := tokens(t, r), plainOf(t, r); !slices.Equal(got, want) {
					t.Fatalf("%v, want %v", got, want)
				}
			})
		})
	}
}

// Caches change no id of any make, whatever was said before.
func TestCachesAreExactForAll(t *testing.T) {
	for name, m := range families(t) {
		t.Run(name, func(t *testing.T) {
			fresh := *m
			fresh.Cache, fresh.Turns = nil, nil
			rapid.Check(t, func(t *rapid.T) {
				r := talk(func(label string) string { return planted().Draw(t, label) })
				for range 2 {
					got, err := m.Tokens(r, true)
					if err != nil {
						t.Fatal(err)
					}
					want, err := fresh.Tokens(r, true)
					if err != nil || !slices.Equal(got, want) {
						t.Fatalf("%v, want %v; %v", got, want, err)
					}
				}
			})
			if s := m.Cache.Stats(); s.Hits == 0 {
				t.Errorf("nothing was found again: %+v", s)
			}
		})
	}
}

// Answers keep their ids in models whose text does not tell them: what begins
// with a blank and what does not, and odd joints.
func TestAnswersOfAllMakes(t *testing.T) {
	for name, m := range families(t) {
		if name == "pieces of words" {
			continue // which no text can be made of again
		}
		end := uint32(50_001)
		if name == "bytes" {
			end, _ = m.Tokenizer.ID("<|im_end|>")
		}
		found := false
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := ask("w" + planted().Draw(t, "asked"))
				before, err := m.Build(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				// The model writes words one by one, each as if it were alone.
				var ids []uint32
				for _, word := range rapid.SliceOfN(rapid.SampledFrom([]string{"wo", "rd", " wo", " and", " ", "a", "1", "é"}), 1, 9).Draw(t, "words") {
					ids = m.Tokenizer.AppendBehind(ids, word, true)
				}
				m.Remember(before, append(slices.Clone(ids), end), nil)
				whole := m.Tokenizer.Decode(slices.Concat(before.IDs, ids), false)
				text, ok := strings.CutPrefix(whole, m.Tokenizer.Decode(before.IDs, false))
				if !ok {
					t.Fatalf("%q does not begin with the prompt", whole)
				}
				r.Turns = append(r.Turns, said(chat.RoleAssistant, text), said(chat.RoleUser, "w"+planted().Draw(t, "then")))
				after, err := m.Build(r, nil)
				if err != nil {
					t.Fatal(err)
				}
				rendered := m.Tokenizer.Decode(after.IDs, false)
				if !strings.HasPrefix(rendered, whole) {
					return // the template has changed the answer
				}
				found = true
				if want := slices.Concat(before.IDs, ids); !slices.Equal(after.IDs[:min(len(after.IDs), len(want))], want) {
					t.Fatalf("%q: %v does not begin with %v", rendered, after.IDs, want)
				}
			})
			if !found {
				t.Error("no answer was shown as it was")
			}
		})
	}
}
