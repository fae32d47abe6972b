package wire_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
)

// A text survives the way to the wire and back, except for what no JSON can hold.
func TestStringsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"\u2028\u2029\u0085", "<&>\"\\/", "\x00\x01\x1f\x7f", "\xff\xc3(", "😀𝄞"})).Draw(t, "text")
		raw := wire.AppendString(nil, text)
		var read string
		if err := json.Unmarshal(raw, &read); err != nil {
			t.Fatalf("%q is written as %s: %v", text, raw, err)
		}
		if want := string([]rune(text)); read != want { // a rune for each bad byte
			t.Fatalf("%q is read as %q", text, read)
		}
		if strings.ContainsAny(string(raw), "\n\r\u2028\u2029\u0085") {
			t.Fatalf("%q breaks a line", raw)
		}
		if got := wire.Unquote(raw); got != strings.ReplaceAll(read, "\x00", "\uFFFD") {
			t.Fatalf("%s: Unquote gives %q, want %q", raw, got, read)
		}
	})
}

// Bad units become U+FFFD, one for each, in a text and in a value that is kept.
func TestBadUnits(t *testing.T) {
	for raw, want := range map[string]struct{ text, kept string }{
		`"a\ud800b"`:          {"a\uFFFDb", `"a\ufffdb"`},
		`"a\udc00\ud800"`:     {"a\uFFFD\uFFFD", `"a\ufffd\ufffd"`},
		`"\uD83D\uDE00"`:      {"😀", `"\uD83D\uDE00"`},
		`"\ud83dx\ude00"`:     {"\uFFFDx\uFFFD", `"\ufffdx\ufffd"`},
		`"\u0000"`:            {"\uFFFD", `"\ufffd"`},
		"\"a\xff\xfeb\"":      {"a\uFFFD\uFFFDb", "\"a\uFFFD\uFFFDb\""},
		`"\\ud800 \\u0000"`:   {`\ud800 \u0000`, `"\\ud800 \\u0000"`},
		`"\ufffd \t\/\u0041"`: {"\uFFFD \t/A", `"\ufffd \t\/\u0041"`},
	} {
		if got := wire.Unquote([]byte(raw)); got != want.text {
			t.Errorf("%q: text %q, want %q", raw, got, want.text)
		}
		if got := string(wire.CleanRaw([]byte(raw))); got != want.kept {
			t.Errorf("%q: kept as %q, want %q", raw, got, want.kept)
		}
	}
}

func TestReader(t *testing.T) {
	const doc = `{"a":[{"b":"x\u0041","c":null,"d":1e3}, true],"raw": {"k" : [1]}}`
	var got []string
	r := wire.NewReader([]byte(doc), "body")
	note := func(format string, args ...any) { got = append(got, fmt.Sprintf(format, args...)) }
	whole, err := r.ObjectRaw("an object", func(name []byte) error {
		if string(name) == "raw" {
			inner, err := r.ObjectRaw("an object", func([]byte) error { return r.Skip() })
			note("raw %s", inner)
			return err
		}
		return r.Array("an array", func(i int) error {
			if i == 1 {
				on, err := r.Boolean()
				note("%v at %s", on, r.Path())
				return err
			}
			return r.Object("an object", func(name []byte) error {
				switch string(name) {
				case "b":
					s, err := r.Text("a string")
					note("%s at %s", s, r.Path())
					return err
				case "c":
					null, err := r.Null()
					note("null %v", null)
					return err
				}
				n, err := r.Integer(0, 1000)
				note("%d", n)
				return err
			})
		})
	})
	if err != nil || string(whole) != doc || r.End() != nil {
		t.Fatalf("%v, %s", err, whole)
	}
	want := "xA at body.a[0].b|null true|1000|true at body.a[1]|raw {\"k\" : [1]}"
	if s := strings.Join(got, "|"); s != want {
		t.Errorf("got  %s\nwant %s", s, want)
	}
}

func TestReaderComplains(t *testing.T) {
	for doc, want := range map[string]string{
		`{"a":[1,"x"]}`: "a[1]: expected an integer, got a string",
		`{"a":[1.5]}`:   "a[0]: expected an integer, got 1.5",
		`{"a":[99]}`:    "a[0]: expected an integer from 0 to 9, got 99",
		`{"a":{}}`:      "a: expected numbers, got an object",
		`[]`:            "expected an object, got an array",
		`{"a":[1]} {}`:  "more than one JSON value in the body",
		`{"a":[1`:       "the JSON text ends too early",
		`{"a" 1}`:       "after object name (expecting ':')",
		``:              "the JSON text ends too early",
	} {
		r := wire.NewReader([]byte(doc), "")
		err := r.Object("an object", func([]byte) error {
			return r.Array("numbers", func(int) error {
				_, err := r.Integer(0, 9)
				return err
			})
		})
		if err == nil {
			err = r.End()
		}
		var broken *wire.SyntaxError
		var e *wire.Error
		if errors.As(err, &broken) {
			e = broken.Cause
		} else if !errors.As(err, &e) {
			t.Errorf("%s: got %v", doc, err)
			continue
		}
		if e.Status != 400 || !strings.Contains(e.Message, want) {
			t.Errorf("%s: got %d %q, want %q", doc, e.Status, e.Message, want)
		}
	}
}

func TestErrorOf(t *testing.T) {
	own := wire.Invalid("a.b", "wrong %d", 1)
	if got := wire.ErrorOf(fmt.Errorf("decode: %w", own), 0); got != own || own.Error() != "Validation: wrong 1" || own.Message != "wrong 1" {
		t.Errorf("got %+v", got)
	}
	busy := engine.Errorf(engine.ResourceExhausted, "all busy")
	if got := wire.ErrorOf(busy, 0); got.Status != wire.StatusOverloaded || got.RetryAfter <= 0 {
		t.Errorf("got %+v", got)
	}
	if got := wire.ErrorOf(busy, 503); got.Status != 503 {
		t.Errorf("got %+v", got)
	}
	if got := wire.ErrorOf(errors.New("secret 10.0.0.7"), 0); got.Status != 500 || strings.Contains(got.Error(), "10.0") {
		t.Errorf("got %+v", got)
	}
}

func FuzzStrings(f *testing.F) {
	f.Add([]byte(`"a\ud800\u0000b\n"`))
	f.Add([]byte("\"\xff\\\\\""))
	f.Fuzz(func(t *testing.T, doc []byte) {
		r := wire.NewReader(doc, "")
		raw, err := r.Raw()
		if err != nil || r.End() != nil {
			return
		}
		clean := wire.CleanRaw(raw)
		if !utf8.Valid(clean) || !json.Valid(clean) {
			t.Fatalf("%q is kept as %q", raw, clean)
		}
		if again := wire.CleanRaw(clean); string(again) != string(clean) {
			t.Fatalf("cleaned twice: %q, then %q", clean, again)
		}
		if raw[0] != '"' {
			return
		}
		text := wire.Unquote(raw)
		if !utf8.ValidString(text) || strings.ContainsRune(text, 0) {
			t.Fatalf("%q has the text %q", raw, text)
		}
		if text != wire.Unquote(clean) || wire.Unquote(wire.AppendString(nil, text)) != text {
			t.Fatalf("%q: the text changes on the way", raw)
		}
	})
}

func ExampleReader() {
	r := wire.NewReader([]byte(`{"messages":[{"role":7}]}`), "")
	err := r.Object("an object", func([]byte) error {
		return r.Array("messages", func(int) error {
			return r.Object("a message", func([]byte) error {
				_, err := r.Text("a string")
				return err
			})
		})
	})
	fmt.Println(err)
	// Output: Failed to deserialize the JSON body into the target type: messages[0].role: expected a string, got a number
}
