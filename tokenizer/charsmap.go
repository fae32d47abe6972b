package tokenizer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/go-json-experiment/json/jsontext"
	"github.com/rivo/uniseg"
)

// charsmap is what SentencePiece compiles the rules of a normal form to: a
// double array over the bytes of what is replaced, whose values are places in a
// text where what it becomes begins, up to a NUL.
//
// The units of the array are those of darts-clone: the lowest byte is the label
// of the edge that leads to a unit, bit 8 says that a key ends there, and the
// rest is the distance to the children; a unit with the highest bit set is a
// value.
type charsmap struct {
	units []uint32
	texts string
}

// parseCharsmap reads the size of the array in bytes, the array, and the texts.
func parseCharsmap(blob []byte) (*charsmap, error) {
	if len(blob) < 4 {
		return nil, errors.New("ends before the size of its array")
	}
	size := uint64(binary.LittleEndian.Uint32(blob))
	blob = blob[4:]
	if size > uint64(len(blob)) || size < 4 || size%4 != 0 {
		return nil, fmt.Errorf("has an array of %d bytes, want a multiple of 4 that is not above %d", size, len(blob))
	}
	c := &charsmap{units: make([]uint32, size/4), texts: string(blob[size:])}
	for i := range c.units {
		c.units[i] = binary.LittleEndian.Uint32(blob[4*i:])
	}
	return c, nil
}

// prefix looks for a key that text begins with, the longest or the shortest one,
// and returns what it becomes and its length; 0 if there is none.
func (c *charsmap) prefix(text string, longest bool) (to string, n int) {
	unit := c.units[0]
	node := offsetOf(unit)
	for i := range len(text) {
		node ^= uint32(text[i])
		if uint64(node) >= uint64(len(c.units)) {
			break
		}
		unit = c.units[node]
		if unit&(1<<31|0xff) != uint32(text[i]) {
			break
		}
		node ^= offsetOf(unit)
		if unit>>8&1 == 0 || uint64(node) >= uint64(len(c.units)) {
			continue
		}
		at := uint64(c.units[node] &^ (1 << 31))
		if at > uint64(len(c.texts)) {
			continue
		}
		to, n = c.texts[at:], i+1
		if !longest {
			break
		}
	}
	if end := strings.IndexByte(to, 0); end >= 0 {
		to = to[:end]
	}
	return to, n
}

// offsetOf returns the distance from a unit to its children.
func offsetOf(unit uint32) uint32 { return unit >> 10 << (unit >> 6 & 8) }

// clustered applies the map as the Hugging Face library does: a grapheme cluster
// of less than six bytes that begins with a key becomes, as a whole, what the
// shortest such key does, and in all others so does each character.
func (c *charsmap) clustered(text string) string {
	var b strings.Builder
	b.Grow(len(text))
	state := -1
	for rest := text; rest != ""; {
		var cluster string
		cluster, rest, _, state = uniseg.FirstGraphemeClusterInString(rest, state)
		if len(cluster) < 6 {
			if to, n := c.prefix(cluster, false); n > 0 {
				b.WriteString(to)
				continue
			}
		}
		for i, r := range cluster {
			char := cluster[i:min(len(cluster), i+len(string(r)))]
			if to, n := c.prefix(char, false); n > 0 {
				b.WriteString(to)
			} else {
				b.WriteString(char)
			}
		}
	}
	return b.String()
}

// loadPrecompiled reads the normalizer that holds a charsmap.
func loadPrecompiled(path string, v jsontext.Value) (normalizer, error) {
	var f struct {
		Charsmap []byte `json:"precompiled_charsmap"`
	}
	if err := read(path, v, &f); err != nil {
		return nil, err
	}
	c, err := parseCharsmap(f.Charsmap)
	if err != nil {
		return nil, fmt.Errorf("%s.precompiled_charsmap: %w", path, err)
	}
	return c.clustered, nil
}
