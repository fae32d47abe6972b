package positional_test

import (
	"strconv"
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
	"github.com/dynago/dynago/kvindex/indextest"
	"github.com/dynago/dynago/kvindex/positional"
)

// proved is the index with one result per matcher.
type proved struct{ *positional.Index }

func (p proved) Matcher() func([]kv.LocalHash) []kvindex.Match {
	var m positional.Matches
	return func(local []kv.LocalHash) []kvindex.Match {
		p.Match(local, &m)
		return m.Found
	}
}

func open() indextest.Index { return proved{positional.New(positional.DefaultStride)} }

func TestIndex(t *testing.T) { indextest.Run(t, open) }

// How far a search jumps makes no difference to what it finds.
func TestStrides(t *testing.T) {
	for _, stride := range []int{0, 3, 1000} {
		t.Run(strconv.Itoa(stride), func(t *testing.T) {
			indextest.Histories(t, func() indextest.Index { return proved{positional.New(stride)} })
		})
	}
}

func FuzzIndex(f *testing.F) { indextest.Fuzz(f, open) }
