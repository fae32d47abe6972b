//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// harness is an agent program: how it is started, and how it wants its tools
// called.
type harness struct {
	name    string
	pkg     string // of npm
	program string // in node_modules/.bin
	api     string // the route that it asks
	session string // the header that names a conversation

	variant string   // of the harness, where there are several
	socket  bool     // it asks over a WebSocket
	errands int      // requests beside each conversation, as for a title
	thinks  bool     // it asks for thoughts
	flags   []string // of its server

	// configure sets a home up with what "dynago env" prints.
	configure func(a *agent)
	// start and resume are command lines of the shell, behind the program's name;
	// MODEL is the model's name, and $1 the prompt.
	start, resume string

	run    func(command string) call
	read   func(file string) call
	edit   func(file, old, new string) call
	editor string // name of the tool that edits
	look   func(file string) call
	// delegate are the steps in which a sub-agent is given a task, up to the one
	// that is told what it says; nil if there are no sub-agents.
	delegate func(task string) []step
	// pictures makes a harness send pictures that does not do so by itself.
	pictures func(a *agent)
}

// version returns the name with the version that is installed.
func (h harness) version(t testing.TB) string {
	text, err := os.ReadFile(filepath.Join(setting(t, "E2E_AGENTS"), "node_modules", filepath.FromSlash(h.pkg), "package.json"))
	if err != nil {
		t.Fatal(err)
	}
	var p struct{ Version string }
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatal(err)
	}
	return strings.TrimSpace(h.name + " " + p.Version + " " + h.variant)
}

// agent is a harness with a home of its own, in a scratch repository, in front of
// one server.
type agent struct {
	t    testing.TB
	h    harness
	s    *server
	wire *recorder

	home, repo string
	profile    []string // lines for the shell before the program
}

func newAgent(t testing.TB, h harness, s *server, repo string) *agent {
	t.Helper()
	a := &agent{t: t, h: h, s: s, wire: record(t, s.url), home: t.TempDir(), repo: repo}
	h.configure(a)
	return a
}

// printed returns what "dynago env" prints for the harness.
func (a *agent) printed() string {
	a.t.Helper()
	_, port, _ := strings.Cut(strings.TrimPrefix(a.wire.url, "http://"), ":")
	cmd := exec.Command(setting(a.t, "DYNAGO_BINARY"), "env", a.h.program, "--http-port", port, "--model-name", a.s.model)
	cmd.Env = environment()
	out, err := cmd.Output()
	if err != nil {
		a.t.Fatalf("dynago env %s: %v", a.h.program, err)
	}
	return string(out)
}

// page returns what the page of harnesses shows for one, with this server and its
// model.
func (a *agent) page(heading string) string {
	a.t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "docs", "harnesses.md"))
	if err != nil {
		a.t.Fatal(err)
	}
	_, section, ok := strings.Cut(string(text), "\n## "+heading+"\n")
	_, block, begins := strings.Cut(section, "```json\n")
	block, _, ends := strings.Cut(block, "```\n")
	if !ok || !begins || !ends {
		a.t.Fatalf("the page shows nothing for %s", heading)
	}
	return strings.NewReplacer("http://127.0.0.1:8000", a.wire.url, "dynago/demo", a.s.model).Replace(block)
}

// save writes a file below the home.
func (a *agent) save(name, text string) {
	a.t.Helper()
	path := filepath.Join(a.home, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		a.t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		a.t.Fatal(err)
	}
}

// patience is how long one run of a harness may take.
const patience = 2 * time.Minute

// command returns a run of the harness, in a process group of its own and with
// nothing of our environment that could configure it.
func (a *agent) command(ctx context.Context, line, prompt string) *exec.Cmd {
	script := strings.Join(append(a.profile, "exec "+a.h.program+" "+strings.ReplaceAll(line, "MODEL", a.s.model)), "\n")
	cmd := exec.CommandContext(ctx, "sh", "-c", script, "sh", prompt)
	cmd.Dir = a.repo
	cmd.Env = []string{
		"PATH=" + filepath.Join(setting(a.t, "E2E_AGENTS"), "node_modules", ".bin") + ":" + os.Getenv("PATH"),
		"HOME=" + a.home, "LANG=C.UTF-8", "TERM=dumb", "NO_COLOR=1", "CI=true",
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	return cmd
}

// say runs the harness to its end and returns what it printed.
func (a *agent) say(line, prompt string) string {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	cmd := a.command(ctx, line, prompt)
	var out, problems bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &problems
	err := cmd.Run()
	if err != nil {
		a.t.Errorf("%s ended with %v\n%s%s", a.h.name, err, out.String(), problems.String())
	}
	if a.t.Failed() {
		a.t.Logf("%s printed:\n%s\n%s", a.h.name, out.String(), problems.String())
	}
	return out.String()
}

// interrupt asks, and presses Ctrl-C while the answer comes.
func (a *agent) interrupt(prompt string) {
	a.t.Helper()
	ctx, cancel := context.WithTimeout(a.t.Context(), patience)
	defer cancel()
	cmd := a.command(ctx, a.h.start, prompt)
	var out strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()

	until(a.t, time.Minute, "the answer has begun", func() bool {
		if a.h.socket { // of which only the beginning is seen
			return a.s.running(a.t) > 0
		}
		talk := a.conversation(prompt)
		return len(talk) > 0 && strings.Count(talk[0].text(), "data: ") > 10
	})
	if n := a.s.running(a.t); n == 0 {
		a.t.Error("nothing runs while the answer is being written")
	}
	if err := syscall.Kill(-cmd.Process.Pid, syscall.SIGINT); err != nil {
		a.t.Fatal(err)
	}
	until(a.t, 5*time.Second, "the worker is free", func() bool { return a.s.running(a.t) == 0 })
	select {
	case <-ended:
	case <-time.After(20 * time.Second):
		a.t.Error("it does not end")
		cancel()
		<-ended
	}
}

var harnesses = []harness{codex, patchingCodex(), openCode, claudeCode, pi}

var pi = harness{
	name: "Pi", pkg: "@earendil-works/pi-coding-agent", program: "pi", api: "/v1/responses", session: "Session-Id",
	configure: func(a *agent) {
		a.save(".pi/agent/models.json", a.page("Pi"))
		a.profile = append(a.profile, "export PI_OFFLINE=1")
	},
	start:  `--provider dynago --model MODEL --print "$1" </dev/null`,
	resume: `--provider dynago --model MODEL --continue --print "$1" </dev/null`,

	run:  func(command string) call { return call{"bash", []arg{{"command", command}}} },
	read: func(file string) call { return call{"read", []arg{{"path", file}}} },
	edit: func(file, old, new string) call {
		return call{"edit", []arg{{"path", file}, {"edits", []map[string]string{{"oldText": old, "newText": new}}}}}
	},
	look:   func(file string) call { return call{"read", []arg{{"path", file}}} },
	editor: "edit",
	pictures: func(a *agent) {
		const plain = `{ "id": `
		text := a.page("Pi")
		if !strings.Contains(text, plain) {
			a.t.Fatalf("%s is not in %s", plain, text)
		}
		a.save(".pi/agent/models.json", strings.Replace(text, plain, `{ "input": ["text", "image"], "id": `, 1))
	},
}

var codex = harness{
	name: "Codex CLI", pkg: "@openai/codex", program: "codex", api: "/v1/responses", session: "Thread-Id",
	configure: func(a *agent) { a.save(".codex/config.toml", a.printed()) },
	start:     `exec --dangerously-bypass-approvals-and-sandbox "$1" </dev/null`,
	resume:    `exec resume --last --dangerously-bypass-approvals-and-sandbox "$1" </dev/null`,

	run:  func(command string) call { return call{"exec_command", []arg{{"cmd", command}}} },
	read: func(file string) call { return call{"exec_command", []arg{{"cmd", "cat " + file}}} },
	edit: func(file, old, new string) call {
		return call{"exec_command", []arg{{"cmd", "sed -i 's/" + old + "/" + new + "/' " + file + " && echo done"}}}
	},
	look: func(file string) call { return call{"view_image", []arg{{"path", file}}} },
	delegate: func(task string) []step {
		return []step{
			{when{}, saying{thought: "Somebody else can do that.", calls: []call{{"spawn_agent", []arg{{"message", task}}}}}},
			{
				when{"result_regexp": `"agent_id": ?"([^"]+)"`},
				saying{thought: "Now I wait.", calls: []call{{"wait_agent", []arg{{"targets", []string{"{{result.1|json}}"}}}}}},
			},
		}
	},
	editor: "exec_command",
}

// patchingCodex is Codex with a model whose name it knows: it offers a tool that
// takes free text for patches then.
func patchingCodex() harness {
	h := codex
	h.variant, h.flags = "patching", []string{"--model-alias", "gpt-*=MODEL"}
	h.start = strings.Replace(h.start, "exec ", "exec --model gpt-5.5 ", 1)
	h.resume = strings.Replace(h.resume, "resume ", "resume --model gpt-5.5 ", 1)
	h.edit = func(file, old, new string) call {
		before, after := "    return "+old+" + name", "    return "+new+" + name"
		return call{"apply_patch", []arg{{"input", "*** Begin Patch\n*** Update File: " + filepath.Base(file) + "\n@@\n-" + before + "\n+" + after + "\n*** End Patch\n"}}}
	}
	h.editor, h.thinks = "apply_patch", true
	return h
}

// socketCodex is Codex where it is told that it may speak over a WebSocket.
func socketCodex() harness {
	h := codex
	h.variant, h.socket = "websocket", true
	const may = "exec -c model_providers.dynago.supports_websockets=true"
	h.start, h.resume = strings.Replace(h.start, "exec", may, 1), strings.Replace(h.resume, "exec", may, 1)
	return h
}

var claudeCode = harness{
	name: "Claude Code", pkg: "@anthropic-ai/claude-code", program: "claude", api: "/v1/messages", session: "X-Claude-Code-Session-Id", thinks: true,
	configure: func(a *agent) {
		// The system text has what git says when a conversation begins, or goes on.
		a.profile = append(a.profile, a.printed(), "export CLAUDE_CODE_DISABLE_GIT_INSTRUCTIONS=1")
	},
	start:  `--print --allowedTools Bash,Edit,Read,Agent -- "$1"`,
	resume: `--print --continue --allowedTools Bash,Edit,Read,Agent -- "$1"`,

	run: func(command string) call {
		return call{"Bash", []arg{{"command", command}, {"description", "Run " + command}}}
	},
	read: func(file string) call { return call{"Read", []arg{{"file_path", file}}} },
	edit: func(file, old, new string) call {
		return call{"Edit", []arg{{"file_path", file}, {"old_string", old}, {"new_string", new}}}
	},
	look: func(file string) call { return call{"Read", []arg{{"file_path", file}}} },
	delegate: func(task string) []step {
		c := call{"Agent", []arg{{"description", "Look around"}, {"prompt", task}, {"subagent_type", "general-purpose"}}}
		return []step{{when{}, saying{thought: "Somebody else can do that.", calls: []call{c}}}}
	},
	editor: "Edit",
}

var openCode = harness{
	name: "OpenCode", pkg: "opencode-ai", program: "opencode", api: "/v1/chat/completions", session: "X-Session-Id", errands: 1,
	configure: func(a *agent) {
		a.save(".config/opencode/opencode.json", a.printed())
		a.profile = append(a.profile, "export OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 OPENCODE_DISABLE_LSP_DOWNLOAD=1")
	},
	start:  `run --model dynago/MODEL "$1"`,
	resume: `run --continue --model dynago/MODEL "$1"`,

	run:  func(command string) call { return call{"bash", []arg{{"command", command}}} },
	read: func(file string) call { return call{"read", []arg{{"filePath", file}}} },
	edit: func(file, old, new string) call {
		return call{"edit", []arg{{"filePath", file}, {"oldString", old}, {"newString", new}}}
	},
	look: func(file string) call { return call{"read", []arg{{"filePath", file}}} },
	delegate: func(task string) []step {
		c := call{"task", []arg{{"description", "Look around"}, {"prompt", task}, {"subagent_type", "general"}}}
		return []step{{when{}, saying{thought: "Somebody else can do that.", calls: []call{c}}}}
	},
	editor: "edit",
	pictures: func(a *agent) {
		text := a.printed()
		plain, able := quote(a.t, a.s.model)+": {}", quote(a.t, a.s.model)+`: {"attachment": true, "modalities": {"input": ["text", "image"], "output": ["text"]}}`
		if !strings.Contains(text, plain) {
			a.t.Fatalf("%s is not in %s", plain, text)
		}
		a.save(".config/opencode/opencode.json", strings.Replace(text, plain, able, 1))
	},
}
