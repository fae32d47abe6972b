package talk_test

import (
	"encoding/json"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/tiny/train/talk"
)

func some(t testing.TB, seed uint64, held bool, n int) []*talk.Talk {
	t.Helper()
	source := talk.New(seed, held)
	var out []*talk.Talk
	for i := range n {
		out = append(out, source.Next(talk.Course(float64(i)/float64(n))))
	}
	return out
}

func TestSeedDecides(t *testing.T) {
	one, same, other := some(t, 1, false, 50), some(t, 1, false, 50), some(t, 2, false, 50)
	if !reflect.DeepEqual(one, same) {
		t.Error("one seed gave two courses")
	}
	if reflect.DeepEqual(one, other) {
		t.Error("two seeds gave one course")
	}
}

// Every turn of the assistant has its answer, every call a result that follows it,
// and arguments are JSON that the tool's schema knows.
func TestConversationsAreWhole(t *testing.T) {
	for _, held := range []bool{false, true} {
		seen := map[talk.Task]int{}
		for _, c := range some(t, 3, held, 3000) {
			answers, open := 0, map[string]bool{}
			tools := map[string]map[string]json.RawMessage{}
			for _, tool := range c.Request.Tools {
				var schema struct{ Properties map[string]json.RawMessage }
				if err := json.Unmarshal(tool.Schema, &schema); err != nil {
					t.Fatalf("schema of %s: %v", tool.Name, err)
				}
				if len(tool.Wire) > 0 && !json.Valid(tool.Wire) {
					t.Fatalf("no JSON: %s", tool.Wire)
				}
				tools[tool.Name] = schema.Properties
			}
			for _, turn := range c.Request.Turns {
				if turn.Role == chat.RoleAssistant {
					seen[c.Answers[answers].Task]++
					answers++
				}
				for _, b := range turn.Blocks {
					switch b.Kind {
					case chat.ToolCall:
						open[b.Use.ID] = true
						var args map[string]any
						if err := json.Unmarshal([]byte(b.Use.Args), &args); err != nil {
							t.Fatalf("arguments %s: %v", b.Use.Args, err)
						}
						for name := range args {
							if tools[b.Use.Name][name] == nil {
								t.Fatalf("%s has no argument %q", b.Use.Name, name)
							}
						}
					case chat.ToolResult:
						if !open[b.Result.ID] {
							t.Fatalf("a result of %s, which was not called", b.Result.ID)
						}
						delete(open, b.Result.ID)
					}
				}
			}
			if answers != len(c.Answers) || len(open) > 0 {
				t.Fatalf("%d turns, %d answers, %d calls without results", answers, len(c.Answers), len(open))
			}
			if last := c.Request.Turns[len(c.Request.Turns)-1]; last.Role != chat.RoleAssistant || c.Answers[answers-1].Given {
				t.Fatal("the last turn is no example of an answer")
			}
		}
		for task := range talk.Tasks {
			if seen[task] == 0 {
				t.Errorf("held out %v: no %s", held, task)
			}
		}
	}
}

// What the keys say is in the answers.
func TestKeysAreSaid(t *testing.T) {
	for _, c := range some(t, 4, false, 2000) {
		n := 0
		for _, turn := range c.Request.Turns {
			if turn.Role != chat.RoleAssistant {
				continue
			}
			var said strings.Builder
			for _, b := range turn.Blocks {
				if b.Kind == chat.Text {
					said.WriteString(b.Text)
				}
			}
			if a := c.Answers[n]; !strings.Contains(said.String(), a.Key) {
				t.Fatalf("%s: %q is not in %q", a.Task, a.Key, said.String())
			}
			n++
		}
	}
}

var names = regexp.MustCompile(`[a-z]+[_-][a-z]+`)

// No tool that is held out is ever trained with: their names differ, and so do the
// words that they are made of.
func TestToolsAreHeldOut(t *testing.T) {
	tools := func(held bool, seed uint64) map[string]bool {
		out := map[string]bool{}
		for _, c := range some(t, seed, held, 4000) {
			for _, tool := range c.Request.Tools {
				if names.MatchString(tool.Name) {
					out[tool.Name] = true
				}
			}
		}
		return out
	}
	trained, held := tools(false, 5), tools(true, 6)
	if len(held) < 1000 {
		t.Fatalf("but %d tools are held out", len(held))
	}
	for name := range held {
		if trained[name] {
			t.Errorf("%s is in both", name)
		}
	}
}
