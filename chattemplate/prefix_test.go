package chattemplate_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/demo"
	"pgregory.net/rapid"
)

// session draws a conversation as an agent leads it: questions, answers with
// thoughts and calls, and the results of these calls.
func session(t *rapid.T) []chat.Turn {
	word := rapid.StringMatching(`[a-z <>é"\\]{0,8}`)
	var turns []chat.Turn
	if rapid.Bool().Draw(t, "system") {
		turns = append(turns, system(word.Draw(t, "instructions")))
	}
	for round := range rapid.IntRange(1, 4).Draw(t, "rounds") {
		turns = append(turns, user(word.Draw(t, "question")))
		for step := range rapid.IntRange(0, 2).Draw(t, "steps") {
			answered := turn(chat.RoleAssistant)
			if rapid.Bool().Draw(t, "thinks") {
				answered.Blocks = append(answered.Blocks, thought(word.Draw(t, "thought")))
			}
			answered.Blocks = append(answered.Blocks, text(word.Draw(t, "text")))
			id := fmt.Sprintf("call_%d_%d", round, step)
			args := fmt.Sprintf(`{"b":%q,"a": 1.50}`, word.Draw(t, "argument"))
			answered.Blocks = append(answered.Blocks, use(id, "f", args))
			turns = append(turns, answered, turn(chat.RoleTool, answer(id, text(word.Draw(t, "result")))))
		}
		turns = append(turns, assistant(word.Draw(t, "answer")))
		if rapid.IntRange(0, 4).Draw(t, "late system") == 0 {
			turns = append(turns, system(word.Draw(t, "reminder")))
		}
	}
	return turns
}

// What was rendered for the first turns is the beginning of what is rendered
// for all, with the opening of the answer wherever an answer follows. The
// templates here keep all thoughts.
func TestPrefix(t *testing.T) {
	source, err := demo.File("chat_template.jinja")
	if err != nil {
		t.Fatal(err)
	}
	demoTemplate, hermes := compile(t, string(source)), compileFile(t, "hermes.jinja")
	tools := []chat.Tool{{Kind: chat.ToolFunction, Wire: []byte(`{"type":"function","function":{"name":"f","parameters":{"z":1,"a":1.0}}}`)}}
	for name, tmpl := range map[string]*chattemplate.Template{"demo": demoTemplate, "hermes": hermes} {
		t.Run(name, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				r := chat.Request{API: chat.APIChat, Turns: session(t), TemplateArgs: []byte(`{"keep_thoughts":true}`)}
				if rapid.Bool().Draw(t, "tools") {
					r.Tools = tools
				}
				all, err := tmpl.Render(&r, chattemplate.Options{})
				if err != nil {
					t.Fatal(err)
				}
				for k := 1; k < len(r.Turns); k++ {
					first := r
					first.Turns = r.Turns[:k]
					o := chattemplate.Options{AddGenerationPrompt: r.Turns[k].Role == chat.RoleAssistant}
					start, err := tmpl.Render(&first, o)
					if err != nil {
						t.Fatal(err)
					}
					if !strings.HasPrefix(all, start) {
						t.Fatalf("the first %d turns render to\n%s\nwhich does not begin\n%s", k, start, all)
					}
					if again, _ := tmpl.Render(&first, o); again != start {
						t.Fatalf("rendered\n%s\nand then\n%s", start, again)
					}
				}
			})
		})
	}
}

// A client may send very many turns, and these templates ask for turns to be
// merged, or torn apart. What takes a tenth of a second would take several, and
// for ten times as many minutes, if each turn cost as much as all before it.
func TestManyTurns(t *testing.T) {
	const n = 10_000
	r := chat.Request{API: chat.APIMessages}
	for range n {
		r.Turns = append(r.Turns, user(strings.Repeat("question ", 10)))
	}
	calls, results := turn(chat.RoleAssistant), turn(chat.RoleUser)
	for i := range n {
		id := fmt.Sprintf("call%05d", i)
		calls.Blocks = append(calls.Blocks, use(id, "f", "{}"))
		results.Blocks = append(results.Blocks, answer(id, text("r")))
	}
	r.Turns = append(r.Turns, calls, results, user("end"))
	for name, tmpl := range map[string]*chattemplate.Template{"merged": compile(t, alternating), "torn apart": compileFile(t, "parts.jinja")} {
		began := time.Now()
		if _, err := tmpl.Render(&r, chattemplate.Options{}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if took := time.Since(began); took > 10*time.Second {
			t.Errorf("%s: took %v", name, took)
		}
	}
}

// A conversation of any make is rendered: no template here refuses history.
func FuzzHistory(f *testing.F) {
	var templates []*chattemplate.Template
	for _, source := range []string{show, systemFirst, noSystem, silent, verbatim, thoughtful, onlyNull, inField} {
		templates = append(templates, compile(f, source))
	}
	templates = append(templates, compileFile(f, "hermes.jinja"), compileFile(f, "strict.jinja"), harmonyAt())
	f.Add([]byte("sduatATur\x00\xff"), "text", `{"a":1}`)
	f.Add([]byte("uTtATtua"), "<|im_end|>", `{"a":`)
	f.Add([]byte("uTtATtua"), "a", strings.Repeat(`{"a":`, 460)+"1"+strings.Repeat("}", 460))
	f.Fuzz(func(t *testing.T, plan []byte, said, args string) {
		said, args = said[:min(len(said), 10_000)], args[:min(len(args), 10_000)]
		turns := []chat.Turn{user("q")} // some templates want to hear a user first
		for i, c := range plan[:min(len(plan), 40)] {
			id := fmt.Sprint(i % 5)
			switch c % 7 {
			case 0:
				turns = append(turns, system(said))
			case 1:
				turns = append(turns, turn(chat.RoleDeveloper, text(said)))
			case 2, 3:
				turns = append(turns, turn(chat.RoleUser, text(said), answer(id, text(said))))
			case 4:
				turns = append(turns, turn(chat.RoleAssistant, thought(said), text(said), use(id, "f", args), use(id+"b", "g", args)))
			case 5:
				turns = append(turns, turn(chat.RoleTool, answer(id, text(said))))
			case 6:
				turns = append(turns, assistant(said))
			}
		}
		r := &chat.Request{API: chat.APIChat, Turns: turns}
		for _, tmpl := range templates {
			if _, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true}); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// No template of ours makes a render copy all that came before for each turn, which
// would be hundreds of bytes for each byte of the prompt.
func TestLongConversation(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(corpus, "templates", "*.jinja"))
	if err != nil || len(files) == 0 {
		t.Fatalf("%d templates, %v", len(files), err)
	}
	r := longRequest(2000)
	for _, file := range files {
		source, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		tmpl := compile(t, string(source))
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		out, err := tmpl.Render(r, chattemplate.Options{})
		if err != nil {
			t.Errorf("%s: %v", file, err)
		}
		runtime.ReadMemStats(&after)
		if made := after.TotalAlloc - before.TotalAlloc; made > 40*uint64(len(out)) {
			t.Errorf("%s: made %d bytes for a prompt of %d", file, made, len(out))
		}
	}
}
