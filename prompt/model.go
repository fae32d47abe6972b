// Package prompt stands between conversations and tokens: it turns a
// chat.Request into the ids that an engine is given, and an engine's ids back
// into text. Template choice, token data, context limits and stop conditions
// are decided here and nowhere else, so that every engine behaves the same.
//
// The one idea: text and ids are never separated. An id travels with the piece
// of text that releases its last byte, through every stage that holds text
// back, and what is counted, reported or replayed is therefore exact.
package prompt

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/tokenizer"
)

// Model is what the prompt stage knows about one model. It is immutable and
// safe for concurrent use.
type Model struct {
	Tokenizer *tokenizer.Tokenizer
	// Template is nil for a model without a chat template; it completes, and
	// does not chat.
	Template *chattemplate.Template
	// Family is the grammar of the model's output.
	Family parser.Family
	// EOS are the ids that end a turn; they stay hidden from clients.
	EOS []uint32
	// VocabularySize is one more than the largest id; ids below may have gaps.
	VocabularySize int
	// ContextLength is how many tokens prompt and answer may have together; 0
	// is unknown, and then nothing is checked.
	ContextLength int
	// MaxNewTokens is the model's own default for the length of an answer; 0 is
	// none.
	MaxNewTokens int
	// Sampling are the model's own defaults for what requests leave open: temperature,
	// top-p, top-k, min-p and repetition penalty. See [Model.Defaults].
	Sampling engine.Sampling
	// AllowSpecialInContent lets control tokens that clients spell in messages,
	// results and tools have their effect, as is common elsewhere. Without it
	// they are text like any other.
	AllowSpecialInContent bool
	// Cache remembers the ids of messages; nil remembers nothing.
	Cache *Cache
	// Turns remembers the ids of answers; nil remembers nothing.
	Turns *Turns
	// ReplayRaw puts the ids of a remembered answer into the prompt also where
	// the template shows the answer in another way than the model wrote it, such
	// as without its thoughts. The client must have changed nothing of it.
	ReplayRaw bool

	// Files tells where what is above came from.
	Files Files

	places  *settledPlaces
	longest int // token of the vocabulary, in bytes
	encoder *encoder
}

// Files are the sources of a model, for those who want to know what serves.
type Files struct {
	Vocabulary string // the file's name
	Kind       string // what the file was found to be, as "tiktoken ranks of Kimi"
	Template   string // the file with the chat template; "" if there is none
	// VocabularySum and TemplateSum name what was loaded, wherever it came from: two
	// models with the same ones make the same prompts. TemplateSum is "" if there is
	// no template.
	VocabularySum, TemplateSum string
}

// Parsers name the families of tool calls and of reasoning: empty or "auto" is
// what the chat template shows, "none" is plain text.
type Parsers struct{ Tool, Reasoning string }

// Load reads a model from files by name, as they are in the folder of a Hugging
// Face snapshot; see [OpenSnapshot] for a folder itself. The function read returns
// a file, or an error that is fs.ErrNotExist for one that the model does not have.
func Load(read func(name string) ([]byte, error), parsers Parsers) (*Model, error) {
	return (&Snapshot{read: read}).Load(parsers)
}

// Load reads the model. An error names the file, the place in it, what is wrong
// there and what would be right.
func (s *Snapshot) Load(parsers Parsers) (_ *Model, err error) {
	// Loading tries what tokens and texts become.
	defer func() {
		if e := patternError(recover()); e != nil {
			err = e
		}
	}()
	c, t, files, err := s.parts()
	if err != nil {
		return nil, err
	}
	m := &Model{
		Tokenizer: t, Files: files,
		ContextLength: c.contextLength, MaxNewTokens: c.maxNewTokens, Sampling: c.sampling,
		EOS: c.eosIDs, Cache: NewCache(DefaultCacheBytes), Turns: NewTurns(DefaultTurnBytes), places: new(settledPlaces),
	}
	if m.encoder, err = newEncoder(t); err != nil {
		return nil, fmt.Errorf("%s: %w", files.Vocabulary, err)
	}
	sum, row := sha256.New(), []byte(nil)
	for id, left := uint32(0), t.Size(); left > 0 && id < maxID; id++ {
		if b := t.Bytes(id); b != nil {
			m.longest, m.VocabularySize = max(m.longest, len(b)), int(id)+1
			row = binary.BigEndian.AppendUint64(row[:0], uint64(id)<<32|uint64(len(b)))
			row = append(row, b...)
			row = strconv.AppendBool(row, t.IsSpecial(id))
			sum.Write(row)
			left--
		}
	}
	m.Files.VocabularySum = hex.EncodeToString(sum.Sum(nil))
	m.Files.TemplateSum = sumOf(c.templates)
	if id, ok := t.ID(c.eos); ok && c.eos != "" {
		m.EOS = append(m.EOS, id)
	}
	slices.Sort(m.EOS)
	m.EOS = slices.Compact(m.EOS)
	cfg := chattemplate.Config{BOS: c.bos, EOS: c.eos, UNK: c.unk}
	if len(c.templates) > 0 {
		m.Template, err = chattemplate.CompileNamed(c.templates, cfg)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", files.Template, err)
		}
	}
	shown := m.withHarmony(c.templates["default"]+c.templates[toolUse], cfg)
	family, err := parser.Detect(shown, m.isToken).With(parsers.Tool, parsers.Reasoning)
	m.Family = family.Bind(m.special)
	return m, err
}

// sumOf names the texts of chat templates, which have names.
func sumOf(templates map[string]string) string {
	if len(templates) == 0 {
		return ""
	}
	sum := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		fmt.Fprintf(sum, "%q %q\n", name, templates[name])
	}
	return hex.EncodeToString(sum.Sum(nil))
}

// special returns the id of a text that is one special token.
func (m *Model) special(text string) (uint32, bool) {
	id, ok := m.Tokenizer.ID(text)
	return id, ok && m.Tokenizer.IsSpecial(id)
}

// isToken says whether a text is one token.
func (m *Model) isToken(text string) bool {
	_, ok := m.Tokenizer.ID(text)
	return ok
}

// parts reads the files: of a GGUF file, that one alone.
func (s *Snapshot) parts() (*settings, *tokenizer.Tokenizer, Files, error) {
	file, err := s.ggufFile()
	if err != nil {
		return nil, nil, Files{}, err
	}
	if file == "" {
		c, err := s.settings()
		if err != nil {
			return nil, nil, Files{}, err
		}
		v, t, err := s.vocabulary(c)
		if err != nil {
			return nil, nil, Files{}, err
		}
		return c, t, Files{Vocabulary: v.name, Kind: v.kind, Template: c.templateFile}, nil
	}
	g, err := s.readGGUF(file)
	if err != nil {
		return nil, nil, Files{}, fmt.Errorf("%s: %w", file, err)
	}
	c, t, kind, err := loadGGUF(g)
	if err != nil {
		return nil, nil, Files{}, fmt.Errorf("%s: %w", file, plainly(nil, err))
	}
	files := Files{Vocabulary: file, Kind: kind}
	if len(c.templates) > 0 {
		files.Template = file
	}
	if s.ChatTemplate != "" {
		c.templates, files.Template = map[string]string{"default": s.ChatTemplate}, "chat template"
	}
	return c, t, files, nil
}
