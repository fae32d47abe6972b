package frontend

import "time"

// SetClock lets a test say what time it is.
func SetClock(k *Keys, now func() time.Time) { k.now = now }

// AliasMatches tells whether a name is one that a pattern stands for.
func AliasMatches(pattern, name string) bool { return Alias{Pattern: pattern}.matches(name) }

// CreateBody reads a message of a WebSocket.
var CreateBody = createBody
