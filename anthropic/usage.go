package anthropic

import (
	"strconv"

	"github.com/dynago/dynago/chat"
)

// counts splits the tokens of a prompt into what the API tells apart. Together
// they are the prompt.
type counts struct{ fresh, read, written int }

func countsOf(u *chat.Usage) counts {
	c := counts{fresh: u.Prompt}
	take := func(n *int) int {
		if n == nil {
			return 0
		}
		taken := max(0, min(*n, c.fresh))
		c.fresh -= taken
		return taken
	}
	c.read = take(u.Cached)
	c.written = take(u.Written)
	return c
}

// appendUsage appends the members that all usages have, without the closing
// brace.
func appendUsage(dst []byte, u *chat.Usage) []byte {
	c := countsOf(u)
	dst = append(dst, `{"input_tokens":`...)
	dst = strconv.AppendInt(dst, int64(c.fresh), 10)
	dst = append(dst, `,"output_tokens":`...)
	dst = strconv.AppendInt(dst, int64(u.Output), 10)
	dst = append(dst, `,"cache_read_input_tokens":`...)
	dst = strconv.AppendInt(dst, int64(c.read), 10)
	dst = append(dst, `,"cache_creation_input_tokens":`...)
	return strconv.AppendInt(dst, int64(c.written), 10)
}

// appendCreation appends for how long what was written is to last.
func (c *Call) appendCreation(dst []byte, u *chat.Usage) []byte {
	written := int64(countsOf(u).written)
	short, long := written, int64(0)
	if c.markedLong {
		short, long = long, short
	}
	dst = append(dst, `{"ephemeral_5m_input_tokens":`...)
	dst = strconv.AppendInt(dst, short, 10)
	dst = append(dst, `,"ephemeral_1h_input_tokens":`...)
	return append(strconv.AppendInt(dst, long, 10), '}')
}

// appendThinking appends how many tokens were thought, if they were counted.
func appendThinking(dst []byte, u *chat.Usage) []byte {
	if u.Reasoning == nil {
		return dst
	}
	dst = append(dst, `,"output_tokens_details":{"thinking_tokens":`...)
	return append(strconv.AppendInt(dst, int64(*u.Reasoning), 10), '}')
}
