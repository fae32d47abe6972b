// Tiny writes a model that fits in half a megabyte, for suites with real engines:
// a decoder of two layers, its tokenizer and chat template, as a folder in the
// form of Hugging Face, and as one GGUF file.
//
// Its weights are random, but the same for the same seed. They are so wide that
// the best next token is far ahead of the second best, so a greedy answer does not
// hang on the order of additions; and a token that is no plain text is never the
// best, so an answer can be read, never ends by itself, and has any length.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	out := flag.String("out", "", "folder for tiny/ and tiny.gguf")
	seed := flag.Uint64("seed", 1, "of the weights")
	flag.Parse()
	if err := write(*out, *seed); err != nil {
		fmt.Fprintln(os.Stderr, "tiny:", err)
		os.Exit(1)
	}
}

// write writes both forms into a folder.
func write(out string, seed uint64) error {
	if out == "" {
		return fmt.Errorf("-out: want a folder")
	}
	folder := filepath.Join(out, "tiny")
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	v, t := words(), weights(seed)
	files := []struct {
		path  string
		bytes func() ([]byte, error)
	}{
		{filepath.Join(folder, "config.json"), config},
		{filepath.Join(folder, "tokenizer.json"), v.tokenizer},
		{filepath.Join(folder, "tokenizer_config.json"), v.settings},
		{filepath.Join(folder, "model.safetensors"), t.safetensors},
		{filepath.Join(out, "tiny.gguf"), func() ([]byte, error) { return t.gguf(v) }},
	}
	for _, f := range files {
		b, err := f.bytes()
		if err != nil {
			return fmt.Errorf("%s: %w", f.path, err)
		}
		if err := os.WriteFile(f.path, b, 0o644); err != nil {
			return err
		}
	}
	return nil
}
