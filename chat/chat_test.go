package chat_test

import (
	"regexp"
	"testing"

	"github.com/dynago/dynago/chat"
)

// A choice means itself, whatever it looks like.
func TestChoicePattern(t *testing.T) {
	f := chat.OutputFormat{Kind: chat.FormatChoice, Choices: []string{"yes", "a.b", "(x|y)*"}}
	is := regexp.MustCompile("^" + f.ChoicePattern() + "$").MatchString
	for text, want := range map[string]bool{"yes": true, "a.b": true, "(x|y)*": true, "axb": false, "x": false, "yesa.b": false, "": false} {
		if is(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// Only a raw turn that is alone stands for itself.
func TestBare(t *testing.T) {
	raw := chat.Turn{Role: chat.RoleUser, Raw: true, Blocks: []chat.Block{{Kind: chat.Text, Text: "Once "}, {Kind: chat.Text, Text: "upon"}}}
	said := raw
	said.Raw = false
	for name, c := range map[string]struct {
		turns []chat.Turn
		text  string
		ok    bool
	}{
		"raw":     {[]chat.Turn{raw}, "Once upon", true},
		"said":    {[]chat.Turn{said}, "", false},
		"two":     {[]chat.Turn{raw, said}, "", false},
		"nothing": {nil, "", false},
	} {
		q := chat.Request{Turns: c.turns}
		if text, ok := q.Bare(); text != c.text || ok != c.ok {
			t.Errorf("%s: %q, %v", name, text, ok)
		}
	}
}
