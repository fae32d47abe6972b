package wire_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/wire"
)

func TestMembers(t *testing.T) {
	text, given := "before", new(string)
	for doc, want := range map[string]string{`"said"`: "said", `null`: ""} {
		if err := wire.Nullable(wire.NewReader([]byte(doc), ""), &text, wire.Text); err != nil || text != want {
			t.Errorf("%s is read as %q, %v", doc, text, err)
		}
		err := wire.Optional(wire.NewReader([]byte(doc), ""), &given, wire.Text)
		if err != nil || (given == nil) != (doc == "null") || given != nil && *given != want {
			t.Errorf("%s is read as %v, %v, where it matters if it is given", doc, given, err)
		}
	}
	if err := wire.Nullable(wire.NewReader([]byte("5"), "name"), &text, wire.Text); err == nil || !strings.Contains(err.Error(), "name") {
		t.Errorf("a number for a string is %v", err)
	}
}

func TestLoose(t *testing.T) {
	for doc, want := range map[string]string{
		`"said"`: "said", `null`: "", `{"a": [1.50]}`: `{"a": [1.50]}`, `"\ud800"`: "\uFFFD", `["\ud800"]`: `["\ufffd"]`, `7`: "7",
	} {
		if got, err := wire.Loose(wire.NewReader([]byte(doc), "")); err != nil || got != want {
			t.Errorf("%s is read as %q, %v; want %q", doc, got, err, want)
		}
	}
	if _, err := wire.Loose(wire.NewReader([]byte(`{"a":`), "")); err == nil {
		t.Error("half a document is read")
	}
}

func TestSplitDataURL(t *testing.T) {
	for url, want := range map[string][3]string{
		"https://example.com/a.png":             {"url", "", "https://example.com/a.png"},
		"data:image/png;base64,AAAA":            {"base64", "image/png", "AAAA"},
		"data:image/png;name=a.png;base64,AA,A": {"base64", "image/png", "AA,A"},
		"data:;base64,AAAA":                     {"base64", "", "AAAA"},
		"data:text/plain,hello":                 {"url", "", "data:text/plain,hello"},
		"data:image/png;base64":                 {"url", "", "data:image/png;base64"},
		"DATA:image/png;base64,AAAA":            {"url", "", "DATA:image/png;base64,AAAA"},
	} {
		source, mediaType, data := wire.SplitDataURL(url)
		if got := [3]string{source, mediaType, data}; got != want {
			t.Errorf("%s is %q, want %q", url, got, want)
		}
	}
}

func TestNotInToolName(t *testing.T) {
	if strings.ContainsFunc("mcp__files.read-file:2/é", wire.NotInToolName) {
		t.Error("an ordinary name is refused")
	}
	for _, r := range "\x00\t\n \"'`<>\u00a0\u0085" {
		if !wire.NotInToolName(r) {
			t.Errorf("%q is allowed", r)
		}
	}
}
