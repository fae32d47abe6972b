package disk_test

import (
	"bytes"
	"io"
	"slices"
	"sync"

	"github.com/dynago/dynago/kvcache/disk"
)

// platter is a disk in memory with the two files of a store. It remembers each
// write, so that it can be seen as it was at any moment, and fails when told.
type platter struct {
	mu    sync.Mutex
	files [2]image
	log   []write
	// fail, if not nil, is asked before each call; nothing is done if it returns
	// an error.
	fail func(op string) error
}

// image is what one file holds.
type image []byte

// write is one change of a file. A grow or truncate has no data and a size; a
// sync has neither.
type write struct {
	file int
	op   string // "write", "size", "sync"
	off  int64
	data []byte
	size int64
}

// apply carries w out, of its data only the first n bytes.
func (m *image) apply(w write, n int) {
	switch w.op {
	case "write":
		if n > 0 {
			*m = grown(*m, w.off+int64(n))
			copy((*m)[w.off:], w.data[:n])
		}
	case "size":
		*m = grown(*m, w.size)[:w.size]
	}
}

func grown(m image, size int64) image {
	if int64(len(m)) < size {
		m = append(m, make(image, size-int64(len(m)))...)
	}
	return m
}

// after returns the platter as it is once the first n changes are made, and so
// many bytes of the next one.
func (p *platter) after(n, torn int) *platter {
	out := &platter{}
	for _, w := range p.log[:n] {
		out.files[w.file].apply(w, len(w.data))
	}
	if torn > 0 {
		out.files[p.log[n].file].apply(p.log[n], torn)
	}
	return out
}

func (p *platter) clone() *platter {
	return &platter{files: [2]image{slices.Clone(p.files[0]), slices.Clone(p.files[1])}}
}

func (p *platter) values() disk.File  { return platterFile{p, 0} }
func (p *platter) records() disk.File { return platterFile{p, 1} }

type platterFile struct {
	p *platter
	i int
}

func (f platterFile) change(w write) error {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.p.fail != nil {
		if err := f.p.fail(w.op); err != nil {
			return err
		}
	}
	w.file = f.i
	f.p.log = append(f.p.log, w)
	f.p.files[f.i].apply(w, len(w.data))
	return nil
}

func (f platterFile) WriteAt(b []byte, off int64) (int, error) {
	if err := f.change(write{op: "write", off: off, data: bytes.Clone(b)}); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (f platterFile) ReadAt(b []byte, off int64) (int, error) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	if f.p.fail != nil {
		if err := f.p.fail("read"); err != nil {
			return 0, err
		}
	}
	if off >= int64(len(f.p.files[f.i])) {
		return 0, io.EOF
	}
	n := copy(b, f.p.files[f.i][off:])
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (f platterFile) Size() (int64, error) {
	f.p.mu.Lock()
	defer f.p.mu.Unlock()
	return int64(len(f.p.files[f.i])), nil
}

func (f platterFile) Grow(size int64) error {
	if have, _ := f.Size(); have >= size {
		return nil
	}
	return f.change(write{op: "size", size: size})
}
func (f platterFile) Truncate(size int64) error { return f.change(write{op: "size", size: size}) }
func (f platterFile) Sync() error               { return f.change(write{op: "sync"}) }
func (f platterFile) Close() error              { return nil }
