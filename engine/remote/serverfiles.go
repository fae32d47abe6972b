package remote

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// workerScheme begins the address of a file that the worker itself sends.
const workerScheme = "worker:"

// kinds are the files of a model that frontends need, by patterns of their names,
// and never its weights.
var kinds = []struct{ pattern, kind string }{
	{"config.json", "config"},
	{"generation_config.json", "generation_config"},
	{"tokenizer_config.json", "tokenizer_config"},
	{"chat_template*", "chat_template"},
	{"tokenizer.json", "tokenizer"},
	{"tokenizer.model*", "tokenizer"},
	{"tekken.json", "tokenizer"},
	{"vocab.json", "tokenizer"},
	{"vocab.txt", "tokenizer"},
	{"merges.txt", "tokenizer"},
	{"*.tiktoken", "tokenizer"},
	{"tiktoken.model", "tokenizer"},
	{"added_tokens.json", "tokenizer"},
	{"special_tokens_map.json", "tokenizer"},
}

// kindOfFile returns what a file is for, and whether frontends may have it.
func kindOfFile(name string) (string, bool) {
	for _, k := range kinds {
		if ok, err := path.Match(k.pattern, name); ok && err == nil {
			return k.kind, true
		}
	}
	return "", false
}

// shelf holds the files that cards name, by the names under which they are sent.
type shelf struct {
	mu    sync.Mutex
	files map[string]string // name → path
	place string            // the folder that was looked through last
	refs  []engine.File
	card0 *engine.Card // the last card, and what was made of it
	made  *engine.Card
}

// card returns a card whose files on this machine are sent by this worker.
func (s *shelf) card(c *engine.Card, log *slog.Logger) *engine.Card {
	if c == nil || len(c.Files) == 0 {
		return c
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c == s.card0 {
		return s.made
	}
	place := strings.TrimPrefix(c.Files[0].URI, "file://")
	if info, err := os.Stat(place); err != nil || !filepath.IsAbs(place) {
		return c // builtin:, or a place that frontends may know
	} else if !info.IsDir() {
		log.Warn("the model's file is not sent to frontends: they take folders", "file", place)
		return c
	}
	if place != s.place {
		files, refs, err := survey(place)
		if err != nil {
			log.Warn("the model's files are not sent to frontends", "error", err)
			return c
		}
		s.place, s.files, s.refs = place, files, refs
	}
	made := *c
	made.Files = s.refs
	s.card0, s.made = c, &made
	return s.made
}

// survey finds what may be sent of a folder.
func survey(dir string) (files map[string]string, refs []engine.File, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	files = map[string]string{}
	for _, e := range entries {
		kind, ok := kindOfFile(e.Name())
		if !ok {
			continue
		}
		at := filepath.Join(dir, e.Name())
		sum, size, err := digest(at)
		if err != nil {
			return nil, nil, err
		}
		if size > maxFile {
			return nil, nil, fmt.Errorf("%s has %d bytes, want at most %d", at, size, maxFile)
		}
		files[e.Name()] = at
		refs = append(refs, engine.File{Kind: kind, URI: workerScheme + e.Name(), SHA256: sum, Size: size})
	}
	slices.SortStableFunc(refs, func(a, b engine.File) int { return strings.Compare(b.Kind, a.Kind) })
	return files, refs, nil
}

func digest(path string) (sum string, size int64, err error) {
	f, err := os.Open(path)
	if err != nil {
		return "", 0, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || !info.Mode().IsRegular() {
		return "", 0, fmt.Errorf("%s is not a regular file", path)
	}
	h := sha256.New()
	if size, err = io.Copy(h, f); err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), size, nil
}

// path returns where a file is that a card names.
func (s *shelf) path(name string) (string, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ok := s.files[name]
	return p, ok
}

// File sends one of the model's files, from an offset on.
func (s *Server) File(m *workerpb.FileRequest, stream workerpb.Worker_FileServer) error {
	at, ok := s.shelf.path(m.Name)
	if !ok {
		return fail(stream, engine.Errorf(engine.NotFound, "the card names no file %q", m.Name))
	}
	f, err := os.Open(at)
	if err != nil {
		return fail(stream, engine.Errorf(engine.Internal, "file %q cannot be read", m.Name))
	}
	defer f.Close()
	if _, err := f.Seek(int64(min(m.Offset, maxFile)), io.SeekStart); err != nil {
		return fail(stream, engine.Errorf(engine.Internal, "file %q cannot be read from %d on", m.Name, m.Offset))
	}
	for buf := make([]byte, fileChunk); ; {
		n, err := io.ReadFull(f, buf)
		if n > 0 {
			if err := stream.Send(&workerpb.FileChunk{Data: buf[:n]}); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil
		}
		if err != nil {
			return fail(stream, engine.Errorf(engine.Internal, "file %q: the reading of it failed", m.Name))
		}
	}
}
