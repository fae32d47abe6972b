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
	"time"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// Any text over any variables either fails to compile, fails to render or renders
// within its limits, twice alike.
func FuzzRender(f *testing.F) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		f.Fatalf("no vectors: %v", err)
	}
	context, err := os.ReadFile("testdata/golden_context.json")
	if err != nil {
		f.Fatal(err)
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
			f.Add(vector[0].(string), context)
		}
	}
	for _, source := range endless {
		f.Add(source, context)
	}
	templates, err := filepath.Glob("../testdata/corpus/templates/*.jinja")
	if err != nil || len(templates) == 0 {
		f.Fatalf("no templates: %v", err)
	}
	conversations, err := os.ReadFile("../testdata/corpus/conversations.jsonl")
	if err != nil {
		f.Fatal(err)
	}
	for _, file := range templates {
		source, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		for line := range bytes.Lines(conversations) {
			f.Add(string(source), bytes.Clone(line))
		}
	}
	limits := jinja.Limits{Output: 1 << 16, Steps: 2000, Depth: 20, Time: 50 * time.Millisecond}
	f.Fuzz(func(t *testing.T, source string, context []byte) {
		v, err := jinja.FromJSON(context)
		variables, ok := v.(*jinja.Dict)
		if err != nil || !ok {
			variables = jinja.NewDict(0)
		}
		began := time.Now()
		tmpl, err := jinja.Compile(source)
		if err != nil {
			mustBeError(t, err)
			return
		}
		first, err := tmpl.Render(variables, jinja.Env{Now: now, Limits: limits})
		if took := time.Since(began); took > 5*time.Second {
			t.Fatalf("took %v", took)
		}
		if err != nil {
			mustBeError(t, err)
		}
		if len(first) > limits.Output {
			t.Fatalf("wrote %d bytes", len(first))
		}
		second, again := tmpl.Render(variables, jinja.Env{Now: now, Limits: limits})
		var e *jinja.Error
		if errors.As(again, &e) && e.Kind == jinja.LimitError {
			return // the clock is not the same each time
		}
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
