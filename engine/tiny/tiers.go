package tiny

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache/carry"
	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
)

// Lower says where the blocks lie that the arguments keep below the device: g2_blocks
// in main memory, g3_blocks on a disk, g4_blocks in a store that engines share.
type Lower struct {
	// Dir is where the disks of the ranks are, of one engine at a time: what another
	// engine of the same model has left there is found again. "" is a directory that
	// goes with the engine.
	Dir string
	// Store is what engines share. It is the caller's, who closes it after the last of
	// them. Of g4_blocks and g4_bytes, one may then say how much of it an engine keeps
	// in mind.
	Store store.Driver
}

// Blocks of a store that an engine keeps in mind if nothing else is said.
const defaultSharedBlocks = 1 << 16

// sized returns arguments that fit the model, and what lies below.
func (l *Lower) sized(a mock.Args, m *llama.Model) (mock.Args, error) {
	a.KVBytesPerToken = m.BlockBytes(1)
	sizes := a.Tiers()
	switch {
	case a.DiskShared:
		return a, errors.New("g3_shared is true: want it false, as each engine has a disk of its own, and g4_blocks for what they share")
	case l.Store == nil && sizes[kv.TierShared] > 0:
		return a, errors.New("there are blocks of a shared store (g4_blocks, g4_bytes), and no store")
	case l.Store != nil && sizes[kv.TierShared] == 0:
		a.SharedBlocks = defaultSharedBlocks
	}
	if l.Store != nil && sizes[kv.TierHost] == 0 && sizes[kv.TierDisk] == 0 {
		a.HostBlocks = a.NumGPUBlocks // all that goes to the store and comes from it passes there
	}
	return a, nil
}

// spare is how many blocks a driver has room for besides those of its tier: each that
// takes another's place lies beside it for a moment.
const spare = 64

// lower is the tiers of an engine that have bytes.
type lower struct {
	ranks   []*mock.Bytes
	drivers []store.Driver // the engine's own
	folder  string         // the engine's own, or ""
}

// open opens what lies below the devices of ranks.
func (l *Lower) open(a *mock.Args, ranks []*rank) (_ *lower, err error) {
	opened := &lower{}
	defer func() {
		if err != nil {
			err = errors.Join(err, opened.close())
		}
	}()
	sizes := a.Tiers()
	dir := l.Dir
	if dir == "" && sizes[kv.TierDisk] > 0 {
		if dir, err = os.MkdirTemp("", "dynago-tiny-"); err != nil {
			return nil, err
		}
		opened.folder = dir
	}
	for i, r := range ranks {
		layout, bytes := r.cache.Layout(), len(r.cache.Block(0))
		b := &mock.Bytes{Device: r.cache, Places: map[kv.Tier]*carry.Place{}}
		opened.ranks = append(opened.ranks, b)
		if n := sizes[kv.TierHost]; n > 0 {
			d, err := newHost(n, bytes)
			if err != nil {
				return nil, err
			}
			opened.drivers = append(opened.drivers, d)
			b.Places[kv.TierHost] = carry.Own(d, layout, n, bytes)
		}
		if n := sizes[kv.TierDisk]; n > 0 {
			d, err := openDisk(filepath.Join(dir, fmt.Sprintf("rank-%d", i)), n, bytes)
			if err != nil {
				return nil, err
			}
			opened.drivers = append(opened.drivers, d)
			b.Places[kv.TierDisk] = carry.Own(d, layout, n, bytes)
		}
		if l.Store != nil {
			b.Places[kv.TierShared] = carry.Shared(l.Store, layout, bytes)
		}
	}
	return opened, nil
}

func (l *lower) close() error {
	var errs []error
	for _, d := range l.drivers {
		errs = append(errs, d.Close())
	}
	if l.folder != "" {
		errs = append(errs, os.RemoveAll(l.folder))
	}
	l.drivers, l.folder = nil, ""
	return errors.Join(errs...)
}

// page is what drivers round values to.
const page = 4 << 10

func roundUp(n, to int) int64 { return (int64(n) + int64(to) - 1) / int64(to) * int64(to) }

// newHost returns room for so many blocks in main memory.
func newHost(blocks, bytes int) (store.Driver, error) {
	perBlock := roundUp(bytes, page) + page // more than an entry costs besides
	return memory.New(memory.Options{Capacity: int64(blocks+spare) * perBlock})
}

// openDisk returns room for so many blocks in a directory, with those that are there.
func openDisk(dir string, blocks, bytes int) (store.Driver, error) {
	capacity := int64(blocks+spare) * roundUp(bytes, page)
	step := min(max(capacity/64, 1<<20), 256<<20)
	return disk.Open(context.Background(), disk.Options{Dir: dir, Capacity: capacity, Step: step})
}

// NewStore returns a store in main memory that engines of one process share, as large
// as the arguments say (g4_blocks, g4_bytes), or nil if these have none. What has been
// asked for longest ago makes room.
func NewStore(a mock.Args, m *llama.Model) (store.Driver, error) {
	a.KVBytesPerToken = m.BlockBytes(1)
	n := a.Tiers()[kv.TierShared]
	if n == 0 {
		return nil, nil
	}
	d, err := newHost(n, m.BlockBytes(a.BlockSize))
	if err != nil {
		return nil, err
	}
	return newRecent(d), nil
}

// Close ends running streams with engine_shutdown, and returns when nothing is left
// running and the tiers of the engine are closed. It may be called any number of times.
func (e *Engine) Close() error {
	err := e.Engine.Close()
	e.closing.Do(func() { err = errors.Join(err, e.lower.close()) })
	return err
}

// Unwrap returns the shell, which tells of the tiers.
func (e *Engine) Unwrap() engine.Engine { return e.Engine }
