package main

import (
	"bytes"
	"os"
	"slices"
	"testing"

	"github.com/dynago/dynago/internal/tiny/train/talk"
)

// The committed tokenizer is what this program writes.
func TestReproducesTokenizer(t *testing.T) {
	packed, err := os.ReadFile("../tokenizer.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	want, err := unpack(packed)
	if err != nil {
		t.Fatal(err)
	}
	got, err := learnTokenizer()
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("tokenizer.json differs from what train makes now: run go generate ./internal/tiny and train anew")
	}
}

// Labels stand on the answers, with the token that ends them, and on nothing else.
func TestLabels(t *testing.T) {
	tok, err := loadTokenizer("../tokenizer.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	source := talk.New(9, false)
	for range 500 {
		c := source.Next(talk.Course(1))
		text, err := render(c)
		if err != nil {
			t.Fatal(err)
		}
		ids := tok.Append(nil, text)
		labels, err := label(tok, c, ids)
		if err != nil {
			t.Fatal(err)
		}
		var answers []string
		for i := 0; i < len(ids); i++ {
			if labels[i] == 0 {
				continue
			}
			var said []byte
			for ; i < len(ids) && labels[i] > 0; i++ {
				said = append(said, tok.Bytes(ids[i])...)
			}
			answers = append(answers, string(said))
		}
		var want []string
		for _, a := range c.Answers {
			if !a.Given {
				want = append(want, a.Task.String())
			}
		}
		if len(answers) != len(want) {
			t.Fatalf("%d answers are labelled, want %d in\n%s", len(answers), len(want), text)
		}
		for _, a := range answers {
			if !bytes.HasSuffix([]byte(a), []byte("<|im_end|>")) || bytes.Contains([]byte(a), []byte("<|im_start|>")) || bytes.HasPrefix([]byte(a), []byte("<think>\n\n")) {
				t.Fatalf("labelled %q", a)
			}
		}
	}
}

// Text that is trained on is cut into the tokens that a prompt and an answer would
// be cut into one after the other.
func TestAnswersFollowPrompts(t *testing.T) {
	tok, err := loadTokenizer("../tokenizer.json.gz")
	if err != nil {
		t.Fatal(err)
	}
	const prompt, answer = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", "<think>\nget_age fits.\n</think>\n\n<tool_call>\n{\"name\": \"get_age\", \"arguments\": {}}\n</tool_call><|im_end|>"
	apart := append(tok.Append(nil, prompt), tok.Append(nil, answer)...)
	if whole := tok.Append(nil, prompt+answer); !slices.Equal(whole, apart) {
		t.Errorf("together %d, apart %d", whole, apart)
	}
}
