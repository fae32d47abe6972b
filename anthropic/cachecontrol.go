package anthropic

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

const (
	defaultTTL = 5 * time.Minute
	longTTL    = time.Hour
)

// mark is a cache_control: the client wants what is said up to it to stay
// cached. A TTL of 0 is the wish that it does not.
type mark struct {
	ttl        time.Duration
	unreadable bool // the TTL was, and is the default
}

// readMark reads a cache_control; one of another type than ephemeral is none.
func readMark(r *wire.Reader) (*mark, error) {
	if r.Kind() != '{' {
		return nil, r.Skip()
	}
	m, kind := &mark{ttl: defaultTTL}, "ephemeral"
	err := r.Object("an object", func(name []byte) error {
		switch string(name) {
		case "type":
			if null, err := r.Null(); null {
				return err
			}
			return lenient(r, &kind, '"', wire.Text)
		case "ttl":
			return m.readTTL(r)
		}
		return r.Skip()
	})
	if kind != "ephemeral" {
		return nil, err
	}
	return m, err
}

func (m *mark) readTTL(r *wire.Reader) error {
	*m = mark{ttl: defaultTTL}
	if null, err := r.Null(); null {
		return err
	}
	kind := r.Kind()
	raw, err := r.Raw()
	if err != nil {
		return err
	}
	var ok bool
	switch kind {
	case '"':
		m.ttl, ok = parseTTL(wire.Unquote(raw))
	case '0':
		var seconds int64
		if seconds, ok = wire.ParseInteger(raw); ok {
			m.ttl, ok = times(seconds, time.Second)
		}
	}
	if !ok {
		m.ttl, m.unreadable = defaultTTL, true
	}
	return nil
}

// parseTTL reads a whole number of seconds, minutes or hours.
func parseTTL(s string) (time.Duration, bool) {
	unit := time.Second
	switch {
	case strings.HasSuffix(s, "s"):
		s = s[:len(s)-1]
	case strings.HasSuffix(s, "m"):
		s, unit = s[:len(s)-1], time.Minute
	case strings.HasSuffix(s, "h"):
		s, unit = s[:len(s)-1], time.Hour
	}
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return r < '0' || r > '9' }) {
		return 0, false
	}
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil { // too large for a number is for ever
		n = math.MaxInt64
	}
	return times(n, unit)
}

// times multiplies; what is longer than a duration can be is the longest one.
func times(n int64, unit time.Duration) (time.Duration, bool) {
	switch {
	case n < 0:
		return 0, false
	case n > int64(math.MaxInt64/unit):
		return math.MaxInt64, true
	}
	return time.Duration(n) * unit, true
}

// maxMarks bounds the marks of one request, of which the last ones are kept: to find
// one in the prompt this is written anew. Clients of the API's own service have four.
const maxMarks = 8

// marks puts together the places that the client marked, in the order in which
// they stand in the prompt.
func (b *body) marks(inTalk []chat.Breakpoint, r *chat.Request) []chat.Breakpoint {
	var out []chat.Breakpoint
	for i, m := range b.toolMarks {
		if m.ttl >= 0 {
			out = append(out, chat.Breakpoint{Turn: -2, Block: i, TTL: m.ttl})
		}
	}
	out = append(out, inTalk...)
	if at := lastBlock(r); b.mark != nil && at.Block >= 0 {
		at.TTL = b.mark.ttl
		if n := len(out); n > 0 && out[n-1].Turn == at.Turn && out[n-1].Block == at.Block {
			out[n-1].TTL = max(out[n-1].TTL, at.TTL)
		} else {
			out = append(out, at)
		}
		b.warn(b.mark, "cache_control")
	}
	if len(out) > maxMarks {
		b.passOver("cache_control: more than " + strconv.Itoa(maxMarks))
		out = out[len(out)-maxMarks:]
	}
	return out
}

func (b *body) warn(m *mark, path string) {
	if m.unreadable {
		b.passOver(path + ".ttl")
	}
}

// lastBlock returns the place at the end of a conversation.
func lastBlock(r *chat.Request) chat.Breakpoint {
	for i := len(r.Turns) - 1; i >= 0; i-- {
		if n := len(r.Turns[i].Blocks); n > 0 {
			return chat.Breakpoint{Turn: i, Block: n - 1}
		}
	}
	if n := len(r.System); n > 0 {
		return chat.Breakpoint{Turn: -1, Block: n - 1}
	}
	return chat.Breakpoint{Turn: -2, Block: len(r.Tools) - 1}
}
