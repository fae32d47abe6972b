package main

import (
	"bytes"
	"encoding/json"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/demo"
)

func page(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/harnesses.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// The page shows what dynago env prints.
func TestPageOfHarnesses(t *testing.T) {
	text := page(t)
	for name, file := range harnesses {
		var printed bytes.Buffer
		if err := writeHarness(&printed, name, pointed{URL: "http://127.0.0.1:8000", Model: demo.Name}); err != nil {
			t.Fatal(err)
		}
		_, kind, _ := strings.Cut(file, ".")
		if block := "```" + kind + "\n" + printed.String() + "```\n"; !strings.Contains(text, block) {
			t.Errorf("the page has not what dynago env %s prints:\n%s", name, block)
		}
	}
}

// The page names the versions that are tested.
func TestVersionsOfHarnesses(t *testing.T) {
	text := page(t)
	for _, file := range []string{"../../e2e/agents/package.json", "../../e2e/node/package.json"} {
		raw, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var pins struct{ Dependencies map[string]string }
		if err := json.Unmarshal(raw, &pins); err != nil || len(pins.Dependencies) == 0 {
			t.Fatalf("%s: %v", file, err)
		}
		for pkg, version := range pins.Dependencies {
			if pkg != "zod" && pkg != "node" && !strings.Contains(text, " "+version) {
				t.Errorf("the page does not name %s %s", pkg, version)
			}
		}
	}
	pins, err := os.ReadFile("../../e2e/python/requirements.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range regexp.MustCompile(`(?m)^(?:openai|anthropic)==(.+)$`).FindAllStringSubmatch(string(pins), -1) {
		if !strings.Contains(text, " "+m[1]+" (Python)") {
			t.Errorf("the page does not name %s", m[0])
		}
	}
}

// What is printed is read as it is meant, whatever the model is called.
func TestHarnessesQuote(t *testing.T) {
	const model = "it's \"a\" model\n"
	var out bytes.Buffer
	if err := writeHarness(&out, "opencode", pointed{URL: "http://[::1]:1", Model: model}); err != nil {
		t.Fatal(err)
	}
	var config struct {
		Model    string
		Provider map[string]struct{ Models map[string]struct{} }
	}
	if err := json.Unmarshal(out.Bytes(), &config); err != nil {
		t.Fatal(err)
	}
	if _, ok := config.Provider["dynago"].Models[model]; !ok || config.Model != "dynago/"+model {
		t.Errorf("got %s", out.String())
	}
	out.Reset()
	if err := writeHarness(&out, "claude", pointed{URL: "http://[::1]:1", Model: model, Key: "KEY"}); err != nil {
		t.Fatal(err)
	}
	if want := "ANTHROPIC_MODEL='it'\\''s \"a\" model\n'\n"; !strings.Contains(out.String(), want) {
		t.Errorf("%q is not in %q", want, out.String())
	}
}
