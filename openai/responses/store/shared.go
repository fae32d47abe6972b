package store

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// What other processes do in the directory is found out when something is asked
// for that is not in the tree, and now and then by a look at all of it.

// adopt takes in a record that another process has written, and what it stands
// on. It returns whether there is a file.
func (s *Store) adopt(id string) bool {
	fresh := map[string]*sighting{}
	if s.grown(id) {
		return true
	}
	for next := id; isID(next) && fresh[next] == nil && !s.knows(next); {
		at := s.dir.sight(next)
		if at == nil {
			break
		}
		fresh[next] = at
		next = at.head.parent
	}
	if len(fresh) == 0 {
		return false
	}
	s.take(fresh)
	return true
}

// grown looks at a response again that was being made elsewhere when it was seen
// last, and says whether it is finished now.
func (s *Store) grown(id string) bool {
	s.mu.Lock()
	old := s.files[id]
	look := old != nil && old.live && old.unfinished && !s.making[id]
	s.mu.Unlock()
	if !look {
		return false
	}
	at := s.dir.sight(id)
	if at == nil || !at.head.record.Finished() {
		return false
	}
	s.locked(func(now time.Time) {
		if s.files[id] != old {
			return
		}
		parent := old.parent
		if parent != nil {
			parent.children++ // it has to stay for what comes next
		}
		if s.drop(old) {
			if n := s.hang(now, at); n != nil {
				s.tree.prune(n)
			}
		}
		if parent != nil {
			parent.children--
			s.tree.prune(parent)
		}
		s.tree.settle(now)
	})
	return true
}

// drop takes a record out of the tree whose file another is about to take. It
// returns false if others stand on it.
func (s *Store) drop(old *node) bool {
	if old == nil {
		return true
	}
	if old.children > 0 || !old.live {
		return false
	}
	s.tree.retire(old)
	s.left = slices.DeleteFunc(s.left, func(l leaving) bool { return l.id == old.id })
	return true
}

func (s *Store) knows(id string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.files[id] != nil
}

// take puts files into the tree, each after what it stands on.
func (s *Store) take(fresh map[string]*sighting) {
	s.locked(func(now time.Time) {
		var bare []*node // that stay only if something stands on them
		for id := range fresh {
			for _, at := range ancestry(fresh, id) {
				delete(fresh, at.head.record.ID)
				if n := s.hang(now, at); n != nil && !n.live {
					bare = append(bare, n)
				}
			}
		}
		for _, n := range bare {
			s.tree.prune(n)
		}
		s.tree.settle(now)
	})
}

// ancestry returns what a file stands on among others, and itself, the oldest
// first.
func ancestry(fresh map[string]*sighting, id string) []*sighting {
	var line []*sighting
	for at := fresh[id]; at != nil && len(line) <= len(fresh); at = fresh[at.head.parent] {
		line = append(line, at)
	}
	for i, j := 0, len(line)-1; i < j; i, j = i+1, j-1 {
		line[i], line[j] = line[j], line[i]
	}
	return line
}

// hang puts one file into the tree.
func (s *Store) hang(now time.Time, at *sighting) *node {
	r := &at.head.record
	if s.files[r.ID] != nil {
		return nil
	}
	parent := s.files[at.head.parent]
	n := newNode(name{r.Tenant, r.ID}, at.head.bytes, 0, r.ids(), at.used, r.Expires)
	n.sum, n.unfinished = at.head.sum, !r.Finished()
	n.orphan = at.head.parent != "" && (parent == nil || parent.orphan)
	if !s.tree.hang(n, parent) {
		s.left = append(s.left, leaving{r.ID, true})
		return nil
	}
	s.files[r.ID] = n
	if at.live && r.Expires.After(now) {
		s.tree.revive(n)
	}
	return n
}

// rescan makes the tree agree with the directory. A thorough one also looks when
// files were used.
func (s *Store) rescan(thorough bool) error {
	asked := s.now()
	d := s.dir
	d.scan.Lock()
	defer d.scan.Unlock()
	if d.scanned.After(asked) && !thorough {
		return nil // somebody else has done it meanwhile
	}
	d.scanned = s.now()
	s.mu.Lock()
	known := make(map[string]bool, len(s.files)) // whether it was seen
	for id := range s.files {
		known[id] = false
	}
	s.mu.Unlock()
	entries, err := os.ReadDir(d.path)
	if err != nil {
		return fmt.Errorf("responses store: %w", err)
	}

	fresh := map[string]*sighting{}
	torn := map[string]bool{}
	var used []use
	for _, entry := range entries {
		file := entry.Name()
		id, ending := file, filepath.Ext(file)
		id = strings.TrimSuffix(id, ending)
		if ending != recordEnding && ending != nodeEnding {
			d.clean(entry)
			continue
		}
		if _, ok := known[id]; ok {
			known[id] = true
			u := use{id: id, live: ending == recordEnding}
			if stat, err := entry.Info(); thorough && err == nil {
				u.last = stat.ModTime()
			}
			used = append(used, u)
			continue
		}
		h, last, err := d.head(file)
		switch {
		case err == nil:
			fresh[id] = &sighting{h, last, ending == recordEnding}
		case errors.Is(err, errTorn):
			torn[file] = true
			if d.torn[file] {
				d.clean(entry)
			}
		}
	}
	s.take(fresh)
	s.locked(func(time.Time) {
		for file := range torn {
			if !d.torn[file] {
				s.stats.Torn++
			}
		}
		s.follow(known, used)
	})
	d.torn = torn
	return nil
}

// use is what a file tells of its record.
type use struct {
	id   string
	live bool
	last time.Time
}

// follow does to the tree what others have done to files.
func (s *Store) follow(known map[string]bool, used []use) {
	for _, u := range used {
		n := s.files[u.id]
		if n == nil || !n.live {
			continue
		}
		if !u.live {
			s.tree.retire(n)
		} else if u.last.After(n.used) {
			s.tree.use(n, u.last)
		}
	}
	for id, seen := range known {
		if n := s.files[id]; !seen && n != nil && n.live {
			s.tree.retire(n)
		}
	}
}

// clean removes a file that has been of no use for long: one that was never
// finished, or that is torn.
func (d *directory) clean(entry fs.DirEntry) {
	file := entry.Name()
	ours := strings.HasPrefix(file, newPrefix) || strings.HasSuffix(file, recordEnding) || strings.HasSuffix(file, nodeEnding)
	if stat, err := entry.Info(); ours && err == nil && time.Since(stat.ModTime()) > abandoned {
		os.Remove(filepath.Join(d.path, file)) //nolint:errcheck // the next scan tries again
	}
}
