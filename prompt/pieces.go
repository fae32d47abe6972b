package prompt

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/tokenizer"
)

// document is a tokenizer.json, for models whose files are older than that
// format: their tokenizer is put in its words, as the library does that made it.
type document struct {
	AddedTokens  []tokenizer.AddedToken `json:"added_tokens,omitempty"`
	Normalizer   component              `json:"normalizer,omitzero"`
	PreTokenizer component              `json:"pre_tokenizer,omitzero"`
	Decoder      component              `json:"decoder,omitzero"`
	Model        component              `json:"model"`
}

type component map[string]any

func (d *document) load() (*tokenizer.Tokenizer, error) {
	text, err := json.Marshal(d, lenient)
	if err != nil {
		return nil, err
	}
	return tokenizer.Load(text)
}

// gpt2Split cuts text as GPT-2 does.
func gpt2Split(prefixSpace bool) component {
	return component{"type": "ByteLevel", "add_prefix_space": prefixSpace, "use_regex": true}
}

// patternSplit cuts text by patterns in turn.
func patternSplit(patterns ...string) component {
	var stages []component
	for _, p := range patterns {
		stages = append(stages, component{"type": "Split", "pattern": component{"Regex": p}, "behavior": "Isolated", "invert": false})
	}
	stages = append(stages, component{"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})
	return component{"type": "Sequence", "pretokenizers": stages}
}

var nfc = component{"type": "NFC"}

// loadMerges reads vocab.json and merges.txt, the files of the models that cut
// bytes as GPT-2 does.
func (v *vocabulary) loadMerges() (*tokenizer.Tokenizer, error) {
	v.kind = "vocab.json and merges.txt"
	// A fault is to be told by its place in this file.
	if err := json.Unmarshal(v.text, new(jsontext.Value), lenient); err != nil {
		return nil, err
	}
	list, err := v.snapshot.read("merges.txt")
	if errors.Is(err, fs.ErrNotExist) {
		return nil, errors.New("has no merges.txt beside it: want both, or tokenizer.json")
	}
	if err != nil {
		return nil, fmt.Errorf("merges.txt beside it: %w", err)
	}
	var merges []string
	for line := range strings.Lines(string(list)) {
		line = strings.TrimRight(line, "\r\n")
		if line != "" && !strings.HasPrefix(line, "#version") {
			merges = append(merges, line)
		}
	}
	d := &document{
		Decoder: component{"type": "ByteLevel"},
		Model:   component{"type": "BPE", "vocab": jsontext.Value(v.text), "merges": merges},
	}
	around := false
	class := cmp.Or(v.class, classOfModel[v.modelType])
	switch class {
	case "GPT2Tokenizer", "CodeGenTokenizer":
		d.PreTokenizer = gpt2Split(v.addPrefixSpace)
	case "RobertaTokenizer", "BartTokenizer", "LongformerTokenizer":
		d.PreTokenizer, around = gpt2Split(v.addPrefixSpace), true
	case "Qwen2Tokenizer":
		d.Normalizer, d.PreTokenizer = nfc, patternSplit(cmp.Or(v.tokenizer.text("pretokenize_regex"), tokenizer.PatternQwen2))
	default:
		return nil, fmt.Errorf("how text is cut is known for the classes GPT2Tokenizer, Qwen2Tokenizer, RobertaTokenizer, BartTokenizer, LongformerTokenizer and CodeGenTokenizer, and not for tokenizer_class %q with model_type %q: want tokenizer.json, as save_pretrained of transformers writes it", v.class, v.modelType)
	}
	t, err := d.load()
	if err != nil {
		return nil, err
	}
	if around {
		return t.WithAround(idsOf(t, cmp.Or(v.bos, "<s>")), idsOf(t, cmp.Or(v.eos, "</s>"))), nil
	}
	if v.addBOS && v.bos != "" {
		return t.WithAround(idsOf(t, v.bos), nil), nil
	}
	return t, nil
}

// classOfModel tells the tokenizer of a model that does not tell it.
var classOfModel = map[string]string{
	"gpt2": "GPT2Tokenizer", "gpt_neo": "GPT2Tokenizer", "gptj": "GPT2Tokenizer", "opt": "GPT2Tokenizer",
	"codegen": "CodeGenTokenizer", "roberta": "RobertaTokenizer", "bart": "BartTokenizer", "longformer": "LongformerTokenizer",
	"qwen2": "Qwen2Tokenizer", "qwen2_moe": "Qwen2Tokenizer", "qwen3": "Qwen2Tokenizer", "qwen3_moe": "Qwen2Tokenizer",
	"bert": "BertTokenizer", "distilbert": "DistilBertTokenizer", "electra": "ElectraTokenizer",
}

func idsOf(t *tokenizer.Tokenizer, content string) []uint32 {
	if id, ok := t.ID(content); ok {
		return []uint32{id}
	}
	return nil
}

// loadWords reads vocab.txt, BERT's file: a token on each line.
func (v *vocabulary) loadWords() (*tokenizer.Tokenizer, error) {
	v.kind = "vocab.txt"
	class := cmp.Or(v.class, classOfModel[v.modelType])
	switch class {
	case "BertTokenizer", "DistilBertTokenizer", "ElectraTokenizer":
	default:
		return nil, fmt.Errorf("how text is cut is known for the classes BertTokenizer, DistilBertTokenizer and ElectraTokenizer, and not for tokenizer_class %q with model_type %q: want tokenizer.json, as save_pretrained of transformers writes it", v.class, v.modelType)
	}
	ids := map[string]int{}
	n := 0
	for line := range bytes.Lines(v.text) {
		ids[string(bytes.TrimRight(line, "\r\n"))] = n
		n++
	}
	if len(ids) == 0 {
		return nil, errors.New("want a token on each line, and the file is empty")
	}
	o := v.tokenizer
	lower, given := o.flag("do_lower_case")
	chinese, chineseGiven := o.flag("tokenize_chinese_chars")
	normalizer := component{
		"type": "BertNormalizer", "clean_text": true, "lowercase": lower || !given,
		"handle_chinese_chars": chinese || !chineseGiven,
	}
	if accents, given := o.flag("strip_accents"); given {
		normalizer["strip_accents"] = accents
	}
	if *o.fault != nil {
		return nil, *o.fault
	}
	unk := cmp.Or(v.unk, "[UNK]")
	t, err := (&document{
		Normalizer: normalizer, PreTokenizer: component{"type": "BertPreTokenizer"},
		Decoder: component{"type": "WordPiece", "prefix": "##", "cleanup": true},
		Model:   component{"type": "WordPiece", "vocab": ids, "unk_token": unk, "continuing_subword_prefix": "##", "max_input_chars_per_word": 100},
	}).load()
	if err != nil {
		return nil, err
	}
	cls, sep := cmp.Or(o.token("cls_token"), "[CLS]"), cmp.Or(o.token("sep_token"), "[SEP]")
	v.extra = append(v.extra, "[PAD]", unk, cls, sep, "[MASK]")
	return t.WithAround(idsOf(t, cls), idsOf(t, sep)), nil
}

// withPrefixSpace returns a tokenizer.json whose ByteLevel pre-tokenizer, if it
// has one at the top, puts a space before a text or does not.
func withPrefixSpace(text []byte, prefix bool) []byte {
	d := jsontext.NewDecoder(bytes.NewBuffer(text), lenient)
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return text
	}
	for d.PeekKind() == '"' {
		name, err := d.ReadToken()
		if err != nil {
			return text
		}
		if name.String() != "pre_tokenizer" {
			if d.SkipValue() != nil {
				return text
			}
			continue
		}
		value, err := d.ReadValue()
		end := int(d.InputOffset())
		var c component
		if err != nil || json.Unmarshal(value, &c, lenient) != nil || c["type"] != "ByteLevel" || c["add_prefix_space"] == prefix {
			return text
		}
		start := end - len(value)
		c["add_prefix_space"] = prefix
		changed, err := json.Marshal(c)
		if err != nil {
			return text
		}
		return bytes.Join([][]byte{text[:start], changed, text[end:]}, nil)
	}
	return text
}
