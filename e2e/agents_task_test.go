//go:build e2e

package e2e_test

import (
	"bytes"
	"encoding/json"
	"image"
	"image/color"
	"image/png"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// What is in the scratch repository, and what becomes of it.
const (
	greeting = `def greet(name):
    return "Helo, " + name


if __name__ == "__main__":
    print(greet("world"))
`
	typo, cure = `"Helo, "`, `"Hello, "`
	picture    = "shot.png"
)

// scratch makes a repository with a program that has a typo, and a picture.
func scratch(t testing.TB) (dir string) {
	t.Helper()
	dir = filepath.Join(t.TempDir(), "repo")
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	img := image.NewRGBA(image.Rect(0, 0, 16, 16))
	for i := range 16 {
		img.Set(i, i, color.RGBA{R: 255, A: 255})
	}
	var shot bytes.Buffer
	if err := png.Encode(&shot, img); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{"greet.py": []byte(greeting), picture: shot.Bytes()} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, args := range [][]string{
		{"init", "-q", "-b", "main"},
		{"add", "."},
		{"-c", "user.name=e2e", "-c", "user.email=e2e@localhost", "commit", "-q", "-m", "first"},
	} {
		cmd := exec.Command("git", args...)
		cmd.Dir = dir
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("git %v: %v\n%s", args, err, out)
		}
	}
	return dir
}

// step is one answer of the model in a conversation, and what must have come
// before it, in the words of a mock script.
type step struct {
	when when
	say  saying
}

type when map[string]any

// rule is one rule of a mock script.
type rule struct {
	Name string         `json:"name,omitempty"`
	When when           `json:"when,omitempty"`
	Emit string         `json:"emit"`
	Pace map[string]any `json:"pace,omitempty"`
	Cut  map[string]any `json:"cut,omitempty"`
}

// lost is what the model says where nothing of the script fits.
const lost = "I am lost here"

// play writes the script of conversations whose steps follow each other by the
// count of the model's turns, behind rules that come before all of them.
func play(t testing.TB, d dialect, first []rule, talks ...[]step) (file string) {
	t.Helper()
	rules := append([]rule{}, first...)
	for _, steps := range talks {
		for i, s := range steps {
			w := when{"turn": i, "has_tools": true}
			for k, v := range s.when {
				w[k] = v
			}
			if d.one && len(s.say.calls) > 1 {
				s.say.calls = s.say.calls[:1]
			}
			rules = append(rules, rule{When: w, Emit: d.write(t, s.say)})
		}
	}
	rules = append(rules,
		rule{Name: "a title, and other errands", When: when{"has_tools": false}, Emit: d.write(t, saying{text: "Fix a typo"})},
	)
	return writeScript(t, rules, &rule{Emit: d.write(t, saying{text: lost + " at turn {{turn}}: {{tool}}: {{result}}"})})
}

// writeScript writes a script of rules and, unless it is nil, of a default.
func writeScript(t testing.TB, rules []rule, fallback *rule) (file string) {
	t.Helper()
	script := map[string]any{"rules": rules}
	if fallback != nil {
		script["default"] = fallback
	}
	// JSON is YAML.
	text, err := json.Marshal(script)
	if err != nil {
		t.Fatal(err)
	}
	file = filepath.Join(t.TempDir(), "script.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// The task: list, read, edit, run, answer; and a question when it is taken up
// again.
const (
	ask      = "Fix the typo in greet.py and show that it works."
	answer   = "Fixed: greet.py says hello properly now."
	askAgain = "Which lines did you change?"
	again    = "Only the second line of greet.py."
)

func fixing(h harness, repo string) []step {
	program := filepath.Join(repo, "greet.py")
	return []step{
		{when{}, saying{thought: "First I want to see what is there.", text: "Let me look around.", calls: []call{h.run("ls -a"), h.run("git status --short")}}},
		{when{"result": ""}, saying{thought: "There is greet.py; I read it.", calls: []call{h.read(program)}}},
		{when{"result": "Helo"}, saying{thought: "The typo is in the second line.", text: "Found it.", calls: []call{h.edit(program, typo, cure)}}},
		{when{"tool": h.editor}, saying{thought: "Now I run it.", calls: []call{h.run("python3 greet.py")}}},
		{when{"result": "Hello, world"}, saying{thought: "It works.", text: answer}},
		{when{"user": askAgain}, saying{thought: "The diff shows that.", calls: []call{h.run("git diff --stat")}}},
		{when{"result": "1 file changed"}, saying{thought: "One line.", text: again}},
	}
}

// Somebody else counts files.
const (
	askOther = "Let a sub-agent count the files here."
	subtask  = "Count the files of this folder and name the number."
	found    = "There are two files"
	relayed  = "The sub-agent counted two."
)

// delegating are the conversations of the agent and of its sub-agent.
func delegating(h harness) (lead, sub []step) {
	lead = h.delegate(subtask)
	lead[0].when = when{"user": askOther}
	lead = append(lead, step{when{"result": found}, saying{thought: "That is it.", text: relayed}})
	sub = []step{
		{when{"user": subtask}, saying{thought: "I count them.", calls: []call{h.run("echo $(ls | wc -l) files")}}},
		{when{"result": "2 files"}, saying{thought: "Two.", text: found + "."}},
	}
	return lead, sub
}

// Looking at a picture.
const (
	askLook = "What is in shot.png?"
	seen    = "A red line is in the picture."
)

func looking(h harness, repo string) []step {
	c := h.look(filepath.Join(repo, picture))
	return []step{
		{when{}, saying{thought: "I look at it.", calls: []call{c}}},
		{when{"tool": c.tool}, saying{thought: "There it is.", text: seen}},
	}
}
