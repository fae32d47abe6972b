//go:build e2e

package oracle_test

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/dynago/dynago/engine/tiny/llama"
)

// setting returns a variable that the run script sets.
func setting(t testing.TB, name string) string {
	t.Helper()
	value := os.Getenv(name)
	if value == "" {
		t.Fatalf("%s is not set; start the suite with make e2e-tiny", name)
	}
	return value
}

// oracle is a process that others' arithmetic runs in.
type oracle struct {
	in  *json.Encoder
	out io.Reader
}

// start starts a program that reads questions from its standard input.
func start(t *testing.T, program string, args ...string) *oracle {
	t.Helper()
	cmd := exec.Command(program, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		in.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s: %v", program, err)
		}
	})
	return &oracle{in: json.NewEncoder(in), out: bufio.NewReader(out)}
}

// question is what an oracle is asked.
type question struct {
	Model  string   `json:"model"` // a path
	Prompt []uint32 `json:"prompt,omitempty"`
	// Text stands instead of a prompt where its ids are asked for.
	Text *string `json:"text,omitempty"`
	// Make, unless it is nil, are the settings of a random model that is written to
	// that path first.
	Make  map[string]any `json:"make,omitempty"`
	DType string         `json:"dtype,omitempty"`
}

// ask returns the log-probabilities of all tokens at all positions.
func (o *oracle) ask(t testing.TB, q question, vocab int) []float32 {
	t.Helper()
	if err := o.in.Encode(q); err != nil {
		t.Fatal(err)
	}
	all := make([]float32, len(q.Prompt)*vocab)
	if err := binary.Read(o.out, binary.LittleEndian, all); err != nil {
		t.Fatal(err)
	}
	return all
}

// tokens returns the ids of a text.
func (o *oracle) tokens(t testing.TB, model, text string) []uint32 {
	t.Helper()
	if err := o.in.Encode(question{Model: model, Text: &text}); err != nil {
		t.Fatal(err)
	}
	var n uint32
	if err := binary.Read(o.out, binary.LittleEndian, &n); err != nil {
		t.Fatal(err)
	}
	ids := make([]uint32, n)
	if err := binary.Read(o.out, binary.LittleEndian, ids); err != nil {
		t.Fatal(err)
	}
	return ids
}

// shape is that of the model in the binary, with some settings changed.
func shape(change func(c *llama.Config)) llama.Config {
	c := llama.Config{
		Vocab: 512, Width: 128, Layers: 3, Heads: 4, KVHeads: 2, HeadSize: 32, Hidden: 352, Context: 1024,
		RopeBase: 10000, NormEps: 1e-5,
	}
	change(&c)
	return c
}

// shapes are models that differ in what can be computed wrongly.
var shapes = map[string]llama.Config{
	"grouped":     shape(func(*llama.Config) {}),
	"tied":        shape(func(c *llama.Config) { c.Tied = true }),
	"one KV head": shape(func(c *llama.Config) { c.KVHeads = 1 }),
	"no groups":   shape(func(c *llama.Config) { c.KVHeads = 4 }),
	"wide heads":  shape(func(c *llama.Config) { c.Heads, c.HeadSize = 8, 64 }),
	"far base":    shape(func(c *llama.Config) { c.RopeBase, c.NormEps = 500000, 1e-6 }),
	"linear":      shape(func(c *llama.Config) { c.RopeScaling = llama.RopeScaling{Type: "linear", Factor: 4} }),
	"llama3": shape(func(c *llama.Config) {
		c.RopeScaling = llama.RopeScaling{Type: "llama3", Factor: 8, LowFrequency: 1, HighFrequency: 4, Original: 256}
	}),
	"qwen2":         shape(func(c *llama.Config) { c.QKVBias, c.NormEps = true, 1e-6 }),
	"one layer":     shape(func(c *llama.Config) { c.Layers = 1; c.Width, c.Hidden = 96, 64 }),
	"in the binary": shape(func(c *llama.Config) { c.Vocab, c.Layers, c.Hidden, c.Context, c.Tied = 2048, 5, 224, 2048, true }),
}

// prompts are a token alone, a text, and one that is long, for a vocabulary.
func prompts(vocab int) [][]uint32 {
	random := rand.New(rand.NewPCG(uint64(vocab), 1))
	var list [][]uint32
	for _, n := range []int{1, 17, 300} {
		ids := make([]uint32, n)
		for i := range ids {
			ids[i] = uint32(random.IntN(vocab))
		}
		list = append(list, ids)
	}
	return list
}
