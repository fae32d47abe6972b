// Package demo is the built-in demo model: what a model's folder holds but for
// weights, in the binary. It lets dynago serve run with no network and no files.
//
// The one idea: to the rest of the house it is a model like any other, the same
// files under the same names. Tokenizer, template and words are our own; the
// forms are those of Qwen and Hermes, so that the parsers made for them read the
// demo too.
package demo

import (
	"bytes"
	"embed"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/gzip"
)

//go:generate go run ./train -out .

// Name is the model's id.
const Name = "dynago/demo"

//go:embed chat_template.jinja config.json generation_config.json tokenizer_config.json
var plain embed.FS

//go:embed tokenizer.json.gz
var packed []byte

// tokenizer.json is the one file large enough to be worth packing.
var unpacked = sync.OnceValues(func() ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(r)
})

// File returns the bytes of one of the model's files: chat_template.jinja,
// config.json, generation_config.json, tokenizer.json or tokenizer_config.json.
// They are the caller's own. Safe for concurrent use.
func File(name string) ([]byte, error) {
	if name != "tokenizer.json" {
		text, err := plain.ReadFile(name)
		if err != nil {
			return nil, fmt.Errorf("demo model: %w", err)
		}
		return text, nil
	}
	text, err := unpacked()
	if err != nil {
		return nil, fmt.Errorf("demo model: unpack tokenizer.json: %w", err)
	}
	return slices.Clone(text), nil
}
