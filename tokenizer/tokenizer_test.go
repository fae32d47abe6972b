package tokenizer_test

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/tokenizer"
	"golang.org/x/text/unicode/norm"
	"pgregory.net/rapid"
)

func Example() {
	file, err := demo.File("tokenizer.json")
	if err != nil {
		panic(err)
	}
	tok, err := tokenizer.Load(file)
	if err != nil {
		panic(err)
	}
	ids := tok.Append(nil, "<|im_start|>user\nNice day 🦆!<|im_end|>")
	fmt.Println(tok.Decode(ids, true))

	// As the tokens of an answer arrive; a character may take several.
	dec := tok.NewDecoder(true)
	for _, id := range ids {
		fmt.Printf("%q ", dec.Append(nil, id))
	}
	fmt.Printf("%q\n", dec.Flush(nil))
	// Output:
	// user
	// Nice day 🦆!
	// "" "user" "\n" "N" "ice" " day" " " "" "🦆" "!" "" ""
}

// text draws strings of words, control tokens and characters of all kinds.
func text() *rapid.Generator[string] {
	part := rapid.OneOf(
		rapid.SampledFrom([]string{
			"the", " cache", "don't", "\n\n", "  ", "<|im_end|>", "<|im_start|>", "<think>", "<|im", "é", "e\u0301", "你好", "👩\u200d👧", "\ufffd", "12", "ſ", strings.Repeat("a", 200),
		}),
		rapid.String(),
	)
	return rapid.Map(rapid.SliceOfN(part, 0, 8), func(parts []string) string { return strings.Join(parts, "") })
}

func TestDecodeInvertsAppend(t *testing.T) {
	tok := demoTokenizer(t)
	rapid.Check(t, func(t *rapid.T) {
		text := text().Draw(t, "text")
		for name, ids := range map[string][]uint32{"Append": tok.Append(nil, text), "AppendLiteral": tok.AppendLiteral(nil, text)} {
			// The form is that of Unicode 9, of which the characters of today are a part.
			if got, want := norm.NFC.String(tok.Decode(ids, false)), norm.NFC.String(text); got != want {
				t.Fatalf("Decode(%s(%q)) = %q", name, text, got)
			}
		}
	})
}

func TestAppendKeepsWhatIsThere(t *testing.T) {
	tok := demoTokenizer(t)
	dst := []uint32{1, 2, 3}
	ids := tok.Append(dst, "<think>hello")
	if want := append([]uint32{1, 2, 3}, tok.Append(nil, "<think>hello")...); !slices.Equal(ids, want) {
		t.Errorf("appended to give %d, want %d", ids, want)
	}
}

// A cut at a special token changes nothing, which is what lets prefixes be
// cached by turn.
func TestAppendDistributesOverSpecialTokens(t *testing.T) {
	tok := demoTokenizer(t)
	rapid.Check(t, func(t *rapid.T) {
		head, tail := text().Draw(t, "head")+"<|im_end|>", text().Draw(t, "tail")
		if got, want := tok.Append(tok.Append(nil, head), tail), tok.Append(nil, head+tail); !slices.Equal(got, want) {
			t.Fatalf("%q and %q give %d apart, %d together", head, tail, got, want)
		}
	})
}

func TestAppendLiteralYieldsNoSpecialToken(t *testing.T) {
	tok := demoTokenizer(t).AddSpecial(map[uint32]string{9000: "the", 9001: "[END]"})
	rapid.Check(t, func(t *rapid.T) {
		text := text().Draw(t, "text") + "[END]"
		if ids := tok.AppendLiteral(nil, text); slices.ContainsFunc(ids, tok.IsSpecial) {
			t.Fatalf("AppendLiteral(%q) = %d has a special id", text, ids)
		}
	})
	// Text without structure is encoded as ever.
	const plain = "I think <b>think</b> is a tag. The quick brown fox!"
	if got, want := tok.AppendLiteral(nil, plain), demoTokenizer(t).Append(nil, plain); !slices.Equal(got, want) {
		t.Errorf("AppendLiteral(%q) = %d, want %d", plain, got, want)
	}
}

// What literal text may hold depends on the flag, on the shape, and on whether
// the model's own vocabulary has the token too.
func TestStructure(t *testing.T) {
	file := demoFile(t)
	var model, vocab tokenizerFile
	parse(t, file["model"], &model)
	parse(t, model["vocab"], &vocab)
	vocab["<table>"], vocab["<|own|>"] = []byte("8500"), []byte("8501")
	model["vocab"] = encode(t, vocab)
	file["model"] = encode(t, model)
	tests := []struct {
		content   string
		special   bool
		structure bool
	}{
		{"<bos>", true, true},
		{"stop", true, true},
		{"<｜User｜>", false, true},
		{"<|user|>", false, true},
		{"<|own|>", false, true},
		{"<think>", false, true},
		{"</tool_call>", false, true},
		{"[TOOL_CALLS]", false, true},
		{"]~b]", false, true},
		{"<table>", false, false},
		{"\n\n\n\n\n\n\n", false, false},
		{"       \t", false, false},
		{"\u2581\u2581\u2581", false, false},
		{"*****", false, false},
		{"covid", false, false},
		{"/nothink", false, false},
	}
	var added []map[string]any
	for i, tc := range tests {
		added = append(added, map[string]any{"id": 9000 + i, "content": tc.content, "special": tc.special})
	}
	file["added_tokens"] = encode(t, added)
	tok := load(t, encode(t, file))
	list := tok.AddedTokens()
	if len(list) != len(tests) {
		t.Fatalf("%d tokens are listed, want %d", len(list), len(tests))
	}
	for i, tc := range tests {
		a := list[i]
		if a.Content != tc.content || a.Special != tc.special || a.Structure != tc.structure {
			t.Errorf("listed is %+v, want %+v", a, tc)
		}
		if got := tok.Append(nil, "x"+tc.content+"y"); !slices.Contains(got, a.ID) {
			t.Errorf("Append of %q gives %d without %d", tc.content, got, a.ID)
		}
		text := "x" + tc.content + "y"
		literal := tok.AppendLiteral(nil, text)
		if slices.Contains(literal, a.ID) == tc.structure {
			t.Errorf("AppendLiteral of %q gives %d, and %d is structure: %v", tc.content, literal, a.ID, tc.structure)
		}
		if got := tok.Decode(literal, true); got != text {
			t.Errorf("AppendLiteral of %q decodes to %q", text, got)
		}
	}
	list[0].Content = "changed"
	if tok.AddedTokens()[0].Content != "<bos>" {
		t.Error("the list is not the caller's own")
	}

	more := tok.AddStructure("covid", "<table>", "       \t", "unknown")
	for content, want := range map[string]bool{"covid": true, "<table>": true, "       \t": false, "<think>": true} {
		id, _ := more.ID(content)
		if got := !slices.Contains(more.AppendLiteral(nil, content), id); got != want {
			t.Errorf("with more structure %q is structure: %v, want %v", content, got, want)
		}
		if !slices.Contains(more.Append(nil, content), id) {
			t.Errorf("with more structure Append of %q lacks %d", content, id)
		}
	}
	if id, _ := tok.ID("covid"); !slices.Contains(tok.AppendLiteral(nil, "covid"), id) {
		t.Error("AddStructure changed the tokenizer that it was called of")
	}
}

func TestSingleWord(t *testing.T) {
	file := demoFile(t)
	file["added_tokens"] = encode(t, []map[string]any{{"id": 9000, "content": "qzx", "single_word": true}})
	tok := load(t, encode(t, file))
	for text, want := range map[string]bool{"qzx": true, "a qzx.": true, "(qzx)": true, "nonqzx": false, "qzxs": false, "qzx_": false, "éqzx": false, "qzx1": false} {
		if got := slices.Contains(tok.Append(nil, text), 9000); got != want {
			t.Errorf("%q holds the word qzx: %v, want %v", text, got, want)
		}
	}
}

// A run of unknown bytes is one unknown token, within a word and not beyond it.
func TestFuseUnk(t *testing.T) {
	const file = `{"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Digits"},{"type":"ByteLevel","add_prefix_space":false,"use_regex":false}]},
		"decoder":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{"?":0,"a":1},"merges":[],"unk_token":"?","fuse_unk":%v}}`
	for fuse, want := range map[bool][]uint32{false: {0, 0, 1, 0, 0, 0}, true: {0, 1, 0, 0}} {
		tok := load(t, fmt.Appendf(nil, file, fuse))
		if got := tok.Append(nil, "xyax12"); !slices.Equal(got, want) {
			t.Errorf("fuse_unk %v: got %d, want %d", fuse, got, want)
		}
	}
}

// A special token that is an ordinary word of the vocabulary is the one case in
// which words themselves can be special.
func TestAppendLiteralSpellsSpecialWords(t *testing.T) {
	old := demoTokenizer(t)
	user, ok := old.ID("user")
	if !ok {
		t.Fatal("the test needs user to be a token")
	}
	tok := old.AddSpecial(map[uint32]string{user: "user"})
	if got := tok.Append(nil, "user"); !slices.Equal(got, []uint32{user}) {
		t.Errorf("Append gives %d", got)
	}
	if got := tok.AppendLiteral(nil, "user"); len(got) != 4 || tok.Decode(got, true) != "user" {
		t.Errorf("AppendLiteral gives %d", got)
	}
}

func TestAddSpecial(t *testing.T) {
	old := demoTokenizer(t)
	tok := old.AddSpecial(map[uint32]string{9000: "<new>", 8185: "<other>", 9001: "<think>", 9002: "", 1 << 30: "<far>"})
	id, ok := tok.ID("<new>")
	if !ok || id != 9000 || !tok.IsSpecial(9000) || string(tok.Bytes(9000)) != "<new>" || tok.Size() != old.Size()+1 {
		t.Errorf("<new> has id %d (known %v), special %v, bytes %q; %d tokens", id, ok, tok.IsSpecial(9000), tok.Bytes(9000), tok.Size())
	}
	if got := tok.Append(nil, "<new>"); !slices.Equal(got, []uint32{9000}) {
		t.Errorf("<new> is %d", got)
	}
	if string(tok.Bytes(8185)) != "<|im_end|>" {
		t.Errorf("id 8185 became %q", tok.Bytes(8185))
	}
	if id, _ := tok.ID("<think>"); id == 9001 || tok.IsSpecial(id) {
		t.Errorf("<think> became %d, special %v", id, tok.IsSpecial(id))
	}
	if _, ok := old.ID("<new>"); ok || old.Bytes(9000) != nil || old.IsSpecial(9000) {
		t.Error("the tokenizer that was added to has changed")
	}
}

func TestLookups(t *testing.T) {
	tok := demoTokenizer(t)
	for _, tc := range []struct{ token, bytes string }{
		{"user", "user"}, {"Ġthe", " the"}, {"Ċ", "\n"}, {"<|im_start|>", "<|im_start|>"}, {"</think>", "</think>"}, {"é", "\xe9"},
	} {
		id, ok := tok.ID(tc.token)
		if !ok || string(tok.Bytes(id)) != tc.bytes {
			t.Errorf("%q: id %d (known %v) has the bytes %q, want %q", tc.token, id, ok, tok.Bytes(id), tc.bytes)
		}
	}
	for _, token := range []string{"", "no such token", "你"} {
		if id, ok := tok.ID(token); ok {
			t.Errorf("%q has id %d", token, id)
		}
	}
	for _, id := range []uint32{8192, 1 << 22, 1<<32 - 1} {
		if tok.Bytes(id) != nil || tok.IsSpecial(id) || tok.Decode([]uint32{id}, false) != "" {
			t.Errorf("id %d is known", id)
		}
	}
}

// All goroutines share the word cache and the marks of whole words; under the
// race detector this is the proof that they may.
func TestConcurrentUse(t *testing.T) {
	tok := demoTokenizer(t)
	const text = "A distributed cacheline unforgettable HTTPServer reimplements snake_casings, schöne Grüße 你好 <|im_end|>"
	want := demoTokenizer(t).Append(nil, text)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 20 {
				if got := tok.Append(nil, text); !slices.Equal(got, want) {
					t.Errorf("got %d, want %d", got, want)
				}
			}
		})
	}
	wg.Wait()
}

func TestDecoderEqualsDecode(t *testing.T) {
	tok := demoTokenizer(t)
	id := rapid.OneOf(rapid.Uint32Range(0, 255), rapid.Uint32Range(0, 8300), rapid.Uint32Range(8180, 8192))
	rapid.Check(t, func(t *rapid.T) {
		ids := rapid.SliceOf(id).Draw(t, "ids")
		skip := rapid.Bool().Draw(t, "skip")
		dec := tok.NewDecoder(skip)
		var got, all []byte
		for _, id := range ids {
			piece := dec.Append(nil, id)
			if !utf8.Valid(piece) {
				t.Fatalf("id %d released %q, which is no valid UTF-8", id, piece)
			}
			got = append(got, piece...)
			if !skip || !tok.IsSpecial(id) {
				all = append(all, tok.Bytes(id)...)
			}
		}
		got = dec.Flush(got)
		if want := tok.Decode(ids, skip); string(got) != want {
			t.Fatalf("decoded to %q one by one, %q at once", got, want)
		}
		if want := lossy(all); string(got) != want {
			t.Fatalf("bytes %q decoded to %q, want %q", all, got, want)
		}
		if again := dec.Flush(nil); len(again) > 0 {
			t.Fatalf("a second flush gave %q", again)
		}
	})
}

// lossy replaces by U+FFFD each longest run of bytes that begins a character
// and does not complete it, found by trying all completions' lengths.
func lossy(b []byte) string {
	var out strings.Builder
	for len(b) > 0 {
		if r, n := utf8.DecodeRune(b); r != utf8.RuneError || n > 1 {
			out.WriteRune(r)
			b = b[n:]
			continue
		}
		n := min(3, len(b))
		for n > 1 && utf8.FullRune(b[:n]) {
			n--
		}
		out.WriteRune(utf8.RuneError)
		b = b[n:]
	}
	return out.String()
}

// Whatever is released is released as early as can be: at most three bytes are
// held, and only while they may yet become a character.
func TestDecoderHoldsOnlyIncompleteCharacters(t *testing.T) {
	tok := demoTokenizer(t)
	ids := tok.Append(nil, "😀")
	if len(ids) < 2 {
		t.Fatalf("the test needs a character of several tokens, 😀 is %d", ids)
	}
	dec := tok.NewDecoder(false)
	for _, id := range ids[:len(ids)-1] {
		if got := dec.Append(nil, id); len(got) > 0 {
			t.Errorf("released %q before the character was complete", got)
		}
	}
	hello := tok.Append(nil, "hello")
	if got := dec.Append([]byte("x"), hello[0]); !bytes.HasPrefix(got, []byte("x\ufffdh")) {
		t.Errorf("after a broken character: %q", got)
	}
}

func FuzzAppend(f *testing.F) {
	tok := demoTokenizer(f)
	f.Add("The cache <|im_end|> holds\r\n\t12345 blöcke 你好 👩‍👧 \xff\xe2\x82")
	f.Fuzz(func(t *testing.T, text string) {
		ids := tok.Append(nil, text)
		literal := tok.AppendLiteral(nil, text)
		if slices.ContainsFunc(literal, tok.IsSpecial) {
			t.Errorf("AppendLiteral(%q) has a special id", text)
		}
		want := norm.NFC.String(text)
		for _, ids := range [][]uint32{ids, literal} {
			var got []byte
			for _, id := range ids {
				got = append(got, tok.Bytes(id)...)
			}
			if norm.NFC.String(string(got)) != want {
				t.Errorf("%q came back as %q", text, got)
			}
		}
		if utf8.ValidString(text) && norm.NFC.String(tok.Decode(ids, false)) != want {
			t.Errorf("%q decodes to %q", text, tok.Decode(ids, false))
		}
	})
}
