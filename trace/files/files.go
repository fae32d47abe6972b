// Package files reads traces back from the files that sinks have written: plain or
// compressed, whole or torn, finished or still growing.
//
// The one idea: what was written is worth reading, whatever has become of the rest. A
// reader goes line by line, so that a trace may be larger than memory; what it must
// pass over, such as the torn end that a killed writer leaves behind, it tells as a
// complaint, and goes on.
package files

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Ends of the names of files, by which those of a directory are found.
const (
	plainEnd      = ".jsonl"
	compressedEnd = ".jsonl.gz"
)

// MissingError says that there is no file of a name.
type MissingError struct{ Name string }

// Error implements error.
func (e *MissingError) Error() string {
	return fmt.Sprintf("trace: %s: there is no such file or directory, and no segment of this name: want a file, a directory with *.jsonl or *.jsonl.gz in it, a pattern, or what the names of segments begin with", e.Name)
}

// Find returns the files that names stand for, each path once, in order. A name is
// that of a file, a directory, which stands for the .jsonl and .jsonl.gz files right
// in it, or a pattern as [filepath.Match] has them; or it is what a sink was told, and
// stands for the segments that it has made of it. A name that stands for nothing is a
// [*MissingError].
func Find(names ...string) ([]string, error) {
	var found []string
	for _, name := range names {
		paths, err := find(name)
		if err != nil {
			return nil, err
		}
		found = append(found, paths...)
	}
	for i := range found {
		found[i] = filepath.Clean(found[i])
	}
	slices.Sort(found)
	return slices.Compact(found), nil
}

func find(name string) ([]string, error) {
	matches := []string{name}
	if _, err := os.Stat(name); err != nil {
		if matches, err = filepath.Glob(name); err != nil {
			return nil, fmt.Errorf("trace: %q is no pattern: %w", name, err)
		}
	}
	if len(matches) == 0 {
		var err error
		if matches, err = segments(name); err != nil {
			return nil, err
		}
	}
	if len(matches) == 0 {
		return nil, &MissingError{name}
	}
	var paths []string
	for _, path := range matches {
		info, err := os.Stat(path)
		switch {
		case err != nil:
			return nil, fmt.Errorf("trace: %w", err)
		case !info.IsDir():
			paths = append(paths, path)
		default:
			in, err := within(path)
			if err != nil {
				return nil, err
			}
			paths = append(paths, in...)
		}
	}
	return paths, nil
}

// within returns the files of a directory that have the name of a trace.
func within(directory string) ([]string, error) {
	entries, err := os.ReadDir(directory)
	if err != nil {
		return nil, fmt.Errorf("trace: %w", err)
	}
	var paths []string
	for _, e := range entries {
		if !e.IsDir() && (strings.HasSuffix(e.Name(), plainEnd) || strings.HasSuffix(e.Name(), compressedEnd)) {
			paths = append(paths, filepath.Join(directory, e.Name()))
		}
	}
	return paths, nil
}

// segments returns the files that a sink which was told path has made of it, in order.
func segments(path string) ([]string, error) {
	directory, base := filepath.Dir(path), filepath.Base(path)
	prefix := strings.TrimSuffix(strings.TrimSuffix(base, compressedEnd), plainEnd) + "."
	entries, err := os.ReadDir(directory)
	if err != nil && !os.IsNotExist(err) {
		return nil, fmt.Errorf("trace: %w", err)
	}
	var list []fs.DirEntry
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		number, whole := strings.CutSuffix(rest, compressedEnd)
		if ok && whole && len(number) >= 6 && strings.Trim(number, "0123456789") == "" {
			list = append(list, e)
		}
	}
	// A longer number is a larger one.
	slices.SortFunc(list, func(a, b fs.DirEntry) int {
		return cmpLength(a.Name(), b.Name())
	})
	paths := make([]string, len(list))
	for i, e := range list {
		paths[i] = filepath.Join(directory, e.Name())
	}
	return paths, nil
}

func cmpLength(a, b string) int {
	if len(a) != len(b) {
		return len(a) - len(b)
	}
	return strings.Compare(a, b)
}
