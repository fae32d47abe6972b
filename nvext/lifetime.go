package nvext

import (
	"math"
	"strconv"
	"strings"
	"time"
)

// DefaultLifetime is how long a prompt is to stay cached if nobody says.
const DefaultLifetime = 5 * time.Minute

// Lifetime returns for how long the prompt is to stay cached: a whole number of
// seconds, or as text also of minutes or hours, as "90s", "5m" and "1h" are. 0 asks
// that it stay no longer. It is false for what cannot be read, which stands for
// [DefaultLifetime].
func (c *CacheControl) Lifetime() (ttl time.Duration, readable bool) {
	return lifetime(c.TTL)
}

// Lifetime returns for how long the range is to keep its priority, 0 for ever. It is
// false as that of a [CacheControl] is.
func (r *RetentionRange) Lifetime() (ttl time.Duration, readable bool) {
	switch {
	case r.DurationMS != nil:
		return times(float64(*r.DurationMS), time.Millisecond), true
	case r.TTL == nil:
		return 0, true
	}
	return lifetime(r.TTL)
}

func lifetime(ttl any) (time.Duration, bool) {
	switch ttl := ttl.(type) {
	case nil:
		return DefaultLifetime, true
	case float64:
		if ttl < 0 || ttl != math.Trunc(ttl) {
			return DefaultLifetime, false
		}
		return times(ttl, time.Second), true
	case string:
		return parseLifetime(ttl)
	}
	return DefaultLifetime, false
}

func parseLifetime(s string) (time.Duration, bool) {
	unit := time.Second
	for suffix, of := range map[string]time.Duration{"s": time.Second, "m": time.Minute, "h": time.Hour} {
		if number, ok := strings.CutSuffix(s, suffix); ok {
			s, unit = number, of
			break
		}
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		return DefaultLifetime, false
	}
	n, _ := strconv.ParseFloat(s, 64) // digits alone; too many are for ever
	return times(n, unit), true
}

// times multiplies; what is longer than a duration can be is the longest one.
func times(n float64, unit time.Duration) time.Duration {
	if n >= float64(math.MaxInt64/unit) {
		return math.MaxInt64
	}
	return time.Duration(n) * unit
}
