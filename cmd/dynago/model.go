package main

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/internal/demo"
	tinymodel "github.com/dynago/dynago/internal/tiny"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/prompt"
)

// Where the files of models are that are in this program: of the demo, which has a
// tokenizer and a template, and of the one that has weights too.
const (
	builtin     = "builtin:demo"
	builtinTiny = "builtin:tiny"
)

// boxed are their names and files, by where they are.
var boxed = map[string]struct {
	name string
	file func(name string) ([]byte, error)
}{builtin: {demo.Name, demo.File}, builtinTiny: {tinymodel.Name, tinymodel.File}}

// inside are the models whose files are in this program, for servers that imitate an
// engine and have nothing but the demo model's name.
var inside = map[string]string{demo.Name: builtin}

// modelFiles are the files of the model that is served. They are read once,
// for the mock engines and for the pipeline alike.
type modelFiles struct {
	name, uri string
	weights   string // the folder, or the one file that has everything; "" in this program
	load      func() (*prompt.Model, error)
}

// newModelFiles finds the files; where nothing is said they are those in this program of
// the engine that is to serve them. Nothing is read yet.
func newModelFiles(s modelSettings, log *slog.Logger) (*modelFiles, error) {
	if s.Demo == demoTiny {
		return filesOr(s, builtinTiny, log)
	}
	return filesOr(s, builtin, log)
}

// filesOr is newModelFiles with another model of this program if nothing is said.
func filesOr(s modelSettings, in string, log *slog.Logger) (*modelFiles, error) {
	if _, ok := boxed[s.Path]; ok {
		in, s.Path = s.Path, ""
	}
	parsers, err := s.parsers()
	if err != nil {
		return nil, err
	}
	m := &modelFiles{name: s.Name, uri: in}
	what := "the model " + boxed[in].name
	load := func(p prompt.Parsers) (*prompt.Model, error) { return prompt.Load(boxed[in].file, p) }
	template, err := s.template()
	if err != nil {
		return nil, err
	}
	switch {
	case s.Path != "":
		at, err := attach.Locate(s.Path)
		if err != nil {
			return nil, fmt.Errorf("--model-path: %w", err)
		}
		snapshot, err := prompt.OpenSnapshot(at)
		if err != nil {
			return nil, fmt.Errorf("--model-path: %s: %w", s.Path, err)
		}
		snapshot.ChatTemplate = template
		what = "--model-path: " + s.Path
		m.uri, m.weights = "file://"+filepath.ToSlash(snapshot.Dir()), snapshot.Dir()
		if strings.HasSuffix(at, ".gguf") {
			m.weights = at
		}
		m.name = cmp.Or(m.name, snapshot.Name())
		load = snapshot.Load
	case template != "":
		return nil, errors.New("--chat-template: want a --model-path with it: the model in this program has its own")
	default:
		m.name = cmp.Or(m.name, boxed[in].name)
	}
	if strings.TrimSpace(m.name) == "" {
		return nil, errors.New("--model-name: want a name that is not blank")
	}
	m.load = sync.OnceValues(func() (*prompt.Model, error) {
		begin := time.Now()
		model, err := load(parsers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		s.equip(model)
		s.tell(log, m.name, model, time.Since(begin))
		return model, nil
	})
	return m, nil
}

// parsers are those that are asked for, which exist.
func (s *modelSettings) parsers() (prompt.Parsers, error) {
	for flag, names := range map[string][2]string{
		"--dyn-tool-call-parser": {s.ToolParser, ""}, "--dyn-reasoning-parser": {"", s.ReasoningParser},
	} {
		if _, err := (parser.Family{}).With(names[0], names[1]); err != nil {
			return prompt.Parsers{}, fmt.Errorf("%s: %w", flag, err)
		}
	}
	if _, err := (parser.Family{}).With(s.ToolParser, s.ReasoningParser); err != nil {
		return prompt.Parsers{}, fmt.Errorf("--dyn-tool-call-parser and --dyn-reasoning-parser: %w", err)
	}
	return prompt.Parsers{Tool: s.ToolParser, Reasoning: s.ReasoningParser}, nil
}

// equip gives a model that was loaded what settings say of it.
func (s *modelSettings) equip(model *prompt.Model) {
	model.AllowSpecialInContent = s.AllowSpecial
	model.Cache = nil
	if s.CacheBytes > 0 {
		model.Cache = prompt.NewCache(s.CacheBytes)
	}
	model.Turns, model.ReplayRaw = nil, s.ReplayRaw
	if s.TurnCacheBytes > 0 {
		model.Turns = prompt.NewTurns(s.TurnCacheBytes)
	}
}

// defaultThinking returns whether models think by default; nil is their own.
func (s *modelSettings) defaultThinking() *bool {
	if s.DefaultThinking == nil {
		return nil
	}
	return new(*s.DefaultThinking == "enabled")
}

// aliases reads the further names of models.
func (s *modelSettings) aliases() ([]frontend.Alias, error) {
	var list []frontend.Alias
	for _, text := range s.Aliases {
		a, err := frontend.ParseAlias(text)
		if err != nil {
			return nil, fmt.Errorf("--model-alias: %w", err)
		}
		list = append(list, a)
	}
	return list, nil
}

// template reads the chat template that replaces the model's own.
func (s *modelSettings) template() (string, error) {
	if s.ChatTemplate == "" {
		return "", nil
	}
	info, err := os.Stat(s.ChatTemplate)
	if err == nil && (!info.Mode().IsRegular() || info.Size() == 0 || info.Size() > maxTemplateBytes) {
		err = fmt.Errorf("want a file of 1 to %d bytes", maxTemplateBytes)
	}
	if err != nil {
		return "", fmt.Errorf("--chat-template: %s: %w", s.ChatTemplate, reason(err))
	}
	text, err := os.ReadFile(s.ChatTemplate)
	if err != nil {
		return "", fmt.Errorf("--chat-template: %s: %w", s.ChatTemplate, reason(err))
	}
	return string(text), nil
}

const maxTemplateBytes = 16 << 20

// reason is an error about a file without the file's name.
func reason(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// tell logs what was loaded.
func (s *modelSettings) tell(log *slog.Logger, name string, model *prompt.Model, took time.Duration) {
	template := model.Files.Template
	switch {
	case model.Template == nil:
		template = "none"
	case s.ChatTemplate != "":
		template = s.ChatTemplate
	case template == "":
		template = "built in"
	}
	context := "unknown"
	if n := model.ContextLength; n > 0 {
		context = strconv.Itoa(n)
	}
	log.Info("model loaded", "model", name,
		"tokenizer", model.Files.Kind, "kind", model.Tokenizer.Kind(), "vocabulary", model.Tokenizer.Size(),
		"template", template, "tool_parser", model.Family.ToolParser(), "reasoning_parser", model.Family.ReasoningParser(),
		"context_length", context, "took", took.Round(time.Millisecond))
	for _, pattern := range model.Tokenizer.Regexps() {
		log.Warn("a split pattern is read by the engine of regular expressions, at a twentieth of the usual speed", "pattern", pattern)
	}
	if s.Tokenizer != "default" {
		log.Info("one tokenizer serves, whose ids are those of all others", "asked", s.Tokenizer, "serves", "dynago")
	}
}

// card returns the files as a worker's card names them.
func (m *modelFiles) card() []engine.File {
	return []engine.File{{Kind: "tokenizer", URI: m.uri}, {Kind: "tokenizer_config", URI: m.uri}, {Kind: "chat_template", URI: m.uri}}
}

// forCard returns the model as the pipeline uses it for a card: with the limits
// of the engine that serves it.
func (m *modelFiles) forCard(card *engine.Card) (*prompt.Model, error) {
	model, err := m.load()
	if err != nil {
		return nil, err
	}
	return limited(model, card), nil
}

// limited returns a model with the context length of the engine that serves it.
func limited(model *prompt.Model, card *engine.Card) *prompt.Model {
	m := *model
	if n := int(card.ContextLength); n > 0 {
		m.ContextLength = n
	}
	return &m
}
