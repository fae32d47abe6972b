package weights

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/safetensors"
)

const (
	configFile = "config.json"
	maxConfig  = 1 << 20
)

var dtypes = map[safetensors.Type]llama.Kind{
	safetensors.F32: llama.F32, safetensors.F16: llama.F16, safetensors.BF16: llama.BF16,
}

// loadFolder reads a model in the form of Hugging Face.
func loadFolder(dir string, limit int64) (*llama.Model, error) {
	config, err := readConfig(filepath.Join(dir, configFile))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", configFile, err)
	}
	files, err := safetensors.Open(dir)
	if err != nil {
		return nil, err
	}
	defer files.Close()
	w := &stored{config: config}
	for _, name := range files.Names() {
		// Frequencies are computed, and an output that is tied is the embedding.
		if strings.HasSuffix(name, ".rotary_emb.inv_freq") || config.Tied && name == "lm_head.weight" {
			continue
		}
		t, _ := files.Tensor(name)
		kind, ok := dtypes[t.Type]
		if !ok || len(t.Shape) == 0 {
			return nil, fmt.Errorf("%s: tensor %s: %s of shape %v: want a vector or matrix of F32, F16 or BF16", files.File(name), name, t.Type, t.Shape)
		}
		w.tensors = append(w.tensors, held{name: name, own: name, kind: kind, shape: t.Shape})
	}
	w.read = func(name string) (llama.Tensor, error) {
		t, _ := files.Tensor(name)
		data, err := files.Data(t)
		return llama.Tensor{Name: name, Shape: t.Shape, Kind: dtypes[t.Type], Data: data}, err
	}
	return w.model(limit)
}

func readConfig(path string) (llama.Config, error) {
	info, err := os.Stat(path)
	if err != nil {
		return llama.Config{}, bare(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxConfig {
		return llama.Config{}, fmt.Errorf("want a regular file of at most %d bytes", maxConfig)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return llama.Config{}, bare(err)
	}
	return ParseConfig(text)
}
