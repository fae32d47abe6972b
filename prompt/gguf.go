package prompt

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/dynago/dynago/engine/tiny/gguf"
)

// ggufFile returns the GGUF file that is the model: the one that the path names,
// or that of a folder without a vocabulary of its own. Of a model in parts it is
// the first, which has the metadata.
func (s *Snapshot) ggufFile() (string, error) {
	if s.file != "" {
		if isGGUF(s.file) {
			return s.file, nil
		}
		return "", nil
	}
	if slices.ContainsFunc(s.names, func(name string) bool { return loaderOf(name) != nil }) {
		return "", nil
	}
	files := slices.DeleteFunc(s.ending(".gguf"), func(name string) bool {
		return strings.Contains(name, "-of-") && !strings.Contains(name, "-00001-of-") || strings.HasPrefix(name, "mmproj")
	})
	if len(files) > 1 {
		return "", fmt.Errorf("%s: want the path of the one to take", strings.Join(files, ", "))
	}
	return cmp.Or(append(files, "")...), nil
}

// maxGGUFBytes is how much metadata is read of one file.
const maxGGUFBytes = 1 << 30

// readGGUF reads the metadata of a file of the folder. Of lists only those of the
// tokenizer are kept.
func (s *Snapshot) readGGUF(name string) (gguf.Metadata, error) {
	path := filepath.Join(s.dir, name)
	info, err := os.Stat(path)
	if err == nil {
		err = checkRegular(info)
	}
	if err != nil {
		return nil, plainError(err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, plainError(err)
	}
	defer f.Close()
	return gguf.ReadMetadata(f, min(info.Size(), maxGGUFBytes), func(key string) bool {
		return strings.HasPrefix(key, "tokenizer.")
	})
}
