package tokenizer

import (
	"bytes"
	"fmt"

	"github.com/go-json-experiment/json/jsontext"
)

// maxDepth is how deep the objects and lists of a component may be nested. A
// sequence is two levels, and real files have hardly a sequence in a sequence.
const maxDepth = 64

// checkDepth refuses a component that is nested too deep. Each level of sequences
// is read anew, so that thousands of them would take hours.
func checkDepth(path string, v jsontext.Value) error {
	d := jsontext.NewDecoder(bytes.NewBuffer(v), jsontext.AllowDuplicateNames(true))
	for {
		if _, err := d.ReadToken(); err != nil {
			return nil // the end: the file has been read once
		}
		if d.StackDepth() > maxDepth {
			return fmt.Errorf("%s: nested more than %d levels deep", path, maxDepth)
		}
	}
}
