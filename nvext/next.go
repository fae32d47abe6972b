package nvext

import (
	"math"
	"strconv"
	"time"
)

// NextIn returns in what time the session's next request is expected; 0: the client
// does not say. It is false for what is no time to come.
func (h *Hints) NextIn() (time.Duration, bool) {
	if h == nil || h.NextRequestIn == "" {
		return 0, true
	}
	if seconds, err := strconv.ParseFloat(h.NextRequestIn, 64); err == nil {
		return times(1e3*seconds, time.Millisecond), seconds >= 0 && !math.IsInf(seconds, 0)
	}
	d, err := time.ParseDuration(h.NextRequestIn)
	return d, err == nil && d >= 0
}
