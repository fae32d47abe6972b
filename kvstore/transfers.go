package kvstore

import (
	"slices"
	"time"
)

// transferBounds are in seconds.
var transferBounds = [...]float64{.0001, .0003, .001, .003, .01, .03, .1, .3, 1, 3, 10}

// TransferBounds are the bounds of [Transfers], in seconds.
func TransferBounds() []float64 { return transferBounds[:] }

// Transfers are values that went one way between main memory and a tier below it.
type Transfers struct {
	Values, Bytes int64
	Time          time.Duration // of all of them
	// Within are those that took no longer than each of [TransferBounds], and longer
	// than the one before.
	Within [len(transferBounds)]int64
}

// add counts one of size bytes that has begun then.
func (t *Transfers) add(size int64, begun time.Time) {
	took := time.Since(begun)
	t.Values++
	t.Bytes += size
	t.Time += took
	if i, _ := slices.BinarySearch(transferBounds[:], took.Seconds()); i < len(t.Within) {
		t.Within[i]++
	}
}
