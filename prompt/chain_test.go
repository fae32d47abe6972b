package prompt

import (
	"testing"

	"pgregory.net/rapid"
)

// A list has one name, however it is put together, and lists that differ have
// others.
func TestChain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOfN(rapid.Uint32(), 0, 40).Draw(t, "ids")
		whole := chainOf(ids)
		joined, single := noIDs, noIDs
		for rest := ids; len(rest) > 0; {
			n := rapid.IntRange(0, len(rest)).Draw(t, "part")
			joined = joined.join(chainOf(rest[:n]))
			for _, id := range rest[:n] {
				single = single.then(id)
			}
			rest = rest[n:]
		}
		if joined != whole || single != whole {
			t.Fatalf("%v in parts is %v, one by one %v, in one go %v", ids, joined, single, whole)
		}
		if whole.sum >= field || whole.power >= field {
			t.Fatalf("%v is not reduced", whole)
		}
		if other := chainOf(append([]uint32{0}, ids...)); other.sum == whole.sum {
			t.Fatalf("%v and one more in front have the same name", ids)
		}
	})
}

func BenchmarkChain(b *testing.B) {
	ids := make([]uint32, 60_000)
	for i := range ids {
		ids[i] = uint32(i) * 7
	}
	b.SetBytes(int64(4 * len(ids)))
	for b.Loop() {
		chainOf(ids)
	}
}
