//go:build !invariants

package kvindex

// check does nothing without the build tag invariants, of the tree and of keys.
func (*tree) check()           {}
func (*keys) check([tiers]int) {}

// crowd is how many spans a cover may have before its run is split.
const crowd = 512
