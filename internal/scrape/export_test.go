package scrape

import "time"

// Woke is woke, for tests.
func (d *Delay) Woke(late time.Duration) { d.woke(late) }
