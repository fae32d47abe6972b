package tiny_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/guided/mask"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/tokenizer"
)

// spelled are the ids of the test's models as texts: all bytes, and some pieces.
var spelled = sync.OnceValue(func() mask.Tokens {
	v := mask.Tokens{Bytes: make([][]byte, 1000), Ends: []uint32{7}}
	for b := range 256 {
		v.Bytes[300+b] = []byte{byte(b)}
	}
	for i, piece := range strings.Fields(`{" ":" "," "} true false null red green blue , [ ] {} -1 10 ab abc \n \u00`) {
		v.Bytes[600+i] = []byte(piece)
	}
	return v
})

func guiding(t testing.TB) *tiny.Engine {
	t.Helper()
	v, err := mask.NewVocabulary(spelled())
	if err != nil {
		t.Fatal(err)
	}
	e, err := tiny.New(tiny.Options{Name: "tiny", Model: small(), EOS: []uint32{7}, Vocabulary: v})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

func text(ids []uint32) string {
	var b strings.Builder
	for _, id := range ids {
		b.Write(spelled().Bytes[id])
	}
	return b.String()
}

// Answers that are held to a form have it, whatever the model would like to say.
func TestForms(t *testing.T) {
	e := guiding(t)
	date := regexp.MustCompile(`^[0-9]{4}-(0[1-9]|1[0-2])$`)
	choices := []string{"red", "green", "abcab", "true"}
	for _, tc := range []struct {
		format chat.OutputFormat
		is     func(string) bool
		most   int // tokens
	}{
		{chat.OutputFormat{Kind: chat.FormatRegex, Pattern: date.String()}, date.MatchString, 8},
		{chat.OutputFormat{Kind: chat.FormatChoice, Choices: choices}, func(s string) bool { return slices.Contains(choices, s) }, 6},
		{chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte(schema)}, fits, 200},
		{chat.OutputFormat{Kind: chat.FormatJSONObject}, func(s string) bool { return s[0] == '{' && json.Valid([]byte(s)) }, 1500},
	} {
		t.Run(string(tc.format.Kind), func(t *testing.T) {
			var all sync.WaitGroup
			var mu sync.Mutex
			told := map[string]bool{}
			ended := 0
			for seed := range int64(20) {
				all.Go(func() {
					one := 1.0
					r := &engine.Request{
						ID: "u-1", TokenIDs: prompt(int(seed), 12), Format: &tc.format, Sampling: engine.Sampling{Temperature: &one, Seed: &seed},
						Stop: engine.Stop{MaxTokens: tc.most, Hidden: []uint32{7}},
					}
					ids, last := generate(t, e, r)
					mu.Lock()
					defer mu.Unlock()
					if told[text(ids)] = true; last.Finish != engine.FinishEOS {
						return
					}
					if ended++; !tc.is(text(ids)) {
						t.Errorf("seed %d: %q", seed, text(ids))
					}
				})
			}
			all.Wait()
			if ended < 10 || len(told) < 3 {
				t.Errorf("%d of 20 answers came to an end, %d differ", ended, len(told))
			}
		})
	}
}

const schema = `{
	"type": "object", "additionalProperties": false, "required": ["colour", "sizes"],
	"properties": {
		"colour": {"enum": ["red", "green", "blue"]},
		"sizes": {"type": "array", "minItems": 1, "maxItems": 3, "items": {"type": "integer", "minimum": -20, "maximum": 20}},
		"ab": {"type": "boolean"}
	}
}`

// fits says whether a text is an instance of the schema.
func fits(text string) bool {
	var v struct {
		Colour *string
		Sizes  []int
		AB     *bool
	}
	d := json.NewDecoder(strings.NewReader(text))
	d.DisallowUnknownFields()
	if d.Decode(&v) != nil || v.Colour == nil || !slices.Contains([]string{"red", "green", "blue"}, *v.Colour) || len(v.Sizes) < 1 || len(v.Sizes) > 3 {
		return false
	}
	return !slices.ContainsFunc(v.Sizes, func(n int) bool { return n < -20 || n > 20 })
}

// Where an end does not end the answer, nothing but ends comes behind a form.
func TestFormBehindItsEnd(t *testing.T) {
	e := guiding(t)
	r := ask(prompt(1, 12), 20)
	r.Format = &chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"red"}}
	ids, last := generate(t, e, r)
	at := slices.Index(ids, 7)
	if at < 1 || text(ids[:at]) != "red" || len(ids) != 20 || last.Finish != engine.FinishLength {
		t.Fatalf("%v, %s", ids, last.Finish)
	}
	for _, id := range ids[at:] {
		if id != 7 {
			t.Errorf("%v behind the end", ids[at:])
		}
	}
}

// The spelling of a real tokenizer is that of its decoder; markers are no text.
func TestVocabulary(t *testing.T) {
	file, err := demo.File("tokenizer.json")
	if err != nil {
		t.Fatal(err)
	}
	tok, err := tokenizer.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	end, _ := tok.ID("<|im_end|>")
	call, _ := tok.ID("<tool_call>")
	const ids = 9000 // more than it has
	v, err := tiny.Vocabulary(tok, ids, []uint32{end})
	if err != nil {
		t.Fatal(err)
	}
	g, err := mask.NewCompiler(v).Compile(&chat.OutputFormat{Kind: chat.FormatRegex, Pattern: `(?s).*`})
	if err != nil {
		t.Fatal(err)
	}
	text := "Zwölf Boxkämpfer 🥊 {\"a\": [1, 2]}\n\tfunc main()"
	state := g.Start()
	for _, id := range tok.AppendLiteral(nil, text) {
		if err := state.Advance(id); err != nil {
			t.Fatalf("%q: %v", tok.Bytes(id), err)
		}
	}
	bits := make([]uint64, v.Words())
	if err := state.Mask(bits); err != nil {
		t.Fatal(err)
	}
	for id, want := range map[uint32]bool{end: true, call: false, ids - 1: false, tok.AppendLiteral(nil, "a")[0]: true} {
		if got := bits[id>>6]>>(id&63)&1 == 1; got != want {
			t.Errorf("id %d (%q) may come: %v, want %v", id, tok.Bytes(id), got, want)
		}
	}
}

func TestFormsRefused(t *testing.T) {
	for _, tc := range []struct {
		e      *tiny.Engine
		format chat.OutputFormat
		kind   engine.ErrorKind
		says   string
	}{
		{guiding(t), chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: "root ::= x"}, engine.InvalidArgument, "there is no rule x"},
		{guiding(t), chat.OutputFormat{Kind: chat.FormatRegex, Pattern: "a("}, engine.InvalidArgument, "a("},
		{open(t, small()), chat.OutputFormat{Kind: chat.FormatJSONObject}, engine.Unsupported, "json_object"},
	} {
		r := ask(prompt(1, 5), 5)
		r.Format = &tc.format
		for d, err := range tc.e.Generate(t.Context(), r) {
			if engine.KindOf(err) != tc.kind || !strings.Contains(fmt.Sprint(err), tc.says) {
				t.Errorf("%s: %+v, %v; want %s with %q", tc.format.Kind, d, err, tc.kind, tc.says)
			}
		}
	}
}
