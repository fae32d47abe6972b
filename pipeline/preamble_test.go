package pipeline_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/pipeline"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"
)

const billing = "x-anthropic-billing-header: cc_version=2.1.37.0d9; cc_entrypoint=cli; cch=fa690;"

func say(s string) chat.Block { return chat.Block{Kind: chat.Text, Text: s} }

func turnOf(role chat.Role, blocks ...chat.Block) chat.Turn {
	return chat.Turn{Role: role, Blocks: blocks}
}

func TestPreamble(t *testing.T) {
	at := func(turn, block int) chat.Breakpoint { return chat.Breakpoint{Turn: turn, Block: block} }
	user := turnOf(chat.RoleUser, say("q"))
	for name, tc := range map[string]struct {
		in, want chat.Request
		lines    int
	}{
		"a block of its own": {
			in:    chat.Request{System: []chat.Block{say(billing), say("a"), say("b")}, Turns: []chat.Turn{user}, Cache: []chat.Breakpoint{at(-1, 0), at(-1, 2), at(0, 0)}},
			want:  chat.Request{System: []chat.Block{say("a"), say("b")}, Turns: []chat.Turn{user}, Cache: []chat.Breakpoint{at(-1, 0), at(-1, 1), at(0, 0)}},
			lines: 1,
		},
		"a mark behind it": {
			in:    chat.Request{System: []chat.Block{say(billing), say("a"), say("b")}, Turns: []chat.Turn{user}, Cache: []chat.Breakpoint{at(-1, 1)}},
			want:  chat.Request{System: []chat.Block{say("a"), say("b")}, Turns: []chat.Turn{user}, Cache: []chat.Breakpoint{at(-1, 0)}},
			lines: 1,
		},
		"of the system alone": {
			in:    chat.Request{System: []chat.Block{say(billing + "\na")}, Turns: []chat.Turn{turnOf(chat.RoleUser, say(billing))}},
			want:  chat.Request{System: []chat.Block{say("a")}, Turns: []chat.Turn{turnOf(chat.RoleUser, say(billing))}},
			lines: 1,
		},
		"before other text": {
			in:    chat.Request{System: []chat.Block{say(" \n" + billing + "\n  a\n" + billing)}, Turns: []chat.Turn{user}},
			want:  chat.Request{System: []chat.Block{say("  a\n" + billing)}, Turns: []chat.Turn{user}},
			lines: 1,
		},
		"several, in another case": {
			in:    chat.Request{System: []chat.Block{say("X-Anthropic-Billing-Header: 1\n" + billing + "\na")}, Turns: []chat.Turn{user}},
			want:  chat.Request{System: []chat.Block{say("a")}, Turns: []chat.Turn{user}},
			lines: 2,
		},
		"all of the system text": {
			in:    chat.Request{System: []chat.Block{say(billing)}, Turns: []chat.Turn{user}, Cache: []chat.Breakpoint{at(-1, 0)}},
			want:  chat.Request{System: []chat.Block{}, Turns: []chat.Turn{user}, Cache: []chat.Breakpoint{at(-1, -1)}},
			lines: 1,
		},
		"a system turn": {
			in: chat.Request{
				Turns: []chat.Turn{turnOf(chat.RoleSystem, say(billing)), turnOf(chat.RoleDeveloper, say(billing+"\n"), say("a")), user},
				Cache: []chat.Breakpoint{at(0, 0), at(1, 1), at(2, 0)},
			},
			want: chat.Request{
				Turns: []chat.Turn{turnOf(chat.RoleDeveloper, say("a")), user},
				Cache: []chat.Breakpoint{at(0, 0), at(0, 0), at(1, 0)},
			},
			lines: 2,
		},
		"the last turn": {
			in:    chat.Request{Turns: []chat.Turn{user, turnOf(chat.RoleSystem, say(billing))}, Cache: []chat.Breakpoint{at(1, 0)}},
			want:  chat.Request{Turns: []chat.Turn{user}, Cache: []chat.Breakpoint{at(0, -1)}},
			lines: 1,
		},
		"what users and models say": {
			in:   chat.Request{Turns: []chat.Turn{turnOf(chat.RoleUser, say(billing)), turnOf(chat.RoleAssistant, say(billing))}},
			want: chat.Request{Turns: []chat.Turn{turnOf(chat.RoleUser, say(billing)), turnOf(chat.RoleAssistant, say(billing))}},
		},
		"another word": {
			in:   chat.Request{System: []chat.Block{say("x-anthropic-billing: 1")}, Turns: []chat.Turn{user}},
			want: chat.Request{System: []chat.Block{say("x-anthropic-billing: 1")}, Turns: []chat.Turn{user}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			before := clone(tc.in)
			got, lines, _ := pipeline.WithoutPreamble(&tc.in)
			if diff := cmp.Diff(tc.want, *got, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if len(lines) != tc.lines || slices.ContainsFunc(lines, func(s string) bool { return strings.Contains(s, "\n") }) {
				t.Errorf("took off %q, want %d lines", lines, tc.lines)
			}
			if diff := cmp.Diff(before, tc.in); diff != "" {
				t.Errorf("the client's request has changed: %s", diff)
			}
		})
	}
}

func clone(r chat.Request) chat.Request {
	r.System, r.Cache, r.Turns = slices.Clone(r.System), slices.Clone(r.Cache), slices.Clone(r.Turns)
	for i := range r.Turns {
		r.Turns[i].Blocks = slices.Clone(r.Turns[i].Blocks)
	}
	return r
}

// What is left begins with no such line, has no empty block that was not there,
// and every mark has a place.
func TestPreambleProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.SampledFrom([]string{billing, billing + "\n", billing + "\na", "\n" + billing + "\n" + billing, "a", "", "b\n" + billing})
		blocks := rapid.Custom(func(t *rapid.T) (list []chat.Block) {
			for range rapid.IntRange(0, 3).Draw(t, "blocks") {
				list = append(list, say(text.Draw(t, "text")))
			}
			return list
		})
		r := chat.Request{System: blocks.Draw(t, "system")}
		for range rapid.IntRange(0, 3).Draw(t, "turns") {
			role := rapid.SampledFrom([]chat.Role{chat.RoleSystem, chat.RoleUser, chat.RoleAssistant}).Draw(t, "role")
			r.Turns = append(r.Turns, turnOf(role, blocks.Draw(t, "said")...))
		}
		for turn := -1; turn < len(r.Turns); turn++ {
			n := len(r.System)
			if turn >= 0 {
				n = len(r.Turns[turn].Blocks)
			}
			for block := range n {
				r.Cache = append(r.Cache, chat.Breakpoint{Turn: turn, Block: block})
			}
		}
		got, _, _ := pipeline.WithoutPreamble(&r)
		system := func(blocks []chat.Block) {
			for _, b := range blocks {
				if strings.HasPrefix(strings.TrimSpace(b.Text), billing) {
					t.Fatalf("left %q", b.Text)
				}
			}
		}
		system(got.System)
		for _, turn := range got.Turns {
			if turn.Role == chat.RoleSystem {
				system(turn.Blocks)
			}
		}
		if len(got.Cache) != len(r.Cache) {
			t.Fatalf("%d marks, had %d", len(got.Cache), len(r.Cache))
		}
		for _, at := range got.Cache {
			n := len(got.System)
			if at.Turn >= len(got.Turns) {
				t.Fatalf("mark %+v behind %d turns", at, len(got.Turns))
			}
			if at.Turn >= 0 {
				n = max(1, len(got.Turns[at.Turn].Blocks))
			}
			if at.Block >= n {
				t.Fatalf("mark %+v behind %d blocks", at, n)
			}
		}
		if again, lines, _ := pipeline.WithoutPreamble(got); len(lines) > 0 || again != got {
			t.Fatalf("took off %q the second time", lines)
		}
	})
}

// Two requests that differ in that line alone are one to the engine, and count
// alike.
func TestPreambleIsNotShown(t *testing.T) {
	for _, keep := range []bool{false, true} {
		f := &fake{}
		h := newHouse(t, pipeline.Config{KeepPreamble: keep}, f)
		f.generate = h.say(sentence, 100, engine.FinishEOS)
		var counted [2]int
		for i, line := range []string{billing, strings.Replace(billing, "fa690", "00000", 1)} {
			r := request("Hello")
			r.Chat.System = []chat.Block{say(line), say("Be brief.")}
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			if got := len(r.Notes.Preamble); got != 1 && !keep || got != 0 && keep {
				t.Errorf("keep %t: noted %q", keep, r.Notes.Preamble)
			}
			ids, _, err := h.Tokenize(r.Chat, true)
			if err != nil {
				t.Fatal(err)
			}
			if counted[i] = len(ids); counted[i] != r.Notes.PromptTokens {
				t.Errorf("keep %t: counted %d tokens of %d", keep, counted[i], r.Notes.PromptTokens)
			}
		}
		if same := slices.Equal(f.sent()[0].TokenIDs, f.sent()[1].TokenIDs); same == keep {
			t.Errorf("keep %t: same prompts %t", keep, same)
		}
	}
}
