package kvcache

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
