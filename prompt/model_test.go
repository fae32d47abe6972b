package prompt_test

import (
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/prompt"
)

// snapshot is a model's folder: the demo's tokenizer, and these files.
type snapshot map[string]string

func (s snapshot) read(name string) ([]byte, error) {
	if text, ok := s[name]; ok {
		return []byte(text), nil
	}
	if name == "tokenizer.json" {
		return demo.File(name)
	}
	return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
}

func TestLoad(t *testing.T) {
	for name, tc := range map[string]struct {
		files     snapshot
		context   int
		newTokens int
		eos       []uint32
		template  bool
	}{
		"the tokenizer alone":          {files: snapshot{}},
		"context of the configuration": {files: snapshot{"config.json": `{"max_position_embeddings": 4096}`, "tokenizer_config.json": `{"model_max_length": 512}`}, context: 4096},
		"context of the text part":     {files: snapshot{"config.json": `{"text_config": {"max_position_embeddings": 4096}}`}, context: 4096},
		"context of the tokenizer":     {files: snapshot{"tokenizer_config.json": `{"model_max_length": 512}`}, context: 512},
		"no limit":                     {files: snapshot{"tokenizer_config.json": `{"model_max_length": 1000000000000000019884624838656}`}},
		"generation settings":          {files: snapshot{"generation_config.json": `{"eos_token_id": [9, 3], "max_new_tokens": 77}`, "config.json": `{"eos_token_id": 5}`}, eos: []uint32{3, 9}, newTokens: 77},
		"end of the configuration":     {files: snapshot{"config.json": `{"eos_token_id": 5}`, "generation_config.json": `{"eos_token_id": null}`}, eos: []uint32{5}},
		"end by name, once":            {files: snapshot{"tokenizer_config.json": `{"eos_token": {"content": "<|im_end|>"}}`, "config.json": `{"eos_token_id": 8185}`}, eos: []uint32{8185}},
		"a template in the tokenizer":  {files: snapshot{"tokenizer_config.json": `{"chat_template": "x"}`}, template: true},
		"a list of templates":          {files: snapshot{"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "r"}, {"name": "default", "template": "x"}]}`}, template: true},
		"a template file in JSON":      {files: snapshot{"chat_template.json": `{"chat_template": "x"}`, "tokenizer_config.json": `{"chat_template": "y"}`}, template: true},
		"a template file":              {files: snapshot{"chat_template.jinja": "x", "chat_template.json": `{"chat_template": "y"}`, "tokenizer_config.json": `{"chat_template": "z"}`}, template: true},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := prompt.Load(tc.files.read, prompt.Parsers{})
			if err != nil {
				t.Fatal(err)
			}
			if m.ContextLength != tc.context || m.MaxNewTokens != tc.newTokens || !slices.Equal(m.EOS, tc.eos) {
				t.Errorf("context %d, new tokens %d, end %v; want %d, %d, %v", m.ContextLength, m.MaxNewTokens, m.EOS, tc.context, tc.newTokens, tc.eos)
			}
			if (m.Template != nil) != tc.template {
				t.Fatalf("template %v, want one: %v", m.Template, tc.template)
			}
			if !tc.template {
				return
			}
			if p, err := m.Build(ask("hello"), nil); err != nil || m.Tokenizer.Decode(p.IDs, false) != "x" {
				t.Errorf("the wrong template: %+v, %v", p, err)
			}
		})
	}
}

// A file that is broken is named.
func TestLoadErrors(t *testing.T) {
	for want, files := range map[string]snapshot{
		"tokenizer.json":         {"tokenizer.json": "{"},
		"tokenizer_config.json":  {"tokenizer_config.json": "["},
		"generation_config.json": {"generation_config.json": `{"eos_token_id": "x"}`},
		"config.json":            {"config.json": `{"max_position_embeddings": "x"}`},
		"chat_template.json":     {"chat_template.json": "{"},
		"chat_template: want":    {"tokenizer_config.json": `{"chat_template": 7}`},
		`named "default"`:        {"tokenizer_config.json": `{"chat_template": [{"name": "rag", "template": "r"}]}`},
		"chat template":          {"chat_template.jinja": "{% if %}"},
	} {
		if _, err := prompt.Load(files.read, prompt.Parsers{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want something with %q", files, err, want)
		}
	}
	if _, err := prompt.Load(snapshot{}.read, prompt.Parsers{Tool: "nonsense"}); err == nil || !strings.Contains(err.Error(), "nonsense") {
		t.Errorf("an unknown parser: %v", err)
	}
}
