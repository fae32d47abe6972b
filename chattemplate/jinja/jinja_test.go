package jinja_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chattemplate/jinja"
	"github.com/google/go-cmp/cmp"
)

// vars reads the variables of a template from JSON.
func vars(t testing.TB, doc string) *jinja.Dict {
	t.Helper()
	v, err := jinja.FromJSON([]byte(doc))
	if err != nil {
		t.Fatalf("variables: %v", err)
	}
	return v.(*jinja.Dict)
}

var now = time.Date(2026, time.November, 29, 9, 5, 7, 0, time.UTC)

func render(source string, vars *jinja.Dict) (string, error) {
	tmpl, err := jinja.Compile(source)
	if err != nil {
		return "", err
	}
	return tmpl.Render(vars, jinja.Env{Now: now})
}

// Each line of testdata/*.jsonl is a template and either what Python's Jinja2
// makes of it over the context in the file of that name, or the kind of error
// that it raises (empty: any).
func TestVectors(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) == 0 {
		t.Fatalf("no vectors: %v", err)
	}
	for _, file := range files {
		context, err := os.ReadFile(strings.TrimSuffix(file, ".jsonl") + "_context.json")
		if err != nil {
			t.Fatal(err)
		}
		variables := vars(t, string(context))
		data, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		lines := bufio.NewScanner(bytes.NewReader(data))
		lines.Buffer(nil, 1<<20)
		for n := 1; lines.Scan(); n++ {
			t.Run(fmt.Sprintf("%s:%d", filepath.Base(file), n), func(t *testing.T) {
				checkVector(t, lines.Bytes(), variables)
			})
		}
	}
}

func checkVector(t *testing.T, line []byte, variables *jinja.Dict) {
	var vector [2]json.RawMessage
	var source, want string
	if err := json.Unmarshal(line, &vector); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(vector[0], &source); err != nil {
		t.Fatal(err)
	}
	got, err := render(source, variables)
	if json.Unmarshal(vector[1], &want) == nil {
		if err != nil {
			t.Fatalf("%s\n%v", source, err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%s\n%s", source, diff)
		}
		return
	}
	var failure struct{ Error string }
	if err := json.Unmarshal(vector[1], &failure); err != nil {
		t.Fatal(err)
	}
	var e *jinja.Error
	if !errors.As(err, &e) {
		t.Fatalf("%s\nrendered %q, want a %s", source, got, failure.Error)
	}
	if failure.Error != "" && string(e.Kind) != failure.Error {
		t.Fatalf("%s\nfailed with %v, want a %s", source, err, failure.Error)
	}
}
