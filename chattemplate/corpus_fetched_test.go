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

// fetchedTemplates are the different ones among all templates, by where they
// were found, each with its names.
func fetchedTemplates(t *testing.T) map[string]map[string]string {
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
func configured(t *testing.T, name string, doc []byte) map[string]string {
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
