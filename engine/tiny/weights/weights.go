// Package weights finds a model of the llama family in files: GGUF, or the
// config.json and safetensors of Hugging Face.
//
// The one idea: what is read is what is computed. A setting that package llama does
// not compute, a tensor that it has no use for and one that it misses are errors
// that name it, since a model that is nearly right says things that are nearly
// right, and nobody sees why.
package weights

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynago/dynago/engine/tiny/gguf"
	"github.com/dynago/dynago/engine/tiny/llama"
)

// stored is a model as it lies in files. What they hold is known by the names
// that Hugging Face has for tensors, whatever the files call them.
type stored struct {
	config  llama.Config
	tensors []held
	read    func(name string) (llama.Tensor, error)
}

// held is a tensor of a file.
type held struct {
	name  string // that of Hugging Face, or "" if there is none
	own   string // that in the file, for messages
	kind  llama.Kind
	shape []int
}

// Load reads a model of the llama family from a path, which may be
//
//   - a GGUF file,
//   - a folder with config.json and model.safetensors, or the several files that
//     model.safetensors.index.json lists,
//   - or a folder with one GGUF file.
//
// The weights may take so many bytes of memory; if limit is 0, as many as the
// machine has left. Errors name the file, and the setting or tensor that is wrong.
func Load(path string, limit int64) (*llama.Model, error) {
	if limit == 0 {
		limit = FreeMemory()
	}
	file, err := modelFile(path)
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", path, err)
	}
	var m *llama.Model
	if strings.HasSuffix(file, ".gguf") {
		m, err = loadFile(file, limit)
	} else {
		m, err = loadFolder(file, limit)
	}
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", file, err)
	}
	return m, nil
}

// ReadGGUF reads a model from a GGUF file that need not lie on a disk.
func ReadGGUF(from io.ReaderAt, size int64) (*llama.Model, error) {
	return loadGGUF(from, size, math.MaxInt64)
}

// modelFile returns the GGUF file that a path stands for, or else the folder with
// the files of Hugging Face. A folder that has both a config.json and weights in a GGUF
// file alone stands for that.
func modelFile(path string) (string, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return "", bare(err)
	case info.Mode().IsRegular() && strings.HasSuffix(path, ".gguf"):
		return path, nil
	case !info.IsDir():
		return "", errors.New("want a .gguf file, or a folder with config.json and safetensors")
	}
	_, missing := os.Stat(filepath.Join(path, configFile))
	entries, err := os.ReadDir(path)
	if err != nil {
		return "", bare(err)
	}
	var files []string
	apart := false
	for _, e := range entries {
		apart = apart || strings.Contains(e.Name(), ".safetensors")
		if strings.HasSuffix(e.Name(), ".gguf") && !strings.HasPrefix(e.Name(), "mmproj") {
			files = append(files, e.Name())
		}
	}
	if missing == nil && (apart || len(files) == 0) {
		return path, nil
	}
	switch len(files) {
	case 0:
		return "", fmt.Errorf("no %s and no .gguf file: want one of them", configFile)
	case 1:
		return filepath.Join(path, files[0]), nil
	}
	return "", fmt.Errorf("%s: want the path of the one to take", strings.Join(files, ", "))
}

// bare is an error of a file without the path, which is said around it.
func bare(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

func loadFile(path string, limit int64) (*llama.Model, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, bare(err)
	}
	if !info.Mode().IsRegular() {
		return nil, errors.New("want a regular file")
	}
	return loadGGUF(f, info.Size(), limit)
}

func loadGGUF(from io.ReaderAt, size, limit int64) (*llama.Model, error) {
	f, err := gguf.Read(from, size)
	if err != nil {
		return nil, err
	}
	w, err := fromGGUF(f)
	if err != nil {
		return nil, err
	}
	return w.model(limit)
}

// model makes the model, if there is room for it and the file has the tensors of
// its shape and no others: one that is left out would be missing in the numbers.
func (w *stored) model(limit int64) (*llama.Model, error) {
	if err := w.config.Validate(); err != nil {
		return nil, err
	}
	specs := w.config.Tensors()
	wanted := make(map[string]bool, len(specs))
	for _, s := range specs {
		wanted[s.Name] = true
	}
	for _, t := range w.tensors {
		if !wanted[t.name] {
			return nil, fmt.Errorf("tensor %s: a llama of this shape has none: want a model without it", t.own)
		}
	}
	if need := w.bytes(); need > limit {
		return nil, fmt.Errorf("its weights take %s of memory: want at most %s, which is what there is", inBytes(need), inBytes(limit))
	}
	own := map[string]string{}
	for _, t := range w.tensors {
		own[t.name] = t.own
	}
	return llama.New(w.config, func(name string) (llama.Tensor, error) {
		if own[name] == "" {
			return llama.Tensor{}, errors.New("the file has none")
		}
		return w.read(name)
	})
}

// bytes is the memory that the model takes while it is made: its weights, and its
// largest tensor as it lies in the file.
func (w *stored) bytes() int64 {
	need, largest := int64(0), int64(0)
	for _, t := range w.tensors {
		rows, columns := 1, t.shape[len(t.shape)-1]
		for _, side := range t.shape[:len(t.shape)-1] {
			rows *= side
		}
		stored := int64(rows) * int64(t.kind.Bytes(columns))
		largest = max(largest, stored)
		// Scales of Q8_0 are widened, and so is all else.
		kept := 4 * int64(rows) * int64(columns)
		if t.kind == llama.Q8_0 {
			kept = stored / 34 * 36
		}
		need += kept
	}
	return need + largest
}

// permuted undoes what llama.cpp does to the rows of queries and keys, for an
// architecture whose positions turn neighbours instead of halves: within each
// head, its row 2i is row i and its row 2i+1 is row i+half.
func permuted(data []byte, heads, rows int) []byte {
	return reorder(data, heads, rows, func(half, i int) int { return 2*(i%half) + i/half })
}

// interleaved is the inverse of permuted.
func interleaved(data []byte, heads, rows int) []byte {
	return reorder(data, heads, rows, func(half, i int) int { return i/2 + i%2*half })
}

// reorder takes row i of each head from the row that is told.
func reorder(data []byte, heads, rows int, from func(half, i int) int) []byte {
	bytes, size := len(data)/rows, rows/heads
	out := slices.Clone(data)
	for i := range rows {
		head := i / size * size
		row := head + from(size/2, i-head)
		copy(out[i*bytes:][:bytes], data[row*bytes:][:bytes])
	}
	return out
}
