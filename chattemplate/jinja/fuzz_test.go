package jinja_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// Any text either fails to compile, fails to render or renders within its
// limits, twice alike.
func FuzzRender(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		f.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
			var vector [2]any
			if err := json.Unmarshal(lines.Bytes(), &vector); err != nil {
				f.Fatal(err)
			}
			f.Add(vector[0].(string))
		}
	}
	context, err := os.ReadFile("testdata/golden_context.json")
	if err != nil {
		f.Fatal(err)
	}
	variables := vars(f, string(context))
	limits := jinja.Limits{Output: 1 << 16, Steps: 2000, Depth: 20}
	f.Fuzz(func(t *testing.T, source string) {
		tmpl, err := jinja.Compile(source)
		if err != nil {
			mustBeError(t, err)
			return
		}
		first, err := tmpl.Render(variables, jinja.Env{Now: now, Limits: limits})
		if err != nil {
			mustBeError(t, err)
		}
		if len(first) > limits.Output {
			t.Fatalf("wrote %d bytes", len(first))
		}
		second, again := tmpl.Render(variables, jinja.Env{Now: now, Limits: limits})
		if second != first || (err == nil) != (again == nil) {
			t.Fatalf("rendered %q, %v and then %q, %v", first, err, second, again)
		}
	})
}

func mustBeError(t *testing.T, err error) {
	var e *jinja.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is a %T", err, err)
	}
}

func FuzzFromJSON(f *testing.F) {
	f.Add([]byte(`{"a":[1,2.5,"x",null,true,{"b":1e400}]}`))
	f.Add([]byte(strings.Repeat("[", 450) + strings.Repeat("]", 450)))
	f.Fuzz(func(t *testing.T, doc []byte) {
		v, err := jinja.FromJSON(doc)
		if err != nil {
			return
		}
		once, err := jinja.ToJSON(v)
		if err != nil {
			t.Fatalf("%q was read, and not written: %v", doc, err)
		}
		if v, err = jinja.FromJSON([]byte(once)); err != nil {
			t.Fatalf("%q became %q: %v", doc, once, err)
		}
		if twice, _ := jinja.ToJSON(v); twice != once {
			t.Fatalf("%q became %q, then %q", doc, once, twice)
		}
	})
}
