package frontend_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/frontend"
	"pgregory.net/rapid"
)

func TestParseAlias(t *testing.T) {
	for text, want := range map[string]frontend.Alias{
		"claude-*=acme/demo": {Pattern: "claude-*", Name: "acme/demo"}, " a = b ": {Pattern: "a", Name: "b"}, "*=a=b": {Pattern: "*", Name: "a=b"},
		"a": {}, "=a": {}, "a=": {}, "a=b*": {}, "": {},
	} {
		got, err := frontend.ParseAlias(text)
		if got != want || (err == nil) != (want.Name != "") {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// A pattern matches what a naive matcher says that it does.
func TestAliasMatches(t *testing.T) {
	var naive func(pattern, name string) bool
	naive = func(pattern, name string) bool {
		switch {
		case pattern == "":
			return name == ""
		case pattern[0] == '*':
			return naive(pattern[1:], name) || name != "" && naive(pattern, name[1:])
		}
		return name != "" && name[0] == pattern[0] && naive(pattern[1:], name[1:])
	}
	rapid.Check(t, func(t *rapid.T) {
		pattern := rapid.StringMatching(`[ab*/]{1,7}`).Draw(t, "pattern")
		name := rapid.StringMatching(`[ab/]{0,9}`).Draw(t, "name")
		if got, want := frontend.AliasMatches(pattern, name), naive(pattern, name); got != want {
			t.Fatalf("%q matches %q: %t, want %t", pattern, name, got, want)
		}
	})
}

// Whatever a client calls the model, the backend and the answer call it by its own
// name; names that models have come first, and patterns are not listed.
func TestAliases(t *testing.T) {
	backend := newFake()
	s := start(t, backend, func(c *frontend.Config) {
		for _, text := range []string{"demo=sleepy", "claude-*-fast=sleepy", "claude-*=demo", "nick=acme/demo", "asleep=sleepy", "*gone=missing"} {
			a, err := frontend.ParseAlias(text)
			if err != nil {
				t.Fatal(err)
			}
			c.Aliases = append(c.Aliases, a)
		}
	})
	chat := func(model string) answer {
		return s.do("POST", "/v1/chat/completions", `{"model":"`+model+`","messages":[{"role":"user","content":"Hi"}]}`)
	}
	for model, want := range map[string]string{"demo": "demo", "claude-opus-4-5": "demo", "nick": "acme/demo", "acme/demo": "acme/demo"} {
		a := chat(model)
		seen := backend.requests()
		if got := seen[len(seen)-1].Chat.Model; a.status != 200 || got != want || !strings.Contains(a.body, `"model":"acme/demo"`) {
			t.Errorf("%s: %d, asked for %s: %s", model, a.status, got, a.body)
		}
		if a := s.do("GET", "/v1/models/"+model, ""); a.status != 200 || !strings.Contains(a.body, `"id":"`+model+`"`) {
			t.Errorf("%s: %d %s", model, a.status, a.body)
		}
	}
	for model, status := range map[string]int{"claude-x-fast": 404, "other": 404, "long gone": 404} {
		if a := chat(model); a.status != status {
			t.Errorf("%s: %d %s", model, a.status, a.body)
		}
	}
	if a := s.do("POST", "/tokenize", `{"model":"claude-x","prompt":"a"}`); a.status != 200 {
		t.Errorf("tokenize: %d %s", a.status, a.body)
	}
	list := s.do("GET", "/v1/models", "").body
	for name, want := range map[string]int{"demo": 1, "acme/demo": 1, "nick": 1, "claude": 0, "asleep": 0} {
		if got := strings.Count(list, `"id":"`+name); got != want {
			t.Errorf("%s is listed %d times, want %d: %s", name, got, want, list)
		}
	}
}
