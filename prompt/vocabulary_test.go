package prompt_test

import (
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/prompt"
)

// folder is a model's folder: contents by the names of its files.
type folder map[string]string

// at writes the folder to disk.
func (f folder) at(t testing.TB) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "my-model")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, text := range f {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// with is the folder with one more file, or without it if text is empty.
func (f folder) with(name, text string) folder {
	g := folder{}
	for n, s := range f {
		g[n] = s
	}
	if g[name] = text; text == "" {
		delete(g, name)
	}
	return g
}

// joined are tokens of more than one byte, each made of two that come before.
var joined = []string{"he", "the", " the", "ll", "hell", "hello"}

// In all vocabularies below, a byte's id is its value and those of joined follow.
const sample = "hello the hello"

var sampleIDs = []uint32{261, 258, ' ', 261}

// ranks is the vocabulary as a rank file.
func ranks() string {
	var b strings.Builder
	for i := range 256 + len(joined) {
		fmt.Fprintf(&b, "%s %d\n", base64.StdEncoding.EncodeToString(token(i)), i)
	}
	return b.String()
}

func token(id int) []byte {
	if id < 256 {
		return []byte{byte(id)}
	}
	return []byte(joined[id-256])
}

// spell writes bytes in the alphabet of GPT-2's files.
func spell(token []byte) string {
	var b strings.Builder
	for _, c := range token {
		b.WriteRune(alphabet[c])
	}
	return b.String()
}

// alphabet has a printable character for each byte: its own, or for those that
// have none, in their order, one from U+0100 on.
var alphabet = func() (a [256]rune) {
	next := rune(0x100)
	for c := range rune(256) {
		if c >= '!' && c <= '~' || c >= 0xa1 && c <= 0xac || c >= 0xae {
			a[c] = c
			continue
		}
		a[c] = next
		next++
	}
	return a
}()

func vocabJSON() string {
	vocab := map[string]int{}
	for i := range 256 + len(joined) {
		vocab[spell(token(i))] = i
	}
	text, _ := json.Marshal(vocab)
	return string(text)
}

const merges = "#version: 0.2\nh e\nt he\nĠ the\nl l\nhe ll\nhell o\n"

func tekken(more string) string {
	var vocab []string
	for i := range 256 + len(joined) {
		vocab = append(vocab, fmt.Sprintf(`{"rank":%d,"token_bytes":%q,"token_str":null}`, i, base64.StdEncoding.EncodeToString(token(i))))
	}
	return `{"config":{"pattern":"\\w+| ?\\w+|\\s+","default_vocab_size":282,"default_num_special_tokens":20,"version":"v3"},"vocab":[` +
		strings.Join(vocab, ",") + `]` + more + `}`
}

const (
	bert       = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\nhello\nthe\n##llo\nhe\n"
	chatConfig = `{"tokenizer_class":"%s","added_tokens_decoder":{"%d":{"content":"<|turn|>","special":true},"%d":{"content":"<tag>","special":false,"normalized":false,"rstrip":true}},"eos_token":"<|turn|>"%s}`
)

// Every kind of file gives the ids that its tokens were written with.
func TestVocabularies(t *testing.T) {
	kimi := folder{"tiktoken.model": ranks(), "tokenizer_config.json": fmt.Sprintf(chatConfig, "TikTokenTokenizer", 262, 263, "")}
	gpt2 := folder{"vocab.json": vocabJSON(), "merges.txt": merges}
	for name, tc := range map[string]struct {
		files  folder
		text   string
		ids    []uint32
		around []uint32 // of the same text, if not ids
		tokens map[string]uint32
		kind   string
	}{
		"Kimi": {
			files: kimi, text: sample + "<|turn|>", ids: append(slices.Clone(sampleIDs), 262), kind: "tiktoken ranks of Kimi",
			tokens: map[string]uint32{"<|turn|>": 262, "<tag>": 263, "<|reserved_token_264|>": 264, "<|reserved_token_517|>": 517},
		},
		"a tag that takes blanks along": {files: kimi, text: "the<tag> \n the", ids: []uint32{257, 263, 257}},
		"Qwen": {
			files: folder{"qwen.tiktoken": ranks()}, text: "e\u0301the<|im_end|>", ids: []uint32{0xc3, 0xa9, 257, 264}, kind: "tiktoken ranks of Qwen",
			tokens: map[string]uint32{"<|endoftext|>": 262, "<|im_start|>": 263, "<|extra_0|>": 265, "<|extra_204|>": 469},
		},
		"gpt-oss": {
			files: folder{"o200k_base.tiktoken": ranks()}, text: sample, ids: sampleIDs,
			tokens: map[string]uint32{"<|startoftext|>": 262, "<|reserved_264|>": 264, "<|return|>": 266, "<|call|>": 276, "<|endofprompt|>": 282},
		},
		"GPT-4":   {files: folder{"cl100k_base.tiktoken": ranks()}, text: sample, ids: sampleIDs, tokens: map[string]uint32{"<|endoftext|>": 263}},
		"Llama 3": {files: folder{"tokenizer.model": ranks(), "config.json": `{"model_type":"llama"}`}, text: sample, ids: sampleIDs, around: append([]uint32{262}, sampleIDs...), kind: "tiktoken ranks of Llama 3", tokens: map[string]uint32{"<|eot_id|>": 271, "<|python_tag|>": 272, "<|reserved_special_token_3|>": 273, "<|reserved_special_token_247|>": 517}},
		"GLM-4": {
			files: folder{"tokenizer.model": ranks(), "tokenizer_config.json": `{"tokenizer_class":"ChatGLM4Tokenizer","added_tokens_decoder":{"263":{"content":"[gMASK]","special":true},"265":{"content":"<sop>","special":true}}}`},
			text:  sample, ids: sampleIDs, around: append([]uint32{263, 265}, sampleIDs...),
		},
		"a pattern of its own": {files: folder{"own.tiktoken": ranks(), "tokenizer_config.json": `{"pat_str":"he|."}`}, text: "hello", ids: []uint32{256, 'l', 'l', 'o'}, kind: "tiktoken ranks"},
		"tekken": {
			files: folder{"tekken.json": tekken("")}, text: "hello</s>", ids: []uint32{281, 2}, around: []uint32{1, 281, 2}, kind: "tekken",
			tokens: map[string]uint32{"[INST]": 3, "[TOOL_CONTENT]": 19},
		},
		"tekken with its own special tokens": {
			files: folder{"tekken.json": tekken(`,"special_tokens":[{"rank":7,"token_str":"[SEVEN]","is_control":true}]`)},
			text:  "hello[SEVEN]", ids: []uint32{281, 7}, tokens: map[string]uint32{"<SPECIAL_6>": 6, "<SPECIAL_8>": 8},
		},
		"GPT-2":                    {files: gpt2.with("config.json", `{"model_type":"gpt2"}`), text: sample, ids: sampleIDs, kind: "vocab.json and merges.txt"},
		"GPT-2 with a space first": {files: gpt2.with("tokenizer_config.json", `{"tokenizer_class":"GPT2Tokenizer","add_prefix_space":true}`), text: "the", ids: []uint32{258}},
		"GPT-2 with a beginning": {
			files: gpt2.with("tokenizer_config.json", `{"tokenizer_class":"GPT2TokenizerFast","add_bos_token":true,"bos_token":"!"}`),
			text:  "the", ids: []uint32{257}, around: []uint32{'!', 257},
		},
		"RoBERTa": {
			files: gpt2.with("tokenizer_config.json", `{"tokenizer_class":"RobertaTokenizer","bos_token":"#","eos_token":{"content":"$"}}`),
			text:  "the", ids: []uint32{257}, around: []uint32{'#', 257, '$'},
		},
		"Qwen2": {
			files: gpt2.with("tokenizer_config.json", `{"tokenizer_class":"Qwen2Tokenizer"}`).with("added_tokens.json", `{"<|im_end|>":300,"<think>":301}`).with("special_tokens_map.json", `{"additional_special_tokens":["<|im_end|>"]}`),
			text:  "e\u0301the<|im_end|><think>", ids: []uint32{0xc3, 0xa9, 257, 300, 301},
		},
		"BERT": {files: folder{"vocab.txt": bert, "config.json": `{"model_type":"bert"}`}, text: "Héllo THE hello[MASK]x", ids: []uint32{5, 6, 5, 4, 1}, around: []uint32{2, 5, 6, 5, 4, 1, 3}, kind: "vocab.txt"},
		"BERT that tells cases apart": {
			files: folder{"vocab.txt": bert, "tokenizer_config.json": `{"tokenizer_class":"BertTokenizer","do_lower_case":false}`},
			text:  "Hello hello", ids: []uint32{1, 5}, around: []uint32{2, 1, 5, 3},
		},
		"Llama 2": {
			files: folder{"tokenizer.model": pieceModel, "config.json": `{"model_type":"llama"}`}, text: "the the</s>",
			ids: []uint32{5, 5, 2}, around: []uint32{1, 5, 5, 2}, kind: "SentencePiece",
		},
		"a token that is sought in normalized text": {files: gpt2.with("tokenizer_config.json", `{"tokenizer_class":"Qwen2Tokenizer","added_tokens_decoder":{"300":{"content":"é"}}}`), text: "e\u0301", ids: []uint32{300}},
		"a special token elsewhere":                 {files: folder{"o200k_base.tiktoken": ranks(), "tokenizer_config.json": `{"added_tokens_decoder":{"2000":{"content":"<|return|>","special":true},"5":{"content":"x","special":true}}}`}, text: "the<|return|>x", ids: []uint32{257, 2000, 5}},
		"tekken, of which a part counts":            {files: folder{"tekken.json": strings.Replace(tekken(""), ":282", ":281", 1)}, text: "hello", ids: []uint32{280, 'o' + 20}, around: []uint32{1, 280, 'o' + 20}},
		"BERT that keeps accents":                   {files: folder{"vocab.txt": bert, "tokenizer_config.json": `{"tokenizer_class":"BertTokenizer","strip_accents":false}`}, text: "Héllo", ids: []uint32{1}, around: []uint32{2, 1, 3}},
		"an unknown token that is spelled":          {files: folder{"tokenizer.model": pieceModel}, text: "<unk>the", ids: []uint32{0, 5}, around: []uint32{1, 0, 5}},
		"T5":                                        {files: folder{"spiece.model": pieceModel, "config.json": `{"model_type":"t5"}`}, text: "the", ids: []uint32{5}, around: []uint32{5, 2}},
		"Llama, a blank first": {
			files: folder{"tokenizer.model": pieceModel, "tokenizer_config.json": `{"tokenizer_class":"LlamaTokenizer","legacy":false}`},
			text:  "the the</s>the the", ids: []uint32{5, 5, 2, 4, 5}, around: []uint32{1, 5, 5, 2, 4, 5},
		},
		"T5, a blank first": {
			files: folder{"spiece.model": pieceModel, "config.json": `{"model_type":"t5"}`, "tokenizer_config.json": `{"legacy":false}`},
			text:  "the</s>the", ids: []uint32{5, 2, 4}, around: []uint32{5, 2, 4, 2},
		},
		"tokenizer.json before all": {files: kimi.with("tokenizer.json", tokenizerJSON()), text: "the", ids: []uint32{257}, kind: "tokenizer.json"},
		"tokens beside tokenizer.json": {
			files: folder{"tokenizer.json": tokenizerJSON(), "tokenizer_config.json": fmt.Sprintf(chatConfig, "PreTrainedTokenizerFast", 400, 401, "")},
			text:  "the<tag> the<|turn|>", ids: []uint32{257, 401, 257, 400},
		},
		"Llama's class puts the beginning first": {
			files: folder{"tokenizer.json": tokenizerJSON(), "tokenizer_config.json": `{"tokenizer_class":"LlamaTokenizerFast","bos_token":"<","eos_token":">","add_eos_token":true}`},
			text:  "the", ids: []uint32{257}, around: []uint32{'<', 257, '>'},
		},
		"Llama's class does not": {
			files: folder{"tokenizer.json": tokenizerJSON(), "tokenizer_config.json": `{"tokenizer_class":"LlamaTokenizer","bos_token":"<","add_bos_token":false}`},
			text:  "the", ids: []uint32{257},
		},
		"another class does what tokenizer.json says": {
			files: folder{"tokenizer.json": tokenizerJSON(), "tokenizer_config.json": `{"tokenizer_class":"PreTrainedTokenizerFast","bos_token":"<","add_bos_token":true}`},
			text:  "the", ids: []uint32{257},
		},
		"a space before, against tokenizer.json": {
			files: folder{"tokenizer.json": tokenizerJSON(), "tokenizer_config.json": `{"add_prefix_space":true}`},
			text:  "the", ids: []uint32{258},
		},
	} {
		t.Run(name, func(t *testing.T) {
			snapshot, err := prompt.OpenSnapshot(tc.files.at(t))
			if err != nil {
				t.Fatal(err)
			}
			m, err := snapshot.Load(prompt.Parsers{})
			if err != nil {
				t.Fatal(err)
			}
			if ids := m.Tokenizer.Append(nil, tc.text); !slices.Equal(ids, tc.ids) {
				t.Errorf("%q: %v, want %v", tc.text, ids, tc.ids)
			}
			around := tc.around
			if around == nil {
				around = tc.ids
			}
			if ids := m.Tokenizer.AppendWithSpecial(nil, tc.text); !slices.Equal(ids, around) {
				t.Errorf("%q with what is put around it: %v, want %v", tc.text, ids, around)
			}
			for content, want := range tc.tokens {
				if id, ok := m.Tokenizer.ID(content); !ok || id != want || m.Tokenizer.IsSpecial(id) != (content != "<tag>") {
					t.Errorf("%s: %d %v, special %v; want %d", content, id, ok, m.Tokenizer.IsSpecial(id), want)
				}
			}
			if tc.kind != "" && m.Files.Kind != tc.kind {
				t.Errorf("it is said to be %q, want %q", m.Files.Kind, tc.kind)
			}
		})
	}
}

// pieceModel is a SentencePiece model of BPE over the characters of "▁the", which
// puts a blank before a text.
var pieceModel = func() string {
	field := func(tag byte, value string) string { return string([]byte{tag<<3 | 2, byte(len(value))}) + value }
	var b strings.Builder
	for i, piece := range []string{"<unk>", "<s>", "</s>", "he", "the", "▁the", "▁", "t", "h", "e"} {
		kind := byte(1)
		if i < 3 {
			kind = []byte{2, 3, 3}[i]
		}
		score := binary.LittleEndian.AppendUint32([]byte{2<<3 | 5}, math.Float32bits(-float32(i)))
		b.WriteString(field(1, field(1, piece)+string(score)+string([]byte{3 << 3, kind})))
	}
	b.WriteString(field(2, "\x18\x02"))
	b.WriteString(field(3, field(1, "identity")+"\x18\x01"))
	return b.String()
}()

// tokenizerJSON is the vocabulary in the newest form.
func tokenizerJSON() string {
	var list []string
	for line := range strings.Lines(merges) {
		if line = strings.TrimSuffix(line, "\n"); !strings.HasPrefix(line, "#") {
			list = append(list, line)
		}
	}
	text, _ := json.Marshal(list)
	return `{"pre_tokenizer":{"type":"ByteLevel","add_prefix_space":false,"use_regex":true},"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":` +
		vocabJSON() + `,"merges":` + string(text) + `}}`
}

// What cannot be read is told with the file, the place, and what would do.
func TestVocabularyErrors(t *testing.T) {
	gpt2 := folder{"vocab.json": vocabJSON(), "merges.txt": merges, "config.json": `{"model_type":"gpt2"}`}
	for want, files := range map[string]folder{
		"no vocabulary: want one of tokenizer.json, tokenizer.model, spiece.model, tekken.json, tiktoken.model, *.tiktoken, vocab.json with merges.txt, vocab.txt, *.gguf; the folder is empty":            {},
		"no vocabulary: want one of tokenizer.json, tokenizer.model, spiece.model, tekken.json, tiktoken.model, *.tiktoken, vocab.json with merges.txt, vocab.txt, *.gguf; the folder has README, weights": {"README": "x", "weights": "y"},
		"a.tiktoken, b.tiktoken: want one, or the path of the one to take":                                                              {"a.tiktoken": "x", "b.tiktoken": "y"},
		`own.tiktoken: a rank file does not hold the pattern`:                                                                           {"own.tiktoken": ranks()},
		"tiktoken.model: ranks: line 2: want a token in base64, a space and a rank":                                                     {"tiktoken.model": "IQ== 0\nnonsense\n", "config.json": `{"model_type":"kimi_k2"}`},
		"vocab.json: has no merges.txt beside it: want both, or tokenizer.json":                                                         gpt2.with("merges.txt", ""),
		"vocab.json: how text is cut is known for the classes":                                                                          gpt2.with("config.json", `{"model_type":"clip"}`),
		`vocab.json: model.merges[0]: "x" and "yz"`:                                                                                     gpt2.with("merges.txt", "x yz\n"),
		"vocab.json: line 1, column 2: want JSON, not nonsense":                                                                         gpt2.with("vocab.json", "{nonsense"),
		`vocab.json: model.vocab["a"]: must be an id`:                                                                                   gpt2.with("vocab.json", `{"a":"b"}`),
		"vocab.txt: how text is cut is known for the classes":                                                                           {"vocab.txt": bert},
		"vocab.txt: want a token on each line, and the file is empty":                                                                   {"vocab.txt": "", "config.json": `{"model_type":"bert"}`},
		`vocab.txt: model.unk_token: "[UNK]" is not in the vocabulary`:                                                                  {"vocab.txt": "a\nb\n", "config.json": `{"model_type":"bert"}`},
		"tekken.json: config.pattern: want the pattern by which text is cut":                                                            {"tekken.json": "{}"},
		"tekken.json: config: want an object":                                                                                           {"tekken.json": `{"config":7}`},
		"tekken.json: vocab[1].rank: want a whole number":                                                                               {"tekken.json": `{"vocab":[{"rank":0},{"rank":"x"}]}`},
		"tekken.json: config.default_vocab_size: want at least the 5 special tokens, not 1":                                             {"tekken.json": `{"config":{"pattern":"x","default_vocab_size":1,"default_num_special_tokens":5}}`},
		"tekken.json: vocab[0].rank: want 0, not 3":                                                                                     {"tekken.json": `{"config":{"pattern":"x","default_vocab_size":9,"default_num_special_tokens":5},"vocab":[{"rank":3}]}`},
		"tekken.json: special_tokens[0].rank: want 0 to 4, not 9":                                                                       {"tekken.json": `{"config":{"pattern":"x","default_vocab_size":9,"default_num_special_tokens":5},"special_tokens":[{"rank":9}]}`},
		"tokenizer.json: the file ends within its JSON: want a complete file":                                                           {"tokenizer.json": tokenizerJSON()[:2000]},
		"tokenizer.json: want a JSON object, and the file is empty":                                                                     {"tokenizer.json": " \n"},
		"tokenizer.json: want an object":                                                                                                {"tokenizer.json": "[]"},
		"tokenizer.json: added_tokens[0].id: want a whole number":                                                                       {"tokenizer.json": `{"added_tokens":[{"id":"x"}]}`},
		"tokenizer.json: is a pointer to a file that Git LFS keeps elsewhere":                                                           {"tokenizer.json": "version https://git-lfs.github.com/spec/v1\noid sha256:12\nsize 9\n"},
		"sentencepiece.bpe.model: the SentencePiece models of XLM-R and NLLB, whose ids are shifted, are not read: want tokenizer.json": {"sentencepiece.bpe.model": "x"},
		"tokenizer.model: what is put around a text is known for the classes":                                                           {"tokenizer.model": pieceModel, "tokenizer_config.json": `{"tokenizer_class":"XLNetTokenizer"}`},
		"tokenizer.model: model: ":                                                                                                      {"tokenizer.model": "\x0a"},
	} {
		snapshot, err := prompt.OpenSnapshot(files.at(t))
		if err != nil {
			t.Errorf("%q: %v", want, err)
			continue
		}
		if _, err := snapshot.Load(prompt.Parsers{}); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got  %v\nwant %s", err, want)
		} else if strings.Contains(err.Error(), "Go ") || strings.Contains(err.Error(), " json: ") || strings.Contains(err.Error(), "jsontext") {
			t.Errorf("no words for users: %v", err)
		}
	}
}

// A folder is found by every path that people have for it.
func TestOpenSnapshot(t *testing.T) {
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, path string) {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(root, path)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(to, filepath.Join(root, path)); err != nil {
			t.Fatal(err)
		}
	}
	write("plain/tokenizer.json", tokenizerJSON())
	write("plain/other.tiktoken", ranks())
	write("plain/README", "x")
	write("hub/models--org--a-model/blobs/1234", tokenizerJSON())
	write("hub/models--org--a-model/refs/main", "abc\n")
	link("../../blobs/1234", "hub/models--org--a-model/snapshots/abc/tokenizer.json")
	link("../../blobs/none", "hub/models--org--a-model/snapshots/def/tokenizer.json")
	link("../../../models--org--a-model/blobs/1234", "hub/models--single/snapshots/abc/tokenizer.json")
	write("hub/models--gone/refs/main", "abc")
	write("hub/models--gone/snapshots/def/x", "x")
	write("hub/models--out/refs/main", "../..")
	write("hub/models--out/snapshots/def/x", "x")
	write("hub/models--two/snapshots/a/x", "x")
	write("hub/models--two/snapshots/b/x", "x")
	link("loop", "loop")
	link("tokenizer.json", "looped/tokenizer.json")
	write("large/tokenizer.json", "")
	if err := os.Truncate(filepath.Join(root, "large/tokenizer.json"), 100<<30); err != nil {
		t.Fatal(err)
	}
	write("largish/config.json", "")
	if err := os.Truncate(filepath.Join(root, "largish/config.json"), 33<<20); err != nil {
		t.Fatal(err)
	}
	write("nested/tokenizer.json/x", "x")

	for path, want := range map[string]string{
		"plain": "plain", "plain/": "plain", "plain/tokenizer.json": "plain",
		"hub/models--org--a-model": "org/a-model", "hub/models--org--a-model/snapshots/abc": "org/a-model",
		"hub/models--single": "single",
	} {
		snapshot, err := prompt.OpenSnapshot(filepath.Join(root, path))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		m, err := snapshot.Load(prompt.Parsers{})
		if err != nil || snapshot.Name() != want {
			t.Errorf("%s: named %q, %v; want %q", path, snapshot.Name(), err, want)
			continue
		}
		if ids := m.Tokenizer.Append(nil, sample); !slices.Equal(ids, sampleIDs) {
			t.Errorf("%s: %v", path, ids)
		}
	}
	for path, want := range map[string]string{
		"nowhere":                                "no such file or directory: want a folder with a model's files, or one of tokenizer.json",
		"plain/README":                           `"README" holds no vocabulary: want a folder`,
		"plain/other.tiktoken":                   "other.tiktoken: a rank file does not hold the pattern",
		"loop":                                   "too many levels of symbolic links: want a folder",
		"looped":                                 "tokenizer.json: too many levels of symbolic links",
		"hub/models--gone":                       "refs/main names abc, which is no folder in snapshots",
		"hub/models--out":                        "refs/main: want the name of a folder in snapshots, not ../..",
		"hub/models--two":                        "2 snapshots and no refs/main to choose by",
		"hub/models--org--a-model/snapshots/def": "no vocabulary: want one of",
		"large":                                  "tokenizer.json: 107374182400 bytes: want at most 1073741824",
		"largish":                                "config.json: 34603008 bytes: want at most 33554432",
		"nested":                                 "tokenizer.json: is a folder: want a regular file",
	} {
		snapshot, err := prompt.OpenSnapshot(filepath.Join(root, path))
		if err == nil {
			_, err = snapshot.Load(prompt.Parsers{})
		}
		if err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: %v, want %s", path, err, want)
		}
	}
}

// A template that the operator gives replaces those of the model.
func TestGivenChatTemplate(t *testing.T) {
	snapshot, err := prompt.OpenSnapshot(folder{"tokenizer.json": tokenizerJSON(), "chat_template.jinja": "theirs"}.at(t))
	if err != nil {
		t.Fatal(err)
	}
	snapshot.ChatTemplate = "hello"
	m, err := snapshot.Load(prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	if p, err := m.Build(ask("x"), nil); err != nil || !slices.Equal(p.IDs, []uint32{261}) {
		t.Errorf("%v %v", p, err)
	}
}

// No file that is broken, cut or swapped for another brings the loader down.
func FuzzLoad(f *testing.F) {
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "config.json", "generation_config.json", "added_tokens.json", "special_tokens_map.json", "chat_template.json", "vocab.txt", "merges.txt", "tekken.json", "tiktoken.model"} {
		f.Add(name, []byte(`{"model_type":"bert","rope_scaling":{"type":"yarn","factor":4,"original_max_position_embeddings":7},"added_tokens_decoder":{"3":{"content":"x"}},"chat_template":[{"name":"default","template":"x"}]}`))
	}
	f.Add("tiktoken.model", []byte(ranks()))
	f.Add("tekken.json", []byte(tekken("")))
	f.Add("vocab.txt", []byte(bert))
	f.Add("config.json", []byte(`{"a":[NaN,-Infinity],"max_position_embeddings":1e999}`))
	base := folder{"vocab.json": vocabJSON(), "merges.txt": merges, "config.json": `{"model_type":"gpt2"}`}
	f.Fuzz(func(t *testing.T, name string, text []byte) {
		files := base.with(name, string(text))
		if name == "tiktoken.model" {
			files["config.json"] = `{"model_type":"kimi_k2"}`
		}
		m, err := prompt.Load(func(name string) ([]byte, error) {
			if text, ok := files[name]; ok {
				return []byte(text), nil
			}
			return nil, fs.ErrNotExist
		}, prompt.Parsers{})
		if err == nil {
			m.Tokenizer.Append(nil, sample)
		} else if strings.Contains(err.Error(), "Go ") {
			t.Errorf("no words for users: %v", err)
		}
	})
}
