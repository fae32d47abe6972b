package main

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// The indexes that are measured: the router's, and the one it is shown beside.
const (
	ours  = "kvindex"
	other = "positional"
)

const million = 1e6

// theirs returns what the reference's index makes of a corpus, if its program is
// there. It has two threads, which do not wait for one another.
func (b *bench) theirs(ctx context.Context, corpus string) ([]part, error) {
	if b.reference == "" {
		return nil, nil
	}
	history, err := b.history(ctx, corpus, "-sequence-keys")
	if err != nil {
		return nil, err
	}
	var runs []float64
	for range pick(b, 3, 1) {
		var r struct {
			Blocks         int
			Writer, Reader float64
		}
		if err := output(exec.CommandContext(ctx, b.reference, "compressed", history), &r); err != nil {
			return nil, err
		}
		runs = append(runs, float64(r.Blocks)/(r.Writer+r.Reader)/million)
	}
	return []part{median("dynamo-kv-router 1.6.1, "+corpus+", block operations by the time of both threads", "M/s", runs)}, nil
}

// history returns the file of a corpus, written when it is first asked for.
func (b *bench) history(ctx context.Context, name string, options ...string) (string, error) {
	path := filepath.Join(b.programs.dir, name+strings.Join(options, "")+".bin")
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	args := append([]string{"-name", name, "-out", path}, options...)
	if b.short {
		args = append(args, "-short")
	}
	var told struct{ Operations int }
	return path, output(exec.CommandContext(ctx, b.programs.corpus, args...), &told)
}

// index runs the program that measures indexes.
func (b *bench) index(ctx context.Context, result any, args ...string) error {
	return output(exec.CommandContext(ctx, b.programs.index, args...), result)
}

// indexRuns runs it n times.
func indexRuns[T any](ctx context.Context, b *bench, n int, args ...string) ([]T, error) {
	results := make([]T, n)
	for i := range results {
		if err := b.index(ctx, &results[i], args...); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// each returns one number of each result.
func each[T any](results []T, number func(T) float64) []float64 {
	numbers := make([]float64, len(results))
	for i, r := range results {
		numbers[i] = number(r)
	}
	return numbers
}
