package kvindex_test

import (
	"testing"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvindex"
	"github.com/dynago/dynago/kvindex/indextest"
)

// proved is the index with one result per matcher.
type proved struct{ *kvindex.Index }

func (p proved) Matcher() func([]kv.LocalHash) []kvindex.Match {
	var m kvindex.Matches
	return func(local []kv.LocalHash) []kvindex.Match {
		p.Match(local, &m)
		return m.Found
	}
}

func open() indextest.Index { return proved{kvindex.New()} }

func TestIndex(t *testing.T) { indextest.Run(t, open) }

func FuzzIndex(f *testing.F) { indextest.Fuzz(f, open) }
