package prompt

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Snapshot is the place of one model's files: a folder, a Hugging Face cache, or
// one file with others beside it. Nothing is read before Load. One goroutine at a
// time.
type Snapshot struct {
	// ChatTemplate replaces the chat template of the model if it is not empty.
	ChatTemplate string

	name  string
	dir   string // "" if there is no folder
	file  string // the vocabulary to take, if it was named
	names []string
	read  func(name string) ([]byte, error)
}

// Files that hold a vocabulary are bounded by what the largest ones have many
// times over, other files likewise.
const (
	maxVocabularyBytes = 1 << 30
	maxFileBytes       = 32 << 20
)

// OpenSnapshot finds a model's files by a path, which may be
//
//   - a folder with the files,
//   - the folder that a model has in a Hugging Face cache, models--org--name, of
//     which the snapshot that refs/main names is taken, or else the only one,
//   - or a file that holds a vocabulary: the other files are sought beside it.
//
// An error says what is wrong with the path, and what would be right.
func OpenSnapshot(path string) (*Snapshot, error) {
	abs, err := filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(abs)
	if err != nil {
		return nil, fmt.Errorf("%w: want a folder with a model's files, or one of %s", plainError(err), vocabularyNames)
	}
	s := &Snapshot{dir: abs}
	if !info.IsDir() {
		s.dir, s.file = filepath.Split(abs)
		if err := checkRegular(info); err != nil {
			return nil, err
		}
		if !isVocabulary(s.file) {
			return nil, fmt.Errorf("%q holds no vocabulary: want a folder with a model's files, or one of %s", s.file, vocabularyNames)
		}
	} else if s.dir, err = snapshotOf(abs); err != nil {
		return nil, err
	}
	entries, err := os.ReadDir(s.dir)
	if err != nil {
		return nil, plainError(err)
	}
	for _, e := range entries {
		s.names = append(s.names, e.Name())
	}
	s.name = modelName(s.dir, s.file)
	s.read = s.readFile
	return s, nil
}

// Name returns the model's name as its place tells it: that of the folder, or in
// a cache that of the repository.
func (s *Snapshot) Name() string { return s.name }

// Dir returns the folder of the files.
func (s *Snapshot) Dir() string { return s.dir }

// snapshotOf returns the folder itself, or if it is a repository in a cache the
// snapshot in it.
func snapshotOf(dir string) (string, error) {
	snapshots := filepath.Join(dir, "snapshots")
	if info, err := os.Stat(snapshots); err != nil || !info.IsDir() {
		return dir, nil
	}
	ref, err := readRegular(filepath.Join(dir, "refs", "main"), 1<<10)
	switch {
	case err == nil:
		revision := strings.TrimSpace(string(ref))
		if revision == "" || revision != filepath.Base(revision) || revision == ".." {
			return "", fmt.Errorf("refs/main: want the name of a folder in snapshots, not %s", shown([]byte(revision)))
		}
		if info, err := os.Stat(filepath.Join(snapshots, revision)); err != nil || !info.IsDir() {
			return "", fmt.Errorf("refs/main names %s, which is no folder in snapshots: want the model to be downloaded", revision)
		}
		return filepath.Join(snapshots, revision), nil
	case !errors.Is(err, fs.ErrNotExist):
		return "", fmt.Errorf("refs/main: %w", err)
	}
	entries, err := os.ReadDir(snapshots)
	if err != nil {
		return "", fmt.Errorf("snapshots: %w", plainError(err))
	}
	if len(entries) != 1 {
		return "", fmt.Errorf("%d snapshots and no refs/main to choose by: want the path of one of them", len(entries))
	}
	return filepath.Join(snapshots, entries[0].Name()), nil
}

// modelName is the repository's name where the path has it.
func modelName(dir, file string) string {
	if base, ok := strings.CutSuffix(file, ".gguf"); ok {
		return base
	}
	dir = filepath.Clean(dir)
	if parent := filepath.Dir(dir); filepath.Base(parent) == "snapshots" {
		if repository, ok := strings.CutPrefix(filepath.Base(filepath.Dir(parent)), "models--"); ok {
			return strings.ReplaceAll(repository, "--", "/")
		}
	}
	return filepath.Base(dir)
}

// readFile reads a file of the folder.
func (s *Snapshot) readFile(name string) ([]byte, error) {
	limit := int64(maxFileBytes)
	if isVocabulary(name) {
		limit = maxVocabularyBytes
	}
	return readRegular(filepath.Join(s.dir, name), limit)
}

// readRegular reads a whole file that is a file, and not too large.
func readRegular(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, plainError(err)
	}
	if err := checkRegular(info); err != nil {
		return nil, err
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%d bytes: want at most %d", info.Size(), limit)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plainError(err)
	}
	defer f.Close()
	text := make([]byte, info.Size())
	// A file that grows meanwhile is read as it was, one that shrinks is broken.
	if _, err := io.ReadFull(f, text); err != nil {
		return nil, fmt.Errorf("changed while it was read: %w", plainError(err))
	}
	if bytes.HasPrefix(text, []byte("version https://git-lfs")) {
		return nil, errors.New(`is a pointer to a file that Git LFS keeps elsewhere: want the file itself, which "git lfs pull" gets`)
	}
	return text, nil
}

func checkRegular(info fs.FileInfo) error {
	mode := info.Mode()
	what := "no file"
	switch {
	case mode.IsRegular():
		return nil
	case mode.IsDir():
		what = "a folder"
	case mode&fs.ModeNamedPipe != 0:
		what = "a pipe"
	case mode&fs.ModeSocket != 0:
		what = "a socket"
	case mode&fs.ModeDevice != 0:
		what = "a device"
	}
	return fmt.Errorf("is %s: want a regular file", what)
}

// plainError takes the path off an error: the name is told by who asked.
func plainError(err error) error {
	if e, ok := errors.AsType[*fs.PathError](err); ok {
		return e.Err
	}
	return err
}

// found lists what is in the folder, for a message.
func (s *Snapshot) found() string {
	const most = 12
	names := slices.Clone(s.names)
	switch {
	case s.dir == "":
		return ""
	case len(names) == 0:
		return "; the folder is empty"
	case len(names) > most:
		names = append(names[:most], fmt.Sprintf("%d more", len(names)-most))
	}
	return "; the folder has " + strings.Join(names, ", ")
}
