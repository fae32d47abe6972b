package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/prompt"
)

// builtin is where the files of the demo model are.
const builtin = "builtin:demo"

// modelFiles are the files of the model that is served. They are read once,
// for the mock engines and for the pipeline alike.
type modelFiles struct {
	name, uri string
	load      func() (*prompt.Model, error)
}

// newModelFiles finds the files. Nothing is read yet.
func newModelFiles(s modelSettings) (*modelFiles, error) {
	for flag, names := range map[string][2]string{
		"--dyn-tool-call-parser": {s.ToolParser, ""}, "--dyn-reasoning-parser": {"", s.ReasoningParser},
	} {
		if _, err := (parser.Family{}).With(names[0], names[1]); err != nil {
			return nil, fmt.Errorf("%s: %w", flag, err)
		}
	}
	m := &modelFiles{name: s.Name, uri: builtin}
	what := "the demo model"
	read := func(name string) ([]byte, error) {
		text, err := demo.File(name)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, fs.ErrNotExist
		}
		return text, err
	}
	if s.Path == "" {
		if m.name == "" {
			m.name = demo.Name
		}
	} else {
		dir, err := filepath.Abs(s.Path)
		if err != nil {
			return nil, fmt.Errorf("--model-path: %w", err)
		}
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return nil, fmt.Errorf("--model-path: %s: want an existing folder with tokenizer.json", s.Path)
		}
		what = "--model-path: " + s.Path
		m.uri = "file://" + filepath.ToSlash(dir)
		if m.name == "" {
			m.name = filepath.Base(dir)
		}
		root := os.DirFS(dir)
		read = func(name string) ([]byte, error) { return fs.ReadFile(root, name) }
	}
	if strings.TrimSpace(m.name) == "" {
		return nil, errors.New("--model-name: want a name that is not blank")
	}
	m.load = sync.OnceValues(func() (*prompt.Model, error) {
		model, err := prompt.Load(read, prompt.Parsers{Tool: s.ToolParser, Reasoning: s.ReasoningParser})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", what, err)
		}
		model.AllowSpecialInContent = s.AllowSpecial
		model.Cache = nil
		if s.CacheBytes > 0 {
			model.Cache = prompt.NewCache(s.CacheBytes)
		}
		model.Turns = nil
		if s.TurnCacheBytes > 0 {
			model.Turns = prompt.NewTurns(s.TurnCacheBytes)
		}
		return model, nil
	})
	return m, nil
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
	limited := *model
	if n := int(card.ContextLength); n > 0 {
		limited.ContextLength = n
	}
	return &limited, nil
}
