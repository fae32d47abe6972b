//go:build !invariants

package kvindex

// check does nothing without the build tag invariants.
func (t *tree) check() {}
