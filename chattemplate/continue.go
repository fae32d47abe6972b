package chattemplate

import (
	"errors"
	"fmt"
	"strings"
	"unicode"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// tag ends the text that a model is to go on with, while a template works on it.
// The blank tells afterwards whether the template trimmed that text.
const tag = "\U00010332 "

// ErrNotShown is wrapped by the error of a text that is to be gone on with and that
// the template does not show.
var ErrNotShown = errors.New("the template does not show the text of the last turn")

var errContinuesAndBegins = argsErrorf("continue_final_message and add_generation_prompt exclude each other: either the last turn goes on, or a new one begins")

// continueFinal tells whether the client wants the last turn continued, and puts
// the tag there.
func continueFinal(messages []message, args *jinja.Dict) (bool, error) {
	if v, _ := args.Get("continue_final_message"); v != true {
		return false, nil
	}
	if v, _ := args.Get("add_generation_prompt"); v == true {
		return false, errContinuesAndBegins
	}
	if len(messages) > 0 {
		last := &messages[len(messages)-1]
		texts := last.parts
		if last.merged != nil {
			texts = last.merged
		}
		if n := len(texts); n > 0 {
			texts[n-1] += tag
			return true, nil
		}
	}
	return false, errors.New("continue_final_message needs a last turn with text to go on with")
}

// cutAtTag ends a prompt where the text to go on with ends. A template that
// trims texts has trimmed the tag's blank, and not those before the tag.
func cutAtTag(text string) (string, error) {
	letter := strings.TrimSpace(tag)
	i := strings.LastIndex(text, letter)
	switch {
	case i < 0:
		return "", fmt.Errorf("continue_final_message: %w", ErrNotShown)
	case strings.HasPrefix(text[i:], tag):
		return text[:i], nil
	}
	return strings.TrimRightFunc(text[:i], unicode.IsSpace), nil
}
