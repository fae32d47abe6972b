package carry

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvcache/store"
)

// Place keeps the bytes of one tier's blocks with a driver.
//
// A tier that a worker has for itself names values by slots, so that a block that
// takes another's slot takes its value's place too, and nothing ever has to be
// deleted. One that workers share names them by the blocks' hashes. Before either
// stands the layout: bytes of another model, or laid out otherwise, have other names
// and are never read.
type Place struct {
	driver store.Driver
	prefix string
	bytes  int      // of a block
	names  []uint32 // by slot; nil: by hash
}

// Own returns a place for a tier of so many slots that is the worker's own, and is
// empty or to be restored. Layout says what the bytes are of.
func Own(d store.Driver, layout string, slots, blockBytes int) *Place {
	p := &Place{driver: d, prefix: layout + "/", bytes: blockBytes, names: make([]uint32, slots)}
	for i := range p.names {
		p.names[i] = uint32(i)
	}
	return p
}

// Shared returns a place that workers with the same layout have together.
func Shared(d store.Driver, layout string, blockBytes int) *Place {
	return &Place{driver: d, prefix: layout + "/", bytes: blockBytes}
}

func (p *Place) key(slot kvcache.Ref, h kv.SeqHash) string {
	if p.names == nil {
		return p.hashed(h)
	}
	return p.numbered(p.names[slot])
}

func (p *Place) hashed(h kv.SeqHash) string { return fmt.Sprintf("%s%016x", p.prefix, uint64(h)) }

func (p *Place) numbered(n uint32) string { return p.prefix + strconv.FormatUint(uint64(n), 10) }

func (p *Place) put(ctx context.Context, slot kvcache.Ref, b kvcache.Block, r kvcache.Record, bytes []byte) error {
	return p.driver.Put(ctx, p.key(slot, b.Hash), bytes, appendTag(nil, b, r))
}

// get returns the bytes of a block. What lies in its place and is not it is as good as
// wrong.
func (p *Place) get(ctx context.Context, slot kvcache.Ref, b kvcache.Block) (*store.Value, error) {
	v, err := p.driver.Get(ctx, p.key(slot, b.Hash))
	if err != nil {
		return nil, err
	}
	if is, _, err := readTag(v.Tag); err != nil || is.Hash != b.Hash || len(v.Bytes) != p.bytes {
		v.Release()
		return nil, fmt.Errorf("kvcache/carry: %d bytes under %s are not block %016x: %w", len(v.Bytes), v.Key, uint64(b.Hash), store.ErrCorrupt)
	}
	return v, nil
}

// tagSize is the length of what lies beside the bytes of a block: its hash, that of
// its parent and of its own tokens, least byte first, and its retention.
const tagSize = 24 + kvcache.RecordSize

func appendTag(dst []byte, b kvcache.Block, r kvcache.Record) []byte {
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Hash))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Parent))
	dst = binary.LittleEndian.AppendUint64(dst, uint64(b.Local))
	return r.Append(dst)
}

// readTag reads a tag. A retention that cannot be right is neutral.
func readTag(tag []byte) (kvcache.Block, kvcache.Record, error) {
	if len(tag) != tagSize {
		return kvcache.Block{}, kvcache.NeutralRecord, fmt.Errorf("kvcache/carry: a tag of %d bytes, want %d", len(tag), tagSize)
	}
	r, _ := kvcache.DecodeRecord(tag[24:])
	return kvcache.Block{
		Hash:   kv.SeqHash(binary.LittleEndian.Uint64(tag)),
		Parent: kv.SeqHash(binary.LittleEndian.Uint64(tag[8:])),
		Local:  kv.LocalHash(binary.LittleEndian.Uint64(tag[16:])),
	}, r, nil
}

// found is a block that an earlier life has left.
type found struct {
	block  kvcache.Block
	record kvcache.Record
	name   uint32
}

// Restore publishes what an earlier life has left in a tier of the worker's own, which
// is empty, oldest first and parents before children, and returns how many blocks that
// are. What is not of use, be it of another layout or too much, is deleted.
func (p *Place) Restore(ctx context.Context, t *kvcache.Tier, zero time.Time) (int, error) {
	if p.names == nil {
		return 0, fmt.Errorf("kvcache/carry: what workers share in the %s tier is looked up, and not restored", t.Kind())
	}
	blocks, err := p.scan(ctx)
	if err != nil {
		return 0, err
	}
	taken := make(map[uint32]bool, len(blocks))
	restored := make([]bool, len(p.names))
	for _, f := range blocks {
		ref, ok := t.Restore(f.block, f.record, zero)
		if !ok {
			return 0, fmt.Errorf("kvcache/carry: there is no slot left in the %s tier for a block that was found", t.Kind())
		}
		p.names[ref], restored[ref], taken[f.name] = f.name, true, true
	}
	next := uint32(0)
	for slot := range p.names {
		if restored[slot] {
			continue
		}
		for taken[next] {
			next++
		}
		p.names[slot] = next
		next++
	}
	return len(blocks), nil
}

// scan returns what is to be restored, in that order.
func (p *Place) scan(ctx context.Context) ([]found, error) {
	var blocks []found
	newest := map[kv.SeqHash]int{}
	var useless []string
	for e, err := range p.driver.Scan(ctx) {
		if err != nil {
			return nil, err
		}
		f, ok := p.find(e)
		if !ok {
			useless = append(useless, e.Key)
			continue
		}
		if old, twice := newest[f.block.Hash]; twice {
			useless = append(useless, p.numbered(blocks[old].name))
			blocks[old].block.Hash = 0
		}
		newest[f.block.Hash] = len(blocks)
		blocks = append(blocks, f)
	}
	blocks = slices.DeleteFunc(blocks, func(f found) bool { return f.block.Hash == 0 })
	if extra := len(blocks) - len(p.names); extra > 0 {
		for _, f := range blocks[:extra] {
			useless = append(useless, p.numbered(f.name))
		}
		blocks = blocks[extra:]
	}
	for _, key := range useless {
		if err := p.driver.Delete(ctx, key); err != nil {
			return nil, err
		}
	}
	return parentsFirst(blocks), nil
}

// find reads what an entry is.
func (p *Place) find(e store.Entry) (f found, ok bool) {
	number, ok := strings.CutPrefix(e.Key, p.prefix)
	if !ok || e.Size != int64(p.bytes) {
		return f, false
	}
	n, err := strconv.ParseUint(number, 10, 32)
	if err != nil || p.numbered(uint32(n)) != e.Key {
		return f, false
	}
	b, r, err := readTag(e.Tag)
	return found{b, r, uint32(n)}, err == nil && b.Hash != 0
}

// parentsFirst orders blocks by how many of their ancestors are among them, and else
// leaves them as they are.
func parentsFirst(blocks []found) []found {
	at := make(map[kv.SeqHash]int, len(blocks))
	for i := range blocks {
		at[blocks[i].block.Hash] = i
	}
	depth := make([]int, len(blocks)) // 0: not known yet
	for i := range blocks {
		var path []int
		above := 0
		for j, ok := i, true; ok; j, ok = at[blocks[j].block.Parent] {
			if depth[j] != 0 {
				above = max(depth[j], 0) // of a ring, which no hashes make, wherever it began
				break
			}
			depth[j] = -1
			path = append(path, j)
		}
		for _, j := range slices.Backward(path) {
			above++
			depth[j] = above
		}
	}
	order := make([]int, len(blocks))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(depth[a], depth[b]) })
	sorted := make([]found, len(blocks))
	for i, j := range order {
		sorted[i] = blocks[j]
	}
	return sorted
}

// Remember writes beside the bytes of a tier's blocks what is asked for them by now,
// for another life, where the driver can.
func (p *Place) Remember(ctx context.Context, t *kvcache.Tier, zero time.Time) error {
	d, ok := p.driver.(store.Retagger)
	if !ok {
		return nil
	}
	for run := range t.Pool().Chains() {
		for _, ref := range run {
			b := t.Block(ref)
			key, tag := p.key(ref, b.Hash), appendTag(nil, b, t.Pool().Record(ref, zero))
			e, err := p.driver.Stat(ctx, key)
			if err != nil || bytes.Equal(e.Tag, tag) {
				continue
			}
			if err := d.Retag(ctx, key, tag); err != nil {
				return err
			}
		}
	}
	return nil
}

// Clear deletes what lies in the place of a tier of the worker's own, of which nothing
// is published any more.
func (p *Place) Clear(ctx context.Context) error {
	var errs []error
	for n := range p.names {
		if err := p.driver.Delete(ctx, p.numbered(p.names[n])); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}
