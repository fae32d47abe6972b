package store

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// A record is a file named after its id. One that can no longer be asked for, but
// that others stand on, has another ending; a rename is all it takes.
const (
	recordEnding = ".response"
	nodeEnding   = ".ancestor"
	newPrefix    = "new-"
)

// touchEvery is how exactly the time of a file tells when it was used last.
const touchEvery = 30 * time.Second

// lostAfter is the silence after which whoever was making a response has ended:
// [Store.Sweep] touches what is being made, and comes at least once a minute.
const lostAfter = 3 * time.Minute

// abandoned is the age at which what was never finished, or cannot be read, is
// removed.
const abandoned = 10 * time.Minute

// directory is the files of a store. Several processes may share it: a file
// appears whole, and never changes but for its time and its ending.
type directory struct {
	path string

	scan    sync.Mutex      // one at a time
	scanned time.Time       // when the last one began
	torn    map[string]bool // what the last one could not read
}

func openDirectory(path string) (*directory, error) {
	if err := os.MkdirAll(path, 0o700); err != nil {
		return nil, fmt.Errorf("responses store: %w", err)
	}
	return &directory{path: path, torn: map[string]bool{}}, nil
}

func (d *directory) file(id, ending string) string {
	return filepath.Join(d.path, id+ending)
}

// isID says whether a text can be the id of a stored response, and so the name of
// a file. Ids are ours, but the text may come from a client.
func isID(s string) bool {
	if s == "" || len(s) > 128 {
		return false
	}
	return strings.IndexFunc(s, func(r rune) bool {
		return r != '_' && r != '-' && (r < '0' || r > '9') && (r < 'A' || r > 'Z') && (r < 'a' || r > 'z')
	}) < 0
}

// write makes the file of a record, in place of one of its id, and returns its
// size.
func (d *directory) write(now time.Time, r *Record, parent string, s sum) (int64, error) {
	if !isID(r.ID) {
		return 0, fmt.Errorf("%q cannot be the name of a file", r.ID)
	}
	b := appendRecord(nil, r, parent, s)
	f, err := os.CreateTemp(d.path, newPrefix+"*")
	if err != nil {
		return 0, err
	}
	_, err = f.Write(b)
	if err = errors.Join(err, f.Close(), os.Chtimes(f.Name(), now, now)); err == nil {
		err = os.Rename(f.Name(), d.file(r.ID, recordEnding))
	}
	if err != nil {
		os.Remove(f.Name()) //nolint:errcheck // a scan removes it later
		return 0, err
	}
	return int64(len(b)), nil
}

// read returns the record of a file, whatever its ending.
func (d *directory) read(id string) (*Record, error) {
	for _, ending := range [...]string{recordEnding, nodeEnding} {
		b, err := os.ReadFile(d.file(id, ending))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return decodeRecord(b)
	}
	return nil, fs.ErrNotExist
}

// head reads the head of a file.
func (d *directory) head(file string) (*head, time.Time, error) {
	f, err := os.Open(filepath.Join(d.path, file))
	if err != nil {
		return nil, time.Time{}, err
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return nil, time.Time{}, err
	}
	b := make([]byte, min(4096, stat.Size()))
	if _, err := io.ReadFull(f, b); err != nil {
		return nil, time.Time{}, err
	}
	n, err := headLength(b)
	if err == nil && int64(prefixLen+n) > stat.Size() {
		err = errTorn
	}
	if err != nil {
		return nil, stat.ModTime(), err
	}
	if rest := prefixLen + n - len(b); rest > 0 {
		b = append(b, make([]byte, rest)...)
		if _, err := io.ReadFull(f, b[len(b)-rest:]); err != nil {
			return nil, time.Time{}, err
		}
	}
	h, err := decodeHead(b)
	if err == nil && (h.bytes != stat.Size() || !strings.HasPrefix(file, h.record.ID+".")) {
		err = errTorn
	}
	return h, stat.ModTime(), err
}

// leave does to the files what has happened in the tree. Another process may
// have been first.
func (d *directory) leave(left []leaving) {
	for _, l := range left {
		if !l.gone {
			os.Rename(d.file(l.id, recordEnding), d.file(l.id, nodeEnding)) //nolint:errcheck // see above
			continue
		}
		os.Remove(d.file(l.id, recordEnding)) //nolint:errcheck // see above
		os.Remove(d.file(l.id, nodeEnding))   //nolint:errcheck // see above
	}
}

// touch lets other processes know that a record was used, or is being made.
func (d *directory) touch(n *node, now time.Time) {
	if !n.touched.IsZero() && now.Sub(n.touched) < touchEvery {
		return
	}
	n.touched = now
	os.Chtimes(d.file(n.id, recordEnding), now, now) //nolint:errcheck // it is evicted sooner, that is all
}

// silent says whether nobody has touched a file for long.
func (d *directory) silent(id string, now time.Time) bool {
	stat, err := os.Stat(d.file(id, recordEnding))
	return err == nil && now.Sub(stat.ModTime()) > lostAfter
}

// sighting is a file that is not in the tree yet.
type sighting struct {
	head *head
	used time.Time
	live bool
}

// sight looks for the file of an id.
func (d *directory) sight(id string) *sighting {
	for _, ending := range [...]string{recordEnding, nodeEnding} {
		if h, used, err := d.head(id + ending); err == nil {
			return &sighting{h, used, ending == recordEnding}
		}
	}
	return nil
}
