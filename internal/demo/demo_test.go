package demo_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/tokenizer"
	"github.com/go-json-experiment/json"
)

func file(t testing.TB, name string) []byte {
	t.Helper()
	text, err := demo.File(name)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func load(t testing.TB) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.Load(file(t, "tokenizer.json"))
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func Example() {
	text, err := demo.File("tokenizer.json")
	if err != nil {
		panic(err)
	}
	tok, err := tokenizer.Load(text)
	if err != nil {
		panic(err)
	}
	fmt.Println(demo.Name, tok.Size(), len(tok.Append(nil, "Hello! How can I help you today?")))
	// Output: dynago/demo 8192 9
}

func TestUnknownFile(t *testing.T) {
	if _, err := demo.File("model.safetensors"); err == nil {
		t.Error("a file that the model does not have was returned")
	}
}

// A caller that writes into what it got must not change what others get.
func TestFileIsACopy(t *testing.T) {
	for _, name := range []string{"tokenizer.json", "config.json"} {
		first := file(t, name)
		want := slices.Clone(first)
		clear(first)
		if !slices.Equal(file(t, name), want) {
			t.Errorf("%s changed", name)
		}
	}
}

// The small files name ids and tokens of the trained one.
func TestFilesAgree(t *testing.T) {
	tok := load(t)
	var config struct {
		MaxPositions int    `json:"max_position_embeddings"`
		ModelType    string `json:"model_type"`
		VocabSize    int    `json:"vocab_size"`
	}
	var generation struct {
		EOS []uint32 `json:"eos_token_id"`
		Pad uint32   `json:"pad_token_id"`
	}
	var tokens struct {
		BOS   *string `json:"bos_token"`
		EOS   string  `json:"eos_token"`
		Pad   string  `json:"pad_token"`
		Max   int     `json:"model_max_length"`
		Added map[uint32]struct {
			Content string `json:"content"`
			Special bool   `json:"special"`
		} `json:"added_tokens_decoder"`
	}
	for name, into := range map[string]any{"config.json": &config, "generation_config.json": &generation, "tokenizer_config.json": &tokens} {
		if err := json.Unmarshal(file(t, name), into); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	if config.VocabSize != tok.Size() || config.ModelType != "dynago-demo" || config.MaxPositions != 32768 || tokens.Max != config.MaxPositions {
		t.Errorf("config.json %+v, tokenizer of %d tokens", config, tok.Size())
	}
	if tokens.BOS != nil {
		t.Errorf("bos_token %q, want null", *tokens.BOS)
	}
	var eos []string
	for _, id := range generation.EOS {
		eos = append(eos, string(tok.Bytes(id)))
	}
	if want := []string{tokens.EOS, "<|endoftext|>"}; !slices.Equal(eos, want) {
		t.Errorf("eos ids are %q, want %q", eos, want)
	}
	if got := string(tok.Bytes(generation.Pad)); got != tokens.Pad {
		t.Errorf("pad id is %q, want %q", got, tokens.Pad)
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

// What the demo generates must not fall to pieces: English costs at most one
// token for three bytes, and every turn marker is one token.
func TestTokensAreWords(t *testing.T) {
	tok := load(t)
	const text = "Please read the file, then run the tests and tell me what failed. The weather in Paris is sunny today."
	if ids := tok.Append(nil, text); len(ids)*3 > len(text) {
		t.Errorf("%d tokens for %d bytes", len(ids), len(text))
	}
	const turn = "<|im_start|>assistant\n<think>\n</think><tool_call></tool_call><tool_response></tool_response><|im_end|>"
	if ids := tok.Append(nil, turn); len(ids) != 11 {
		t.Errorf("%d tokens, want 11: %d", len(ids), ids)
	}
}
