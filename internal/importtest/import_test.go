// Package importtest holds the house plan: which package may import which. It
// has nothing but a test, which reads the imports that the go command lists.
//
// The one idea: a room stands on a floor and sees the floors below it. Every
// other edge is written down here, with the room that needs it, and a package
// that is not in the plan is a failure until somebody gives it a room.
package importtest

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/dynago/dynago"

// room is one package, or a folder of packages, of the house.
type room struct {
	name string
	// floor says what it may import: the rooms on lower floors. A room that
	// stands outside may import only what sees lists.
	floor   int
	outside bool
	// sees lists further packages that it may import.
	sees []string
	// seenBy, if not nil, lists the only rooms that may import it.
	seenBy []string
	// never lists packages of the standard library that it must not import, be
	// it by way of other rooms.
	never []string
}

var (
	// wire are the rooms that may know a wire type, command those that may know
	// one engine, and adapted those that may know the adapters of all.
	wire    = []string{"frontend", "cmd/dynago"}
	command = []string{"cmd/dynago"}
	adapted = []string{"cmd/dynago", "engine/attach"}
	noHTTP  = []string{"net/http"}
	noIO    = []string{"net", "net/http", "os", "os/exec"}
)

// plan is the table of ARCHITECTURE.md.
var plan = []room{
	{name: "kv", floor: 0, never: noIO},
	{name: "chat", floor: 0, never: noHTTP},
	{name: "nvext", floor: 0},
	{name: "harmony", floor: 0, never: noIO},
	{name: "span", floor: 0, never: noIO},

	{name: "tokenizer", floor: 1, never: noHTTP},
	{name: "tokenizer/corpus", outside: true, seenBy: []string{}},
	{name: "chattemplate", floor: 1, sees: []string{"chattemplate/jinja"}, never: noHTTP},
	{name: "chattemplate/jinja", outside: true, seenBy: []string{"chattemplate"}, never: noHTTP},
	{name: "parser", floor: 1, never: noHTTP},
	{name: "guided", floor: 1},
	{name: "guided/mask", floor: 1, sees: []string{"guided"}, never: noHTTP},
	{name: "kvindex", floor: 1, never: noHTTP},
	{name: "kvindex/hicache", floor: 1, seenBy: command, never: noIO},
	{name: "kvindex/indextest", floor: 1, sees: []string{"kvindex"}, seenBy: []string{}},
	{name: "kvindex/positional", floor: 1, sees: []string{"kvindex"}, seenBy: []string{"bench/index"}, never: noIO},
	{name: "kvcache", floor: 1, never: noHTTP},
	{name: "kvcache/carry", floor: 1, sees: []string{"kvcache", "kvcache/store"}, seenBy: []string{"engine/mock", "engine/tiny"}, never: noHTTP},
	{name: "kvcache/extent", floor: 1, seenBy: []string{"kvcache/disk", "kvcache/memory"}, never: noIO},
	{name: "kvcache/store", floor: 1, never: noIO},
	{name: "kvcache/storetest", floor: 1, sees: []string{"kvcache/store"}, seenBy: []string{}},
	{name: "kvcache/disk", floor: 1, sees: []string{"kvcache/extent", "kvcache/store"}, never: noHTTP},
	{name: "kvcache/janitor", floor: 1, sees: []string{"kvcache/store"}, never: noHTTP},
	{name: "kvcache/peer", floor: 1, sees: []string{"kvcache/store"}, never: noHTTP},
	{name: "kvcache/s3", floor: 1, sees: []string{"kvcache/store"}},
	{name: "kvcache/memory", floor: 1, sees: []string{"kvcache/extent", "kvcache/store"}, never: noHTTP},
	{name: "kvevent", floor: 1, sees: []string{"kvevent/zmtp"}, never: noHTTP},
	{name: "kvevent/zmtp", floor: 1, never: noHTTP},
	{name: "internal/estimate", floor: 1, seenBy: []string{"pipeline", "bench/virtual"}, never: noIO},

	{name: "engine", floor: 2, never: noHTTP},
	{name: "engine/enginetest", floor: 2, sees: []string{"engine"}, seenBy: []string{}},
	{name: "engine/attach", floor: 2, sees: []string{"engine", "engine/httpapi", "engine/live", "engine/llamacpp", "engine/ollama", "engine/openai", "engine/remote", "engine/sglang", "engine/trtllm", "engine/vllm"}, seenBy: command},
	{name: "engine/httpapi", floor: 2, sees: []string{"engine"}},
	{name: "engine/live", floor: 2, sees: []string{"engine"}, never: noHTTP},
	{name: "engine/llamacpp", floor: 2, sees: []string{"engine", "engine/httpapi"}, seenBy: adapted},
	{name: "engine/answer", floor: 2, sees: []string{"engine"}, seenBy: []string{"engine/ollama", "engine/openai"}, never: noHTTP},
	{name: "engine/echo", floor: 2, sees: []string{"engine", "internal/gen/inferencepb"}, seenBy: command, never: noHTTP},
	{name: "engine/ollama", floor: 2, sees: []string{"engine", "engine/answer", "engine/httpapi"}, seenBy: adapted},
	{name: "engine/openai", floor: 2, sees: []string{"engine", "engine/answer", "engine/httpapi"}, seenBy: adapted},
	{name: "engine/mock", floor: 2, sees: []string{"engine"}, seenBy: append([]string{"sim", "bench/events", "bench/virtual", "engine/tiny", "internal/fake/chat", "internal/fake/llama", "internal/fake/ollama", "internal/fake/publish", "internal/fake/sglang", "internal/fake/trtllm", "internal/fake/vllm"}, command...), never: noHTTP},
	{name: "engine/remote", floor: 2, sees: []string{"engine", "engine/remote/workerpb"}, seenBy: append([]string{"examples/tensorworker"}, adapted...), never: noHTTP},
	{name: "engine/remote/workerpb", floor: 2, seenBy: []string{"e2e/kserve", "engine/remote", "examples/backend"}},
	{name: "engine/sglang", floor: 2, sees: []string{"engine", "engine/httpapi", "engine/live"}, seenBy: adapted},
	{name: "engine/tiny", floor: 2, sees: []string{"engine", "engine/mock", "engine/tiny/llama", "engine/tiny/sample", "engine/tiny/weights"}, seenBy: command, never: noHTTP},
	{name: "engine/tiny/gguf", floor: 2, sees: []string{}, seenBy: []string{"e2e/tiny", "engine/tiny/weights", "internal/tiny", "internal/tiny/train", "prompt"}, never: noIO},
	{name: "engine/tiny/llama", floor: 2, sees: []string{}, seenBy: append([]string{"bench/tiny", "engine/tiny", "engine/tiny/weights", "internal/tiny", "internal/tiny/train", "internal/tiny/train/exam"}, command...), never: noIO},
	{name: "engine/tiny/safetensors", floor: 2, sees: []string{}, seenBy: []string{"e2e/tiny", "engine/tiny/weights", "internal/tiny/train"}, never: noHTTP},
	{name: "engine/tiny/weights", floor: 2, sees: []string{"engine/tiny/gguf", "engine/tiny/llama", "engine/tiny/safetensors"}, seenBy: append([]string{"engine/tiny", "internal/tiny", "internal/tiny/train"}, command...), never: noHTTP},
	{name: "engine/tiny/sample", floor: 2, sees: []string{"engine"}, seenBy: []string{"engine/tiny"}, never: noIO},
	{name: "engine/trtllm", floor: 2, sees: []string{"engine", "engine/httpapi", "engine/live"}, seenBy: adapted},
	{name: "engine/vllm", floor: 2, sees: []string{"engine", "engine/httpapi", "engine/live"}, seenBy: append([]string{"bench/events"}, adapted...)},
	{name: "fleet", floor: 2, sees: []string{"engine"}, never: noHTTP},
	{name: "fleet/file", floor: 2, sees: []string{"fleet"}, seenBy: command, never: noHTTP},

	{name: "router", floor: 3, never: noHTTP},
	{name: "router/peers", floor: 3, sees: []string{"router"}, seenBy: wire},
	{name: "router/remote", floor: 3, sees: []string{"router"}, seenBy: append([]string{"router/meter"}, command...)},
	{name: "router/thompson", floor: 3, sees: []string{"router"}, never: noIO},
	{name: "router/meter", floor: 3, sees: []string{"router", "router/remote", "router/thompson"}, seenBy: command},
	{name: "prompt", floor: 3, never: noHTTP},

	{name: "pipeline", floor: 4, never: noHTTP},

	{name: "openai", floor: 5, sees: []string{"internal/aside", "internal/wire"}, seenBy: append([]string{"kserve", "openai/responses"}, wire...)},
	{name: "openai/responses", floor: 5, sees: []string{"internal/aside", "internal/envelope", "internal/wire", "openai"}, seenBy: append([]string{"openai/responses/store"}, wire...)},
	{name: "openai/responses/store", floor: 5, sees: []string{"internal/wire", "openai/responses"}, seenBy: wire},
	{name: "anthropic", floor: 5, sees: []string{"internal/aside", "internal/envelope", "internal/wire"}, seenBy: wire},

	{name: "kserve", floor: 5, sees: []string{"internal/aside", "internal/gen/inferencepb", "internal/wire", "openai"}, seenBy: append([]string{"frontend/rpc"}, wire...)},

	{name: "sim", floor: 6, never: noHTTP},
	{name: "sim/trace", floor: 5, never: noHTTP},
	{name: "sim/agenttrace", floor: 5, sees: []string{"sim/trace"}, never: noHTTP},

	{name: "kvstore", floor: 5, seenBy: append([]string{"kvstore/admin"}, command...), never: noHTTP},
	{name: "kvstore/admin", floor: 6, sees: []string{"internal/scrape"}, seenBy: command},

	{name: "trace", floor: 5, never: noHTTP},
	{name: "trace/files", floor: 5, sees: []string{"trace"}, never: noHTTP},
	{name: "trace/tree", floor: 5, sees: []string{"trace"}, never: noHTTP},
	{name: "trace/perfetto", floor: 5, sees: []string{"trace", "trace/tree"}, never: noHTTP},
	{name: "trace/satf", floor: 5, sees: []string{"trace", "trace/tree"}, never: noHTTP},
	{name: "trace/toolevents", floor: 5, sees: []string{"trace"}, never: noHTTP},
	{name: "trace/otlp", floor: 5, sees: []string{"trace"}, seenBy: command},
	{name: "trace/s3", floor: 5, sees: []string{"trace"}, seenBy: command},
	{name: "trace/nats", floor: 5, sees: []string{"trace"}, seenBy: command},

	{name: "selection", floor: 5, sees: []string{"internal/scrape"}, seenBy: wire},

	{name: "frontend", floor: 6, sees: []string{"internal/aside", "internal/envelope", "internal/gen/inferencepb", "internal/scrape", "internal/sse", "internal/wire"}, seenBy: []string{"cmd/dynago", "frontend/rpc"}},
	{name: "frontend/rpc", floor: 6, sees: []string{"frontend", "internal/gen/inferencepb", "internal/wire"}, seenBy: command},

	{name: "cmd/dynago", floor: 7, sees: []string{"internal/config", "internal/demo", "internal/envelope", "internal/fake/chat", "internal/fake/llama", "internal/fake/mishap", "internal/fake/ollama", "internal/fake/publish", "internal/fake/sglang", "internal/fake/trtllm", "internal/fake/vllm", "internal/scrape", "internal/tiny", "internal/logs", "internal/otel", "internal/sse"}, seenBy: []string{}},

	{name: "internal/envelope", outside: true, never: noHTTP},
	{name: "internal/aside", outside: true, sees: []string{"chat", "internal/wire", "nvext"}},
	{name: "internal/wire", outside: true, sees: []string{"engine"}},
	{name: "internal/scrape", outside: true},
	{name: "internal/gen/inferencepb", outside: true},
	{name: "internal/config", outside: true, seenBy: []string{"cmd/dynago"}},
	{name: "internal/fake/hostile", outside: true, seenBy: []string{}},
	{name: "internal/fake/chat", outside: true, sees: []string{"engine", "engine/mock"}, seenBy: command},
	{name: "internal/fake/llama", outside: true, sees: []string{"chat", "engine", "engine/mock"}, seenBy: command},
	{name: "internal/fake/mishap", outside: true, seenBy: command},
	{name: "internal/fake/ollama", outside: true, sees: []string{"chat", "engine", "engine/mock"}, seenBy: command},
	{name: "internal/fake/publish", outside: true, sees: []string{"engine/mock", "kv", "kvevent/zmtp"}, seenBy: append([]string{"bench/events", "internal/fake/sglang", "internal/fake/vllm"}, command...)},
	{name: "internal/fake/sglang", outside: true, sees: []string{"chat", "engine", "engine/mock", "internal/fake/publish", "kv"}, seenBy: command},
	{name: "internal/fake/trtllm", outside: true, sees: []string{"engine", "engine/mock", "kv"}, seenBy: command},
	{name: "internal/fake/vllm", outside: true, sees: []string{"chat", "engine", "engine/mock", "internal/fake/publish"}, seenBy: append([]string{"bench/events"}, command...)},
	{name: "internal/demo", outside: true, never: noHTTP},
	{name: "internal/demo/train", outside: true, sees: []string{"internal/bpe", "internal/demo", "internal/demo/train/corpus", "tokenizer"}, seenBy: []string{}},
	{name: "internal/demo/train/corpus", outside: true, seenBy: []string{"internal/demo/train", "internal/tiny/train/talk"}, never: noHTTP},
	{name: "internal/bpe", outside: true, seenBy: []string{"internal/demo/train", "internal/tiny/train"}, never: noHTTP},
	{name: "internal/tiny", outside: true, sees: []string{"internal/demo"}, never: noHTTP},
	{name: "internal/tiny/train", outside: true, sees: []string{"chattemplate", "engine/tiny/gguf", "engine/tiny/llama", "engine/tiny/safetensors", "engine/tiny/weights", "internal/bpe", "internal/demo", "internal/tiny/train/exam", "internal/tiny/train/talk", "tokenizer"}, seenBy: []string{}},
	{name: "internal/tiny/train/exam", outside: true, sees: []string{"chattemplate", "engine/tiny/llama", "internal/tiny/train/talk", "tokenizer"}, seenBy: []string{"internal/tiny/train"}, never: noHTTP},
	{name: "internal/tiny/train/talk", outside: true, sees: []string{"chat", "internal/demo/train/corpus"}, seenBy: []string{"internal/tiny/train", "internal/tiny/train/exam"}, never: noHTTP},
	{name: "internal/sse", outside: true, sees: []string{"engine"}},
	{name: "internal/models", outside: true, seenBy: []string{"bench", "internal/models/fetch"}},
	{name: "internal/models/fetch", outside: true, sees: []string{"internal/models"}, seenBy: []string{}},
	{name: "internal/logs", outside: true, sees: []string{"span"}, seenBy: command},
	{name: "internal/otel", outside: true, sees: []string{"span"}, seenBy: command},
	{name: "internal/importtest", outside: true, seenBy: []string{}},
	{name: "internal/standing", outside: true, seenBy: []string{}},

	// What measures and tests the built binary knows nothing of its insides.
	{name: "bench", outside: true, sees: []string{"bench/agents", "bench/loadgen", "bench/stats", "internal/demo", "internal/models"}, seenBy: []string{}},
	{name: "bench/agents", outside: true, sees: []string{"bench/stats", "sim/agenttrace", "sim/trace"}, seenBy: []string{"bench", "bench/live", "bench/virtual"}},
	{name: "bench/corpus", outside: true, sees: []string{"bench/workload"}, seenBy: []string{}},
	{name: "bench/data", outside: true, seenBy: []string{"bench/index", "bench/virtual", "bench/workload"}},
	{name: "bench/events", outside: true, sees: []string{"engine", "engine/mock", "engine/vllm", "fleet", "internal/fake/publish", "internal/fake/vllm", "router"}, seenBy: []string{}},
	{name: "bench/index", outside: true, sees: []string{"bench/data", "bench/stats", "bench/workload", "kv", "kvevent", "kvevent/zmtp", "kvindex", "kvindex/positional"}, seenBy: []string{}},
	{name: "bench/workload", outside: true, sees: []string{"bench/data", "kv"}, seenBy: []string{"bench/corpus", "bench/index"}},
	{name: "bench/live", outside: true, sees: []string{"bench/agents", "sim/trace"}, seenBy: []string{}},
	{name: "bench/load", outside: true, sees: []string{"bench/loadgen"}, seenBy: []string{}},
	{name: "bench/loadgen", outside: true, sees: []string{"bench/stats"}, seenBy: []string{"bench", "bench/load"}},
	{name: "bench/stats", outside: true, seenBy: []string{"bench", "bench/agents", "bench/index", "bench/loadgen", "bench/virtual"}},
	{name: "bench/virtual", outside: true, sees: []string{"bench/agents", "bench/data", "bench/stats", "engine/mock", "internal/estimate", "router", "router/thompson", "sim", "sim/agenttrace", "sim/trace"}, seenBy: []string{}},
	{name: "bench/tokens", outside: true, sees: []string{"chat", "prompt", "tokenizer"}, seenBy: []string{}},
	{name: "bench/values", outside: true, seenBy: []string{}},
	{name: "bench/calls", outside: true, sees: []string{"internal/gen/inferencepb"}, seenBy: []string{}},
	{name: "bench/baseline", outside: true, seenBy: []string{}},
	{name: "bench/proxy", outside: true, seenBy: []string{}},
	{name: "examples/tensorworker", outside: true, sees: []string{"engine", "engine/remote", "kv"}, seenBy: []string{}},
	{name: "e2e", outside: true, seenBy: []string{}},
	{name: "e2e/kserve", outside: true, sees: []string{"engine/remote/workerpb", "internal/gen/inferencepb"}, seenBy: []string{}},
	{name: "e2e/oracle", outside: true, seenBy: []string{}},
	{name: "e2e/tiny", outside: true, sees: []string{"engine/tiny/gguf", "engine/tiny/safetensors"}, seenBy: []string{}},
}

// listed is what the go command tells of a package.
type listed struct {
	ImportPath                string
	Imports, Deps             []string
	TestImports, XTestImports []string
}

// touch looks at every source file. The go command remembers the result of a
// test until a file that the test itself has looked at changes; what the go
// command below reads does not count.
func touch(t *testing.T) {
	t.Helper()
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && (d.Name() == "build" || d.Name() == "node_modules" || d.Name() == "testdata" || d.Name()[0] == '.' && path != "../.."):
			return fs.SkipDir
		case strings.HasSuffix(path, ".go"):
			_, err = os.Stat(path)
		}
		return err
	})
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
}

// list returns the packages of the module.
func list(t *testing.T) []listed {
	t.Helper()
	touch(t)
	cmd := exec.Command("go", "list", "-e", "-tags", "e2e", "-json=ImportPath,Imports,Deps,TestImports,XTestImports", module+"/...")
	var problems strings.Builder
	cmd.Stderr = &problems
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, problems.String())
	}
	var packages []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		packages = append(packages, p)
	}
	if len(packages) < 5 {
		t.Fatalf("go list found only %d packages", len(packages))
	}
	return packages
}

// ours returns the name of a package of the module.
func ours(path string) (name string, ok bool) { return strings.CutPrefix(path, module+"/") }

func find(name string) (room, bool) {
	i := slices.IndexFunc(plan, func(r room) bool { return r.name == name })
	if i < 0 {
		return room{}, false
	}
	return plan[i], true
}

// judge says what is wrong with an import, or nothing.
func judge(from, to room) string {
	switch {
	case to.seenBy != nil && !slices.Contains(to.seenBy, from.name):
		return fmt.Sprintf("%s imports %s, which only %s may import", from.name, to.name, orNobody(to.seenBy))
	case slices.Contains(from.sees, to.name):
		return ""
	case from.outside:
		return fmt.Sprintf("%s imports %s; it stands outside the floors and may import only %s", from.name, to.name, orNobody(from.sees))
	case to.outside:
		return fmt.Sprintf("%s imports %s, which stands outside the floors; name it in the room's sees if that is right", from.name, to.name)
	case to.floor >= from.floor:
		return fmt.Sprintf("%s (floor %d) imports %s (floor %d); a room may import lower floors only", from.name, from.floor, to.name, to.floor)
	}
	return ""
}

func orNobody(names []string) string {
	if len(names) == 0 {
		return "nobody"
	}
	return strings.Join(names, ", ")
}

func TestImports(t *testing.T) {
	for _, p := range list(t) {
		name, ok := ours(p.ImportPath)
		if !ok {
			t.Errorf("package %s lies outside of every folder; give it one", p.ImportPath)
			continue
		}
		from, ok := find(name)
		if !ok {
			t.Errorf("package %s is not in the house plan: add a line with its floor to plan in internal/importtest/import_test.go, and its row to ARCHITECTURE.md", name)
			continue
		}
		for _, path := range p.Imports {
			to, ok := ours(path)
			if !ok {
				continue
			}
			r, ok := find(to)
			if !ok {
				continue // said above
			}
			if problem := judge(from, r); problem != "" {
				t.Error(problem)
			}
		}
		for _, std := range from.never {
			if slices.Contains(p.Imports, std) {
				t.Errorf("%s imports %s; it must not", name, std)
			}
		}
	}
}

// The vocabulary stands alone, in its tests as well.
func TestVocabularyStandsAlone(t *testing.T) {
	for _, p := range list(t) {
		name, _ := ours(p.ImportPath)
		if r, ok := find(name); !ok || r.outside || r.floor != 0 {
			continue
		}
		for _, path := range slices.Concat(p.Deps, p.TestImports, p.XTestImports) {
			if to, ok := ours(path); ok && to != name {
				t.Errorf("%s imports %s; the vocabulary imports nothing of ours", name, to)
			}
		}
	}
}

// A room that must not know the network does not get to know it by way of
// another room either.
func TestNoDetours(t *testing.T) {
	packages := list(t)
	imports := map[string][]string{}
	for _, p := range packages {
		imports[p.ImportPath] = p.Imports
	}
	for _, p := range packages {
		name, _ := ours(p.ImportPath)
		r, _ := find(name)
		for _, std := range r.never {
			if way := route(imports, p.ImportPath, std, map[string]bool{}); way != nil {
				t.Errorf("%s must not import %s, but reaches it: %s", name, std, strings.Join(way, " → "))
			}
		}
	}
}

// route returns a way through packages of ours from one to another, or nil.
func route(imports map[string][]string, from, to string, seen map[string]bool) []string {
	if seen[from] {
		return nil
	}
	seen[from] = true
	if slices.Contains(imports[from], to) {
		return []string{from, to}
	}
	for _, next := range imports[from] {
		if _, ok := ours(next); !ok {
			continue
		}
		if way := route(imports, next, to, seen); way != nil {
			return append([]string{from}, way...)
		}
	}
	return nil
}

// The plan itself must be able to say no.
func TestJudge(t *testing.T) {
	get := func(name string) room {
		r, ok := find(name)
		if !ok {
			t.Fatalf("no room %s", name)
		}
		return r
	}
	for _, tt := range []struct {
		from, to string
		allowed  bool
	}{
		{"router", "kvindex", true},
		{"kvindex", "router", false},
		{"kvevent", "kvevent/zmtp", true},
		{"kvevent/zmtp", "kvevent", false},
		{"kv", "chat", false},
		{"fleet", "engine", true},
		{"engine", "fleet", false},
		{"engine/mock", "engine", true},
		{"engine/mock", "kvcache", true},
		{"pipeline", "engine/mock", false},
		{"cmd/dynago", "engine/mock", true},
		{"pipeline", "openai", false},
		{"frontend", "openai", true},
		{"cmd/dynago", "openai", true},
		{"prompt", "router", false},
		{"chattemplate", "chattemplate/jinja", true},
		{"prompt", "chattemplate/jinja", false},
		{"frontend", "internal/sse", true},
		{"openai", "internal/sse", false},
		{"internal/sse", "engine", true},
		{"internal/sse", "pipeline", false},
		{"e2e", "frontend", false},
		{"bench/loadgen", "openai", false},
	} {
		if problem := judge(get(tt.from), get(tt.to)); (problem == "") != tt.allowed {
			t.Errorf("%s → %s: %q, want allowed %v", tt.from, tt.to, problem, tt.allowed)
		}
	}
	for i, r := range plan {
		if slices.ContainsFunc(plan[:i], func(o room) bool { return o.name == r.name }) {
			t.Errorf("%s is in the plan twice", r.name)
		}
	}
}
