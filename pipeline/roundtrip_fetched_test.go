//go:build e2e

package pipeline_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/internal/models"
	"github.com/dynago/dynago/parser"
	"pgregory.net/rapid"
)

// dialects are the templates whose answers begin with a header of their own, which
// is text as long as no grammar reads it.
var dialects = map[string]bool{
	"llama.cpp/meetkai-functionary-medium-v3.2.jinja": true,
	"llama.cpp/muse-glimmer.jinja":                    true,
	"llama.cpp/upstage-Solar-Open-100B.jinja":         true,
}

// What holds for our templates holds for every one that the registries' packages
// have.
func TestFetchedRoundTrips(t *testing.T) {
	dir := filepath.Join("..", models.Dir)
	var files []models.File
	for _, f := range models.Files() {
		if strings.HasSuffix(f.Name, ".jinja") || strings.HasSuffix(f.Name, "/tokenizer_config.json") {
			files = append(files, f)
		}
	}
	if err := models.Fetch(t.Context(), dir, files, os.Stderr); err != nil {
		t.Fatal(err)
	}
	sources := map[string]string{} // source → name
	for _, f := range files {
		text, err := models.Read(dir, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		source := string(text)
		if strings.HasSuffix(f.Name, ".json") {
			var config struct {
				ChatTemplate any `json:"chat_template"`
			}
			if err := json.Unmarshal(text, &config); err != nil {
				t.Fatalf("%s: %v", f.Name, err)
			}
			source, _ = config.ChatTemplate.(string)
		}
		if source != "" {
			sources[source] = f.Name
		}
	}
	names := map[string]string{}
	for source, name := range sources {
		names[name] = source
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		source := names[name]
		tmpl, err := chattemplate.Compile(source, chattemplate.Config{BOS: "<s>", EOS: "</s>"})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		family := parser.Detect(source, nil)
		for _, api := range []chat.API{chat.APIChat, chat.APIMessages} {
			t.Run(name+" "+string(api), func(t *testing.T) {
				rt, err := newRoundTrip(tmpl, family, api)
				if err != nil {
					t.Logf("%s: it refuses a question: %v", family, err)
					return
				}
				if dialects[name] && family.String() == "none" {
					return
				}
				rapid.Check(t, rt.check)
				t.Logf("%s, %s: %s", family, family.ReasoningParser(), rt)
			})
		}
	}
}
