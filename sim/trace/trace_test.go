package trace_test

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/sim/trace"
)

func drawText(t *rapid.T) trace.Text {
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) trace.Piece {
		return trace.Piece{
			Stream: rapid.Uint64().Draw(t, "stream"),
			From:   rapid.Uint32Range(0, 1000).Draw(t, "from"),
			Len:    rapid.Uint32Range(0, 20).Draw(t, "len"),
		}
	}), 0, 6).Draw(t, "text")
}

func TestTextIsItsPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := drawText(t)
		var want []uint32
		for _, p := range text {
			whole := trace.Text{{Stream: p.Stream, Len: p.From + p.Len}}.Append(nil)
			want = append(want, whole[p.From:]...)
		}
		if got := text.Append(nil); !slices.Equal(got, want) || len(got) != text.Len() {
			t.Fatalf("%v: %d tokens, Len %d; want the pieces of its streams, %d", text, len(got), text.Len(), len(want))
		}
		n := rapid.IntRange(-1, len(want)+2).Draw(t, "n")
		kept := slices.Clone(text)
		if got := text.Cut(n).Append(nil); !slices.Equal(got, want[:min(max(n, 0), len(want))]) {
			t.Fatalf("%v cut to %d has %d tokens", text, n, len(got))
		}
		if !slices.Equal(kept, text) {
			t.Fatal("Cut has changed its text")
		}
	})
}

// Numbers that a cut to 32 bits would make equal are different streams.
func TestStreamsDiffer(t *testing.T) {
	const groups = 0xd00d0000_00000000
	for _, pair := range [][2]uint64{{0, 1}, {groups, groups | 1<<32}, {7, groups | 7}, {7, 7 | 1<<63}} {
		a := trace.Text{{Stream: pair[0], Len: 64}}.Append(nil)
		b := trace.Text{{Stream: pair[1], Len: 64}}.Append(nil)
		same := 0
		for i := range a {
			if a[i] == b[i] {
				same++
			}
		}
		if same > 2 {
			t.Errorf("streams %x and %x have %d of 64 tokens in common", pair[0], pair[1], same)
		}
	}
}

func TestAppendDoesNotAllocate(t *testing.T) {
	text := trace.Text{{Stream: 1, Len: 4096}, {Stream: 2, From: 9, Len: 4096}}
	buf := make([]uint32, 0, text.Len())
	if n := testing.AllocsPerRun(10, func() { buf = text.Append(buf[:0]) }); n != 0 {
		t.Errorf("%v allocations, want 0", n)
	}
}

func BenchmarkAppend(b *testing.B) {
	text := trace.Text{{Stream: 1, Len: 12_000}}
	buf := make([]uint32, 0, text.Len())
	b.SetBytes(int64(text.Len()))
	for b.Loop() {
		buf = text.Append(buf[:0])
	}
}
