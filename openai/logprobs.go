package openai

import (
	"math"
	"strconv"
	"unicode/utf8"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// appendLogprobs appends log probabilities as chat shows them: one entry per
// token, with at most as many alternatives as the client asked for.
func (f *frame) appendLogprobs(dst []byte, list []chat.Logprob) []byte {
	dst = append(dst, `{"content":[`...)
	for i := range list {
		if i > 0 {
			dst = append(dst, ',')
		}
		l := &list[i]
		dst = append(f.appendToken(append(dst, '{'), l), `,"top_logprobs":[`...)
		top := l.Top[:min(len(l.Top), f.call.topLogprobs)]
		for j := range top {
			if j > 0 {
				dst = append(dst, ',')
			}
			dst = append(f.appendToken(append(dst, '{'), &top[j]), '}')
		}
		dst = append(dst, "]}"...)
	}
	return append(dst, `],"refusal":null}`...)
}

// appendToken appends what a token is and how likely it was.
func (f *frame) appendToken(dst []byte, l *chat.Logprob) []byte {
	dst = append(dst, `"token":`...)
	dst = f.appendTokenText(dst, l)
	dst = append(dst, `,"logprob":`...)
	dst = wire.AppendLogprob(dst, l.Logprob)
	dst = append(dst, `,"bytes":`...)
	switch {
	case f.call.tokenIDs:
		var shown [20]byte
		dst = appendBytes(dst, appendTokenID(shown[:0], l.ID))
	case l.Bytes != nil:
		dst = appendBytes(dst, l.Bytes)
	default:
		dst = appendBytes(dst, []byte(l.Text))
	}
	if f.call.tokenIDs {
		dst = append(dst, `,"token_id":`...)
		dst = strconv.AppendUint(dst, uint64(l.ID), 10)
	}
	return dst
}

func (f *frame) appendTokenText(dst []byte, l *chat.Logprob) []byte {
	if f.call.tokenIDs {
		return append(appendTokenID(append(dst, '"'), l.ID), '"')
	}
	return wire.AppendString(dst, l.Text)
}

func appendTokenID(dst []byte, id uint32) []byte {
	return strconv.AppendUint(append(dst, "token_id:"...), uint64(id), 10)
}

func appendBytes(dst, bytes []byte) []byte {
	dst = append(dst, '[')
	for i, b := range bytes {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(dst, uint64(b), 10)
	}
	return append(dst, ']')
}

// appendTextLogprobs appends log probabilities as completions show them: lists
// side by side. offset counts characters from the beginning of the text, by the
// tokens' own lengths. The first token of an echoed prompt has no probability.
func (f *frame) appendTextLogprobs(dst []byte, list []chat.Logprob, offset *int) []byte {
	dst = append(dst, `{"tokens":[`...)
	for i := range list {
		dst = f.appendTokenText(comma(dst, i), &list[i])
	}
	dst = append(dst, `],"token_logprobs":[`...)
	for i := range list {
		dst = comma(dst, i)
		if math.IsNaN(list[i].Logprob) {
			dst = append(dst, "null"...)
		} else {
			dst = wire.AppendLogprob(dst, list[i].Logprob)
		}
	}
	dst = append(dst, `],"top_logprobs":[`...)
	for i := range list {
		dst = f.appendTop(comma(dst, i), &list[i])
	}
	dst = append(dst, `],"text_offset":[`...)
	for i := range list {
		dst = strconv.AppendInt(comma(dst, i), int64(*offset), 10)
		*offset += characters(&list[i])
	}
	return append(dst, "]}"...)
}

func comma(dst []byte, i int) []byte {
	if i == 0 {
		return dst
	}
	return append(dst, ',')
}

// appendTop appends the alternatives as an object of token to log probability,
// the sampled token among them. Of tokens that look alike the likeliest stands.
func (f *frame) appendTop(dst []byte, l *chat.Logprob) []byte {
	if math.IsNaN(l.Logprob) {
		return append(dst, "null"...)
	}
	top := l.Top[:min(len(l.Top), f.call.topLogprobs)]
	dst = append(dst, '{')
	n := 0
	for i := range top {
		if f.alike(top[:i], &top[i]) {
			continue
		}
		dst = f.appendTokenText(comma(dst, n), &top[i])
		dst = wire.AppendLogprob(append(dst, ':'), top[i].Logprob)
		n++
	}
	if !f.alike(top, l) {
		dst = f.appendTokenText(comma(dst, n), l)
		dst = wire.AppendLogprob(append(dst, ':'), l.Logprob)
	}
	return append(dst, '}')
}

func (f *frame) alike(list []chat.Logprob, l *chat.Logprob) bool {
	for i := range list {
		if f.call.tokenIDs && list[i].ID == l.ID || !f.call.tokenIDs && list[i].Text == l.Text {
			return true
		}
	}
	return false
}

// characters counts the characters that begin in a token: half a character
// counts where it begins.
func characters(l *chat.Logprob) int {
	if l.Bytes == nil {
		return utf8.RuneCountInString(l.Text)
	}
	n := 0
	for _, b := range l.Bytes {
		if utf8.RuneStart(b) {
			n++
		}
	}
	return n
}
