package tokenizer

import (
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// maxGrowth is how many times as long a text may become by what is put into it.
// Real vocabularies need 3, a space that becomes "▁", and some a little more.
const maxGrowth = 256

// checkGrowth refuses a normalizer or decoder, which has been loaded, whose parts
// one after the other blow a text up: twelve that write ten letters for one make
// terabytes of a word.
func checkGrowth(path string, v jsontext.Value) error {
	if n := growth(v); n > maxGrowth {
		return fmt.Errorf("%s: may make a text %.3g times as long, want at most %d times", path, n, maxGrowth)
	}
	return nil
}

// growth returns how many times as long a component may make a text.
func growth(v jsontext.Value) float64 {
	if isNull(v) {
		return 1
	}
	kind, err := typeOf("", v)
	if err != nil {
		return 1
	}
	switch kind {
	case "Sequence":
		return growthOfAll(v)
	case "Prepend":
		var f struct {
			Prepend string `json:"prepend"`
		}
		if read("", v, &f) == nil {
			return float64(1 + len(f.Prepend))
		}
	case "Replace":
		f, err := readReplace("", v)
		if err == nil && f.Pattern.String != nil {
			return max(1, float64(len(f.Content))/float64(len(*f.Pattern.String)))
		}
		if err == nil { // a pattern may find nothing before each character
			return float64(1 + len(f.Content))
		}
	}
	return 1
}

// growthOfAll is growth of a sequence, which has its parts under either name.
func growthOfAll(v jsontext.Value) float64 {
	var seq struct {
		Normalizers jsontext.Value `json:"normalizers"`
		Decoders    jsontext.Value `json:"decoders"`
	}
	product := 1.0
	if read("", v, &seq) != nil {
		return product
	}
	for _, parts := range []jsontext.Value{seq.Normalizers, seq.Decoders} {
		var list []jsontext.Value
		if len(parts) == 0 || read("", parts, &list) != nil {
			continue
		}
		for _, part := range list {
			product *= growth(part)
		}
	}
	return product
}
