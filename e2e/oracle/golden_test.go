package oracle_test

import (
	"bytes"
	"encoding/json"
	"math"
	"os"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/weights"
	"github.com/dynago/dynago/internal/tiny"
)

// apart is how far our log-probabilities may lie from PyTorch's.
const apart = 1e-4

// goldenFile is written by make e2e-tiny-torch UPDATE=1.
const goldenFile = "testdata/pytorch.json"

// golden is what PyTorch computed with the model in the binary.
type golden struct {
	Model   string `json:"model"` // its hash
	Prompts []said `json:"prompts"`
}

// said is a prompt and what it leads to.
type said struct {
	Tokens    []uint32   `json:"tokens"`
	Positions []position `json:"positions"`
}

// position has the log-probabilities of some tokens behind one position.
type position struct {
	At               int       `json:"at"`
	Tokens           []int     `json:"next"`
	LogProbabilities []float32 `json:"logprobs"`
}

// boxed loads the model in the binary.
func boxed(t testing.TB) *llama.Model {
	t.Helper()
	file, err := tiny.File(tiny.Weights)
	if err != nil {
		t.Fatal(err)
	}
	m, err := weights.ReadGGUF(bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The model in the binary says what PyTorch has said.
func TestModel(t *testing.T) {
	text, err := os.ReadFile(goldenFile)
	if err != nil {
		t.Fatal(err)
	}
	var want golden
	if err := json.Unmarshal(text, &want); err != nil {
		t.Fatal(err)
	}
	m := boxed(t)
	if m.Hash() != want.Model {
		t.Fatalf("%s is of the weights %s, and the binary has %s: write it anew with make e2e-tiny-torch UPDATE=1", goldenFile, want.Model, m.Hash())
	}
	vocab, compared := m.Config().Vocab, 0
	for _, p := range want.Prompts {
		ours := logProbabilities(t, m, p.Tokens)
		most := 0.0
		for _, at := range p.Positions {
			for i, id := range at.Tokens {
				x, y := ours[at.At*vocab+id], float64(at.LogProbabilities[i])
				d := math.Abs(x - y)
				if !(d <= apart) {
					t.Errorf("token %d behind position %d: %v, want %v", id, at.At, x, y)
				}
				most = max(most, d)
				compared++
			}
		}
		t.Logf("%d tokens: at most %.2g apart", len(p.Tokens), most)
	}
	if compared < 500 {
		t.Errorf("%d numbers are compared: want 500 at least", compared)
	}
}
