package main

import (
	"os"
	"strings"
	"testing"

	"github.com/dynago/dynago/bench/loadgen"
	"github.com/dynago/dynago/prompt"
)

func TestCheckLong(t *testing.T) {
	good := loadgen.Result{
		Requests: 10, Tokens: 5000,
		PromptTokens: loadgen.Range{Min: 59_500, Max: 60_900, Mean: 60_000},
		CachedTokens: loadgen.Range{Min: 0, Max: 48_700, Mean: 47_000},
	}
	if err := checkLong(good, 10); err != nil {
		t.Errorf("a good run: %v", err)
	}
	for want, spoil := range map[string]func(*loadgen.Result){
		"were answered": func(r *loadgen.Result) { r.Requests = 9 },
		"were asked":    func(r *loadgen.Result) { r.Tokens-- },
		"prompts have":  func(r *loadgen.Result) { r.PromptTokens.Min = 58_000 },
		"want 60000":    func(r *loadgen.Result) { r.PromptTokens.Max = 62_000 },
		"can have been": func(r *loadgen.Result) { r.CachedTokens.Max = 60_000 },
		"want most of":  func(r *loadgen.Result) { r.CachedTokens.Mean = 40_000 },
	} {
		bad := good
		spoil(&bad)
		if err := checkLong(bad, 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one that says %q", err, want)
		}
	}
}

// The model of long prompts is the demo model but for its context.
func TestLongModel(t *testing.T) {
	b := &bench{programs: programs{dir: t.TempDir()}}
	dir, err := b.longModel(1 << 17)
	if err != nil {
		t.Fatal(err)
	}
	read := func(name string) ([]byte, error) { return os.ReadFile(dir + "/" + name) }
	model, err := prompt.Load(read, prompt.Parsers{})
	if err != nil {
		t.Fatal(err)
	}
	if model.ContextLength != 131072 {
		t.Errorf("context of %d tokens, want 131072", model.ContextLength)
	}
}
