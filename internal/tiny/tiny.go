// Package tiny is the model in the box: a Llama of a million parameters with its
// tokenizer and settings, in the binary. What it can do is written in the README
// of package train, which made it.
//
// The one idea: it is a model like any other, the same files under the same names.
// Whoever serves it treats it as one that lies in a folder, and whoever wants it
// elsewhere writes the files out and has one.
package tiny

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/dynago/dynago/internal/demo"
	"github.com/klauspost/compress/gzip"
)

//go:generate go run ./train tokenizer -out .

// Name is the model's id.
const Name = "dynago/tiny"

// Weights is the file that has the weights, as Q8_0, and with them the shape, the
// vocabulary and the template: all that llama.cpp needs.
const Weights = "model.gguf"

//go:embed config.json generation_config.json tokenizer_config.json model.gguf
var plain embed.FS

//go:embed tokenizer.json.gz
var packed []byte

// tokenizer.json is the one file that packing makes smaller.
var unpacked = sync.OnceValues(func() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
})

// File returns the bytes of one of the model's files: chat_template.jinja,
// config.json, generation_config.json, model.gguf, tokenizer.json or
// tokenizer_config.json. They are the caller's own. Safe for concurrent use.
func File(name string) ([]byte, error) {
	switch name {
	case "chat_template.jinja":
		return demo.File(name) // the two speak alike
	case "tokenizer.json":
		text, err := unpacked()
		if err != nil {
			return nil, fmt.Errorf("tiny model: unpack tokenizer.json: %w", err)
		}
		return slices.Clone(text), nil
	}
	text, err := plain.ReadFile(name)
	if err != nil {
		return nil, fmt.Errorf("tiny model: %w", err)
	}
	return text, nil
}
