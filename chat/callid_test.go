package chat_test

import (
	"fmt"
	"regexp"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
)

const (
	fresh   = "call_0123456789ABCDEFGHIJKLMN"
	toolu   = "toolu_0123456789ABCDEFGHIJKLMN"
	foreign = "call_9f8e7d6c5b4a3210ZZZZZZZZ"
)

func TestWireIDs(t *testing.T) {
	for _, tt := range []struct {
		style               chat.IDStyle
		fresh, native, name string
		want                string
	}{
		{chat.NoIDs, fresh, "", "ls", fresh},
		{chat.NoIDs, fresh, "functions.ls:0", "ls", fresh},
		{chat.FunctionIDs, fresh, "", "ls", fresh},
		{chat.FunctionIDs, fresh, "functions.ls:0", "ls", "call_0123456789ABk0"},
		{chat.FunctionIDs, toolu, "functions.mcp.fs-ls:117", "mcp.fs-ls", "toolu_0123456789ABk117"},
		{chat.FunctionIDs, fresh, "ls:3", "ls", "call_0123456789ABb3"},
		{chat.FunctionIDs, fresh, "functions.ls:0", "cat", "call_0123456789ABh66756e6374696f6e732e6c733a30"},
		{chat.NameIDs, fresh, "ls:3", "ls", "call_0123456789ABb3"},
		{chat.NameIDs, fresh, "ls", "ls", "call_0123456789ABh6c73"},
		{chat.NineIDs, fresh, "a1B2c3D4e", "ls", "a1B2c3D4e"},
	} {
		if got := tt.style.Wire(tt.fresh, tt.native, tt.name); got != tt.want {
			t.Errorf("style %d: Wire(%q, %q, %q) = %q, want %q", tt.style, tt.fresh, tt.native, tt.name, got, tt.want)
		}
	}
}

func TestNativeIDs(t *testing.T) {
	for _, tt := range []struct {
		style    chat.IDStyle
		id, name string
		want     string
	}{
		{chat.NoIDs, "call_0123456789ABk0", "ls", ""},

		{chat.FunctionIDs, "call_0123456789ABk0", "ls", "functions.ls:0"},
		{chat.FunctionIDs, "toolu_0123456789ABk117", "a.b", "functions.a.b:117"},
		{chat.FunctionIDs, "call_0123456789ABb3", "ls", "ls:3"},
		{chat.FunctionIDs, "functions.ls:2", "ls", "functions.ls:2"},
		{chat.FunctionIDs, "ls:2", "ls", "ls:2"},
		{chat.FunctionIDs, "functions.ls:2", "cat", "functions.cat:7"}, // another call's
		// Rewritten.
		{chat.FunctionIDs, "functions_ls_2", "ls", "functions.ls:2"},
		{chat.FunctionIDs, "functions-mcp-ls-2", "mcp.ls", "functions.mcp.ls:2"},
		{chat.FunctionIDs, "functionsls2", "ls", "functions.ls:2"},
		{chat.FunctionIDs, "functions_cd_2", "ls", "functions.ls:7"},
		{chat.FunctionIDs, "ls_2", "ls", "functions.ls:2"},
		{chat.FunctionIDs, "functions.ls", "ls", "functions.ls:7"},
		{chat.FunctionIDs, "call_1", "ls", "functions.ls:7"},
		// From elsewhere.
		{chat.FunctionIDs, foreign, "ls", "functions.ls:7"},
		{chat.FunctionIDs, "", "ls", "functions.ls:7"},
		{chat.FunctionIDs, "call_0123456789ABkx", "ls", "functions.ls:7"},
		{chat.FunctionIDs, "call_0123456789A-k1", "ls", "functions.ls:7"},
		{chat.FunctionIDs, "functions.ls:99999999999999999999", "ls", "functions.ls:7"},

		{chat.NameIDs, "call_0123456789ABb3", "ls", "ls:3"},
		{chat.NameIDs, "call_0123456789ABh6c73", "ls", "ls"},
		{chat.NameIDs, "ls:three", "ls", "ls:three"},
		{chat.NameIDs, "call_0123456789ABk3", "ls", "ls:3"}, // another model's
		{chat.NameIDs, foreign, "ls", "ls:7"},

		{chat.NineIDs, "a1B2c3D4e", "ls", "a1B2c3D4e"},
		// Nine digits of SHA-256 of the id in base 62.
		{chat.NineIDs, "call_1", "ls", "rwU906w5h"},
		{chat.NineIDs, "", "ls", "RZwTDmWjE"},
	} {
		if got := tt.style.Native(tt.id, tt.name, 7); got != tt.want {
			t.Errorf("style %d: Native(%q, %q) = %q, want %q", tt.style, tt.id, tt.name, got, tt.want)
		}
	}
}

// What a client is told can always be told back to the model.
func TestWireIDsAreReversible(t *testing.T) {
	wire := regexp.MustCompile(`^((call|toolu)_[0-9A-Za-z]{12}([kb][0-9]+|h([0-9a-f]{2})+)|[0-9A-Za-z]{9})$`)
	rapid.Check(t, func(rt *rapid.T) {
		name := rapid.StringMatching(`[a-zA-Z0-9_.:-]{1,12}`).Draw(rt, "name")
		index := rapid.StringMatching(`[0-9]{1,9}`).Draw(rt, "index")
		for style, natives := range map[chat.IDStyle][]string{
			chat.FunctionIDs: {"functions." + name + ":" + index, name + ":" + index},
			chat.NameIDs:     {name + ":" + index, name, name + ":first"},
			chat.NineIDs:     {rapid.StringMatching(`[0-9A-Za-z]{9}`).Draw(rt, "nine")},
		} {
			for _, native := range natives {
				id := style.Wire(rapid.SampledFrom([]string{fresh, toolu}).Draw(rt, "fresh"), native, name)
				if !wire.MatchString(id) {
					rt.Fatalf("style %d: %q is not the id of a client", style, id)
				}
				if got := style.Native(id, name, 3); got != native {
					rt.Fatalf("style %d: %q of %q came back as %q through %q", style, native, name, got, id)
				}
			}
		}
	})
}

func TestConversation(t *testing.T) {
	for _, tt := range []struct {
		name  string
		style chat.IDStyle
		ids   []string // of the calls of the history
		want  []string
		made  []string // ids that the model gives to new calls
		new   []string
	}{
		{
			"own", chat.FunctionIDs,
			[]string{"call_0123456789ABk0", "call_0123456789ABk1"},
			[]string{"functions.ls:0", "functions.ls:1"},
			[]string{"functions.ls:2", "functions.ls:3"},
			[]string{"functions.ls:2", "functions.ls:3"},
		},
		{
			"the model starts again", chat.FunctionIDs,
			[]string{"functions.ls:0"},
			[]string{"functions.ls:0"},
			[]string{"functions.ls:0", "functions.ls:0", "functions.ls:1"},
			[]string{"functions.ls:1", "functions.ls:2", "functions.ls:3"},
		},
		{
			"an index belongs to one call, whatever its name", chat.FunctionIDs,
			[]string{"functions.cat:0"},
			[]string{"functions.ls:0"},
			[]string{"functions.ls:0"},
			[]string{"functions.ls:1"},
		},
		{
			"from elsewhere", chat.FunctionIDs,
			[]string{foreign, foreign, "toolu_01"},
			[]string{"functions.ls:0", "functions.ls:1", "functions.ls:2"},
			[]string{"", "functions_ls_2"},
			[]string{"functions.ls:3", "functions.ls:4"},
		},
		{
			"twice the same", chat.FunctionIDs,
			[]string{"functions.ls:4", "functions.ls:4"},
			[]string{"functions.ls:4", "functions.ls:5"},
			nil, nil,
		},
		{
			"K3", chat.NameIDs,
			[]string{"call_0123456789ABb0"},
			[]string{"ls:0"},
			[]string{"ls:0", "ls:first", "ls", ""},
			[]string{"ls:1", "ls:first", "ls", "ls:4"},
		},
		{
			"Mistral", chat.NineIDs,
			[]string{"a1B2c3D4e", "call_1"},
			[]string{"a1B2c3D4e", "rwU906w5h"},
			[]string{"zzzzzzzzz", "short", ""},
			[]string{"zzzzzzzzz", "", ""},
		},
		{"others", chat.NoIDs, []string{fresh}, []string{""}, []string{"x"}, []string{""}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			ids := chat.NewNativeIDs(tt.style)
			seen := map[string]bool{}
			for i, id := range tt.ids {
				got := ids.Call(&chat.ToolUse{ID: id, Name: "ls"})
				if got != tt.want[i] {
					t.Errorf("call %d: %q, want %q", i, got, tt.want[i])
				}
				if result := ids.Result(&chat.Result{ID: id}); result != got && tt.style != chat.NoIDs {
					t.Errorf("the result of call %d answers %q, not %q", i, result, got)
				}
				seen[got] = true
			}
			for i, native := range tt.made {
				got := ids.New(native, "ls", fmt.Sprint(fresh, i))
				if want := tt.new[i]; want != "" && got != want {
					t.Errorf("new call %d: %q, want %q", i, got, want)
				}
				if seen[got] && tt.style != chat.NoIDs {
					t.Errorf("new call %d has the id %q of an earlier one", i, got)
				}
				seen[got] = true
			}
		})
	}
}

func TestIndexIsTakenWhateverTheName(t *testing.T) {
	ids := chat.NewNativeIDs(chat.FunctionIDs)
	for _, tt := range []struct{ native, name, want string }{
		{"functions.ls:0", "ls", "functions.ls:0"},
		{"functions.cat:0", "cat", "functions.cat:1"},
		{"functions.cat:7", "cat", "functions.cat:7"},
	} {
		if got := ids.New(tt.native, tt.name, fresh); got != tt.want {
			t.Errorf("%s is named %s, want %s", tt.native, got, tt.want)
		}
	}
}

func TestStoredIDWins(t *testing.T) {
	ids := chat.NewNativeIDs(chat.FunctionIDs)
	if got := ids.Call(&chat.ToolUse{ID: foreign, NativeID: "functions.ls:9", Name: "ls"}); got != "functions.ls:9" {
		t.Errorf("got %q", got)
	}
	if got := ids.Result(&chat.Result{ID: foreign}); got != "functions.ls:9" {
		t.Errorf("the result answers %q", got)
	}
	if got := ids.Result(&chat.Result{ID: "toolu_lost", Name: "cat"}); got != "functions.cat:1" {
		t.Errorf("the result of a call that is gone answers %q", got)
	}
}

// The names of a conversation do not change when it grows, and no two calls share
// one.
func TestNamesStay(t *testing.T) {
	id := rapid.OneOf(
		rapid.SampledFrom([]string{"", "x", "a1B2c3D4e", "functions.ls:0", "ls:0", "functions_ls_1", "call_0123456789ABk2", "toolu_0123456789ABb1", foreign}),
		rapid.StringMatching(`call_[0-9A-Za-z]{24}`),
	)
	rapid.Check(t, func(rt *rapid.T) {
		style := chat.IDStyle(rapid.IntRange(1, 3).Draw(rt, "style"))
		history := rapid.SliceOfN(id, 1, 12).Draw(rt, "ids")
		name := func(i int) string { return []string{"ls", "cat"}[i%2] }
		names := func(calls []string) []string {
			ids := chat.NewNativeIDs(style)
			var got []string
			for i, id := range calls {
				got = append(got, ids.Call(&chat.ToolUse{ID: id, Name: name(i)}))
			}
			return got
		}
		all := names(history)
		for i, got := range names(history[:len(history)-1]) {
			if got != all[i] {
				rt.Fatalf("call %d of %q is %q, and later %q", i, history, got, all[i])
			}
		}
		seen := map[string]bool{}
		for i, got := range all {
			if seen[got] {
				rt.Fatalf("call %d of %q is a second %q", i, history, got)
			}
			seen[got] = true
		}
	})
}
