package safetensors

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// The names that a model's files have.
const (
	single = "model.safetensors"
	index  = "model.safetensors.index.json"

	maxIndex = 100_000_000
	maxFiles = 1024
)

// Folder is the tensors of a model, in one file or in several.
type Folder struct {
	files []named
	at    map[string]int // the file that has a tensor, by its name
}

type named struct {
	*File
	io.Closer
	name string
}

// Open opens the files of a folder: model.safetensors, or those that
// model.safetensors.index.json lists, of which each must lie in the folder itself.
// Close closes them. Errors name the file and the tensor.
func Open(dir string) (*Folder, error) {
	d := &Folder{at: map[string]int{}}
	if err := d.open(dir); err != nil {
		d.Close()
		return nil, err
	}
	return d, nil
}

func (d *Folder) open(dir string) error {
	err := d.add(dir, single)
	if err == nil {
		for _, t := range d.files[0].Tensors {
			d.at[t.Name] = 0
		}
		return nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	shards, err := readIndex(filepath.Join(dir, index))
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("no %s and no %s: want one of them", single, index)
	}
	if err != nil {
		return fmt.Errorf("%s: %w", index, err)
	}
	for _, name := range slices.Sorted(maps.Keys(shards)) {
		if err := d.add(dir, name); err != nil {
			return err
		}
		for _, t := range shards[name] {
			if _, ok := d.files[len(d.files)-1].Tensor(t); !ok {
				return fmt.Errorf("%s: tensor %s: the index says that it is here, and it is not", name, t)
			}
			d.at[t] = len(d.files) - 1
		}
	}
	return nil
}

func (d *Folder) add(dir, name string) error {
	path := filepath.Join(dir, name)
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return fmt.Errorf("%s: want a regular file", name)
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	f, err := Read(from, info.Size())
	if err != nil {
		from.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	d.files = append(d.files, named{f, from, name})
	return nil
}

// readIndex returns the tensors of each file.
func readIndex(path string) (map[string][]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxIndex {
		return nil, fmt.Errorf("want a regular file of at most %d bytes", maxIndex)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseIndex(text)
}

func parseIndex(text []byte) (map[string][]string, error) {
	var members struct {
		Files map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(text, &members, jsontext.AllowDuplicateNames(false)); err != nil {
		return nil, err
	}
	if len(members.Files) == 0 {
		return nil, errors.New("weight_map: want the file of each tensor, and there is none")
	}
	shards := map[string][]string{}
	for tensor, file := range members.Files {
		// A file elsewhere would be one that whoever wrote the index may not read.
		if file != filepath.Base(file) || strings.ContainsAny(file, `/\`) || !filepath.IsLocal(file) || !strings.HasSuffix(file, ".safetensors") {
			return nil, fmt.Errorf("weight_map: tensor %s: file %q: want the name of a .safetensors file in the same folder", tensor, file)
		}
		shards[file] = append(shards[file], tensor)
	}
	if len(shards) > maxFiles {
		return nil, fmt.Errorf("weight_map: %d files: want at most %d", len(shards), maxFiles)
	}
	return shards, nil
}

// Tensor returns the entry of a name.
func (d *Folder) Tensor(name string) (Tensor, bool) {
	i, ok := d.at[name]
	if !ok {
		return Tensor{}, false
	}
	return d.files[i].Tensor(name)
}

// Names returns the names of all tensors, sorted.
func (d *Folder) Names() []string { return slices.Sorted(maps.Keys(d.at)) }

// File returns the name of the file that has a tensor.
func (d *Folder) File(name string) string {
	i, ok := d.at[name]
	if !ok {
		return ""
	}
	return d.files[i].name
}

// Data reads a tensor's bytes, as File.Data does.
func (d *Folder) Data(t Tensor) ([]byte, error) {
	f := d.files[d.at[t.Name]]
	b, err := f.Data(t)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.name, err)
	}
	return b, nil
}

// Close closes the files.
func (d *Folder) Close() error {
	var errs []error
	for _, f := range d.files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
