package llama

import (
	"strconv"
	"strings"
)

// Bytes is a vocabulary for tests: ids below 256 are bytes, any other one is a
// blank, a w and its number.
type Bytes struct{}

// Spell returns the bytes of an id.
func (Bytes) Spell(id uint32) []byte {
	if id < 256 {
		return []byte{byte(id)}
	}
	return strconv.AppendUint([]byte(" w"), uint64(id), 10)
}

// Encode returns the ids of a text.
func (Bytes) Encode(text string) []uint32 {
	var ids []uint32
	for text != "" {
		digits, ok := strings.CutPrefix(text, " w")
		n := 0
		for n < len(digits) && digits[n] >= '0' && digits[n] <= '9' {
			n++
		}
		if id, err := strconv.ParseUint(digits[:min(n, len(digits))], 10, 32); ok && err == nil && id >= 256 && digits[0] != '0' {
			ids, text = append(ids, uint32(id)), digits[n:]
			continue
		}
		ids, text = append(ids, uint32(text[0])), text[1:]
	}
	return ids
}
