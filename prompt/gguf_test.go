package prompt_test

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/prompt"
)

// pair is a key of a GGUF file with its value.
type pair struct {
	key   string
	value any
}

// gguf writes a file with these keys, and weights of no model behind them.
func gguf(pairs ...pair) string {
	var b bytes.Buffer
	put := func(v any) { binary.Write(&b, binary.LittleEndian, v) }
	text := func(s string) {
		put(uint64(len(s)))
		b.WriteString(s)
	}
	b.WriteString("GGUF")
	put(uint32(3))
	put(uint64(7))
	put(uint64(len(pairs)))
	for _, p := range pairs {
		text(p.key)
		switch v := p.value.(type) {
		case string:
			put(uint32(8))
			text(v)
		case bool:
			put(uint32(7))
			put(v)
		case uint32:
			put(uint32(4))
			put(v)
		case uint64:
			put(uint32(10))
			put(v)
		case float32:
			put(uint32(6))
			put(v)
		case []string:
			put([]uint32{9, 8})
			put(uint64(len(v)))
			for _, s := range v {
				text(s)
			}
		case []float32:
			put([]uint32{9, 6})
			put(uint64(len(v)))
			put(v)
		case []int32:
			put([]uint32{9, 5})
			put(uint64(len(v)))
			put(v)
		default:
			panic(v)
		}
	}
	b.WriteString("weights")
	return b.String()
}

// byteLevel is the vocabulary of sample, with a token of each kind behind it.
func byteLevel(pre string, more ...pair) string {
	var tokens []string
	var kinds []int32
	for i := range 256 + len(joined) {
		tokens, kinds = append(tokens, spell(token(i))), append(kinds, 1)
	}
	tokens, kinds = append(tokens, "<|end|>", "<tag>", "[PAD264]"), append(kinds, 3, 4, 5)
	var list []string
	for line := range strings.Lines(merges) {
		if !strings.HasPrefix(line, "#") {
			list = append(list, strings.TrimSpace(line))
		}
	}
	return gguf(append([]pair{
		{"general.architecture", "own"},
		{"own.context_length", uint32(4096)},
		{"own.rope.freq_base", float32(1e6)},
		{"tokenizer.ggml.model", "gpt2"},
		{"tokenizer.ggml.pre", pre},
		{"tokenizer.ggml.tokens", tokens},
		{"tokenizer.ggml.token_type", kinds},
		{"tokenizer.ggml.merges", list},
		{"tokenizer.ggml.eos_token_id", uint32(262)},
	}, more...)...)
}

func pieces(more ...pair) string {
	return gguf(append([]pair{
		{"tokenizer.ggml.model", "llama"},
		{"tokenizer.ggml.tokens", []string{"<unk>", "<s>", "</s>", "he", "the", "▁the", "▁", "t", "h", "e"}},
		{"tokenizer.ggml.scores", []float32{0, 0, 0, -1, -2, -3, -4, -5, -6, -7}},
		{"tokenizer.ggml.token_type", []int32{2, 3, 3, 1, 1, 1, 1, 1, 1, 1}},
		{"tokenizer.ggml.bos_token_id", uint32(1)},
		{"tokenizer.ggml.eos_token_id", uint32(2)},
	}, more...)...)
}

func TestGGUF(t *testing.T) {
	for name, tc := range map[string]struct {
		file   string
		text   string
		ids    []uint32
		around []uint32 // of the same text, if not ids
		eos    []uint32
		chats  string // what the template writes
	}{
		"Qwen":  {file: byteLevel("qwen2"), text: "e\u0301the<|end|>", ids: []uint32{0xc3, 0xa9, 257, 262}, eos: []uint32{262}},
		"GPT-2": {file: byteLevel("gpt-2"), text: sample + "<tag>[PAD264]", ids: append(slices.Clone(sampleIDs), 263, '[', 'P', 'A', 'D', '2', '6', '4', ']'), eos: []uint32{262}},
		"Llama 3 begins with a token": {
			file: byteLevel("llama-bpe", pair{"tokenizer.ggml.bos_token_id", uint32('!')}), text: "the",
			ids: []uint32{257}, around: []uint32{'!', 257}, eos: []uint32{262},
		},
		"Llama 3 that does not": {
			file: byteLevel("llama-bpe", pair{"tokenizer.ggml.bos_token_id", uint32('!')}, pair{"tokenizer.ggml.add_bos_token", false}), text: "the",
			ids: []uint32{257}, eos: []uint32{262},
		},
		"ends of turns": {file: byteLevel("deepseek-v3", pair{"tokenizer.ggml.eot_token_id", uint32(257)}, pair{"tokenizer.ggml.eom_token_id", uint32(9999)}), text: sample, ids: sampleIDs, eos: []uint32{257, 262}},
		"a template":    {file: byteLevel("kimi-k2", pair{"tokenizer.chat_template", "the"}), text: sample, ids: sampleIDs, eos: []uint32{262}, chats: "the"},
		"digits apart":  {file: byteLevel("smollm"), text: "the12", ids: []uint32{257, '1', '2'}, eos: []uint32{262}},
		"SentencePiece": {file: pieces(), text: "the the</s>", ids: []uint32{5, 5, 2}, around: []uint32{1, 5, 5, 2}, eos: []uint32{2}},
		"SentencePiece without a blank first": {
			file: pieces(pair{"tokenizer.ggml.add_space_prefix", false}, pair{"tokenizer.ggml.add_eos_token", true}), text: "the the",
			ids: []uint32{4, 5}, around: []uint32{1, 4, 5, 2}, eos: []uint32{2},
		},
		"BERT": {file: gguf(
			pair{"tokenizer.ggml.model", "bert"}, pair{"tokenizer.ggml.tokens", []string{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "▁hello", "▁he", "llo"}},
			pair{"tokenizer.ggml.token_type", []int32{3, 3, 3, 3, 1, 1, 1}}, pair{"tokenizer.ggml.bos_token_id", uint32(2)}, pair{"tokenizer.ggml.seperator_token_id", uint32(3)},
		), text: "Héllo hellohe hello", ids: []uint32{4, 1, 4}, around: []uint32{2, 4, 1, 4, 3}},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(folder{"a-Q4_K_M.gguf": tc.file}.at(t), "a-Q4_K_M.gguf")
			snapshot, err := prompt.OpenSnapshot(path)
			if err != nil {
				t.Fatal(err)
			}
			m, err := snapshot.Load(prompt.Parsers{})
			if err != nil {
				t.Fatal(err)
			}
			if id, ok := m.Tokenizer.ID("<tag>"); ok && m.Tokenizer.IsSpecial(id) {
				t.Error("a token of the user is special")
			}
			if snapshot.Name() != "a-Q4_K_M" {
				t.Errorf("it is named %q", snapshot.Name())
			}
			if ids := m.Tokenizer.Append(nil, tc.text); !slices.Equal(ids, tc.ids) {
				t.Errorf("%q: %v, want %v", tc.text, ids, tc.ids)
			}
			if tc.around == nil {
				tc.around = tc.ids
			}
			if ids := m.Tokenizer.AppendWithSpecial(nil, tc.text); !slices.Equal(ids, tc.around) {
				t.Errorf("%q with what is put around it: %v, want %v", tc.text, ids, tc.around)
			}
			if !slices.Equal(m.EOS, tc.eos) {
				t.Errorf("it ends with %v, want %v", m.EOS, tc.eos)
			}
			if (m.Template != nil) != (tc.chats != "") {
				t.Fatalf("template %v", m.Template)
			}
			if tc.chats != "" {
				if p, err := m.Build(ask("x"), nil); err != nil || m.Tokenizer.Decode(p.IDs, false) != tc.chats || m.ContextLength != 4096 {
					t.Errorf("%v %v, context %d", p, err, m.ContextLength)
				}
			}
		})
	}
}

func TestGGUFErrors(t *testing.T) {
	whole := byteLevel("qwen2")
	for want, text := range map[string]string{
		`begins with "PK\x03\x04": want a GGUF file`:                               "PK\x03\x04....",
		"GGUF version 1: want 2 or 3":                                              "GGUF\x01\x00\x00\x00" + strings.Repeat("\x00", 16),
		"its numbers are big-endian: want a little-endian GGUF file":               "GGUF\x00\x00\x00\x03" + strings.Repeat("\x00", 16),
		"72057594037927936 keys: want at most 65536":                               "GGUF\x03\x00\x00\x00" + strings.Repeat("\x00", 15) + "\x01",
		"the file ends within its metadata: want a complete file":                  whole[:len(whole)/2],
		"key 0: a text of 2147483647 bytes: want at most 16777216":                 "GGUF\x03\x00\x00\x00" + strings.Repeat("\x00", 8) + "\x01" + strings.Repeat("\x00", 7) + "\xff\xff\xff\x7f\x00\x00\x00\x00",
		"tokenizer.ggml.tokens: want the vocabulary, and there is none":            gguf(),
		`tokenizer.ggml.model: "rwkv": want gpt2, llama, t5 or bert`:               gguf(pair{"tokenizer.ggml.model", "rwkv"}, pair{"tokenizer.ggml.tokens", []string{"a"}}),
		`tokenizer.ggml.pre: "viking": how text is cut is known for chatglm-bpe, `: byteLevel("viking"),
		"tokenizer.ggml.tokens: want a list of texts":                              gguf(pair{"tokenizer.ggml.tokens", "a"}),
		"tokenizer.ggml.token_type: 2 kinds for 1 tokens: want as many":            gguf(pair{"tokenizer.ggml.tokens", []string{"a"}}, pair{"tokenizer.ggml.token_type", []int32{1, 1}}),
		"tokenizer.ggml.scores: 0 scores for 1 tokens: want as many":               gguf(pair{"tokenizer.ggml.model", "llama"}, pair{"tokenizer.ggml.tokens", []string{"a"}}),
		`tokenizer.ggml.tokens[1]: "a" is also [0]: want each token once`:          gguf(pair{"tokenizer.ggml.model", "gpt2"}, pair{"tokenizer.ggml.pre", "gpt2"}, pair{"tokenizer.ggml.tokens", []string{"a", "a"}}),
	} {
		snapshot, err := prompt.OpenSnapshot(folder{"a.gguf": text, "README": "x"}.at(t))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := snapshot.Load(prompt.Parsers{}); err == nil || !strings.HasPrefix(err.Error(), "a.gguf: "+want) {
			t.Errorf("%v\nwant a.gguf: %s", err, want)
		}
	}
}

// Of a folder with GGUF files the one that can be meant is taken.
func TestGGUFInFolder(t *testing.T) {
	file := byteLevel("qwen2")
	for want, files := range map[string]folder{
		"m-00001-of-00002.gguf": {"m-00001-of-00002.gguf": file, "m-00002-of-00002.gguf": "x", "mmproj-m.gguf": "x"},
		"tokenizer.json":        {"tokenizer.json": tokenizerJSON(), "m.gguf": "x"},
		"a.gguf, b.gguf: want the path of the one to take": {"a.gguf": file, "b.gguf": file},
	} {
		snapshot, err := prompt.OpenSnapshot(files.at(t))
		if err != nil {
			t.Fatal(err)
		}
		m, err := snapshot.Load(prompt.Parsers{})
		if err != nil && err.Error() != want || err == nil && m.Files.Vocabulary != want {
			t.Errorf("%v %v, want %s", m, err, want)
		}
	}
}

// A small file cannot ask for much memory or time, whatever it says.
func FuzzGGUF(f *testing.F) {
	f.Add([]byte(byteLevel("llama-bpe", pair{"tokenizer.chat_template", "the"})))
	f.Add([]byte(pieces()))
	f.Add([]byte(gguf(pair{"a", uint64(1)}, pair{"b", float32(1)}, pair{"c", true}, pair{"tokenizer.d", []float32{1}})))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, file []byte) {
		path := filepath.Join(dir, "a.gguf")
		if err := os.WriteFile(path, file, 0o644); err != nil {
			t.Fatal(err)
		}
		snapshot, err := prompt.OpenSnapshot(path)
		if err != nil {
			t.Fatal(err)
		}
		if m, err := snapshot.Load(prompt.Parsers{}); err == nil {
			m.Tokenizer.Decode(m.Tokenizer.Append(nil, sample), false)
		}
	})
}
