//go:build e2e

package chattemplate_test

import (
	"crypto/sha256"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/chattemplate/jinja"
	"github.com/dynago/dynago/internal/models"
)

// Every chat template that the registries' packages have is compared like our
// own, with what Python makes of it in this very run.
func TestFetchedTemplates(t *testing.T) {
	if *python == "" {
		t.Fatal("this needs -python; make templates gives it")
	}
	list := conversations(t)
	templates := fetchedTemplates(t)
	var all []task
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		all = append(all, tasks(t, name, templates[name], list)...)
	}
	texts, differ := 0, 0
	for i, want := range ask(t, all) {
		if want.Kind == "" {
			texts++
		}
		if diff := agree(all[i].got, want); diff != "" {
			differ++
			t.Errorf("%s: %s, %s:\n%s", all[i].template, all[i].conversation, all[i].way, diff)
		}
	}
	t.Logf("%d renders, of which %d give a text; %d differ", len(all), texts, differ)
}

// What the traits promise holds for every template, whatever the promise is: no
// call, result or system turn is lost.
func TestTraitsOfFetched(t *testing.T) {
	// These fail in Python too: one writes a generator as JSON, one needs a variable
	// of its own.
	failing := map[string]bool{"llama.cpp/llama-cpp-deepseek-r1.jinja": true, "llama.cpp/fireworks-ai-llama-3-firefunction-v2.jinja": true}
	counts := map[string]int{}
	templates := fetchedTemplates(t)
	for name, named := range templates {
		tmpl, err := chattemplate.CompileNamed(named, chattemplate.Config{BOS: "<s>", EOS: "</s>"})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		traits := tmpl.Traits(true)
		for trait, on := range map[string]bool{
			"all": true, "reasoning field": traits.ReasoningField != "", "shows thinking": traits.ShowsThinking, "keeps thinking": traits.KeepsThinking, "preserves thinking": traits.PreservesThinking,
			"late system": traits.LateSystem, "calls": traits.Calls, "parallel calls": traits.ParallelCalls, "results": traits.Results,
			"arguments as text": traits.ArgumentsAsText, "renders ids": traits.RendersIDs,
		} {
			if on {
				counts[trait]++
			}
		}
		const id, other = "zqId00001", "zqId00002"
		r := &chat.Request{API: chat.APIChat, Turns: []chat.Turn{
			system("zqSystem"), user("zqQuestion"), turn(chat.RoleAssistant, use(id, "zq_first", `{"zq":  1}`), use(other, "zq_second", `{}`)),
			turn(chat.RoleTool, answer(id, text("zqResult"))), turn(chat.RoleTool, answer(other, text("zqOther"))),
			assistant("zqAnswer"), system("zqLate"), user("zqEnd"),
		}}
		r.Tools = []chat.Tool{{Kind: chat.ToolFunction, Name: "zq_tool", Description: "d", Schema: []byte(`{"type":"object","properties":{}}`)}}
		out, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true})
		if (err != nil) != failing[name] {
			t.Errorf("%s: %v", name, err)
		}
		if err != nil {
			continue
		}
		for _, want := range []string{"zqSystem", "zqQuestion", "zq_first", "zq_second", "zqResult", "zqOther", "zqAnswer", "zqLate", "zqEnd"} {
			if !strings.Contains(out, want) {
				t.Errorf("%s: %s is lost in\n%s", name, want, out)
			}
		}
		if shown := strings.Contains(out, id); shown != traits.RendersIDs {
			t.Errorf("%s: id shown: %t, traits: %+v", name, shown, traits)
		}
		if shown := strings.Contains(out, `{"zq":  1}`); shown != traits.ArgumentsAsText && traits.Calls {
			t.Errorf("%s: arguments as text: %t, traits: %+v", name, shown, traits)
		}
		if !traits.LateSystem && !strings.Contains(out, "<system>\nzqLate\n</system>") {
			t.Errorf("%s: late system turn is not wrapped in\n%s", name, out)
		}
	}
	t.Log(counts)
	for name, want := range map[string]chattemplate.Traits{
		"qwen3/tokenizer_config.json":        {ReasoningField: "reasoning_content", ShowsThinking: true, LateSystem: true, Calls: true, ParallelCalls: true, Results: true, ArgumentsAsText: true},
		"llama.cpp/moonshotai-Kimi-K2.jinja": {ShowsThinking: true, KeepsThinking: true, PreservesThinking: true, LateSystem: true, Calls: true, ParallelCalls: true, Results: true, RendersIDs: true},
	} {
		named, ok := templates[name]
		if !ok {
			t.Errorf("no template %s", name)
			continue
		}
		tmpl, err := chattemplate.CompileNamed(named, chattemplate.Config{})
		if err != nil {
			t.Fatal(err)
		}
		if got := tmpl.Traits(true); got != want {
			t.Errorf("%s:\ngot  %+v\nwant %+v", name, got, want)
		}
	}
}

// fetchedTemplates are the different ones among all templates, by where they
// were found, each with its names.
func fetchedTemplates(t testing.TB) map[string]map[string]string {
	t.Helper()
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
	templates := map[string]map[string]string{}
	seen := map[[sha256.Size]byte]bool{}
	for _, f := range files {
		text, err := models.Read(dir, f.Name)
		if err != nil {
			t.Fatal(err)
		}
		named := map[string]string{"default": string(text)}
		if strings.HasSuffix(f.Name, ".json") {
			named = configured(t, f.Name, text)
		}
		key := sha256.Sum256([]byte(named["default"] + "\x00" + named["tool_use"]))
		if len(named) == 0 || seen[key] {
			continue
		}
		seen[key] = true
		templates[f.Name] = named
	}
	t.Logf("%d different templates", len(templates))
	if len(templates) < 100 {
		t.Errorf("only %d templates", len(templates))
	}
	return templates
}

// configured are the templates in a tokenizer_config.json.
func configured(t testing.TB, name string, doc []byte) map[string]string {
	t.Helper()
	var config struct {
		ChatTemplate json.RawMessage `json:"chat_template"`
	}
	if err := json.Unmarshal(doc, &config); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if len(config.ChatTemplate) == 0 {
		return nil
	}
	var one string
	if json.Unmarshal(config.ChatTemplate, &one) == nil {
		return map[string]string{"default": one}
	}
	var list []struct{ Name, Template string }
	if err := json.Unmarshal(config.ChatTemplate, &list); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	named := map[string]string{}
	for _, t := range list {
		named[t.Name] = t.Template
	}
	return named
}

// Rendering a request with two tools, as Render does it, and compiling: the engine
// alone, and with the probes.
func BenchmarkFetched(b *testing.B) {
	list := conversations(b)
	c := list[slices.IndexFunc(list, func(c conversation) bool { return c.Name == "one call" })]
	r := c.request(b)
	templates := fetchedTemplates(b)
	for _, name := range slices.Sorted(maps.Keys(templates)) {
		tmpl, err := chattemplate.CompileNamed(templates[name], chattemplate.Config{BOS: "<s>", EOS: "</s>"})
		if err != nil {
			b.Fatal(err)
		}
		tmpl = tmpl.AsShipped()
		if _, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true}); err != nil {
			continue
		}
		b.Run("render/"+name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := tmpl.Render(r, chattemplate.Options{AddGenerationPrompt: true}); err != nil {
					b.Fatal(err)
				}
			}
		})
		b.Run("compile/"+name, func(b *testing.B) {
			for b.Loop() {
				for _, source := range templates[name] {
					if _, err := jinja.Compile(source); err != nil {
						b.Fatal(err)
					}
				}
			}
		})
		b.Run("load/"+name, func(b *testing.B) {
			for b.Loop() {
				if _, err := chattemplate.CompileNamed(templates[name], chattemplate.Config{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
