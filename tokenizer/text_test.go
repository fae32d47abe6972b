package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// Merges may go across a blank; wherever none does, a text is merged in parts.
func TestMergesAcrossBlanksEqualDefinition(t *testing.T) {
	alphabet := []string{"a", "b", "▁"}
	rapid.Check(t, func(rt *rapid.T) {
		known := slices.Clone(alphabet)
		var merges [][2]string
		for range rapid.IntRange(0, 10).Draw(rt, "merges") {
			m := [2]string{rapid.SampledFrom(known).Draw(rt, "left"), rapid.SampledFrom(known).Draw(rt, "right")}
			merges = append(merges, m)
			known = append(known, m[0]+m[1])
		}
		var file tokenizerFile
		parse(t, smallFile(t, "ab▁", merges, false), &file)
		file["pre_tokenizer"], file["decoder"] = []byte("null"), []byte(`{"type":"Fuse"}`)
		tok := load(t, encode(t, file))
		word := rapid.StringOfN(rapid.SampledFrom([]rune("aab▁▁")), 1, 120, -1).Draw(rt, "word")
		var got []string
		for _, id := range tok.Append(nil, word) {
			got = append(got, string(tok.Bytes(id)))
		}
		if want := naive(merges, word); !slices.Equal(got, want) {
			rt.Fatalf("merges %q of %q give %q, want %q", merges, word, got, want)
		}
	})
}

const hex = "0123456789ABCDEF"

// naiveLlama joins tokens as the decoder of Llama 2 is defined: on the list of
// all tokens.
func naiveLlama(tokens []string) string {
	var text strings.Builder
	var run []byte
	end := func() {
		if utf8.Valid(run) {
			text.Write(run)
		} else {
			text.WriteString(strings.Repeat("\ufffd", len(run)))
		}
		run = nil
	}
	for _, token := range tokens {
		if b, ok := strings.CutPrefix(token, "<0x"); ok {
			run = append(run, byte(strings.IndexByte(hex, b[0])<<4|strings.IndexByte(hex, b[1])))
			continue
		}
		end()
		text.WriteString(strings.ReplaceAll(token, "▁", " "))
	}
	end()
	return strings.TrimPrefix(text.String(), " ")
}

func TestTextDecoderEqualsDefinition(t *testing.T) {
	tok := load(t, encode(t, textFile(t)))
	blank, ok := tok.ID("▁")
	if !ok {
		t.Fatal("no token for a blank")
	}
	id := rapid.OneOf(rapid.Uint32Range(0, 258), rapid.Uint32Range(3+0x80, 258), rapid.Uint32Range(0, 899), rapid.Just(blank))
	spelled := spellings(t)
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(id).Draw(t, "ids")
		var tokens []string
		for _, id := range ids {
			tokens = append(tokens, spelled[id])
		}
		want := naiveLlama(tokens)
		if got := tok.Decode(ids, false); got != want {
			t.Fatalf("%q decodes to %q, want %q", tokens, got, want)
		}
		dec := tok.NewDecoder(false)
		// A decoder that is reset knows nothing of before.
		dec.Append(nil, 3+0xe4)
		dec.Reset()
		var got []byte
		for _, id := range ids {
			piece := dec.Append(nil, id)
			if !utf8.Valid(piece) {
				t.Fatalf("%q released %q", spelled[id], piece)
			}
			if held := strings.HasPrefix(spelled[id], "<0x"); held != (dec.Pending() > 0) {
				t.Fatalf("after %q %d bytes are held", spelled[id], dec.Pending())
			}
			got = append(got, piece...)
		}
		if got = dec.Flush(got); string(got) != want || dec.Pending() != 0 {
			t.Fatalf("%q decodes one by one to %q, want %q; %d bytes held", tokens, got, want, dec.Pending())
		}
	})
}

// spellings returns the tokens of textFile by id.
func spellings(t testing.TB) map[uint32]string {
	var model struct {
		Vocab map[string]uint32 `json:"vocab"`
	}
	parse(t, textFile(t)["model"], &model)
	all := map[uint32]string{}
	for token, id := range model.Vocab {
		all[id] = token
	}
	return all
}

// Bytes are those that the token shows within a text.
func TestBytesOfTextTokens(t *testing.T) {
	tok := load(t, encode(t, textFile(t)))
	for token, want := range map[string]string{"▁the": " the", "<0xE4>": "\xe4", "<s>": "<s>", "▁": " "} {
		id, ok := tok.ID(token)
		if !ok || string(tok.Bytes(id)) != want {
			t.Errorf("%q: id %d (known %v) has the bytes %q, want %q", token, id, ok, tok.Bytes(id), want)
		}
	}
}

// Text from outside forges no special token of a model of characters either,
// though its unknown token, which is special, may be needed.
func TestAppendLiteralOfTextModel(t *testing.T) {
	tok := load(t, encode(t, textFile(t)))
	const text = "a <s> b</s>"
	if got := tok.Decode(tok.AppendLiteral(nil, text), true); got != text {
		t.Errorf("%q taken literally comes back as %q", text, got)
	}
	if got := tok.Append(nil, text); !slices.Contains(got, 1) {
		t.Errorf("%q gives %d, without <s>", text, got)
	}
	file := textFile(t)
	file.replace(t, nil, tokenizerFile{"byte_fallback": []byte("false")}, "")
	tok = load(t, encode(t, file))
	if got, want := tok.AppendLiteral(nil, "😀<s>"), tok.Append(nil, "😀<"); len(got) <= len(want) || !slices.Equal(got[:len(want)-1], want[:len(want)-1]) || slices.Contains(got, 1) {
		t.Errorf("taken literally gives %d; the beginning alone %d", got, want)
	}
}

func FuzzTextModel(f *testing.F) {
	tok := load(f, encode(f, textFile(f)))
	f.Add(" the cache▁holds  blöcke\r\n你好 <s> <0x41> \xff\xe2\x82")
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.AppendLiteral(nil, text)
		if slices.ContainsFunc(ids, tok.IsSpecial) {
			t.Errorf("%q taken literally has a special id", text)
		}
		want := strings.ReplaceAll(text, "▁", " ")
		if utf8.ValidString(text) && tok.Decode(ids, false) != want {
			t.Errorf("%q comes back as %q", text, tok.Decode(ids, false))
		}
	})
}
