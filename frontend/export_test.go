package frontend

import "time"

// SetClock lets a test say what time it is.
func SetClock(k *Keys, now func() time.Time) { k.now = now }
