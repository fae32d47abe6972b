//go:build e2e

package corpus_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/internal/models"
	"github.com/dynago/dynago/tokenizer"
)

// explained is how many differences of a section are shown; the rest is counted.
const explained = 3

func TestVocabularies(t *testing.T) {
	for _, v := range vocabularies(t) {
		t.Run(v.name, func(t *testing.T) {
			t.Parallel()
			v.check(t)
		})
	}
}

// check holds one vocabulary against its golden file.
func (v *vocabulary) check(t *testing.T) {
	file, err := models.Read(modelsDir, v.file)
	if err != nil {
		t.Fatal(err)
	}
	tok, err := v.load(file)
	if err != nil {
		t.Fatal(err)
	}
	it := v.items(t, file, tok)
	if *update {
		v.ask(t, it).write(t, v.name)
	}
	want := readGolden(t, v.name)

	start := time.Now()
	encoded := 0
	for section, texts := range map[string][]string{"short": it.short, "spelling": it.spelling, "long": it.long} {
		v.compareIDs(t, tok, section, texts, want[section], v.encode(tok))
		for _, text := range texts {
			encoded += len(text)
		}
	}
	t.Logf("%d texts, %d MB in %v", len(it.short)+len(it.spelling)+len(it.long), encoded>>20, time.Since(start).Round(time.Millisecond))
	v.compareIDs(t, tok, "special", it.special(), want["special"], func(text string) []uint32 { return tok.AppendWithSpecial(nil, text) })
	lossless := v.lossless(t, file, tok)
	var ids [][]uint32
	for _, text := range it.decoded() {
		ids = append(ids, v.encode(tok)(text))
		if back := tok.Decode(ids[len(ids)-1], false); lossless && back != text {
			t.Errorf("%q comes back as %q", text, back)
		}
	}
	v.compareTexts(t, tok, "decode", ids, want["decode"])
	v.compareTexts(t, tok, "random", it.random, want["random"])
}

// encode is the method whose ids are those of the library.
func (v *vocabulary) encode(tok *tokenizer.Tokenizer) func(string) []uint32 {
	if v.literal {
		return func(text string) []uint32 { return tok.AppendLiteral(nil, text) }
	}
	return func(text string) []uint32 { return tok.Append(nil, text) }
}

// question returns one without items.
func (v *vocabulary) question() question {
	q := question{Library: v.library, Vocabulary: map[string]any{"file": modelsDir + "/" + v.file}}
	for key, value := range v.rest {
		q.Vocabulary[key] = value
	}
	return q
}

// ask asks the library for all that the golden file holds.
func (v *vocabulary) ask(t *testing.T, it items) golden {
	t.Helper()
	g := golden{}
	q := v.question()
	q.Encode = slices.Concat(it.short, it.spelling, it.long)
	if !v.literal {
		q.Special = it.special()
	}
	q.Again, q.Decode = len(it.decoded()), it.random
	a := ask(t, q)
	t.Logf("the library took %.1f s of CPU to encode", a.Seconds)
	for i, ids := range a.Encode {
		section := "long"
		switch {
		case i < len(it.short):
			section = "short"
		case i < len(it.short)+len(it.spelling):
			section = "spelling"
		}
		g[section] = append(g[section], digestIDs(ids))
	}
	for _, ids := range a.Special {
		g["special"] = append(g["special"], digestIDs(ids))
	}
	for i, texts := range a.Decode {
		section := "random"
		if i < len(it.decoded()) {
			section = "decode"
		}
		g[section] = append(g[section], digestTexts(texts))
	}
	return g
}

// compareIDs holds the ids of texts against their digests.
func (v *vocabulary) compareIDs(t *testing.T, tok *tokenizer.Tokenizer, section string, texts, want []string, encode func(string) []uint32) {
	t.Helper()
	if section == "special" && v.literal {
		return
	}
	if len(texts) != len(want) {
		t.Fatalf("%s: %d texts, and digests of %d; make vocabularies UPDATE=1 after a change of the corpus", section, len(texts), len(want))
	}
	wrong := 0
	for i, text := range texts {
		got := encode(text)
		if digestIDs(got) == want[i] {
			continue
		}
		if wrong++; wrong > explained {
			continue
		}
		q := v.question()
		q.Encode = []string{text}
		right := func(a answer) []uint32 { return a.Encode[0] }
		if section == "special" {
			q.Encode, q.Special = nil, q.Encode
			right = func(a answer) []uint32 { return a.Special[0] }
		}
		t.Errorf("%s %d: %s", section, i, differenceOfIDs(tok, text, got, right(ask(t, q))))
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d differ", section, wrong, len(texts))
	}
}

// compareTexts holds what ids decode to against the digests: at once, and one by
// one.
func (v *vocabulary) compareTexts(t *testing.T, tok *tokenizer.Tokenizer, section string, sequences [][]uint32, want []string) {
	t.Helper()
	if len(sequences) != len(want) {
		t.Fatalf("%s: %d sequences, and digests of %d; make vocabularies UPDATE=1 after a change of the corpus", section, len(sequences), len(want))
	}
	wrong := 0
	for i, ids := range sequences {
		got := [2]string{tok.Decode(ids, false), tok.Decode(ids, true)}
		for skip, whole := range got {
			if pieces := decodeInPieces(tok, ids, skip == 1); pieces != whole {
				t.Errorf("%s %d: one by one %d gives %q, at once %q", section, i, ids, pieces, whole)
			}
		}
		if v.skips {
			got[0] = got[1]
		}
		if digestTexts(got) == want[i] {
			continue
		}
		if wrong++; wrong > explained {
			continue
		}
		q := v.question()
		q.Decode = [][]uint32{ids}
		right := ask(t, q).Decode[0]
		t.Errorf("%s %d: %d gives %q, want %q; without special tokens %q, want %q", section, i, ids, got[0], right[0], got[1], right[1])
	}
	if wrong > 0 {
		t.Errorf("%s: %d of %d differ", section, wrong, len(sequences))
	}
}

func decodeInPieces(tok *tokenizer.Tokenizer, ids []uint32, skip bool) string {
	decoder := tok.NewDecoder(skip)
	var text []byte
	for _, id := range ids {
		text = decoder.Append(text, id)
	}
	return string(decoder.Flush(text))
}

// differenceOfIDs tells where two lists of ids of a text part, with the text
// around, as far as the ids before it spell it.
func differenceOfIDs(tok *tokenizer.Tokenizer, text string, got, want []uint32) string {
	n := 0
	for n < min(len(got), len(want)) && got[n] == want[n] {
		n++
	}
	if n == len(got) && n == len(want) {
		return fmt.Sprintf("the digest is stale; the library agrees today about %q", clip(text, 80))
	}
	from := max(n-4, 0)
	window := func(ids []uint32) string {
		var b strings.Builder
		for _, id := range ids[from:min(n+6, len(ids))] {
			fmt.Fprintf(&b, " %d%q", id, tok.Bytes(id))
		}
		return b.String()
	}
	return fmt.Sprintf("id %d of %d differs in %q\n\tbefore it: %q\n\tgot: %s\n\twant:%s",
		n, len(want), clip(text, 120), tok.Decode(want[max(n-12, 0):n], false), window(got), window(want))
}

// clip returns the beginning of a text.
func clip(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "") + "…"
}

// special returns the texts that are also encoded with special tokens around.
func (it *items) special() []string {
	return slices.Concat(it.short[:60], it.spelling[:min(20, len(it.spelling))])
}

// decoded returns the texts whose ids are also decoded.
func (it *items) decoded() []string { return slices.Concat(it.short, it.spelling) }
