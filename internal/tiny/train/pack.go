package main

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/safetensors"
	"github.com/dynago/dynago/engine/tiny/weights"
	"github.com/dynago/dynago/internal/demo"
)

// makeModel packs what train.py wrote into model.gguf: matrices as Q8_0, with the
// vocabulary and the template, so that the file is complete.
func makeModel(args []string) error {
	from, out := "", ""
	if err := flags("pack", args, func(f *flag.FlagSet) {
		f.StringVar(&from, "from", "", "file of safetensors that train.py wrote")
		f.StringVar(&out, "out", ".", "folder that has config.json and tokenizer.json.gz, and that model.gguf is written to")
	}); err != nil {
		return err
	}
	file, err := packModel(from, out)
	if err != nil {
		return err
	}
	path := filepath.Join(out, "model.gguf")
	fmt.Printf("%s: %d bytes\n", path, len(file))
	return os.WriteFile(path, file, 0o644)
}

func packModel(from, folder string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(folder, "config.json"))
	if err != nil {
		return nil, err
	}
	cfg, err := weights.ParseConfig(text)
	if err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	more, err := vocabularyKeys(folder, cfg.Vocab)
	if err != nil {
		return nil, err
	}
	raw, err := os.ReadFile(from)
	if err != nil {
		return nil, err
	}
	tensors, err := safetensors.Read(bytes.NewReader(raw), int64(len(raw)))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", from, err)
	}
	var out bytes.Buffer
	err = weights.WriteGGUF(&out, cfg, llama.Quantized(func(name string) (llama.Tensor, error) {
		t, ok := tensors.Tensor(name)
		if !ok {
			return llama.Tensor{}, errors.New("it is missing")
		}
		data, err := tensors.Data(t)
		return llama.Tensor{Name: name, Shape: t.Shape, Kind: llama.F32, Data: data}, err
	}), more)
	return out.Bytes(), err
}

// vocabularyKeys are the keys of the file that are not about the shape.
func vocabularyKeys(folder string, size int) (gguf.Metadata, error) {
	packed, err := os.ReadFile(filepath.Join(folder, "tokenizer.json.gz"))
	if err != nil {
		return nil, err
	}
	text, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json.gz: %w", err)
	}
	more, err := weights.Vocabulary(text, size)
	if err != nil {
		return nil, fmt.Errorf("tokenizer.json: %w", err)
	}
	template, err := demo.File("chat_template.jinja")
	if err != nil {
		return nil, err
	}
	more["general.name"] = "dynago/tiny"
	more["tokenizer.chat_template"] = string(template)
	more["tokenizer.ggml.eos_token_id"] = uint32(size - len(addedTokens) + 2)
	more["tokenizer.ggml.padding_token_id"] = uint32(size - len(addedTokens))
	return more, nil
}
