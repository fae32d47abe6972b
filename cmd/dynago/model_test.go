//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// A model of any kind of files can be served: its tokens are those that the files
// say, there and back, and the log tells what was read.
func TestModelPath(t *testing.T) {
	t.Parallel()
	for path, tc := range map[string]struct {
		name, text string
		ids        []uint32
		log        []string
	}{
		"tokenizer":                {name: "tokenizer", text: "hello the<|end|>", ids: []uint32{261, 258, 262}, log: []string{"tokenizer=tokenizer.json", "kind=BPE", "vocabulary=263", "template=none", "tool_parser=none", "reasoning_parser=none", "context_length=2048", "took="}},
		"tokenizer/tokenizer.json": {name: "tokenizer", text: "hello the", ids: []uint32{261, 258}},
		"tiktoken":                 {name: "tiktoken", text: "hello the[EOS]", ids: []uint32{261, 258, 263}, log: []string{`tokenizer="tiktoken ranks of Kimi"`, "vocabulary=518"}},
		"llama3":                   {name: "llama3", text: "hello the<|eot_id|>", ids: []uint32{262, 261, 258, 271}, log: []string{`tokenizer="tiktoken ranks of Llama 3"`}},
		"sentencepiece":            {name: "sentencepiece", text: "the the", ids: []uint32{1, 5, 5}, log: []string{"tokenizer=SentencePiece"}},
		"merges":                   {name: "merges", text: "hello the<|im_end|>", ids: []uint32{261, 258, 262}, log: []string{`tokenizer="vocab.json and merges.txt"`}},
		"words":                    {name: "words", text: "hello the", ids: []uint32{2, 5, 6, 3}, log: []string{"tokenizer=vocab.txt", "kind=WordPiece"}},
		"tekken":                   {name: "tekken", text: "hello", ids: []uint32{1, 281}, log: []string{"tokenizer=tekken", `msg="a split pattern is read by the engine of regular expressions`, `pattern="\\w+`}},
		"gguf":                     {name: "gguf", text: "hello the<|end|>", ids: []uint32{261, 258, 262}, log: []string{`tokenizer="GGUF gpt2, split as llama-bpe"`, "template=small-F16.gguf", "context_length=4096"}},
		"gguf/small-F16.gguf":      {name: "small-F16", text: "hello the", ids: []uint32{261, 258}},
	} {
		t.Run(path, func(t *testing.T) {
			p := serve(t, "--model-path", filepath.Join("testdata", "models", path), "--workers", "1")
			if !strings.Contains(p.banner, "serves "+tc.name+" on") {
				t.Errorf("not served as %s:\n%s", tc.name, p.banner)
			}
			var tokenized struct{ Tokens []uint32 }
			p.post("/tokenize", fmt.Sprintf(`{"model":%q,"prompt":%q}`, tc.name, tc.text), &tokenized)
			if !slices.Equal(tokenized.Tokens, tc.ids) {
				t.Errorf("%q: %v, want %v", tc.text, tokenized.Tokens, tc.ids)
			}
			var text struct{ Prompt string }
			ids, _ := json.Marshal(tc.ids)
			p.post("/detokenize", fmt.Sprintf(`{"model":%q,"tokens":%s}`, tc.name, ids), &text)
			// What is put around a text is shown, a blank that was put before it is not.
			if !strings.HasSuffix(strings.TrimSuffix(text.Prompt, " [SEP]"), tc.text) {
				t.Errorf("%v: %q, want %q", tc.ids, text.Prompt, tc.text)
			}
			for _, want := range append(tc.log, `msg="model loaded"`, "model="+tc.name) {
				if !strings.Contains(p.log.String(), want) {
					t.Errorf("the log has no %s", want)
				}
			}
			p.signal(syscall.SIGTERM)
			if code := p.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
		})
	}
}

// The log says what became of settings that choose among tokenizers elsewhere.
func TestTokenizerSetting(t *testing.T) {
	t.Parallel()
	p := serve(t, "--workers", "1", "--tokenizer", "fastokens", "--no-tokenizer-fallback", "--trust-remote-code")
	for _, want := range []string{
		`msg="one tokenizer serves, whose ids are those of all others" target=model asked=fastokens serves=dynago`,
		"setting=--tokenizer-fallback", "setting=--trust-remote-code",
	} {
		// The target may stand before or behind.
		loose := regexp.MustCompile(`target=\w+ `)
		if !strings.Contains(loose.ReplaceAllString(p.log.String(), ""), loose.ReplaceAllString(want, "")) {
			t.Errorf("no %q in the log", want)
		}
	}
}
