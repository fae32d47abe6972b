package router

import "github.com/dynago/dynago/kv"

// MostStrays is how many blocks of one rank wait for the one before them.
const MostStrays = mostStrays

// Unscaled returns the parameters of the worked examples: a block to compute counts
// as much as one in use.
func Unscaled() Tuning {
	t := DefaultTuning()
	t.PrefillLoadScale = 1
	return t
}

// BookedTargets returns how many targets the books know.
func (r *Router) BookedTargets() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.books.loads)
}

// BookedBlocks returns the names of the blocks in use.
func (r *Router) BookedBlocks() (names []kv.SeqHash) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var walk func(*run)
	walk = func(at *run) {
		names = append(names, at.hashes...)
		for _, child := range at.children {
			walk(child)
		}
	}
	walk(&r.books.blocks.root)
	return names
}
