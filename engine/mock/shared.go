package mock

import (
	"sync"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// Shared is what several cores have together: a store (G4), and the disk (G3) if
// the arguments say so, so that each of them loads what another has computed.
// Cores that share something must not be called at the same time, and count time
// from one start. Engines that share it see to that themselves.
type Shared struct {
	disk, store *kvcache.Tier // or nil

	clock wall       // of engines that have none
	mu    sync.Mutex // of all ranks of all engines

	joined sync.Mutex
	using  map[*Engine]bool
	told   uint64 // the Generation of which they know
}

// NewShared returns what engines with these arguments share, or nil if that is
// nothing. Engines with other sizes may join it; its own hold.
func NewShared(a Args) *Shared {
	sizes := a.Tiers()
	s := &Shared{clock: newWall(), using: map[*Engine]bool{}}
	if a.DiskShared && sizes[kv.TierDisk] > 0 {
		s.disk = kvcache.NewTier(kv.TierDisk, kvcache.NewPool(a.pool(kv.TierDisk)))
	}
	if sizes[kv.TierShared] > 0 {
		s.store = kvcache.NewTier(kv.TierShared, kvcache.NewPool(a.pool(kv.TierShared)))
	}
	if s.disk == nil && s.store == nil {
		return nil
	}
	return s
}

// Generation changes whenever something is stored there or removed. Then each
// core has [Core.News].
func (s *Shared) Generation() (n uint64) {
	if s == nil {
		return 0
	}
	for _, t := range []*kvcache.Tier{s.disk, s.store} {
		if t != nil {
			n += t.Generation()
		}
	}
	return n
}

// NewCore returns an idle core that shares s, which may be nil: then what would be
// shared is its own. The arguments must be valid.
func (s *Shared) NewCore(a Args) *Core { return newCore(a, s, nil, nil) }

func (s *Shared) join(e *Engine) {
	if s != nil {
		s.joined.Lock()
		defer s.joined.Unlock()
		s.using[e] = true
	}
}

func (s *Shared) leave(e *Engine) {
	if s != nil {
		s.joined.Lock()
		defer s.joined.Unlock()
		delete(s.using, e)
	}
}

// announce lets all engines tell their readers what has happened to what they share.
// The lock of their ranks must be held.
func (s *Shared) announce() {
	if s == nil || s.told == s.Generation() {
		return
	}
	s.told = s.Generation()
	s.joined.Lock()
	defer s.joined.Unlock()
	for e := range s.using {
		e.events.ring()
	}
}
