// Package file is a source of workers that are written down: in one file, or in
// every *.yaml of a folder, as a volume of Kubernetes has them.
//
// The one idea: what counts is what the files say, not what happened to them. They
// are read again every second, and what two looks in a row have found the same
// holds, whether a file was written in place, renamed over or is behind a link that
// now points elsewhere. A file that says nothing sensible keeps what it said last.
package file

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/fleet"
)

const (
	// every is how often files are looked at.
	every = time.Second
	// mostBytes and mostFiles bound what is read.
	mostBytes = 4 << 20
	mostFiles = 4096
)

// Source is the workers of a file or of a folder. Its methods may be called from any
// goroutine.
type Source struct {
	path  string
	parse func(name string, text []byte) ([]fleet.Wanted, error)

	mu   sync.Mutex
	last *look                     // that holds; nil before the first
	good map[string][]fleet.Wanted // what files said that made sense
}

// look is what was found in one look.
type look struct {
	texts map[string][]byte // by file
	err   error
}

func (l *look) same(other *look) bool {
	return other != nil && maps.EqualFunc(l.texts, other.texts, bytes.Equal) && fmt.Sprint(l.err) == fmt.Sprint(other.err)
}

// New returns a source of what lies at path. parse reads one file; its error names
// the line, and what would be right.
func New(path string, parse func(name string, text []byte) ([]fleet.Wanted, error)) *Source {
	return &Source{path: path, parse: parse, good: map[string][]fleet.Wanted{}}
}

// Path returns where the files are.
func (s *Source) Path() string { return s.path }

// Read reads the files now, and returns all that they want. With an error comes what
// is good of it; nil if nothing could be read at all, and then what they wanted
// before holds.
func (s *Source) Read() ([]fleet.Wanted, error) {
	now := s.look()
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.take(now)
}

// Watch yields what [Source.Read] does, at once and after every change.
func (s *Source) Watch(ctx context.Context) iter.Seq2[[]fleet.Wanted, error] {
	return func(yield func([]fleet.Wanted, error) bool) {
		tick := time.NewTicker(every)
		defer tick.Stop()
		for before := (*look)(nil); ; {
			now := s.look()
			if s.news(now, before) {
				s.mu.Lock()
				list, err := s.take(now)
				s.mu.Unlock()
				if !yield(list, err) {
					return
				}
			}
			before = now
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
		}
	}
}

// news says whether a look has found something else than what holds, and the look
// before the same: a file that is being written says half of what it is to say.
func (s *Source) news(now, before *look) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last == nil || !now.same(s.last) && now.same(before)
}

// take makes what was found what holds. The lock must be held.
func (s *Source) take(now *look) ([]fleet.Wanted, error) {
	s.last = now
	if now.err != nil {
		return nil, now.err
	}
	for name := range s.good {
		if _, ok := now.texts[name]; !ok {
			delete(s.good, name)
		}
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(now.texts)) {
		list, err := s.parse(name, now.texts[name])
		if err != nil {
			faults = append(faults, err)
			continue
		}
		s.good[name] = list
	}
	list, where := []fleet.Wanted{}, map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(s.good)) {
		for _, w := range s.good[name] {
			if other, ok := where[w.Name]; ok {
				faults = append(faults, fmt.Errorf("%s: %s stands in %s already, and that counts", name, w.Name, other))
				continue
			}
			where[w.Name] = name
			list = append(list, w)
		}
	}
	return list, errors.Join(faults...)
}

// look reads all files.
func (s *Source) look() *look {
	texts, err := s.texts()
	if err != nil {
		return &look{err: fmt.Errorf("workers cannot be read: %w", err)}
	}
	return &look{texts: texts}
}

func (s *Source) texts() (map[string][]byte, error) {
	info, err := os.Stat(s.path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		text, err := read(s.path)
		return map[string][]byte{s.path: text}, err
	}
	texts := map[string][]byte{}
	err = filepath.WalkDir(s.path, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		hidden := strings.HasPrefix(d.Name(), ".") && path != s.path
		switch {
		case d.IsDir() && hidden:
			return fs.SkipDir // where a volume of Kubernetes keeps what its links point to
		case d.IsDir() || hidden || filepath.Ext(path) != ".yaml" && filepath.Ext(path) != ".yml":
			return nil
		case len(texts) == mostFiles:
			return fmt.Errorf("%s has more than %d files", s.path, mostFiles)
		}
		text, err := read(path)
		texts[path] = text
		return err
	})
	return texts, err
}

// read reads a file that is one, behind links or not.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, mostBytes+1))
	if len(text) > mostBytes {
		return nil, fmt.Errorf("%s has more than %d bytes", path, mostBytes)
	}
	return text, err
}
