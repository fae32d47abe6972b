//go:build !invariants

package kvindex

// check does nothing without the build tag invariants, of the tree and of keys.
func (t *tree) check() {}
func (k *keys) check() {}

// crowd is how many spans a cover may have before its run is split.
const crowd = 512
