package janitor

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"

	"github.com/dynago/dynago/kvcache/store"
)

const (
	// attribute is the extended attribute of a file with the retention record of
	// its block; where the file system has none, it lies in a file beside it.
	attribute = "user.kv.retention"
	sidecar   = ".ret"
	// unfinishedRecord ends the name of such a file until it is whole.
	unfinishedRecord = ".new"
)

// Retain puts a retention record beside the files of a block that the last
// sweep found, for later sweeps and for whoever else looks after the directory.
func (j *Janitor) Retain(b Block, record []byte) error {
	h := j.known[b]
	if h == nil {
		return fmt.Errorf("kvcache/janitor: retaining %s: %w", b.Hash, store.ErrNotFound)
	}
	if len(record) > store.MaxTag {
		return fmt.Errorf("kvcache/janitor: a record of %d bytes: %w", len(record), store.ErrTooLarge)
	}
	for _, name := range h.files {
		if err := j.writeRecord(name, record); err != nil {
			return fmt.Errorf("kvcache/janitor: retaining %s: %w", b.Hash, err)
		}
	}
	h.record = slices.Clone(record)
	return nil
}

func (j *Janitor) writeRecord(name string, record []byte) error {
	f, err := j.root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := setAttribute(f, record); !errors.Is(err, errors.ErrUnsupported) {
		return err
	}
	return j.writeSidecar(name, record)
}

// isSidecar reports whether name is that of a record beside a block's file, or of
// one that was not finished.
func (j *Janitor) isSidecar(name string) bool {
	file, ok := strings.CutSuffix(strings.TrimSuffix(name, unfinishedRecord), sidecar)
	if ok {
		_, ok = j.opts.Layout(file)
	}
	return ok
}

// writeSidecar writes the file beside another, whole or not at all.
func (j *Janitor) writeSidecar(name string, record []byte) error {
	const fresh = sidecar + unfinishedRecord
	if err := j.root.WriteFile(name+fresh, record, 0o600); err != nil {
		return err
	}
	return j.root.Rename(name+fresh, name+sidecar)
}

// record returns the retention record of h, which was known as old before. It
// is read once: nobody but this janitor changes it while it looks after the
// directory.
func (j *Janitor) record(h, old *held) []byte {
	if old != nil {
		return old.record
	}
	for _, name := range h.files {
		if record, ok := j.readRecord(name); ok {
			return record
		}
	}
	return nil
}

// readRecord reads the record of one file. One that cannot be read is none.
func (j *Janitor) readRecord(name string) ([]byte, bool) {
	f, err := j.root.Open(name)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	if record, err := getAttribute(f); err == nil {
		return record, true
	}
	return j.readSidecar(name)
}

func (j *Janitor) readSidecar(name string) ([]byte, bool) {
	info, err := j.root.Stat(name + sidecar)
	if err != nil || !info.Mode().IsRegular() || info.Size() > store.MaxTag {
		return nil, false
	}
	b, err := fs.ReadFile(j.root.FS(), name+sidecar)
	return b, err == nil && len(b) <= store.MaxTag
}
