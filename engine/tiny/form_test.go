package tiny_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
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
		param  string
		says   string
	}{
		{guiding(t), chat.OutputFormat{Kind: chat.FormatGrammar, Pattern: "root ::= x"}, engine.InvalidArgument, "guided_grammar", "there is no rule x"},
		{guiding(t), chat.OutputFormat{Kind: chat.FormatRegex, Pattern: "a("}, engine.InvalidArgument, "guided_regex", "a("},
		{guiding(t), chat.OutputFormat{Kind: chat.FormatJSONSchema, Schema: []byte("false"), Name: "n", Member: "text.format"}, engine.InvalidArgument, "text.format", "no text keeps it"},
		{open(t, small()), chat.OutputFormat{Kind: chat.FormatJSONObject}, engine.Unsupported, "", "json_object"},
	} {
		r := ask(prompt(1, 5), 5)
		r.Format = &tc.format
		if got := refusal(t, tc.e, r); got.Kind != tc.kind || got.Param != tc.param || !strings.Contains(got.Error(), tc.says) {
			t.Errorf("%s: %v, of %q; want %s of %q with %q", tc.format.Kind, got, got.Param, tc.kind, tc.param, tc.says)
		}
	}
}

// refusal returns the error that a request ends with.
func refusal(t *testing.T, e engine.Engine, r *engine.Request) (last *engine.Error) {
	t.Helper()
	for _, err := range e.Generate(t.Context(), r) {
		if err != nil && !errors.As(err, &last) {
			t.Fatalf("%T %v", err, err)
		}
	}
	if last == nil {
		t.Fatal("the request was answered")
	}
	return last
}

// A request that allows no token is told so, whatever it is that leaves none: it is no
// fault of the engine's.
func TestNoTokenIsAllowed(t *testing.T) {
	tokens := spelled()
	tokens.Bytes = slices.Clone(tokens.Bytes)
	for id, text := range tokens.Bytes {
		if bytes.Contains(text, []byte("z")) {
			tokens.Bytes[id] = nil
		}
	}
	v, err := mask.NewVocabulary(tokens)
	if err != nil {
		t.Fatal(err)
	}
	speechless := start(t, tiny.Options{Model: small(), Vocabulary: v})
	id := func(b byte) uint32 { return 300 + uint32(b) }
	never := map[uint32]float64{}
	for id := range uint32(1000) {
		never[id] = math.Inf(-1)
	}
	choice := func(s string) *chat.OutputFormat {
		return &chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{s}}
	}
	for name, tc := range map[string]struct {
		e        *tiny.Engine
		format   *chat.OutputFormat
		sampling engine.Sampling
		token    int // that cannot be chosen; -1: one that takes too much
		param    string
	}{
		"no list":                {guiding(t), nil, engine.Sampling{AllowedIDs: []uint32{}}, 0, "allowed_token_ids"},
		"a list and a choice":    {guiding(t), choice("xyx"), engine.Sampling{AllowedIDs: []uint32{id('a')}}, 0, "allowed_token_ids"},
		"a list and its second":  {guiding(t), choice("xyx"), engine.Sampling{AllowedIDs: []uint32{id('x')}}, 1, "allowed_token_ids"},
		"bad words":              {guiding(t), choice("xyx"), engine.Sampling{BadWords: [][]uint32{{id('y')}}}, 1, "bad_words"},
		"biases":                 {guiding(t), nil, engine.Sampling{LogitBias: never}, 0, "logit_bias"},
		"biases and a choice":    {guiding(t), choice("xyx"), engine.Sampling{LogitBias: never}, 0, "guided_choice"},
		"what cannot be spelled": {speechless, choice("xyz"), engine.Sampling{}, 2, "guided_choice"},
		"what takes too much":    {guiding(t), &chat.OutputFormat{Kind: chat.FormatJSONSchema, Name: "n", Schema: []byte(tangle())}, engine.Sampling{AllowedIDs: []uint32{id('"'), id('a'), id('b')}}, -1, "response_format"},
	} {
		t.Run(name, func(t *testing.T) {
			r := ask(prompt(1, 5), 900)
			tc.sampling.Temperature = r.Sampling.Temperature
			r.Format, r.Sampling = tc.format, tc.sampling
			want := fmt.Sprintf("token %d of the answer", tc.token)
			if tc.token < 0 {
				want = "takes more than"
			}
			if got := refusal(t, tc.e, r); got.Kind != engine.InvalidArgument || got.Param != tc.param || !strings.Contains(got.Error(), want) {
				t.Errorf("%v, of %q; want %q of %q", got, got.Param, want, tc.param)
			}
		})
	}
}

// tangle is a schema whose patterns have too many states together.
func tangle() string {
	var all []string
	for i := range 3 {
		all = append(all, fmt.Sprintf(`{"anyOf": [{"pattern": "^.*a.{%d}b"}, {"pattern": "^.*b.{%d}c"}]}`, 10+i, 9+i))
	}
	return `{"type": "string", "allOf": [` + strings.Join(all, ",") + `]}`
}
