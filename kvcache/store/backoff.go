package store

import "time"

// Bounds of the pause after a failed write.
const (
	MinPause = 100 * time.Millisecond
	MaxPause = 30 * time.Second
)

// Backoff says when to try again what keeps failing: after MinPause, then twice
// as long each time, up to MaxPause, until it goes well once. It is plain data;
// the caller locks. The zero value is ready.
type Backoff struct {
	pause time.Duration
	until time.Time
}

// Ready reports whether it is time to try.
func (b *Backoff) Ready(now time.Time) bool { return !now.Before(b.until) }

// Failed is told of a failure. Those of tries that began before the pause count
// once.
func (b *Backoff) Failed(now time.Time) {
	if !b.Ready(now) {
		return
	}
	b.pause = min(max(2*b.pause, MinPause), MaxPause)
	b.until = now.Add(b.pause)
}

// Succeeded is told of a success.
func (b *Backoff) Succeeded() { *b = Backoff{} }

// Pause returns for how long it will not be time yet.
func (b *Backoff) Pause(now time.Time) time.Duration { return max(0, b.until.Sub(now)) }
