// Package janitor keeps the directories in which engines store KV blocks as
// files within a size, and tells which blocks lie there. The engines need to
// know nothing of it: SGLang's file backend of HiCache, vLLM's fs tier.
//
// The one idea: a block is all of its files, those of every rank, and goes as
// one. A file is only ever unlinked, which leaves whoever has it open with all
// of its bytes, and never shortened; what an engine writes appears under its
// name when it is whole, by renaming, so that what is found is whole too. The
// block that nobody has read or written for longest goes first.
package janitor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"
	"time"
)

// orphaned is the age at which a file that was never renamed is taken for one
// whose writer has died, and a record without its file for one whose file has gone.
const orphaned = time.Hour

// Options says what a directory is to be.
type Options struct {
	Dir    string
	Layout Layout
	// Capacity is how many bytes the files of blocks may have together.
	Capacity int64
	// Rank says of what a retention record says how much its block is wanted: of
	// two blocks the one with the lower rank goes first, whenever they were used.
	// A block without a record has a nil one. Without Rank all are equal.
	Rank func(record []byte, now time.Time) int
	// Stored and Removed, if not nil, are told of blocks that a sweep finds whole
	// for the first time, or again, and of such of which it then finds files missing
	// or removes them. They are called during Sweep, in the order in which blocks
	// would go.
	Stored, Removed func(Block)
}

// Block is one block of an engine's.
type Block struct {
	// Model is what the engine writes into the name, the model and what else must
	// be equal for caches to be shared; Hash the engine's own, in hexadecimal.
	Model, Hash string
	// Group tells apart the parts that engines store of one hash: vLLM's group of
	// caches, SGLang's further pools.
	Group string
	// Ranks is of how many files the block is whole, as their names say; 0 = as many
	// as any of its model and group has had.
	Ranks int
}

// Janitor is for one directory. Its methods must not overlap.
type Janitor struct {
	opts  Options
	root  *os.Root
	known map[Block]*held // by the last sweep
	told  map[Block]bool  // as stored
	// fullest is how many files a block has had at most.
	fullest map[kind]int
}

// kind is what blocks have in common that are whole with equally many files.
type kind struct{ model, group string }

// held is what lies in the directory of a block.
type held struct {
	Block
	files []string // in the directory
	bytes int64
	used  time.Time // when any of its files was last read or written
	// record is the retention record beside the files, or nil; rank what it
	// means now.
	record []byte
	rank   int
}

// Swept says what a sweep found and did.
type Swept struct {
	// Blocks and Bytes are what is left.
	Blocks int
	Bytes  int64
	// Evicted counts blocks, Orphans files that were never renamed and records whose
	// file has gone.
	Evicted, Orphans int
}

// Open returns a janitor for a directory that exists.
func Open(opts Options) (*Janitor, error) {
	if opts.Layout == nil || opts.Capacity < 0 {
		return nil, fmt.Errorf("kvcache/janitor: %s: want a layout and a capacity that is not negative, not %d", opts.Dir, opts.Capacity)
	}
	root, err := os.OpenRoot(opts.Dir)
	if err != nil {
		return nil, fmt.Errorf("kvcache/janitor: %w", err)
	}
	return &Janitor{opts: opts, root: root, known: map[Block]*held{}, told: map[Block]bool{}, fullest: map[kind]int{}}, nil
}

// Close lets go of the directory.
func (j *Janitor) Close() error { return j.root.Close() }

// Sweep looks at all files, and removes those of blocks that are too much. It
// goes on past files that cannot be removed, and says so in the end.
func (j *Janitor) Sweep(ctx context.Context, now time.Time) (Swept, error) {
	found, orphans, err := j.look(ctx, now)
	if err != nil {
		return Swept{}, fmt.Errorf("kvcache/janitor: %s: %w", j.opts.Dir, err)
	}
	if j.opts.Rank != nil {
		for b, h := range found {
			h.record = j.record(h, j.known[b])
			h.rank = j.opts.Rank(h.record, now)
		}
	}
	order := slices.SortedFunc(maps.Values(found), func(a, b *held) int {
		return cmp.Or(cmp.Compare(a.rank, b.rank), a.used.Compare(b.used), cmp.Compare(a.Hash, b.Hash), cmp.Compare(a.Group, b.Group), cmp.Compare(a.Model, b.Model))
	})
	j.tell(found, order)

	var out Swept
	var failed []error
	for _, name := range orphans {
		if err := j.unlink(name); err != nil {
			failed = append(failed, err)
			continue
		}
		out.Orphans++
	}
	for _, h := range order {
		out.Blocks++
		out.Bytes += h.bytes
	}
	for _, h := range order {
		if out.Bytes <= j.opts.Capacity || ctx.Err() != nil {
			break
		}
		if err := j.evict(h); err != nil {
			failed = append(failed, err)
			continue
		}
		out.Blocks--
		out.Bytes -= h.bytes
		out.Evicted++
	}
	if err := errors.Join(append(failed, ctx.Err())...); err != nil {
		return out, fmt.Errorf("kvcache/janitor: %s: %w", j.opts.Dir, err)
	}
	return out, nil
}

// look returns what lies in the directory, and files that were left behind.
func (j *Janitor) look(ctx context.Context, now time.Time) (found map[Block]*held, orphans []string, err error) {
	found = map[Block]*held{}
	var last string // the block's file that was found last
	err = fs.WalkDir(j.root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil // gone since it was listed
		}
		if err = cmp.Or(ctx.Err(), err); err != nil || !d.Type().IsRegular() {
			return err
		}
		info, err := d.Info()
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		b, ok := j.opts.Layout(name)
		if !ok {
			// The record of a file comes right behind it.
			left := j.unfinished(name) || j.isSidecar(name) && strings.TrimSuffix(name, sidecar) != last
			if left && now.Sub(info.ModTime()) > orphaned {
				orphans = append(orphans, name)
			}
			return nil
		}
		last = name
		h := found[b]
		if h == nil {
			h = &held{Block: b}
			found[b] = h
		}
		h.files = append(h.files, name)
		h.bytes += info.Size()
		h.used = later(h.used, lastUse(info))
		return nil
	})
	return found, orphans, err
}

// unfinished reports whether name is that of a block's file with what engines
// add to it until the file is whole: ….bin_1a2b.tmp, ….bin.tmp.12.34.1a2b.
func (j *Janitor) unfinished(name string) bool {
	i := strings.LastIndex(name, ".bin")
	if i < 0 {
		return false
	}
	end := i + len(".bin")
	_, ok := j.opts.Layout(name[:end])
	return ok && (strings.HasSuffix(name[end:], ".tmp") || strings.HasPrefix(name[end:], ".tmp."))
}

// tell tells of the difference to what was known.
func (j *Janitor) tell(found map[Block]*held, order []*held) {
	for b, h := range found {
		k := kind{b.Model, b.Group}
		j.fullest[k] = max(j.fullest[k], len(h.files))
	}
	for b, old := range j.known {
		if h := found[b]; h == nil || len(h.files) < len(old.files) || !j.whole(h) {
			j.forget(b)
		}
	}
	for _, h := range order {
		j.known[h.Block] = h
		if j.whole(h) && !j.told[h.Block] {
			j.told[h.Block] = true
			if j.opts.Stored != nil {
				j.opts.Stored(h.Block)
			}
		}
	}
}

// whole reports whether a block has all of its files.
func (j *Janitor) whole(h *held) bool {
	return len(h.files) >= cmp.Or(h.Ranks, j.fullest[kind{h.Model, h.Group}])
}

func (j *Janitor) forget(b Block) {
	delete(j.known, b)
	if j.told[b] && j.opts.Removed != nil {
		j.opts.Removed(b)
	}
	delete(j.told, b)
}

// evict unlinks the files of a block. Once one of them is gone the block is.
func (j *Janitor) evict(h *held) error {
	j.forget(h.Block)
	var failed []error
	for _, name := range h.files {
		if err := j.unlink(name); err != nil {
			failed = append(failed, err)
		}
	}
	return errors.Join(failed...)
}

// unlink removes a file and the record of retention beside it, if they are
// there still. Directories stay, as a writer may be about to use them.
func (j *Janitor) unlink(name string) error {
	for _, name := range []string{name, name + sidecar} {
		if err := j.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
