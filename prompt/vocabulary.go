package prompt

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynago/dynago/tokenizer"
)

// vocabularyNames is what the vocabulary of a model is sought under, for messages.
const vocabularyNames = "tokenizer.json, tokenizer.model, spiece.model, tekken.json, tiktoken.model, *.tiktoken, vocab.json with merges.txt, vocab.txt, *.gguf"

// vocabularies are the files that hold a vocabulary, the best first: what
// tokenizer.json says nobody has to know. A name that begins with a star is an
// ending, by which a folder must have one file only.
var vocabularies = []struct {
	name string
	load func(*vocabulary) (*tokenizer.Tokenizer, error)
}{
	{"tokenizer.json", (*vocabulary).loadJSON},
	{"tokenizer.model", (*vocabulary).loadModel},
	{"spiece.model", (*vocabulary).loadSentencePiece},
	{"tekken.json", (*vocabulary).loadTekken},
	{"tiktoken.model", (*vocabulary).loadRanks},
	{"*.tiktoken", (*vocabulary).loadRanks},
	{"vocab.json", (*vocabulary).loadMerges},
	{"vocab.txt", (*vocabulary).loadWords},
}

// foreign are vocabularies that are known and not read.
var foreign = map[string]string{
	"sentencepiece.bpe.model":  "the SentencePiece models of XLM-R and NLLB, whose ids are shifted, are not read",
	"rwkv_vocab_v20230424.txt": "RWKV's vocabulary is not read",
}

// vocabulary is a file with a vocabulary, and what the other files say.
type vocabulary struct {
	*settings
	snapshot *Snapshot
	name     string // of the file
	text     []byte
	kind     string // what the file was found to be
}

// isVocabulary tells whether a file of this name can hold a vocabulary.
func isVocabulary(name string) bool { return loaderOf(name) != nil || isGGUF(name) }

func isGGUF(name string) bool { return strings.HasSuffix(name, ".gguf") }

func loaderOf(name string) func(*vocabulary) (*tokenizer.Tokenizer, error) {
	for _, v := range vocabularies {
		if ok, _ := filepath.Match(v.name, name); ok {
			return v.load
		}
	}
	return nil
}

// vocabulary finds the vocabulary of a snapshot and makes a tokenizer of it.
func (s *Snapshot) vocabulary(c *settings) (*vocabulary, *tokenizer.Tokenizer, error) {
	v := &vocabulary{settings: c, snapshot: s}
	if err := v.find(); err != nil {
		return nil, nil, err
	}
	v.kind = v.name
	t, err := loaderOf(v.name)(v)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", v.name, plainly(v.text, err))
	}
	return v, v.completed(t), nil
}

// find reads the vocabulary that the path names, or else the best that is there.
func (v *vocabulary) find() error {
	if v.snapshot.file != "" {
		return v.open(v.snapshot.file)
	}
	for _, candidate := range vocabularies {
		name := candidate.name
		if strings.HasPrefix(name, "*") {
			matching := v.snapshot.ending(name[1:])
			if len(matching) > 1 {
				return fmt.Errorf("%s: want one, or the path of the one to take", strings.Join(matching, ", "))
			}
			if len(matching) == 0 {
				continue
			}
			name = matching[0]
		}
		if err := v.open(name); !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	for _, name := range v.snapshot.names {
		if why, ok := foreign[name]; ok {
			return fmt.Errorf("%s: %s: want tokenizer.json, as save_pretrained of transformers writes it", name, why)
		}
	}
	return fmt.Errorf("no vocabulary: want one of %s%s", vocabularyNames, v.snapshot.found())
}

func (v *vocabulary) open(name string) error {
	text, err := v.snapshot.read(name)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	v.name, v.text = name, text
	return nil
}

// ending returns the files of the folder whose names end so.
func (s *Snapshot) ending(with string) []string {
	return slices.DeleteFunc(slices.Clone(s.names), func(name string) bool { return !strings.HasSuffix(name, with) })
}

// completed is a tokenizer with what the other files add to it.
func (v *vocabulary) completed(t *tokenizer.Tokenizer) *tokenizer.Tokenizer {
	tokens := slices.Clone(v.added)
	// A special token that no file gives an id has none that a model knows.
	for _, content := range append([]string{v.bos, v.eos, v.unk}, v.extra...) {
		if id, ok := t.ID(content); ok && content != "" {
			tokens = append(tokens, tokenizer.AddedToken{ID: id, Content: content, Special: true})
		}
	}
	if len(tokens) > 0 {
		t = t.With(tokens...)
	}
	// The classes that lay these tokens around a text by their own settings, and
	// not by tokenizer.json.
	switch v.class {
	case "LlamaTokenizer", "CodeLlamaTokenizer", "GemmaTokenizer", "CohereTokenizer":
		var before, after []uint32
		if id, ok := t.ID(v.bos); ok && v.bos != "" && (v.addBOS || !v.addBOSGiven) {
			before = []uint32{id}
		}
		if id, ok := t.ID(v.eos); ok && v.eos != "" && v.addEOS {
			after = []uint32{id}
		}
		t = t.WithAround(before, after)
	}
	return t
}

func (v *vocabulary) loadJSON() (*tokenizer.Tokenizer, error) {
	text := v.text
	// GPT-2's class obeys this setting against the file.
	if v.prefix {
		text = withPrefixSpace(text, v.addPrefixSpace)
	}
	return tokenizer.Load(text)
}

// loadModel reads tokenizer.model, under which name there are two formats.
func (v *vocabulary) loadModel() (*tokenizer.Tokenizer, error) {
	if isRanks(v.text) {
		return v.loadRanks()
	}
	return v.loadSentencePiece()
}

// loadSentencePiece reads the model that the SentencePiece library has trained.
// It does not tell what is put around a text: that the class does.
func (v *vocabulary) loadSentencePiece() (*tokenizer.Tokenizer, error) {
	v.kind = "SentencePiece"
	t, err := tokenizer.LoadSentencePiece(v.text)
	if err != nil {
		return nil, err
	}
	v.class = cmp.Or(v.class, classOfPieces[v.modelType])
	// Without any word of the model, its control symbols tell of which kind it is.
	if v.class == "" && v.modelType == "" {
		switch {
		case isSpecial(t, "<s>") && isSpecial(t, "</s>"):
			v.class = "LlamaTokenizer"
		case isSpecial(t, "<bos>") && isSpecial(t, "<eos>"):
			v.class = "GemmaTokenizer"
		case isSpecial(t, "</s>"):
			v.class = "T5Tokenizer"
		}
	}
	if legacy, given := v.tokenizer.flag("legacy"); given && !legacy {
		t = t.WithFirstBlank()
	}
	switch v.class {
	case "LlamaTokenizer", "CodeLlamaTokenizer":
		v.bos, v.eos, v.unk = cmp.Or(v.bos, "<s>"), cmp.Or(v.eos, "</s>"), cmp.Or(v.unk, "<unk>")
	case "GemmaTokenizer":
		v.bos, v.eos, v.unk = cmp.Or(v.bos, "<bos>"), cmp.Or(v.eos, "<eos>"), cmp.Or(v.unk, "<unk>")
	case "T5Tokenizer":
		v.eos, v.unk = cmp.Or(v.eos, "</s>"), cmp.Or(v.unk, "<unk>")
		t = t.WithAround(nil, idsOf(t, v.eos))
	default:
		return nil, fmt.Errorf("what is put around a text is known for the classes LlamaTokenizer, CodeLlamaTokenizer, GemmaTokenizer and T5Tokenizer, and not for tokenizer_class %q with model_type %q: want tokenizer.json, as save_pretrained of transformers writes it", v.class, v.modelType)
	}
	return t, nil
}

// isSpecial tells whether a model has a special token of this content.
func isSpecial(t *tokenizer.Tokenizer, content string) bool {
	id, ok := t.ID(content)
	return ok && t.IsSpecial(id)
}

// classOfPieces tells the tokenizer of a model with a SentencePiece model.
var classOfPieces = map[string]string{
	"llama": "LlamaTokenizer", "mistral": "LlamaTokenizer", "mixtral": "LlamaTokenizer",
	"gemma": "GemmaTokenizer", "gemma2": "GemmaTokenizer", "gemma3": "GemmaTokenizer", "gemma3_text": "GemmaTokenizer",
	"t5": "T5Tokenizer", "mt5": "T5Tokenizer", "umt5": "T5Tokenizer",
}
