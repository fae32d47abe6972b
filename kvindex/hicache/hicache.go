// Package hicache knows which pages of a prompt lie in the store that the
// hierarchical caches of SGLang's workers share.
//
// The one idea: a page's name follows from the tokens up to its end, and the
// names of the objects it is stored as follow from that and from how the model
// is laid out over its workers. So the store's own events, of objects that come
// and go, are kept as a set and nothing else, and a prompt is looked up in it by
// computing names. What may have been missed empties the set.
package hicache

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/dynago/dynago/kv"
	"github.com/zeebo/xxh3"
)

// Layout is how a model's pages are spread over objects of the store. All
// workers of a model must agree on it.
type Layout struct {
	Backend  string // only "mooncake" can be looked up
	PageSize int    // tokens
	TP, PP   int    // tensor- and pipeline-parallel ranks; 0 is 1
	// MLA says that all tensor-parallel ranks hold the same.
	MLA bool
	// Eagle says that pages hold pairs of tokens.
	Eagle bool
	// SplitHeads says that pages are stored by heads, in as many parts as LCM,
	// the least multiple that workers of different TP have in common.
	SplitHeads bool
	LCM        int
	Tag        string // before each name; empty: none
}

// mostParts is how many objects a page may have.
const mostParts = 4096

// validate says what is wrong with a layout.
func (l *Layout) validate() error {
	switch {
	case l.Backend != "mooncake":
		return fmt.Errorf("hicache: backend %q: only mooncake tells what it holds", l.Backend)
	case l.PageSize < 1:
		return fmt.Errorf("hicache: page size %d: want 1 or more", l.PageSize)
	case l.TP < 0, l.PP < 0, l.LCM < 0, l.TP > mostParts, l.PP > mostParts, l.LCM > mostParts,
		2*max(1, l.PP)*max(1, l.TP, l.LCM) > mostParts:
		return fmt.Errorf("hicache: %d by %d ranks, %d parts: want at most %d objects for a page", l.TP, l.PP, l.LCM, mostParts)
	}
	return nil
}

// suffixes returns what follows a page's name in the names of its objects.
func (l *Layout) suffixes() (out []string) {
	tp, pp := max(1, l.TP), max(1, l.PP)
	if l.MLA {
		if pp == 1 {
			return []string{"__k"}
		}
		for stage := range pp {
			out = append(out, "_"+strconv.Itoa(stage)+"_k")
		}
		return out
	}
	if l.SplitHeads {
		tp = max(tp, l.LCM)
	}
	for stage := range pp {
		for rank := range tp {
			part := "_" + strconv.Itoa(rank)
			if pp > 1 {
				part += "_" + strconv.Itoa(stage)
			}
			out = append(out, part+"_k", part+"_v")
		}
	}
	return out
}

// Event is one object of the store that came or went.
type Event struct {
	Stored bool // else removed
	Key    string
	Tenant string
}

// MostKeys is how many objects an [Index] remembers. With more it forgets all.
const MostKeys = 1_000_000

// Index is the set of objects in the store. Its methods may be called from any
// goroutine. The zero value is empty, and knows no layout.
type Index struct {
	mu       sync.RWMutex
	keys     map[xxh3.Uint128]struct{} // by fingerprint; names are long
	layouts  map[uint64]Layout         // by worker
	agreed   *Layout                   // nil while there is none to look up by
	was      *Layout                   // the last one that was agreed on
	suffixes []string
	last     uint64 // number of the newest batch
	begun    bool
	stats    Stats
}

// Stats counts what has happened to an index.
type Stats struct {
	Keys                     int // now
	Stored, Removed          uint64
	Foreign                  uint64 // of other tenants, left out
	Repeated                 uint64 // batches that told nothing new
	Gaps, Overflows, Layouts uint64 // for which all was forgotten
}

// Stats returns the counters as they stand.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	s := x.stats
	s.Keys = len(x.keys)
	return s
}

// Join tells how a worker lays out pages. While workers disagree, or one of them
// has no layout that can be looked up, nothing is found; the error says why.
func (x *Index) Join(worker uint64, l Layout) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.layouts == nil {
		x.layouts = make(map[uint64]Layout)
	}
	x.layouts[worker] = l
	return x.agree()
}

// Leave tells that a worker is gone.
func (x *Index) Leave(worker uint64) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.layouts, worker)
	return x.agree()
}

// agree finds the layout that all workers have. Another one than before makes
// what is known void.
func (x *Index) agree() error {
	var common *Layout
	for worker, l := range x.layouts {
		if err := l.validate(); err != nil {
			x.agreed = nil
			return fmt.Errorf("worker %d: %w", worker, err)
		}
		if common != nil && *common != l {
			x.agreed = nil
			return fmt.Errorf("hicache: worker %d has layout %+v, another has %+v: want the same", worker, l, *common)
		}
		common = &l
	}
	if common == nil {
		x.agreed = nil
		return nil
	}
	suffixes := common.suffixes()
	if x.was != nil && *x.was != *common {
		x.forget()
		x.stats.Layouts++
	}
	x.agreed, x.was, x.suffixes = common, common, suffixes
	return nil
}

// Apply takes in a batch of the store's events. They are numbered without holes;
// after a hole all is forgotten, and the batch is the first again.
func (x *Index) Apply(number uint64, events []Event) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case x.begun && number <= x.last:
		x.stats.Repeated++
		return
	case x.begun && number != x.last+1:
		x.forget()
		x.stats.Gaps++
	}
	x.begun, x.last = true, number
	for _, e := range events {
		switch {
		case e.Tenant != "" && e.Tenant != "default":
			x.stats.Foreign++
		case e.Stored:
			if x.keys == nil {
				x.keys = make(map[xxh3.Uint128]struct{})
			}
			x.keys[xxh3.HashString128(e.Key)] = struct{}{}
			x.stats.Stored++
		default:
			delete(x.keys, xxh3.HashString128(e.Key))
			x.stats.Removed++
		}
		if len(x.keys) > MostKeys {
			x.forget()
			x.stats.Overflows++
		}
	}
}

// Restart makes the next batch the first: the store is another one, or was not
// listened to for a while.
func (x *Index) Restart() {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.forget()
	x.begun = false
}

func (x *Index) forget() { x.keys = nil }

// Check returns which blocks of a prompt are in the store whole: ranges in order
// and apart. Nothing is where blocks are not pages.
func (x *Index) Check(ctx context.Context, tokens []uint32, blockSize int) ([]kv.Span, error) {
	x.mu.RLock()
	agreed, suffixes, empty := x.agreed, x.suffixes, len(x.keys) == 0
	x.mu.RUnlock()
	if agreed == nil || agreed.PageSize != blockSize || empty {
		return nil, nil
	}
	var spans []kv.Span
	name := make([]byte, 0, 128)
	for i, page := range kv.AppendPageHashes(nil, tokens, blockSize, agreed.Eagle) {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		name = name[:0]
		if agreed.Tag != "" {
			name = append(append(name, agreed.Tag...), '_')
		}
		name = append(name, page.String()...)
		if !x.whole(name, suffixes) {
			continue
		}
		if n := len(spans); n > 0 && spans[n-1].End == i {
			spans[n-1].End++
		} else {
			spans = append(spans, kv.Span{Start: i, End: i + 1})
		}
	}
	return spans, nil
}

// whole says whether all objects of a page are there.
func (x *Index) whole(page []byte, suffixes []string) bool {
	x.mu.RLock()
	defer x.mu.RUnlock()
	n := len(page)
	for _, suffix := range suffixes {
		page = append(page[:n], suffix...)
		if _, ok := x.keys[xxh3.Hash128(page)]; !ok {
			return false
		}
	}
	return true
}
