package prompt_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/prompt"
)

// load reads a model of these files and the small vocabulary.
func (f folder) load() (*prompt.Model, error) {
	f = f.with("tokenizer.json", tokenizerJSON())
	return prompt.Load(func(name string) ([]byte, error) {
		if text, ok := f[name]; ok {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}, prompt.Parsers{})
}

func TestContextLength(t *testing.T) {
	for config, want := range map[string]int{
		`{"max_position_embeddings":4096,"sliding_window":512}`:                           4096,
		"\ufeff" + `{"n_positions":7}`:                                                    7,
		`{"s":"\" ","a":NaN,"n_positions":8}`:                                             8,
		`{"n_positions":1024}`:                                                            1024,
		`{"max_position_embeddings":-1,"seq_length":99}`:                                  99,
		`{"max_position_embeddings":4096.0}`:                                              4096,
		`{"max_position_embeddings":1e999}`:                                               0,
		`{"max_position_embeddings":null,"text_config":{"max_position_embeddings":8192}}`: 8192,
		`{"text_config":null,"llm_config":{"max_position_embeddings":77}}`:                77,
		`{"max_position_embeddings":40960,"rope_scaling":{"rope_type":"yarn","factor":4.0,"original_max_position_embeddings":32768}}`:                                               131072,
		`{"max_position_embeddings":131072,"rope_scaling":{"type":"yarn","factor":32.0,"original_max_position_embeddings":4096}}`:                                                   131072,
		`{"max_position_embeddings":32768,"rope_scaling":{"type":"yarn","factor":4}}`:                                                                                               131072,
		`{"max_position_embeddings":4096,"rope_scaling":{"type":"linear","factor":2}}`:                                                                                              8192,
		`{"max_position_embeddings":4096,"rope_parameters":{"rope_type":"dynamic","factor":2.5}}`:                                                                                   10240,
		`{"max_position_embeddings":131072,"rope_scaling":{"rope_type":"llama3","factor":8,"original_max_position_embeddings":8192}}`:                                               131072,
		`{"max_position_embeddings":131072,"rope_scaling":{"type":"longrope","long_factor":[1,2],"original_max_position_embeddings":4096}}`:                                         131072,
		`{"text_config":{"max_position_embeddings":32768,"rope_scaling":{"mrope_section":[16,24],"type":"mrope"}},"time_step":[0.0,Infinity,-Infinity,NaN],"s":"NaN \" -Infinity"}`: 32768,
	} {
		m, err := folder{"config.json": config}.load()
		if err != nil {
			t.Errorf("%s: %v", config, err)
		} else if m.ContextLength != want {
			t.Errorf("%s: %d, want %d", config, m.ContextLength, want)
		}
	}
}

func TestEOS(t *testing.T) {
	for name, tc := range map[string]struct {
		files folder
		want  []uint32
	}{
		"of the text part":                      {folder{"config.json": `{"text_config":{"eos_token_id":[7,3]}}`}, []uint32{3, 7}},
		"none that is negative":                 {folder{"config.json": `{"eos_token_id":-1}`}, nil},
		"by name in the older file":             {folder{"special_tokens_map.json": `{"eos_token":{"content":"hello"}}`}, []uint32{261}},
		"by name":                               {folder{"tokenizer_config.json": `{"eos_token":"!"}`, "special_tokens_map.json": `{"eos_token":"?"}`}, []uint32{'!'}},
		"by name and by number":                 {folder{"tokenizer_config.json": `{"eos_token":"!"}`, "generation_config.json": `{"eos_token_id":[7]}`, "config.json": `{"eos_token_id":9}`}, []uint32{7, '!'}},
		"a name that no token has":              {folder{"tokenizer_config.json": `{"eos_token":"<none>"}`}, nil},
		"a token that the tokenizer also lacks": {folder{"tokenizer_config.json": `{"eos_token":"<e>","added_tokens_decoder":{"500":{"content":"<e>","special":true}}}`}, []uint32{500}},
		"false, as some files have it":          {folder{"tokenizer_config.json": `{"eos_token":false}`}, nil},
	} {
		m, err := tc.files.load()
		if err != nil || !slices.Equal(m.EOS, tc.want) {
			t.Errorf("%s: %v %v, want %v", name, m, err, tc.want)
		}
	}
}

// Special tokens are special by whichever file says so.
func TestSpecialTokens(t *testing.T) {
	m, err := folder{
		"tokenizer_config.json":   `{"bos_token":"<a>","additional_special_tokens":["<b>",{"content":"<c>"},"<unknown>"],"added_tokens_decoder":{"300":{"content":"<a>"},"301":{"content":"<b>"},"302":{"content":"<c>"},"303":{"content":"<d>"}}}`,
		"special_tokens_map.json": `{"pad_token":"he","extra_special_tokens":{"image_token":"ll"}}`,
	}.load()
	if err != nil {
		t.Fatal(err)
	}
	for content, want := range map[string]bool{"<a>": true, "<b>": true, "<c>": true, "<d>": false, "he": true, "ll": true, "the": false} {
		if id, ok := m.Tokenizer.ID(content); !ok || m.Tokenizer.IsSpecial(id) != want {
			t.Errorf("%s: known %v, special %v", content, ok, !want)
		}
	}
	m, err = folder{
		"tokenizer_config.json": `{"added_tokens_decoder":{"300":{"content":"<a>"}}}`, "added_tokens.json": `{"<b>":300}`,
		"generation_config.json": `{"max_new_tokens":-1}`,
	}.load()
	if err != nil || m.MaxNewTokens != 0 {
		t.Fatalf("%v %v", m, err)
	}
	if id, ok := m.Tokenizer.ID("<b>"); ok {
		t.Errorf("two tokens have the id %d", id)
	}
	if id, ok := m.Tokenizer.ID("<unknown>"); ok {
		t.Errorf("a token that no file gives an id has %d", id)
	}
}

// A broken file is told by its place, in the words of who wrote it.
func TestConfigErrors(t *testing.T) {
	for want, files := range map[string]folder{
		`config.json: max_position_embeddings: want a whole number, not "4096"`:                          {"config.json": `{"max_position_embeddings":"4096"}`},
		`config.json: max_position_embeddings: want a whole number, not 0.5`:                             {"config.json": `{"max_position_embeddings":0.5}`},
		`config.json: text_config: want an object, not [1, 2]`:                                           {"config.json": `{"text_config":[1, 2]}`},
		`config.json: text_config.rope_scaling.factor: want a number, not "x"`:                           {"config.json": `{"text_config":{"rope_scaling":{"factor":"x"}}}`},
		`config.json: eos_token_id: want a token id or a list of them, not [1,"x"]`:                      {"config.json": `{"eos_token_id":[1,"x"]}`},
		`config.json: model_type: want a string, not true`:                                               {"config.json": `{"model_type":true}`},
		`config.json: line 3, column 1: want JSON, not 'wrong': true}`:                                   {"config.json": "{\n\"a\": 1,\n'wrong': true}"},
		`config.json: the file ends within its JSON: want a complete file`:                               {"config.json": `{"a": [1, 2`},
		`config.json: want a JSON object, and the file is empty`:                                         {"config.json": ""},
		`config.json: want a JSON object, not [1]`:                                                       {"config.json": " [1]\n"},
		`config.json: line 1, column 1: want JSON, not "\x00\x01"`:                                       {"config.json": "\x00\x01"},
		`generation_config.json: max_new_tokens: want a whole number, not [1]`:                           {"generation_config.json": `{"max_new_tokens":[1]}`},
		`tokenizer_config.json: added_tokens_decoder.x: want ids below 4194304 as names`:                 {"tokenizer_config.json": `{"added_tokens_decoder":{"x":{}}}`},
		`tokenizer_config.json: added_tokens_decoder.7: want an object, not "x"`:                         {"tokenizer_config.json": `{"added_tokens_decoder":{"7":"x"}}`},
		`tokenizer_config.json: added_tokens_decoder.7.lstrip: want true or false, not 1`:                {"tokenizer_config.json": `{"added_tokens_decoder":{"7":{"lstrip":1}}}`},
		`tokenizer_config.json: bos_token: want a token: a string, or an object with "content", not 1`:   {"tokenizer_config.json": `{"bos_token":1}`},
		`tokenizer_config.json: additional_special_tokens[1]: want an object, not 5`:                     {"tokenizer_config.json": `{"additional_special_tokens":["a",5]}`},
		`tokenizer_config.json: chat_template[0].template: want a string, not 1`:                         {"tokenizer_config.json": `{"chat_template":[{"name":"default","template":1}]}`},
		`tokenizer_config.json: chat_template: want a string, or a list of {"name", "template"}, not {}`: {"tokenizer_config.json": `{"chat_template":{}}`},
		`tokenizer_config.json: chat_template: want one named "default" or "tool_use" in the list`:       {"tokenizer_config.json": `{"chat_template":[]}`},
		`special_tokens_map.json: eos_token.content: want a string, not 7`:                               {"special_tokens_map.json": `{"eos_token":{"content":7}}`},
		`added_tokens.json: <a>: want a token id or a list of them, not "x"`:                             {"added_tokens.json": `{"<a>":"x"}`},
	} {
		if _, err := files.load(); err == nil || err.Error() != want {
			t.Errorf("got  %v\nwant %s", err, want)
		}
	}
	if _, err := (folder{"chat_template.jinja": "{% if %}"}).load(); err == nil || !strings.HasPrefix(err.Error(), "chat_template.jinja: ") {
		t.Errorf("a broken template: %v", err)
	}
}

// Control tokens are tried when a model is loaded. Nobody waits hours for that.
func TestLongControlTokens(t *testing.T) {
	type token struct {
		Content string `json:"content"`
		Special bool   `json:"special"`
	}
	tokens := map[int]token{}
	for i := range 2000 {
		tokens[1000+i] = token{fmt.Sprintf("%s%d>", strings.Repeat("<", i), i), true}
	}
	text, err := json.Marshal(map[string]any{"added_tokens_decoder": tokens})
	if err != nil {
		t.Fatal(err)
	}
	const want = "tokenizer.json: control tokens: the one with id 1582 has 586 bytes"
	if _, err := (folder{"tokenizer_config.json": string(text)}).load(); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%v, want %s", err, want)
	}
}

// A model may have a template of its own for tools: in the list of templates, or
// in a file beside the default one. Alone it serves without tools too, and its
// grammar of calls is the model's in any case.
func TestTemplateForTools(t *testing.T) {
	const (
		plain    = `plain`
		forTools = `<tool_call>{{ tools[0].function.name if tools else 'none' }}`
		file     = "additional_chat_templates/tool_use.jinja"
	)
	inList := func(named map[string]string) string {
		type template struct {
			Name     string `json:"name"`
			Template string `json:"template"`
		}
		list := []template{}
		for name, text := range named {
			list = append(list, template{name, text})
		}
		text, err := json.Marshal(map[string]any{"chat_template": list})
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for name, tc := range map[string]struct {
		files         folder
		without, from string
	}{
		"list":           {folder{"tokenizer_config.json": inList(map[string]string{"default": plain, "tool_use": forTools})}, plain, "tokenizer_config.json"},
		"alone in list":  {folder{"tokenizer_config.json": inList(map[string]string{"tool_use": forTools})}, "<tool_call>none", "tokenizer_config.json"},
		"file":           {folder{"chat_template.jinja": plain, file: forTools}, plain, "chat_template.jinja and " + file},
		"alone in file":  {folder{file: forTools}, "<tool_call>none", file},
		"file over list": {folder{"tokenizer_config.json": inList(map[string]string{"default": plain, "tool_use": "old"}), file: forTools}, plain, "tokenizer_config.json and " + file},
	} {
		t.Run(name, func(t *testing.T) {
			m, err := tc.files.load()
			if err != nil {
				t.Fatal(err)
			}
			r := ask("x")
			for _, want := range []string{tc.without, "<tool_call>f"} {
				if got, err := m.Template.Render(r, chattemplate.Options{}); err != nil || got != want {
					t.Errorf("%d tools: %q, %v, want %q", len(r.Tools), got, err, want)
				}
				r.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "f"}}
			}
			if m.Files.Template != tc.from {
				t.Errorf("from %s, want %s", m.Files.Template, tc.from)
			}
			if !m.Family.Calls() {
				t.Error("the calls that the template for tools shows are not parsed")
			}
		})
	}
	_, err := folder{file: "{% if %}"}.load()
	if err == nil || !strings.HasPrefix(err.Error(), file+": ") {
		t.Errorf("a broken template: %v", err)
	}
}

// Ids may have gaps: the largest one counts, not how many there are.
func TestVocabularySize(t *testing.T) {
	m, err := folder{"added_tokens.json": `{"<far>":1000}`}.load()
	if err != nil || m.VocabularySize != 1001 {
		t.Fatalf("%d %v", m.VocabularySize, err)
	}
	if text, err := m.Text([]uint32{1000, 261}); err != nil || text != "<far>hello" {
		t.Errorf("%q %v", text, err)
	}
	for _, prompt := range []chat.Prompt{{IDs: []uint32{1000}}, {Text: "<far>"}} {
		if p, err := m.Build(&chat.Request{Prompt: &prompt}, nil); err != nil || !slices.Equal(p.IDs, []uint32{1000}) {
			t.Errorf("%+v: %v %v", prompt, p, err)
		}
	}
	if _, err := m.Text([]uint32{1001}); err == nil {
		t.Error("an id that is too large has a text")
	}
}
