package kvindex

import "github.com/dynago/dynago/kv"

// Stats counts what an index holds and what has happened to it.
type Stats struct {
	Targets  int // targets that hold something, or did and were not removed
	Nodes    int // runs of blocks that the tree is made of
	Prefixes int // distinct blocks under everything before them
	Blocks   int // engine keys, over all targets

	// Events applied, failed ones included.
	Stored, Removed, Cleared uint64
	// Events that failed, by reason.
	ParentNotFound, BlockNotFound, InvalidSequence, Unsupported, Full uint64
	// Conflicts counts blocks whose key was known with another content or
	// parent; the older meaning stays.
	Conflicts uint64
	// Duplicates counts blocks that were told of again where they were known to be.
	Duplicates uint64
}

// Stats returns the counters as they stand.
func (x *Index) Stats() Stats {
	x.mu.RLock()
	defer x.mu.RUnlock()
	x.tree.mu.Lock()
	s := x.stats
	s.Nodes, s.Prefixes = x.tree.nodes.used, x.tree.blocks
	x.tree.mu.Unlock()
	s.Targets = len(x.targets)
	for _, h := range x.targets {
		s.Blocks += int(h.blocks.Load())
	}
	return s
}

func (s *Stats) count(kind kv.EventKind, err error) {
	switch kind {
	case kv.Stored:
		s.Stored++
	case kv.Removed:
		s.Removed++
	case kv.Cleared:
		s.Cleared++
	}
	switch err {
	case ErrParentNotFound:
		s.ParentNotFound++
	case ErrBlockNotFound:
		s.BlockNotFound++
	case ErrInvalidSequence:
		s.InvalidSequence++
	case ErrUnsupported:
		s.Unsupported++
	case ErrFull:
		s.Full++
	}
}
