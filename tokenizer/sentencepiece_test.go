package tokenizer_test

import (
	"bytes"
	"compress/gzip"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/tokenizer"
	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
)

// pieceVectors are what the SentencePiece library makes of our strings with a
// model; testdata/golden_sentencepiece.py made them.
type pieceVectors struct {
	Variant string             `json:"variant"`
	File    []byte             `json:"file"`
	Encode  [][]jsontext.Value `json:"encode"` // text, ids, their text
	Decode  [][]jsontext.Value `json:"decode"` // ids, text
}

func sentencePieceVectors(t testing.TB) []pieceVectors {
	t.Helper()
	var all []pieceVectors
	for line := range bytes.Lines(unzip(t, "testdata/golden_sentencepiece.jsonl.gz")) {
		var v pieceVectors
		parse(t, line, &v)
		all = append(all, v)
	}
	return all
}

func unzip(t testing.TB, path string) []byte {
	t.Helper()
	zipped, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	r, err := gzip.NewReader(bytes.NewReader(zipped))
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func loadPieces(t testing.TB, file []byte) *tokenizer.Tokenizer {
	t.Helper()
	tok, err := tokenizer.LoadSentencePiece(file)
	if err != nil {
		t.Fatal(err)
	}
	return tok
}

func TestSentencePieceGolden(t *testing.T) {
	for _, v := range sentencePieceVectors(t) {
		t.Run(v.Variant, func(t *testing.T) {
			tok := loadPieces(t, v.File)
			for _, c := range v.Encode {
				var text, decoded string
				var want []uint32
				parse(t, c[0], &text)
				parse(t, c[1], &want)
				parse(t, c[2], &decoded)
				if got := tok.AppendLiteral(nil, text); !slices.Equal(got, want) {
					t.Errorf("AppendLiteral(%q) = %d, want %d", text, got, want)
				}
				if got := tok.Append(nil, text); !slices.Equal(got, want) && !strings.Contains(text, "<s>") && !strings.Contains(text, "</s>") && !strings.Contains(text, "<ctl>") {
					t.Errorf("Append(%q) = %d, want %d", text, got, want)
				}
				checkPieceDecode(t, tok, want, decoded)
			}
			for _, c := range v.Decode {
				var ids []uint32
				var want string
				parse(t, c[0], &ids)
				parse(t, c[1], &want)
				checkPieceDecode(t, tok, ids, want)
			}
		})
	}
}

func checkPieceDecode(t *testing.T, tok *tokenizer.Tokenizer, ids []uint32, want string) {
	t.Helper()
	if got := tok.Decode(ids, true); got != want {
		t.Errorf("Decode(%d) = %q, want %q", ids, got, want)
	}
	dec := tok.NewDecoder(true)
	var all []byte
	for _, id := range ids {
		piece := dec.Append(nil, id)
		if !utf8.Valid(piece) || dec.Pending() > 3 {
			t.Errorf("id %d of %d released %q and holds %d bytes", id, ids, piece, dec.Pending())
		}
		all = append(all, piece...)
	}
	if all = dec.Flush(all); string(all) != want {
		t.Errorf("decoded one by one, %d gives %q, want %q", ids, all, want)
	}
}

// message writes a protocol buffer field by field; a value is a number, a text
// or the bytes of a message.
func message(fields ...any) []byte {
	var b []byte
	for i := 0; i < len(fields); i += 2 {
		number := protowire.Number(fields[i].(int))
		switch v := fields[i+1].(type) {
		case int:
			b = protowire.AppendVarint(protowire.AppendTag(b, number, protowire.VarintType), uint64(v))
		case float32:
			b = protowire.AppendFixed32(protowire.AppendTag(b, number, protowire.Fixed32Type), math.Float32bits(v))
		case string:
			b = protowire.AppendString(protowire.AppendTag(b, number, protowire.BytesType), v)
		case []byte:
			b = protowire.AppendBytes(protowire.AppendTag(b, number, protowire.BytesType), v)
		}
	}
	return b
}

func TestLoadSentencePieceErrors(t *testing.T) {
	unknown := message(1, "<unk>", 3, 2)
	for _, tc := range []struct {
		file []byte
		want string
	}{
		{nil, "pieces: has none"},
		{[]byte("\x0a\x05ab"), "byte 4: field 1: "},
		{[]byte("\xff"), "byte 4: "},
		{message(1, 7), "field 1: has wire type 0, want 2"},
		{message(1, "\x0a\x09a"), "pieces[0]: byte 0: field 1: "},
		{message(1, unknown, 1, message(1, "")), "pieces[1]: piece: must not be empty"},
		{message(1, unknown, 1, message(1, strings.Repeat("a", 1025))), "pieces[1]: piece: has 1025 bytes"},
		{message(1, unknown, 1, message(1, "a", 2, float32(math.NaN()))), "pieces[1]: score: must be a number"},
		{message(1, unknown, 1, message(1, "a", 2, 3)), "pieces[1]: field 2: has wire type 0, want 5"},
		{message(1, unknown, 1, message(1, "a", 3, 7)), "pieces[1]: type: 7 is not known"},
		{message(1, unknown, 1, message(1, "a"), 1, message(1, "a")), `pieces[2].piece: "a" is pieces[1] too`},
		{message(1, unknown, 1, unknown), `pieces[1].type: is a second unknown piece, after pieces[0]`},
		{message(1, message(1, "a")), `pieces: has none of type unknown`},
		{message(1, unknown, 1, message(1, "<0x41>", 3, 6)), `pieces[1].piece: "<0x41>" is a byte of a model without`},
		{message(1, unknown, 1, message(1, "<0x4>", 3, 6), 2, message(35, 1)), `pieces[1].piece: "<0x4>" is a byte`},
		{message(1, unknown, 1, message(1, "<0x00>", 3, 6), 2, message(35, 1)), `pieces: has none for the byte 0x01`},
		{message(1, unknown, 2, message(3, 3)), `trainer_spec: model_type: 3 is not supported`},
		{message(1, unknown, 3, message(2, "abc")), `normalizer_spec.precompiled_charsmap: ends before`},
		{message(1, unknown, 3, message(2, "\x10\x00\x00\x00abcd")), `normalizer_spec.precompiled_charsmap: has an array of 16 bytes`},
		{message(1, unknown, 5, message(2, "abc")), `denormalizer_spec: precompiled_charsmap: is not supported`},
	} {
		_, err := tokenizer.LoadSentencePiece(append(message(2, "", 3, ""), tc.file...))
		if err == nil || !strings.HasPrefix(err.Error(), "tokenizer: model: ") || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%.60q: error %v, want one with %s", tc.file, err, tc.want)
		}
	}
}

// A file that ends early is an error wherever it ends.
func TestTruncatedSentencePiece(t *testing.T) {
	file := sentencePieceVectors(t)[0].File
	for n := range len(file) {
		if _, err := tokenizer.LoadSentencePiece(file[:n]); err == nil {
			t.Fatalf("the first %d of %d bytes were loaded", n, len(file))
		}
	}
}

// FuzzLoadSentencePiece holds that no file makes loading panic, nor the use of
// what loaded.
func FuzzLoadSentencePiece(f *testing.F) {
	charsmap := "\x10\x00\x00\x00\x00\x04\x00\x00\x61\x05\x00\x00\x00\x00\x00\x80\x00\x00\x00\x00bc\x00"
	f.Add(message(1, message(1, "<unk>", 3, 2), 1, message(1, "<s>", 3, 3), 1, message(1, "a", 2, float32(-1)), 1, message(1, "▁a", 2, float32(-2)), 1, message(1, "b", 3, 4), 2, message(3, 2), 3, message(2, charsmap)))
	f.Add(message(1, message(1, "?", 3, 2), 1, message(1, "a"), 1, message(1, "b"), 1, message(1, "ab", 3, 5), 1, message(1, "aba"), 2, message(3, 2, 24, 1), 3, message(3, 1, 4, 0)))
	f.Add(message(1, message(1, "?", 3, 2), 1, message(1, "a", 2, float32(-3)), 1, message(1, "ab", 2, float32(-1)), 1, message(1, "<x>", 3, 4), 2, message(3, 1, 44, "!"), 3, message(5, 0)))
	f.Fuzz(func(t *testing.T, file []byte) {
		tok, err := tokenizer.LoadSentencePiece(append(message(2, "", 3, ""), file...))
		if err != nil {
			return
		}
		const text = " ab<s>  abba 12 你\xff"
		ids := tok.Append(nil, text)
		for _, id := range ids {
			if tok.Bytes(id) == nil {
				t.Errorf("%q has the id %d, which the tokenizer does not know", text, id)
			}
		}
		all := append(tok.AppendLiteral(ids, text), 0, 1, 2, 3, 4, 1<<31)
		for _, skip := range []bool{false, true} {
			dec := tok.NewDecoder(skip)
			var pieces []byte
			for _, id := range all {
				pieces = dec.Append(pieces, id)
			}
			if pieces = dec.Flush(pieces); string(pieces) != tok.Decode(all, skip) {
				t.Errorf("%d is %q one by one and %q at once", all, pieces, tok.Decode(all, skip))
			}
		}
	})
}

// BenchmarkSentencePiece tells what normalization and the lattice cost; the
// vocabularies are small, so that words fall into more tokens than usual.
func BenchmarkSentencePiece(b *testing.B) {
	for _, v := range sentencePieceVectors(b) {
		if v.Variant != "bpe" && v.Variant != "unigram" && v.Variant != "bpe of equal scores" {
			continue
		}
		tok := loadPieces(b, v.File)
		for _, kind := range []string{"english", "chinese"} {
			text := document(kind)
			b.Run(v.Variant+"/"+kind, func(b *testing.B) {
				b.SetBytes(int64(len(text)))
				b.ReportAllocs()
				var ids []uint32
				for b.Loop() {
					ids = tok.Append(ids[:0], text)
				}
			})
		}
	}
}
