package chattemplate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/demo"
)

// agentRequest is a request of an agent with so many tools, in the middle of
// its work: 20 messages, half of them calls and results.
func agentRequest(tools int) *chat.Request {
	r := &chat.Request{API: chat.APIChat, Turns: []chat.Turn{system(strings.Repeat("Do as you are told. ", 50)), user("Mend the test.")}}
	for i := range 9 {
		id := fmt.Sprintf("call_%d", i)
		r.Turns = append(r.Turns,
			turn(chat.RoleAssistant, thought("What next?"), text("I look."), use(id, "read", `{"path": "a/b/c.go", "from": 1, "to": 200}`)),
			turn(chat.RoleTool, answer(id, text(strings.Repeat("func f() error { return nil }\n", 20)))))
	}
	for i := range tools {
		wire := fmt.Sprintf(`{"type":"function","function":{"name":"tool_%d","description":"Reads a file of the project and returns its lines.","parameters":{"type":"object","properties":{"path":{"type":"string","description":"The file, relative to the root."},"from":{"type":"integer","minimum":1},"to":{"type":"integer"}},"required":["path"]}}}`, i)
		r.Tools = append(r.Tools, chat.Tool{Kind: chat.ToolFunction, Wire: []byte(wire)})
	}
	return r
}

func BenchmarkRender(b *testing.B) {
	source, err := demo.File("chat_template.jinja")
	if err != nil {
		b.Fatal(err)
	}
	for name, tmpl := range map[string]*chattemplate.Template{"demo": compile(b, string(source)), "hermes": compileFile(b, "hermes.jinja")} {
		for _, tools := range []int{0, 2, 20} {
			b.Run(fmt.Sprintf("%s/messages=20/tools=%d", name, tools), func(b *testing.B) {
				r := agentRequest(tools)
				b.SetBytes(int64(len(render(b, tmpl, r))))
				b.ReportAllocs()
				for b.Loop() {
					render(b, tmpl, r)
				}
			})
		}
	}
}

// Compiling includes the probes.
func BenchmarkCompile(b *testing.B) {
	source, err := demo.File("chat_template.jinja")
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		compile(b, string(source))
	}
}

// A long session: the cost of a turn is the same however many came before.
func BenchmarkLong(b *testing.B) {
	for _, name := range []string{"turns.jinja", "elements.jinja"} {
		source, err := os.ReadFile(filepath.Join(corpus, "templates", name))
		if err != nil {
			b.Fatal(err)
		}
		tmpl := compile(b, string(source))
		for _, turns := range []int{500, 2000} {
			r := longRequest(turns)
			b.Run(fmt.Sprintf("%s/turns=%d", name, turns), func(b *testing.B) {
				b.SetBytes(int64(len(render(b, tmpl, r))))
				b.ReportAllocs()
				for b.Loop() {
					render(b, tmpl, r)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*turns), "ns/turn")
			})
		}
	}
}

// longRequest is a conversation of so many turns of about 500 bytes each.
func longRequest(turns int) *chat.Request {
	r := &chat.Request{API: chat.APIChat}
	for i := 0; len(r.Turns) < turns; i++ {
		id := fmt.Sprintf("call%05d", i)
		r.Turns = append(r.Turns,
			user(strings.Repeat("question ", 50)),
			turn(chat.RoleAssistant, thought("What next?"), text(strings.Repeat("word ", 50)), use(id, "f", `{"a": "`+strings.Repeat("x", 200)+`"}`)),
			turn(chat.RoleTool, answer(id, text(strings.Repeat("result ", 70)))),
			assistant(strings.Repeat("answer ", 60)))
	}
	return r
}
