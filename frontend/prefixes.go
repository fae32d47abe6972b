package frontend

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/kv"
)

// mostPrefixes is how many of them may be named.
const mostPrefixes = 1 << 20

// prefixes are hashes of prefixes on the wire: numbers or, since they need 64 bits,
// texts. What is beyond the most that may be named is not read.
type prefixes []kv.SeqHash

var _ json.Unmarshaler = (*prefixes)(nil)

// UnmarshalJSON implements [json.Unmarshaler]. Its errors are for clients.
func (p *prefixes) UnmarshalJSON(raw []byte) error {
	const name = "block_hashes"
	d := jsontext.NewDecoder(bytes.NewBuffer(raw))
	switch d.PeekKind() {
	case 'n':
		return nil
	case '[':
	default:
		return wire.Invalid(name, "%s: expected an array of hashes", name)
	}
	if _, err := d.ReadToken(); err != nil {
		return err
	}
	list := prefixes{}
	for d.PeekKind() != ']' {
		if len(list) == mostPrefixes {
			return wire.Invalid(name, "%s must have at most %d elements, got more", name, mostPrefixes)
		}
		v, err := d.ReadValue()
		if err != nil {
			return err
		}
		h, err := strconv.ParseUint(strings.Trim(string(v), `"`), 10, 64)
		if err != nil {
			path := fmt.Sprintf("%s[%d]", name, len(list))
			return wire.Invalid(path, "%s: expected a number of 64 bits, as such or as a string, got %s", path, wire.Clip(string(v)))
		}
		list = append(list, kv.SeqHash(h))
	}
	*p = list
	return nil
}
