package mask_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/guided/mask"
)

func compile(t testing.TB, v *mask.Vocabulary, f *chat.OutputFormat) *mask.Grammar {
	t.Helper()
	g, err := mask.NewCompiler(v).Compile(f)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func bitsOf(t testing.TB, v *mask.Vocabulary, s *mask.State) []uint64 {
	t.Helper()
	bits := make([]uint64, v.Words())
	if err := s.Mask(bits); err != nil {
		t.Fatal(err)
	}
	return bits
}

func TestClonesGoTheirOwnWays(t *testing.T) {
	v := byBytes(t)
	g := compile(t, v, &chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"ab", "ac"}})
	s := g.Start()
	if err := s.Advance('a'); err != nil {
		t.Fatal(err)
	}
	c := s.Clone()
	if err := c.Advance('b'); err != nil || !c.Done() {
		t.Fatalf("%v, done: %t", err, c.Done())
	}
	if s.Done() {
		t.Fatal("the state went with its clone")
	}
	if err := s.Advance('c'); err != nil {
		t.Fatal(err)
	}
}

// A token that may not come leaves the state as it was, and nothing comes behind an
// end.
func TestWhatMayNotCome(t *testing.T) {
	v := byBytes(t)
	end := uint32(v.Size() - 1)
	g := compile(t, v, &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: "ab?"})
	s := g.Start()
	for _, id := range []uint32{'b', end, 1000} {
		if err := s.Advance(id); err == nil {
			t.Errorf("token %d was read", id)
		}
	}
	for _, id := range []uint32{'a', 'b'} {
		if err := s.Advance(id); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Advance(end); err != nil || !s.Ended() {
		t.Fatal("no end", err)
	}
	if s.Advance('a') == nil || s.Advance(end) == nil || s.Mask(make([]uint64, v.Words())) == nil {
		t.Error("something may come behind the end")
	}
}

// A vocabulary that cannot write what a form asks for is an error, not a hang.
func TestStuck(t *testing.T) {
	v, err := mask.NewVocabulary(mask.Tokens{Bytes: [][]byte{[]byte("a"), []byte("b"), nil}})
	if err != nil {
		t.Fatal(err)
	}
	for pattern, said := range map[string][]uint32{"c": nil, "ac": {0}, "ab": {0, 1}} {
		g := compile(t, v, &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: pattern})
		s := g.Start()
		for _, id := range said {
			if err := s.Advance(id); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Mask(make([]uint64, 1)); !errors.Is(err, mask.ErrStuck) {
			t.Errorf("%s: %v", pattern, err)
		}
	}
}

func TestVocabularyRefused(t *testing.T) {
	for says, tokens := range map[string]mask.Tokens{
		"the vocabulary is empty": {},
		"the end 5":               {Bytes: [][]byte{[]byte("a")}, Ends: []uint32{5}},
		`the mark "<x>" is 3`:     {Bytes: [][]byte{[]byte("a")}, Marks: map[uint32]string{3: "<x>"}},
	} {
		if _, err := mask.NewVocabulary(tokens); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v; want %s", err, says)
		}
	}
	v := byBytes(t)
	g := compile(t, v, &chat.OutputFormat{Kind: chat.FormatRegex, Pattern: "a"})
	s := g.Start()
	if err := s.Mask(make([]uint64, v.Words()-1)); err == nil {
		t.Error("a mask was put into fewer words than it has")
	}
	long := append(make([]uint64, v.Words()), 1)
	if err := s.Mask(long); err != nil || long[len(long)-1] != 0 {
		t.Errorf("%v; what is behind the mask is %x", err, long[len(long)-1])
	}
}

func TestKindsRefused(t *testing.T) {
	c := mask.NewCompiler(byBytes(t))
	for _, f := range []*chat.OutputFormat{
		{Kind: chat.FormatText},
		{Kind: chat.FormatChoice},
		{Kind: chat.FormatChoice, Choices: []string{"\xff"}},
		{Kind: chat.FormatRegex, Pattern: "a("},
		{Kind: chat.FormatRegex, Pattern: `a\b`},
	} {
		if _, err := c.Compile(f); err == nil {
			t.Errorf("%+v was compiled", f)
		}
	}
}

// Forms are compiled once, as long as there are not too many of them.
func TestCompilerKeepsForms(t *testing.T) {
	c := mask.NewCompiler(byBytes(t))
	format := func(i int) *chat.OutputFormat {
		return &chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{fmt.Sprint(i)}}
	}
	first, err := c.Compile(format(0))
	if err != nil {
		t.Fatal(err)
	}
	if again, _ := c.Compile(format(0)); again != first {
		t.Error("a form was compiled twice")
	}
	for i := range 100 {
		if _, err := c.Compile(format(i + 1)); err != nil {
			t.Fatal(err)
		}
	}
	if again, _ := c.Compile(format(0)); again == first {
		t.Error("a form of long ago is still kept")
	}
}

// Answers that come to too many states for one grammar go on with new ones.
func TestStatesAreMadeAnew(t *testing.T) {
	v := byBytes(t)
	g := compile(t, v, schemaFormat(`{"type":"array","items":{"type":"string","maxLength":100000}}`))
	waiting := g.Start()
	for _, b := range `["` {
		if err := waiting.Advance(uint32(b)); err != nil {
			t.Fatal(err)
		}
	}
	clone := waiting.Clone()
	before := bitsOf(t, v, &clone)
	s := g.Start()
	for _, b := range `["` + strings.Repeat("x", 45_000) + `"]` {
		if err := s.Advance(uint32(b)); err != nil {
			t.Fatal(err)
		}
	}
	if !s.Done() {
		t.Error("the text is not whole")
	}
	if !slices.Equal(bitsOf(t, v, &waiting), before) {
		t.Error("the mask of a state has changed")
	}
	for _, b := range `x"]` {
		if err := waiting.Advance(uint32(b)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAnswersShareAGrammar(t *testing.T) {
	v := byBytes(t, `{"`, `":`, "true")
	g := compile(t, v, schemaFormat(toolSchema))
	alone := make([]string, 8)
	for i := range alone {
		alone[i], _ = babble(t, v, g, uint64(i), 60)
	}
	shared := compile(t, v, schemaFormat(toolSchema))
	var all sync.WaitGroup
	for i := range alone {
		all.Go(func() {
			s := shared.Start()
			bits := make([]uint64, v.Words())
			rest := alone[i]
			for rest != "" {
				if err := s.Mask(bits); err != nil {
					t.Error(err)
					return
				}
				if bits[rest[0]>>6]>>(rest[0]&63)&1 == 0 {
					t.Errorf("%q may not come in front of %q", rest[0], rest)
					return
				}
				if err := s.Advance(uint32(rest[0])); err != nil {
					t.Error(err)
					return
				}
				rest = rest[1:]
			}
		})
	}
	all.Wait()
}

// Blanks, digits and what else could go on for ever comes to an end, but for texts
// and lists.
func TestBlanksEnd(t *testing.T) {
	v := byBytes(t)
	for _, source := range []string{`{"type":"object","properties":{"a":{"type":"number"}},"required":["a"]}`, `{"type":"array","items":{"type":"integer"},"minItems":1,"maxItems":2}`} {
		g := compile(t, v, schemaFormat(source))
		s := g.Start()
		n := 0
		for ; !s.Done(); n++ {
			bits := bitsOf(t, v, &s)
			id := uint32(0)
			for _, c := range " \n\t0123456789" { // as a model that has nothing to say
				if bits[c>>6]>>(c&63)&1 == 1 {
					id = uint32(c)
					break
				}
			}
			for id == 0 || bits[id>>6]>>(id&63)&1 == 0 {
				id++
			}
			if err := s.Advance(id); err != nil {
				t.Fatal(err)
			}
			if n > 1000 {
				t.Fatalf("%s has no end", source)
			}
		}
	}
}
