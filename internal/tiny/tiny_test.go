package tiny_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"

	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/internal/tiny"
	"github.com/dynago/dynago/internal/tiny/train/exam"
	"github.com/dynago/dynago/internal/tiny/train/talk"
	"github.com/dynago/dynago/tokenizer"
	"github.com/go-json-experiment/json"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	text, err := tiny.File(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t testing.TB) (*llama.Model, *tokenizer.Tokenizer) {
	t.Helper()
	tok, err := tokenizer.Load(file(t, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	packed := file(t, tiny.Weights)
	model, err := weights.ReadGGUF(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		t.Fatal(err)
	}
	return model, tok
}

func template(t testing.TB) *chattemplate.Template {
	t.Helper()
	tmpl, err := chattemplate.Compile(string(file(t, "chat_template.jinja")), chattemplate.Config{EOS: "<|im_end|>"})
	if err != nil {
		t.Fatal(err)
	}
	return tmpl
}

func Example() {
	text, err := tiny.File("tokenizer.json")
	if err != nil {
		panic(err)
	}
	tok, err := tokenizer.Load(text)
	if err != nil {
		panic(err)
	}
	packed, err := tiny.File(tiny.Weights)
	if err != nil {
		panic(err)
	}
	model, err := weights.ReadGGUF(bytes.NewReader(packed), int64(len(packed)))
	if err != nil {
		panic(err)
	}
	said, err := exam.NewPupil(model, tok).Answer("<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n")
	if err != nil {
		panic(err)
	}
	fmt.Println(tiny.Name, "says:", said)
	// Output: dynago/tiny says: Hello! How can I help you?
}

// What training never saw is answered: other names, values, tools and phrasings.
// These questions get 84.1 %; the larger exam of which README.md of package train tells,
// 78.3. Weights that fall below the floor are not as good.
func TestHeldOutQuestions(t *testing.T) {
	const (
		seed          = 77
		conversations = 60
		floor         = 82
	)
	model, tok := load(t)
	tmpl := template(t)
	pupil, report, source := exam.NewPupil(model, tok), exam.Report{}, talk.New(seed, true)
	for range conversations {
		questions, err := exam.Questions(source.Next(talk.Course(1)), tmpl)
		if err != nil {
			t.Fatal(err)
		}
		for _, q := range questions {
			said, err := pupil.Answer(q.Prompt)
			if err != nil {
				t.Fatal(err)
			}
			report.Add(q.Task, q.Right(said))
		}
	}
	t.Logf("\n%s", report)
	if report.Percent() < floor {
		t.Errorf("%.1f %% of the answers are right, want %d:\n%s", report.Percent(), floor, report)
	}
}

func TestSize(t *testing.T) {
	const limit = 2 << 20
	if n := len(file(t, tiny.Weights)); n > limit-100<<10 {
		t.Errorf("the weights take %d bytes, of %d for everything", n, limit)
	}
}

// All files describe one model.
func TestFilesAgree(t *testing.T) {
	model, tok := load(t)
	cfg, err := weights.ParseConfig(file(t, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%+v", model.Config()), fmt.Sprintf("%+v", cfg); got != want {
		t.Errorf("model.gguf has the shape\n%s\nconfig.json\n%s", got, want)
	}
	if tok.Size() != cfg.Vocab {
		t.Errorf("%d tokens, %d rows", tok.Size(), cfg.Vocab)
	}
	var generation struct {
		EOS []uint32 `json:"eos_token_id"`
		Pad uint32   `json:"pad_token_id"`
	}
	var tokens struct {
		EOS   string `json:"eos_token"`
		Pad   string `json:"pad_token"`
		Max   int    `json:"model_max_length"`
		Added map[uint32]struct {
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens_decoder"`
	}
	var config struct {
		EOS uint32 `json:"eos_token_id"`
		Pad uint32 `json:"pad_token_id"`
	}
	for name, into := range map[string]any{"config.json": &config, "generation_config.json": &generation, "tokenizer_config.json": &tokens} {
		if err := json.Unmarshal(file(t, name), into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if tokens.Max != cfg.Context {
		t.Errorf("model_max_length %d, context %d", tokens.Max, cfg.Context)
	}
	var eos []string
	for _, id := range generation.EOS {
		eos = append(eos, string(tok.Bytes(id)))
	}
	if want := []string{tokens.EOS, "<|endoftext|>"}; !slices.Equal(eos, want) {
		t.Errorf("eos ids are %q, want %q", eos, want)
	}
	if config.EOS != generation.EOS[0] || config.Pad != generation.Pad || string(tok.Bytes(generation.Pad)) != tokens.Pad {
		t.Errorf("config.json %+v, generation_config.json %+v, pad token %q", config, generation, tokens.Pad)
	}
	if len(tokens.Added) != 9 {
		t.Errorf("%d added tokens, want 9", len(tokens.Added))
	}
	for id, a := range tokens.Added {
		if got, ok := tok.ID(a.Content); !ok || got != id || tok.IsSpecial(id) != a.Special {
			t.Errorf("%q: id %d (known %v, special %v), tokenizer_config.json has %d, special %v", a.Content, got, ok, tok.IsSpecial(got), id, a.Special)
		}
	}
}

// Every text has tokens, and they give it back.
func TestBytes(t *testing.T) {
	_, tok := load(t)
	all := make([]byte, 0, 512)
	for b := range 256 {
		all = append(all, string(rune(b))...)
	}
	for _, text := range []string{string(all), "Zażółć 12345 \n\t{\"a\": [1.5e3, null]} 日本 🙂", "\xff\xfe broken"} {
		var back []byte
		for _, id := range tok.Append(nil, text) {
			back = append(back, tok.Bytes(id)...)
		}
		if string(back) != text {
			t.Errorf("%q comes back as %q", text, back)
		}
	}
}

// A word has the same tokens wherever it stands, or there is no copying it.
func TestWordsAreSpelledAlike(t *testing.T) {
	_, tok := load(t)
	for _, word := range []string{"Rome", "Skriaton", "humidity", "umbrella", "get_weather", "4711", "QX-93"} {
		alone := tok.Append(nil, word)
		for _, around := range []string{"in %s.", `{"city": "%s"}`, "%s?", "\n%s\n", "of %s and"} {
			ids := tok.Append(nil, fmt.Sprintf(around, word))
			if !containsRun(ids, alone) {
				t.Errorf("%q in %q is %d, alone %d", word, around, ids, alone)
			}
		}
	}
}

func containsRun(ids, run []uint32) bool {
	for i := range ids {
		if i+len(run) <= len(ids) && slices.Equal(ids[i:i+len(run)], run) {
			return true
		}
	}
	return false
}

func TestUnknownFile(t *testing.T) {
	if _, err := tiny.File("model.safetensors"); err == nil {
		t.Error("a file that the model does not have was returned")
	}
}

// A caller that writes into what it got must not change what others get.
func TestFileIsACopy(t *testing.T) {
	for _, name := range []string{"tokenizer.json", "config.json", tiny.Weights, "chat_template.jinja"} {
		first := file(t, name)
		want := slices.Clone(first)
		clear(first)
		if !bytes.Equal(file(t, name), want) {
			t.Errorf("%s changed", name)
		}
	}
}

// The parsers made for the demo read this model too.
func TestTemplateIsTheDemos(t *testing.T) {
	want, err := demo.File("chat_template.jinja")
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(file(t, "chat_template.jinja"), want) {
		t.Error("the template is another one")
	}
}
