package main

import (
	"fmt"
	"log/slog"
	"math"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/prompt"
)

// served are the models that attached engines serve: their files, each read once.
type served struct {
	settings modelSettings
	parsers  prompt.Parsers
	template string
	log      *slog.Logger

	mu     sync.Mutex
	byPath map[string]*prompt.Model
	owner  string // the model that --model-path was read for
}

func newServed(s modelSettings, log *slog.Logger) (*served, error) {
	parsers, err := s.parsers()
	if err != nil {
		return nil, err
	}
	template, err := s.template()
	if err != nil {
		return nil, err
	}
	if _, ok := boxed[s.Path]; s.Path != "" && !ok {
		if s.Path, err = attach.Locate(s.Path); err != nil {
			return nil, fmt.Errorf("--model-path: %w", err)
		}
		if _, err := prompt.OpenSnapshot(s.Path); err != nil {
			return nil, fmt.Errorf("--model-path: %s: %w", s.Path, err)
		}
	}
	return &served{settings: s, parsers: parsers, template: template, log: log, byPath: map[string]*prompt.Model{}}, nil
}

// check says whether the model of a card can be served from here. It reads the
// files, so that no request has to wait for that, and notes what they are: workers
// of one model must have the same.
func (m *served) check(card *engine.Card) error {
	if !card.Accept(engine.InputTokens) && !card.Accept(engine.InputText) {
		return nil // the server has template and tokenizer
	}
	model, err := m.forCard(card)
	if err != nil {
		return err
	}
	card.EOS = model.EOS
	complete(card, model)
	sign(card.Files, model)
	return nil
}

// complete gives a card whose server does not tell how long prompt and answer may be
// what the model was made for.
func complete(card *engine.Card, model *prompt.Model) {
	if card.ContextLength == 0 {
		card.ContextLength = uint32(min(model.ContextLength, math.MaxUint32))
	}
}

// sign notes in a card's files what was loaded from them.
func sign(files []engine.File, model *prompt.Model) {
	for i := range files {
		switch files[i].Kind {
		case "tokenizer":
			files[i].SHA256 = model.Files.VocabularySum
		case "chat_template":
			files[i].SHA256 = model.Files.TemplateSum
		}
	}
}

// forCard returns the model of a card, with the limits of its engine. What could
// not be read is tried anew with the next call.
func (m *served) forCard(card *engine.Card) (*prompt.Model, error) {
	if len(card.Files) == 0 {
		return nil, fmt.Errorf("the files of model %s are not on this machine, or the server does not tell where: want --model-path PATH, or model_path=PATH in its --engine", card.Model)
	}
	path := strings.TrimPrefix(card.Files[0].URI, "file://")
	m.mu.Lock()
	defer m.mu.Unlock()
	if path == m.settings.Path {
		if m.owner != "" && m.owner != card.Model {
			return nil, fmt.Errorf("--model-path: %s: was read for model %s, and this engine serves %s: want model_path=PATH in the --engine of each", path, m.owner, card.Model)
		}
		m.owner = card.Model
	}
	model := m.byPath[path]
	if model == nil {
		begin := time.Now()
		var err error
		if model, err = m.load(path); err != nil {
			return nil, fmt.Errorf("model %s: %w", card.Model, err)
		}
		m.settings.equip(model)
		m.settings.tell(m.log, card.Model, model, time.Since(begin))
		m.byPath[path] = model
	}
	return limited(model, card), nil
}

// load reads the files of a model.
func (m *served) load(path string) (*prompt.Model, error) {
	if in, ok := boxed[path]; ok {
		return prompt.Load(in.file, m.parsers)
	}
	at, err := attach.Locate(path)
	if err != nil {
		return nil, err
	}
	snapshot, err := prompt.OpenSnapshot(at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	snapshot.ChatTemplate = m.template
	model, err := snapshot.Load(m.parsers)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return model, nil
}
