package parser_test

import (
	"regexp"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/parser"
)

func TestIDsOfCalls(t *testing.T) {
	form := regexp.MustCompile(`^call_[0-9A-Za-z]{24}$`)
	seen := map[string]bool{}
	for range 1000 {
		p := parser.New(hermes, parser.Options{ToolsOn: true})
		events := p.Push(nil, chat.Piece{Text: `<tool_call>{"name":"f"}</tool_call>`})
		if len(events) == 0 || events[0].Tool == nil {
			t.Fatalf("no call in %+v", events)
		}
		if id := events[0].Tool.ID; !form.MatchString(id) || seen[id] {
			t.Fatalf("%q, seen %v", id, seen[id])
		}
		seen[events[0].Tool.ID] = true
	}
}
