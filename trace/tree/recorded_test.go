package tree_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/tree"
)

// The recordings in testdata are of agents as they are: a task that was taken up again,
// one that a sub-agent did, and an answer that was interrupted. Those of the suite of
// agents (TestAgentsTraced in e2e) are what these were when it was run last.
func TestRecordedAgents(t *testing.T) {
	files, err := filepath.Glob("testdata/*.jsonl")
	if err != nil || len(files) < 5 {
		t.Fatalf("%d recordings: %v", len(files), err)
	}
	schema, err := jsonschema.NewCompiler().Compile("../schema.json")
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".jsonl"), func(t *testing.T) {
			lines, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			want, err := os.ReadFile(strings.TrimSuffix(file, "jsonl") + "txt")
			if err != nil {
				t.Fatal(err)
			}
			var b tree.Builder
			rows := 0
			for line := range bytes.Lines(lines) {
				value, err := jsonschema.UnmarshalJSON(bytes.NewReader(line))
				if err == nil {
					err = schema.Validate(value)
				}
				r, ok, fault := trace.Decode(bytes.TrimSpace(line))
				if err != nil || fault != nil || !ok {
					t.Fatalf("a row is not as the schema says: %v, %v: %s", err, fault, line)
				}
				b.Add(r)
				rows++
			}
			got := b.Tree()
			if len(got.Alone.Turns) > 0 || got.Duplicates > 0 {
				t.Errorf("%d requests of no agent, %d rows twice", len(got.Alone.Turns), got.Duplicates)
			}
			turns := 0
			for _, s := range got.Sessions {
				s.Walk(func(c *tree.Chain) {
					turns += len(c.Turns)
					checkWhole(t, c)
				})
			}
			if turns != rows {
				t.Errorf("%d turns of %d rows", turns, rows)
			}
			if diff := gocmp.Diff(string(want), outline(got)); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// checkWhole checks that nothing is missing of a chain.
func checkWhole(t *testing.T, c *tree.Chain) {
	t.Helper()
	if c.Missing || c.Disputed || len(c.Tools) > 0 || (c.Parent == nil) != (c.ParentID == "") || (c.Parent == nil) != (c.Opened == nil) {
		t.Errorf("chain %q is missing (%v) or disputed (%v), has tools %v of no turn, or no turn of %q has opened it", c.ID, c.Missing, c.Disputed, c.Tools, c.ParentID)
	}
	for _, turn := range c.Turns {
		r := turn.Request
		if r.InputTokens == nil || r.OutputTokens == nil || r.CachedTokens == nil || r.TTFT == nil || r.TotalTime == nil || r.Worker == nil {
			t.Errorf("turn %s does not tell all: %+v", r.RequestID, r)
		}
		if len(turn.Unasked) > 0 {
			t.Errorf("turn %s has results of %q, for which nobody has asked", r.RequestID, turn.Unasked)
		}
		for _, u := range turn.Tools {
			if u.Answered == nil || u.Answered.Chain != c || u.Duration <= 0 {
				t.Errorf("turn %s: of tool %s no result came: %+v", r.RequestID, u.Class, u)
			}
		}
	}
}

// outline writes what agents have done: of each turn, what it was there for, the cached
// share of its prompt, how it ended, and in which turn each tool's result came.
func outline(t *tree.Tree) string {
	var b strings.Builder
	var chain func(in string, c *tree.Chain)
	chain = func(in string, c *tree.Chain) {
		number := map[*tree.Turn]int{}
		for i, turn := range c.Turns {
			number[turn] = i + 1
		}
		for _, turn := range c.Turns {
			r := turn.Request
			fmt.Fprintf(&b, "%sturn %d  %s  cached %.0f%%  %s", in, number[turn], turn.Agent.InputTrigger,
				100*float64(*r.CachedTokens)/float64(*r.InputTokens), tree.Ending(r))
			for _, u := range turn.Tools {
				fmt.Fprintf(&b, "  %s → %d", u.Class, number[u.Answered])
			}
			b.WriteString("\n")
			for _, child := range turn.Children {
				b.WriteString(in + "  agent\n")
				chain(in+"    ", child)
			}
		}
	}
	for _, s := range t.Sessions {
		b.WriteString("session\n")
		chain("  ", s)
	}
	return b.String()
}
