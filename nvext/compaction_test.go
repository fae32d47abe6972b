package nvext_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/nvext"
)

func TestCompaction(t *testing.T) {
	none := new(nvext.Compaction) // a compaction of which nothing is told
	for name, c := range map[string]struct {
		thread, turn string
		want         *nvext.Compaction
	}{
		"all of it": {
			"t", `{"request_kind":"compaction","compaction":{"trigger":"auto","reason":"context_limit","implementation":"responses","phase":"pre_turn","strategy":"memento"}}`,
			&nvext.Compaction{Trigger: "auto", Reason: "context_limit", Implementation: "responses", Phase: "pre_turn", Strategy: "memento"},
		},
		"some of it":                 {"t", `{"request_kind":"compaction","compaction":{"trigger":"manual"}}`, &nvext.Compaction{Trigger: "manual"}},
		"members that nobody knows":  {"t", `{"n":1e999,"request_kind":"compaction","compaction":{"phase":"p","n":1e999,"else":{}}}`, &nvext.Compaction{Phase: "p"}},
		"words that are none":        {"t", `{"request_kind":"compaction","compaction":{"trigger":1,"reason":null,"phase":["p"],"strategy":"s"}}`, &nvext.Compaction{Strategy: "s"}},
		"names in another case":      {"t", `{"request_kind":"compaction","Compaction":{"trigger":"auto"},"compaction":{"Trigger":"auto"}}`, none},
		"nothing more":               {"t", `{"request_kind":"compaction"}`, none},
		"null":                       {"t", `{"request_kind":"compaction","compaction":null}`, none},
		"a text":                     {"t", `{"request_kind":"compaction","compaction":"auto"}`, none},
		"a list":                     {"t", `{"request_kind":"compaction","compaction":[{"trigger":"auto"}]}`, none},
		"another kind":               {"t", `{"request_kind":"turn","compaction":{"trigger":"auto"}}`, nil},
		"a kind in another case":     {"t", `{"request_kind":"Compaction"}`, nil},
		"a kind that is no text":     {"t", `{"request_kind":["compaction"]}`, nil},
		"a kind by another name":     {"t", `{"Request_Kind":"compaction"}`, nil},
		"no kind":                    {"t", `{"compaction":{"trigger":"auto"}}`, nil},
		"no JSON":                    {"t", `{"request_kind":"compaction"`, nil},
		"more than JSON":             {"t", `{"request_kind":"compaction"} {}`, nil},
		"a list of turns":            {"t", `[{"request_kind":"compaction"}]`, nil},
		"null for a turn":            {"t", `null`, nil},
		"no turn":                    {"t", ``, nil},
		"no thread":                  {"", `{"request_kind":"compaction"}`, nil},
		"a thread of blanks is none": {"  ", `{"request_kind":"compaction"}`, nil},
	} {
		sources := nvext.Sources{Header: header("thread-id", c.thread, "x-codex-turn-metadata", c.turn).Get}
		if diff := cmp.Diff(c.want, sources.Compaction()); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if c := (nvext.Sources{}).Compaction(); c != nil {
		t.Errorf("of no headers: %+v", c)
	}
}
