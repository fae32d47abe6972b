package envelope_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/internal/envelope"
)

func box(t testing.TB, key string) *envelope.Box {
	t.Helper()
	b, err := envelope.New(key)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

const long = "The tests want one file. I look for it in the folder that the user named, and then I read it. "

func TestEnvelopes(t *testing.T) {
	for _, key := range []string{"", "a key of any length"} {
		b := box(t, key)
		for _, text := range []string{"", "x", "<&>\u2028\x00", strings.Repeat(long, 2), strings.Repeat(long, 20), strings.Repeat("a", 1<<20)} {
			c, ok := b.Open(b.Sign(envelope.SumOf(text), 7))
			if !ok || c.HasText || c.Text != "" || c.Ordinal != 7 || !c.Vouches(text) || c.Vouches(text+" ") {
				t.Errorf("key %q, %.20q: a signature holds %+v, %v", key, text, c, ok)
			}
			c, ok = b.Open(b.Seal(text, 2))
			if !ok || !c.HasText || c.Text != text || c.Ordinal != 2 || !c.Vouches(text) {
				t.Errorf("key %q, %.20q: a sealed text holds %.40q, %v", key, text, c.Text, ok)
			}
			if first, again := b.Seal(text, 2), b.Seal(text, 2); first != again || first == b.Seal(text, 3) {
				t.Errorf("key %q, %.20q: envelopes do not depend on their content alone", key, text)
			}
		}
	}
}

// A key hides what is thought, and a text that was changed is no longer ours.
func TestKeys(t *testing.T) {
	open, one, two := box(t, ""), box(t, "one"), box(t, "two")
	secret := one.Seal(long, 0)
	if !strings.HasPrefix(secret, "r1e.") || !strings.HasPrefix(open.Seal(long, 0), "r1.") {
		t.Errorf("unknown forms %.20s and %.20s", secret, open.Seal(long, 0))
	}
	if one.Seal(long+".", 0)[:20] == secret[:20] {
		t.Error("two texts were sealed with one nonce")
	}
	for name, b := range map[string]*envelope.Box{"none": open, "another": two} {
		if c, ok := b.Open(secret); ok {
			t.Errorf("with %s key the envelope shows %+v", name, c)
		}
	}
	if c, ok := one.Open(open.Seal(long, 0)); !ok || c.Text != long {
		t.Error("an envelope from before there was a key is lost")
	}
	for i := range len(secret) {
		if _, ok := one.Open(secret[:i]); ok {
			t.Errorf("the first %d of %d bytes are an envelope", i, len(secret))
		}
		flipped := []byte(secret)
		if flipped[i] = 'A'; string(flipped) == secret {
			flipped[i] = 'Q'
		}
		if _, ok := one.Open(string(flipped)); ok {
			t.Errorf("byte %d can be changed", i)
		}
	}
}

func TestForeignEnvelopes(t *testing.T) {
	b := box(t, "key")
	for _, s := range []string{
		"", "erased", "r1.", "r1e.", "r1.!", "r1e.!", "r1.e30", "r1e.e30",
		"EqQBCkYICRgCKkBpZGlvbXMgb2Ygb3RoZXIgdmVuZG9ycw==",
		"r1.eyJoIjoiMDAifQ", // {"h":"00"}
		"r1.eyJ0IjoieCIsImgiOiIwMDAwMDAwMDAwMDAwMDAwIn0", // a text of another sum
	} {
		if c, ok := b.Open(s); ok {
			t.Errorf("%q holds %+v", s, c)
		}
	}
}

// A small envelope with a large text was not made here: a body full of them must
// not fill the memory.
func TestBloatedEnvelope(t *testing.T) {
	w, err := zstd.NewWriter(nil, zstd.WithSingleSegment(true))
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Repeat("a", 1<<16)
	for _, n := range []int{10, len(text)} {
		sum := envelope.SumOf(text[:n])
		small := w.EncodeAll(fmt.Appendf(nil, `{"t":%q,"h":"%x","i":0}`, text[:n], sum), nil)
		_, ok := box(t, "").Open("r1." + base64.RawURLEncoding.EncodeToString(small))
		if ok != (n == 10) {
			t.Errorf("%d bytes with a text of %d are read: %v", len(small), n, ok)
		}
	}
}

func TestDigest(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var d envelope.Digest
		for range 2 { // it begins anew
			pieces := rapid.SliceOf(rapid.String()).Draw(t, "pieces")
			for _, p := range pieces {
				d.Add(p)
			}
			if d.Sum() != envelope.SumOf(strings.Join(pieces, "")) {
				t.Fatal("the sum of the pieces is not that of the text")
			}
		}
	})
}

// Whatever a client sends is read or not, and does not grow beyond its limit.
func FuzzOpen(f *testing.F) {
	f.Add("r1.e30")
	f.Add(box(f, "").Seal(strings.Repeat(long, 9), 1))
	f.Add(box(f, "k").Sign(envelope.SumOf(long), 1))
	keyed, open := box(f, "k"), box(f, "")
	f.Fuzz(func(t *testing.T, s string) {
		for _, b := range []*envelope.Box{keyed, open} {
			c, ok := b.Open(s)
			if len(c.Text) > 8*len(s) {
				t.Fatalf("%d bytes became %d", len(s), len(c.Text))
			}
			if ok && c.HasText && !c.Vouches(c.Text) {
				t.Fatalf("%q holds a text that it does not vouch for", s)
			}
		}
	})
}

func BenchmarkDigestAdd(b *testing.B) {
	var d envelope.Digest
	b.ReportAllocs()
	for b.Loop() {
		d.Add(" rivers")
	}
}

func ExampleBox() {
	b, err := envelope.New("the operator's key")
	if err != nil {
		fmt.Println(err)
		return
	}
	sent := b.Sign(envelope.SumOf("List the files first."), 0)

	back, ok := b.Open(sent)
	fmt.Println(ok, back.Vouches("List the files first."), back.Vouches("Delete the files first."))
	_, ok = b.Open("a signature of another vendor")
	fmt.Println(ok)
	// Output:
	// true true false
	// false
}

// Texts of every length and sameness come back.
func TestSealedTexts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := strings.Repeat(rapid.String().Draw(t, "piece"), rapid.IntRange(0, 300).Draw(t, "times"))
		for _, b := range boxes {
			if c, ok := b.Open(b.Seal(text, 0)); !ok || c.Text != text {
				t.Fatalf("%.60q of %d bytes comes back as %.60q, %v", text, len(text), c.Text, ok)
			}
		}
	})
}

var boxes = func() []*envelope.Box {
	keyed, err := envelope.New("key")
	if err != nil {
		panic(err)
	}
	return []*envelope.Box{keyed, new(envelope.Box)}
}()
