package tokenizer

import (
	"fmt"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// maxID bounds ids, so that a broken file cannot ask for memory without end. The
// largest vocabularies have less than a tenth of it.
const maxID = 1 << 22

// Load reads a tokenizer.json. The tokenizer does not keep the bytes. An error
// names the place in the file, and of a component that is not supported its
// type. Truncation, padding and dropout are for training and ignored.
func Load(tokenizerJSON []byte) (_ *Tokenizer, err error) {
	defer catchPattern(&err)
	var file struct {
		AddedTokens   []AddedToken   `json:"added_tokens"`
		Normalizer    jsontext.Value `json:"normalizer"`
		PreTokenizer  jsontext.Value `json:"pre_tokenizer"`
		PostProcessor jsontext.Value `json:"post_processor"`
		Decoder       jsontext.Value `json:"decoder"`
		Model         modelFile      `json:"model"`
	}
	if err := json.Unmarshal(tokenizerJSON, &file, jsontext.AllowDuplicateNames(true)); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	for path, v := range map[string]jsontext.Value{
		"normalizer": file.Normalizer, "pre_tokenizer": file.PreTokenizer, "post_processor": file.PostProcessor, "decoder": file.Decoder,
	} {
		if err := checkDepth(path, v); err != nil {
			return nil, fmt.Errorf("tokenizer: %w", err)
		}
	}
	t := &Tokenizer{added: file.AddedTokens, scratch: &sync.Pool{New: func() any { return new(scratch) }}}
	if t.normalize, err = loadNormalizer("normalizer", file.Normalizer); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if err := checkGrowth("normalizer", file.Normalizer); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	pre, err := loadPreTokenizer(file.PreTokenizer)
	if err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	// What the reference implementation takes for the first piece is then none.
	if pre.first && len(t.normalized(" x")) == len(t.normalized("x")) {
		return nil, fmt.Errorf("tokenizer: pre_tokenizer: prepend_scheme %q after a normalizer that strips the start of a text is not supported", prependFirst)
	}
	if pre.byteLevel && !(file.Model.bytewise() && isByteLevel(file.Decoder)) {
		pre.spellBytes()
	}
	t.setStages(pre)
	if t.model, t.vocab, err = file.Model.load(pre.byteLevel); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if t.before, t.after, err = loadPostProcessor("post_processor", file.PostProcessor); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if t.chain, err = loadDecoder(file.Decoder, pre.byteLevel); err != nil {
		return nil, fmt.Errorf("tokenizer: %w", err)
	}
	if c := t.chain; c != nil && c.staged {
		t.joining = func(t *Tokenizer) joining { return &stagedJoiner{t: t, make: c.stages} }
	}
	taken := make(map[uint32]string, len(t.added))
	for i := range t.added {
		a := &t.added[i]
		if a.ID >= maxID {
			return nil, fmt.Errorf("tokenizer: added_tokens[%d].id: %d is not below %d", i, a.ID, maxID)
		}
		// A token that the model has too keeps the model's id.
		id, own := t.vocab.id(a.Content)
		if own {
			a.ID = id
		}
		if other, ok := taken[a.ID]; ok && other != a.Content || !own && t.vocab.known(a.ID) {
			return nil, fmt.Errorf("tokenizer: added_tokens[%d].id: %d is taken by another token", i, a.ID)
		}
		taken[a.ID] = a.Content
	}
	t.setAdded()
	return t, nil
}

func (t *Tokenizer) setStages(p preTokenizer) {
	t.split, t.later, t.regexps = p.stages, p.later, p.regexps
	if len(p.stages) == 1 {
		t.scan, _ = p.stages[0].(scanner)
	}
}

// component is what every component of the pipeline has.
type component struct {
	Type string `json:"type"`
}

func unsupported(path, kind string) error {
	return fmt.Errorf("%s.type: %q is not supported", path, kind)
}

// isNull tells whether an optional component is absent.
func isNull(v jsontext.Value) bool { return len(v) == 0 || v.Kind() == 'n' }

// read decodes the component at path.
func read(path string, v jsontext.Value, into any) error {
	if err := json.Unmarshal(v, into, jsontext.AllowDuplicateNames(true)); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// typeOf returns the type of the component at path.
func typeOf(path string, v jsontext.Value) (string, error) {
	var c component
	err := read(path, v, &c)
	return c.Type, err
}

// loadPostProcessor returns the ids before and after a single text.
func loadPostProcessor(path string, v jsontext.Value) (before, after []uint32, err error) {
	if isNull(v) {
		return nil, nil, nil
	}
	kind, err := typeOf(path, v)
	if err != nil {
		return nil, nil, err
	}
	switch kind {
	case "ByteLevel": // moves offsets only
		return nil, nil, nil
	case "BertProcessing", "RobertaProcessing":
		return loadBertProcessor(path, v)
	case "TemplateProcessing":
		return loadTemplate(path, v)
	case "Sequence":
		var seq struct {
			Processors []jsontext.Value `json:"processors"`
		}
		if err := read(path, v, &seq); err != nil {
			return nil, nil, err
		}
		for i, p := range seq.Processors {
			path := fmt.Sprintf("%s.processors[%d]", path, i)
			b, a, err := loadPostProcessor(path, p)
			if err != nil {
				return nil, nil, err
			}
			if len(b)+len(a) > 0 && len(before)+len(after) > 0 {
				return nil, nil, fmt.Errorf("%s: a second template is not supported", path)
			}
			before, after = append(before, b...), append(after, a...)
		}
		return before, after, nil
	}
	return nil, nil, unsupported(path, kind)
}

func loadTemplate(path string, v jsontext.Value) (before, after []uint32, err error) {
	var template struct {
		Single []struct {
			SpecialToken *struct {
				ID string `json:"id"`
			}
			Sequence *struct {
				ID string `json:"id"`
			}
		} `json:"single"`
		SpecialTokens map[string]struct {
			IDs []uint32 `json:"ids"`
		} `json:"special_tokens"`
	}
	if err := read(path, v, &template); err != nil {
		return nil, nil, err
	}
	texts := 0
	for i, part := range template.Single {
		switch {
		case part.Sequence != nil && part.Sequence.ID == "A":
			texts++
		case part.SpecialToken != nil:
			token, ok := template.SpecialTokens[part.SpecialToken.ID]
			if !ok {
				return nil, nil, fmt.Errorf("%s.single[%d]: %q is not in special_tokens", path, i, part.SpecialToken.ID)
			}
			if texts == 0 {
				before = append(before, token.IDs...)
			} else {
				after = append(after, token.IDs...)
			}
		default:
			return nil, nil, fmt.Errorf("%s.single[%d]: must be a special token or sequence A", path, i)
		}
	}
	if texts != 1 {
		return nil, nil, fmt.Errorf("%s.single: must hold sequence A once", path)
	}
	return before, after, nil
}
