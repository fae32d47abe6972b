package sglang

import "time"

// SetLostAfter changes how long a server may be away and still be the same one.
func SetLostAfter(d time.Duration) (restore func()) {
	before := lostAfter
	lostAfter = d
	return func() { lostAfter = before }
}
