package pipeline_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// A picture that the client can still take back is refused, and the place is
// named; any other is a short text, which is the same ever after.
func TestImages(t *testing.T) {
	image := chat.Block{Kind: chat.Image, Media: &chat.Media{Source: "base64", MediaType: "image/png", Data: "AAAA", Path: "messages[2].content[1]"}}
	file := chat.Block{Kind: chat.Document, Media: &chat.Media{Source: "file", Data: "x"}}
	screenshot := turnOf(chat.RoleUser, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: "call_1", Blocks: []chat.Block{image}}})
	call := turnOf(chat.RoleAssistant, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "call_1", Name: "look", Args: "{}"}})
	for name, tc := range map[string]struct {
		turns       []chat.Turn
		placeholder bool
		refused     string // what the error names
	}{
		"newest":            {[]chat.Turn{turnOf(chat.RoleUser, say("What is it?"), image)}, false, "messages[2].content[1]"},
		"newest of several": {[]chat.Turn{turnOf(chat.RoleUser, image), turnOf(chat.RoleUser, say("What is it?"))}, false, "messages[2].content[1]"},
		"a file":            {[]chat.Turn{turnOf(chat.RoleUser, file)}, false, "messages"},
		"with a result":     {[]chat.Turn{call, turnOf(chat.RoleUser, screenshot.Blocks[0], image)}, false, "messages[2].content[1]"},
		"by the operator":   {[]chat.Turn{turnOf(chat.RoleUser, say("What is it?"), image)}, true, ""},
		"in a result":       {[]chat.Turn{call, screenshot}, false, ""},
		"answered":          {[]chat.Turn{turnOf(chat.RoleUser, image), turnOf(chat.RoleAssistant, say("A cat.")), turnOf(chat.RoleUser, say("Sure?"))}, false, ""},
	} {
		f := &fake{}
		h := newHouse(t, pipeline.Config{ImagePlaceholder: tc.placeholder}, f)
		f.generate = h.say(sentence, 100, engine.FinishEOS)
		r := request("Hello")
		r.Chat.Turns = append(r.Chat.Turns, tc.turns...)
		_, err := chat.Fold(h.Run(t.Context(), r))
		if tc.refused != "" {
			e, ok := errors.AsType[*engine.Error](err)
			if !ok || e.Kind != engine.InvalidArgument || e.Param != tc.refused || !contains(err, "does not support") || !contains(err, tc.refused) {
				t.Errorf("%s: %v", name, err)
			}
			if len(f.sent()) > 0 {
				t.Errorf("%s: the engine was asked", name)
			}
			if _, _, err := h.Tokenize(r.Chat, true); err != nil {
				t.Errorf("%s: nothing is counted: %v", name, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if text, _ := h.model.Text(f.sent()[0].TokenIDs); strings.Count(text, "[image: image/png]") != 1 {
			t.Errorf("%s: shown\n%s", name, text)
		}
	}
}
