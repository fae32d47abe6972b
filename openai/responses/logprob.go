package responses

import (
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// appendLogprobs appends log probabilities, one object per token, with at most as
// many alternatives as the client asked for.
func (e *Encoder) appendLogprobs(dst []byte, list []chat.Logprob) []byte {
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		l := &list[i]
		dst = append(appendToken(dst, l), `,"top_logprobs":[`...)
		top := l.Top[:min(len(l.Top), e.show.topLogprobs)]
		for j := range top {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendToken(dst, &top[j]), '}')
		}
		dst = append(dst, "]}"...)
	}
	return dst
}

// appendToken appends an object that says what a token is and how likely it was,
// and leaves it open.
func appendToken(dst []byte, l *chat.Logprob) []byte {
	dst = wire.AppendString(append(dst, `{"token":`...), l.Text)
	dst = wire.AppendLogprob(append(dst, `,"logprob":`...), l.Logprob)
	dst = append(dst, `,"bytes":[`...)
	bytes := l.Bytes
	if bytes == nil {
		bytes = []byte(l.Text)
	}
	for i, b := range bytes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}
