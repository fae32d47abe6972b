package remote

import (
	"bytes"
	"testing"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// What is cut into pieces is joined again, and no piece is too long.
func TestPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.SampledFrom([]int{1, 77, pieceBytes - 1, pieceBytes, pieceBytes + 1, 3 * pieceBytes}).Draw(t, "size")
		first := rapid.IntRange(0, 3).Draw(t, "first")
		j := joining{next: first, size: size}
		for k := first; k < first+rapid.IntRange(1, 3).Draw(t, "blocks"); k++ {
			sent := engine.PulledBlock{Number: k, Total: 99, Tokens: k + 1, Hash: kv.SeqHash(k * 7), Data: bytes.Repeat([]byte{byte(k + 1)}, size), Checksum: uint64(k) << 40}
			sent.Data[size-1] = 200
			var got []engine.PulledBlock
			for p := range pieces(&sent, first) {
				if len(p.Data) > pieceBytes {
					t.Fatalf("a piece of %d bytes", len(p.Data))
				}
				if (p.TotalTokens > 0) != (k == first && p.Offset == 0) {
					t.Fatalf("the prompt's length stands in block %d from %d on", k, p.Offset)
				}
				b, whole, err := j.add(p)
				if err != nil {
					t.Fatal(err)
				}
				if whole {
					got = append(got, b)
				}
			}
			if len(got) != 1 || !j.whole() {
				t.Fatalf("%d blocks of one", len(got))
			}
			b := got[0]
			if !bytes.Equal(b.Data, sent.Data) || b.Number != k || b.Total != 99 || b.Tokens != k+1 || b.Hash != sent.Hash || b.Checksum != sent.Checksum {
				t.Fatalf("block %d has become number %d, %d tokens of %d, %x, sum %x", k, b.Number, b.Tokens, b.Total, b.Hash, b.Checksum)
			}
		}
	})
}

// Whatever pieces come, blocks are as long as was asked for, and follow each other.
func FuzzPieces(f *testing.F) {
	wire := func(p *workerpb.PullPiece) []byte {
		b, err := proto.Marshal(p)
		if err != nil {
			f.Fatal(err)
		}
		return b
	}
	f.Add(wire(&workerpb.PullPiece{Data: []byte("abc"), Tokens: 4, TotalTokens: 9}), wire(&workerpb.PullPiece{Offset: 3, Data: []byte("d"), Checksum: 5}), wire(&workerpb.PullPiece{Block: 1, Data: []byte("efgh")}), 4)
	f.Add(wire(&workerpb.PullPiece{}), wire(&workerpb.PullPiece{}), []byte{}, 0)
	f.Add(wire(&workerpb.PullPiece{Data: []byte("abcde")}), []byte{}, []byte{0xff}, 4)
	f.Add(wire(&workerpb.PullPiece{Block: 1 << 31, Offset: 1 << 31, Data: []byte("a")}), []byte{}, []byte{}, 1)
	f.Fuzz(func(t *testing.T, a, b, c []byte, size int) {
		if size < 0 || size > 1<<16 {
			return
		}
		j := joining{size: size}
		n := 0
		for _, text := range [][]byte{a, b, c} {
			var p workerpb.PullPiece
			if proto.Unmarshal(text, &p) != nil {
				continue
			}
			block, whole, err := j.add(&p)
			if err != nil {
				return
			}
			if cap(j.block.Data) > 2*size {
				t.Fatalf("room for %d bytes of a block of %d", cap(j.block.Data), size)
			}
			if !whole {
				continue
			}
			if block.Number != n || len(block.Data) != size {
				t.Fatalf("block %d of %d bytes, want number %d of %d", block.Number, len(block.Data), n, size)
			}
			n++
		}
	})
}
