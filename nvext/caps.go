package nvext

import "time"

// Caps bound what one tenant may ask for. What is beyond them is lowered, never
// refused: hints are wishes. A nil one, and members that are nil, bound nothing.
type Caps struct {
	MaxPriority       *int32
	MaxStrictPriority *uint32
	MaxTTL            *time.Duration // of what is asked to stay cached
	// PinShare is how much of a worker's blocks pins of the tenant may hold, 0 to 1.
	PinShare *float64
}

// Names of caps, as settings and metrics have them.
const (
	CapPriority       = "max_priority"
	CapStrictPriority = "max_strict_priority"
	CapTTL            = "max_ttl"
	CapPinShare       = "pin_share"
)

// Hints returns h within the caps, and the names of those that it was beyond. h
// stays as it is.
func (c *Caps) Hints(h *Hints) (within *Hints, beyond []string) {
	if c == nil || h == nil {
		return h, nil
	}
	out := *h
	if most := c.MaxPriority; most != nil && h.Priority != nil && *h.Priority > *most {
		out.Priority, beyond = most, append(beyond, CapPriority)
	}
	// It stands for a priority where there is none.
	if most := c.MaxPriority; most != nil && h.Priority == nil && h.LatencySensitivity != nil && *h.LatencySensitivity > float64(*most) {
		out.LatencySensitivity, beyond = new(float64(*most)), append(beyond, CapPriority)
	}
	if most := c.MaxStrictPriority; most != nil && h.StrictPriority != nil && *h.StrictPriority > *most {
		out.StrictPriority, beyond = most, append(beyond, CapStrictPriority)
	}
	if beyond == nil {
		return h, nil
	}
	return &out, beyond
}

// TTL returns ttl within the caps, and whether it was beyond.
func (c *Caps) TTL(ttl time.Duration) (within time.Duration, beyond bool) {
	if c == nil || c.MaxTTL == nil || ttl <= *c.MaxTTL {
		return ttl, false
	}
	return *c.MaxTTL, true
}
