package pipeline_test

import (
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
)

// The first prompt of a session that begins with a summary says so to its worker, and no
// other one does.
func TestCompaction(t *testing.T) {
	e := &fake{}
	h := newHouse(t, pipeline.Config{}, e)
	e.generate = h.say("Yes.", 1, engine.FinishEOS)
	user := func(s string) chat.Turn { return chat.Turn{Role: chat.RoleUser, Blocks: texted(s)} }
	yes := chat.Turn{Role: chat.RoleAssistant, Blocks: texted("Yes.")}
	history := words("long", 200, nil).Chat.Turns[0]
	summary := user("In short: the house is red, and the garden is not. Go on with the garden.")
	for i, tt := range []struct {
		session    string
		summarized bool
		turns      []chat.Turn
		want       bool
	}{
		{"s", false, []chat.Turn{history}, false},
		{"s", false, []chat.Turn{history, yes, user("And now?")}, false},
		{"s", true, []chat.Turn{summary}, true},
		{"s", true, []chat.Turn{summary, yes, user("Next.")}, false},
		{"other", true, []chat.Turn{summary}, false}, // of which nothing is known
		{"", true, []chat.Turn{summary}, false},
		{"t", false, []chat.Turn{history}, false},
		{"t", false, []chat.Turn{user("What is this about, in one word?")}, false}, // a side call
	} {
		r := words("any", 1, nil)
		r.Identity.Key, r.KV.Session.ID = tt.session, tt.session
		r.Chat.Turns, r.Chat.Summarized = tt.turns, tt.summarized
		run(t, h, r)
		if got := e.sent()[i].KV.Compacted; got != tt.want {
			t.Errorf("request %d: compacted %v, want %v", i, got, tt.want)
		}
	}
}
