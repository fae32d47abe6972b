//go:build !invariants

package kvindex

// check does nothing without the build tag invariants.
func (t *tree) check() {}

// crowd is how many spans a cover may have before its run is split.
const crowd = 512
