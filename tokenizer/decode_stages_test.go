package tokenizer_test

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

// decoderKinds are decoders as tokenizer.json has them, each with what it makes
// of the list of all tokens.
var decoderKinds = []struct {
	file string
	list func(tokens []string) []string
}{
	{`{"type":"Fuse"}`, func(tokens []string) []string { return []string{strings.Join(tokens, "")} }},
	{`{"type":"BPEDecoder","suffix":"e"}`, func(tokens []string) []string {
		for i, token := range tokens {
			space := " "
			if i == len(tokens)-1 {
				space = ""
			}
			tokens[i] = strings.ReplaceAll(token, "e", space)
		}
		return tokens
	}},
	{`{"type":"CTC","pad_token":"s","word_delimiter_token":"▁","cleanup":false}`, func(tokens []string) []string {
		tokens = slices.Compact(tokens)
		for i, token := range tokens {
			tokens[i] = strings.ReplaceAll(token, "s", "")
		}
		return slices.DeleteFunc(tokens, func(token string) bool { return token == "" })
	}},
	{`{"type":"Replace","pattern":{"String":"▁t"},"content":"tt"}`, func(tokens []string) []string {
		for i, token := range tokens {
			tokens[i] = strings.ReplaceAll(token, "▁t", "tt")
		}
		return tokens
	}},
	{`{"type":"Strip","content":"▁","start":1,"stop":2}`, func(tokens []string) []string {
		for i, token := range tokens {
			token = strings.TrimPrefix(token, "▁")
			tokens[i] = strings.TrimSuffix(strings.TrimSuffix(token, "▁"), "▁")
		}
		return tokens
	}},
	{`{"type":"ByteFallback"}`, func(tokens []string) []string {
		var out []string
		var run []byte
		for _, token := range append(tokens, "end") {
			if b, ok := strings.CutPrefix(token, "<0x"); ok && len(token) == 6 {
				run = append(run, byte(strings.IndexByte(hex, b[0])<<4|strings.IndexByte(hex, b[1])))
				continue
			}
			switch {
			case len(run) == 0:
			case utf8.Valid(run):
				out = append(out, string(run))
			default:
				for range run {
					out = append(out, "\ufffd")
				}
			}
			out, run = append(out, token), nil
		}
		return out[:len(out)-1]
	}},
	{`{"type":"Metaspace","replacement":"▁","prepend_scheme":"always"}`, func(tokens []string) []string {
		for i, token := range tokens {
			blank := " "
			if i == 0 {
				blank = ""
			}
			tokens[i] = strings.ReplaceAll(token, "▁", blank)
		}
		return tokens
	}},
}

// Any chain of decoders gives one by one what its definition gives for the list
// of all tokens, and holds back nothing when the text has ended.
func TestDecodersEqualDefinition(t *testing.T) {
	spelled := spellings(t)
	file := textFile(t)
	id := rapid.OneOf(rapid.Uint32Range(3+0x60, 3+0xff), rapid.Uint32Range(259, 420))
	rapid.Check(t, func(rt *rapid.T) {
		kinds := rapid.SliceOfN(rapid.IntRange(0, len(decoderKinds)-1), 1, 5).Draw(rt, "kinds")
		ids := rapid.SliceOfN(id, 1, 8).Draw(rt, "ids")
		var files, tokens []string
		for _, id := range ids {
			tokens = append(tokens, spelled[id])
		}
		for _, kind := range kinds {
			files = append(files, decoderKinds[kind].file)
			tokens = decoderKinds[kind].list(tokens)
		}
		file["decoder"] = []byte(`{"type":"Sequence","decoders":[` + strings.Join(files, ",") + `]}`)
		tok := load(t, encode(t, file))
		dec := tok.NewDecoder(false)
		var got []byte
		for _, id := range ids {
			got = dec.Append(got, id)
		}
		got = dec.Flush(got)
		if want := strings.Join(tokens, ""); string(got) != want || dec.Pending() != 0 {
			rt.Fatalf("%d through %s: %q, want %q; %d bytes held", ids, files, got, want, dec.Pending())
		}
	})
}
