package pipeline

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// What a request says is what the router gets to know.
func TestQuery(t *testing.T) {
	base := func() *router.Query { return &router.Query{ID: "id", Model: "m", Tokens: []uint32{1, 2}} }
	hints := func(h nvext.Hints) func(*Request) {
		return func(r *Request) { r.Ext = &nvext.Ext{AgentHints: &h} }
	}
	for name, c := range map[string]struct {
		say  func(*Request)
		want func(*router.Query)
	}{
		"nothing":               {func(*Request) {}, func(*router.Query) {}},
		"an empty extension":    {func(r *Request) { r.Ext = new(nvext.Ext) }, func(*router.Query) {}},
		"priority":              {hints(nvext.Hints{Priority: new(int32(7))}), func(q *router.Query) { q.Priority = 7 }},
		"a priority below 0":    {hints(nvext.Hints{Priority: new(int32(-7))}), func(*router.Query) {}},
		"sensitivity":           {hints(nvext.Hints{LatencySensitivity: new(2.5)}), func(q *router.Query) { q.Priority = 2.5 }},
		"a sensitivity below 0": {hints(nvext.Hints{LatencySensitivity: new(-2.5)}), func(*router.Query) {}},
		"priority over it":      {hints(nvext.Hints{Priority: new(int32(-1)), LatencySensitivity: new(2.5)}), func(*router.Query) {}},
		"strict priority":       {hints(nvext.Hints{StrictPriority: new(uint32(3))}), func(q *router.Query) { q.StrictPriority = 3 }},
		"a forecast":            {hints(nvext.Hints{OSL: new(uint32(300))}), func(q *router.Query) { q.Expected = 300 }},
		"namespace": {func(r *Request) { r.KV.Namespace.Salt = "s" }, func(q *router.Query) {
			q.Namespace, q.Session.Tenant = kv.Namespace{Salt: "s"}, "s"
		}},
		"tenant":                   {func(r *Request) { r.Tenant = "t" }, func(q *router.Query) { q.Session.Tenant = "t" }},
		"prompt log probabilities": {func(r *Request) { r.Chat.Sampling.PromptLogprobs = new(1) }, func(q *router.Query) { q.Recompute = true }},
		"class":                    {func(r *Request) { r.Class = "nightly" }, func(q *router.Query) { q.Class = "nightly" }},
		"background":               {func(r *Request) { r.Background = true }, func(q *router.Query) { q.Background = true }},
		"taints": {func(r *Request) {
			r.Ext = &nvext.Ext{RoutingConstraints: &nvext.Constraints{RequiredTaints: []string{"c", "a", "c", "a"}, PreferredTaints: map[string]float64{"b": -1}}}
		}, func(q *router.Query) { q.Require, q.Prefer = []string{"a", "c"}, map[string]float64{"b": -1} }},
		"session": {func(r *Request) {
			r.Identity = nvext.Identity{Run: "run", Chain: "chain", Key: "key", Parent: "parent", Final: true}
		}, func(q *router.Query) { q.Session = router.Session{ID: "key", Parent: "parent", Final: true} }},
	} {
		r := &Request{ID: "id", Chat: &chat.Request{Model: "m"}}
		c.say(r)
		want := base()
		c.want(want)
		if d := cmp.Diff(want, r.query([]uint32{1, 2}), cmpopts.IgnoreUnexported(router.Query{})); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
	}
}

func TestLegsOf(t *testing.T) {
	id := func(n uint64) *nvext.WorkerID { return new(nvext.WorkerID(n)) }
	for name, c := range map[string]struct {
		ext    *nvext.Ext
		want   router.Legs
		pinned bool
	}{
		"nothing":  {nil, router.Legs{}, false},
		"empty":    {new(nvext.Ext), router.Legs{}, false},
		"instance": {&nvext.Ext{Placement: nvext.Placement{BackendInstanceID: id(4)}}, router.Legs{Backend: 4}, true},
		"prefill alone": {
			&nvext.Ext{Placement: nvext.Placement{PrefillWorkerID: id(4), PrefillDPRank: new(uint32(1))}},
			router.Legs{Prefill: 4, PrefillRank: new(uint32(1))},
			false,
		},
		"all": {
			&nvext.Ext{Placement: nvext.Placement{
				BackendInstanceID: id(1), PrefillWorkerID: id(2), DecodeWorkerID: id(3), DPRank: new(uint32(5)), PrefillDPRank: new(nvext.UnsetRank),
			}},
			router.Legs{Backend: 1, Prefill: 2, Decode: 3, Rank: new(uint32(5))},
			true,
		},
		"annotation":         {&nvext.Ext{Annotations: []string{"a", "x-bypass-remote-prefill"}}, router.Legs{Whole: true}, false},
		"another annotation": {&nvext.Ext{Annotations: []string{"x-bypass"}}, router.Legs{}, false},
	} {
		if d := cmp.Diff(c.want, legsOf(c.ext)); d != "" {
			t.Errorf("%s: -want +got\n%s", name, d)
		}
		if got := pinned(&Request{Ext: c.ext}); got != c.pinned {
			t.Errorf("%s: pinned %v", name, got)
		}
	}
}

func TestInputOf(t *testing.T) {
	turn := func(role chat.Role, kinds ...chat.Kind) chat.Turn {
		out := chat.Turn{Role: role}
		for _, k := range kinds {
			out.Blocks = append(out.Blocks, chat.Block{Kind: k})
		}
		return out
	}
	for name, c := range map[string]struct {
		turns []chat.Turn
		want  router.Input
	}{
		"none":                    {nil, router.OtherInput},
		"user":                    {[]chat.Turn{turn(chat.RoleSystem, chat.Text), turn(chat.RoleUser, chat.Text)}, router.UserInput},
		"tool":                    {[]chat.Turn{turn(chat.RoleTool, chat.Text)}, router.ToolInput},
		"result in a user turn":   {[]chat.Turn{turn(chat.RoleUser, chat.ToolResult, chat.Text)}, router.ToolInput},
		"assistant":               {[]chat.Turn{turn(chat.RoleUser, chat.Text), turn(chat.RoleAssistant, chat.Text)}, router.OtherInput},
		"system":                  {[]chat.Turn{turn(chat.RoleSystem, chat.Text)}, router.OtherInput},
		"a result, and then text": {[]chat.Turn{turn(chat.RoleTool, chat.ToolResult), turn(chat.RoleUser, chat.Text)}, router.UserInput},
	} {
		if got := InputOf(&chat.Request{Turns: c.turns}); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
	// Claude Code writes notes of the system behind what a request is about.
	note := turn(chat.RoleSystem, chat.Text)
	for name, c := range map[string]struct {
		api   chat.API
		turns []chat.Turn
		want  router.Input
	}{
		"a note behind a user":    {chat.APIMessages, []chat.Turn{turn(chat.RoleUser, chat.Text), note, note}, router.UserInput},
		"a note behind a result":  {chat.APIMessages, []chat.Turn{turn(chat.RoleUser, chat.ToolResult), note}, router.ToolInput},
		"a note behind an answer": {chat.APIMessages, []chat.Turn{turn(chat.RoleAssistant, chat.Text), note}, router.OtherInput},
		"only a note":             {chat.APIMessages, []chat.Turn{note}, router.OtherInput},
		"another API":             {chat.APIChat, []chat.Turn{turn(chat.RoleUser, chat.Text), note}, router.OtherInput},
	} {
		if got := InputOf(&chat.Request{API: c.api, Turns: c.turns}); got != c.want {
			t.Errorf("%s: %d", name, got)
		}
	}
}
