package kvcache

import (
	"slices"
	"time"
)

// transferBounds are in seconds.
var transferBounds = [...]float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10}

// TransferBounds are the bounds of [WayStats.Within], in seconds.
func TransferBounds() []float64 { return transferBounds[:] }

// took counts a transfer.
func (s *WayStats) took(d time.Duration) {
	s.Transfers++
	s.Time += d
	if i, _ := slices.BinarySearch(transferBounds[:], d.Seconds()); i < len(s.Within) {
		s.Within[i]++
	}
}

// PinnedBlocks returns how many blocks have soft pins only, and how many a hard one,
// in use or idle.
func (k *keeper) PinnedBlocks() (soft, hard int) {
	return k.pinnedAs[byAny] - k.pinnedAs[byHard], k.pinnedAs[byHard]
}

// Expired returns how often priorities or pins of a block came to the end of their
// time. What ends at one moment counts once.
func (k *keeper) Expired() int64 { return k.expired }

// EachSession calls do for all sessions that are known, in no order, with how many
// blocks are tagged with each.
func (k *keeper) EachSession(do func(id SessionID, state SessionState, blocks int)) {
	for id, n := range k.byID {
		do(id, k.SessionState(id), k.sessions[n].live)
	}
}
