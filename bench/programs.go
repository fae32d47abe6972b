package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// programs are the built programs that take part.
type programs struct {
	dir                                                                                        string // scratch, removed at the end
	dynago, load, baseline, proxy, tokens, corpus, index, virtual, live, events, values, calls string
}

// build builds the programs into dir, as they are released: static, without
// symbols. A given dynago is taken as it is.
func build(ctx context.Context, dir, dynago string) (programs, error) {
	p := programs{dir: dir}
	for path, name := range map[*string]string{&p.dynago: "dynago", &p.load: "load", &p.baseline: "baseline", &p.proxy: "proxy", &p.tokens: "tokens", &p.corpus: "corpus", &p.index: "index", &p.virtual: "virtual", &p.live: "live", &p.events: "events", &p.values: "values", &p.calls: "calls"} {
		*path = filepath.Join(dir, name)
	}
	packages := []string{"./bench/load", "./bench/baseline", "./bench/proxy", "./bench/tokens", "./bench/corpus", "./bench/index", "./bench/virtual", "./bench/live", "./bench/events", "./bench/values", "./bench/calls"}
	if dynago != "" {
		p.dynago = dynago
	} else {
		packages = append(packages, "./cmd/dynago")
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return p, err
	}
	args := append([]string{"build", "-trimpath", "-ldflags", "-s -w", "-o", dir}, packages...)
	command := exec.CommandContext(ctx, "go", args...)
	command.Dir = root
	command.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := command.CombinedOutput(); err != nil {
		return p, fmt.Errorf("build: %w\n%s", err, out)
	}
	return p, nil
}

// moduleRoot is the folder of go.mod.
func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(string(out)), nil
}
