package attach

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
)

// Hub begins the name of a model that lies in the cache of Hugging Face.
const Hub = "hf://"

// Locate returns where the files of a path are: of hf://ORG/MODEL in the cache of
// Hugging Face on this machine. Nothing is downloaded.
func Locate(path string) (string, error) {
	name, ok := strings.CutPrefix(path, Hub)
	if !ok {
		return path, nil
	}
	if at := onDisk(name); at != "" && !filepath.IsAbs(name) {
		return at, nil
	}
	return "", fmt.Errorf("%s: is not in the cache of Hugging Face at %s: want a model that was downloaded there, or the path of its files", path, cache())
}

// files returns where the files of a card's model are on this machine, or "": by
// the spec, by the configuration, by what the server says, or by the model's name.
func (e *Engine) files(ctx context.Context, card *engine.Card) string {
	for _, path := range []string{e.spec.ModelPath, e.config.ModelPath} {
		if path == "" {
			continue
		}
		if at, err := Locate(path); err == nil {
			return at
		}
		return path // whoever reads it will say what is wrong
	}
	if e.client == nil {
		return "" // a worker of dynago has told where they are
	}
	ctx, cancel := context.WithTimeout(ctx, tellTimeout)
	defer cancel()
	if at := onDisk(strings.TrimPrefix(e.told(ctx, card.Model), Hub)); at != "" {
		return at
	}
	return e.config.Known[card.Model]
}

// tellTimeout bounds how long a server may take to say where its model is.
const tellTimeout = 2 * time.Second

// files are those of a card whose model is at a path.
func files(path string) []engine.File {
	return []engine.File{{Kind: "tokenizer", URI: path}, {Kind: "tokenizer_config", URI: path}, {Kind: "chat_template", URI: path}}
}

// told returns where the server has its model from, in its own words.
func (e *Engine) told(ctx context.Context, model string) string {
	var list struct {
		Data []struct {
			ID     string  `json:"id"`
			Root   string  `json:"root"`
			Parent *string `json:"parent"`
		} `json:"data"`
		Path string `json:"model_path"`
	}
	// SGLang, and llama-server.
	for _, path := range []string{"/server_info", "/get_server_info", "/props"} {
		if ok, err := ask(ctx, e.client, path, &list); err == nil && ok && list.Path != "" {
			return list.Path
		}
	}
	if ok, err := ask(ctx, e.client, "/v1/models", &list); err != nil || !ok {
		return ""
	}
	for _, m := range list.Data {
		if m.ID == model && m.Parent == nil {
			return m.Root
		}
	}
	return ""
}

// onDisk returns the path of a model that a server names: a path that is there on
// this machine too, or the place of a repository in the cache of Hugging Face. A
// relative path is one of the server's own folder.
func onDisk(name string) string {
	if filepath.IsAbs(name) {
		return existing(name)
	}
	org, repository, ok := strings.Cut(name, "/")
	if !ok || org == "" || repository == "" || strings.ContainsAny(repository, `/\`) || strings.HasPrefix(name, ".") {
		return ""
	}
	return existing(filepath.Join(cache(), "models--"+org+"--"+repository))
}

func existing(path string) string {
	if _, err := os.Stat(path); err != nil {
		return ""
	}
	return path
}

// cache is where the programs of Hugging Face keep what they have downloaded.
func cache() string {
	if dir := os.Getenv("HF_HUB_CACHE"); dir != "" {
		return dir
	}
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return filepath.Join(dir, "hub")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return ""
	}
	return filepath.Join(home, ".cache", "huggingface", "hub")
}
