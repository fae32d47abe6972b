package main

import (
	"fmt"
	"os"
	"path/filepath"
)

// instant takes all modelled time out of the mock engine.
var instant = []string{"--speedup-ratio", "0"}

// paced makes the mock engine take 20 ms for each token of each stream.
func (b *bench) paced() ([]string, error) {
	path, err := b.file("paced.json", `{"timing_model": "constant", "prefill_ms": 0, "decode_ms": 20}`)
	return []string{"--extra-engine-args", path}, err
}

// silent makes the mock engine fall silent after the first token of an answer,
// with room for so many streams in all.
func (b *bench) silent(streams int) ([]string, error) {
	args, err := b.file("silent.json", fmt.Sprintf(`{"speedup_ratio": 0, "max_num_seqs": %d, "num_gpu_blocks": %d}`, streams, 4*streams))
	if err != nil {
		return nil, err
	}
	script, err := b.file("silent.yaml", "default:\n  emit: Once upon a time\n  cut: {after: 1, as: stall}\n")
	return []string{"--extra-engine-args", args, "--mock-script", script}, err
}

// file writes a file into the scratch folder.
func (b *bench) file(name, text string) (path string, err error) {
	path = filepath.Join(b.programs.dir, name)
	return path, os.WriteFile(path, []byte(text), 0o600)
}
