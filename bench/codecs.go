package main

import (
	"context"
	"fmt"
	"math"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// families are those whose parsers are measured: between them they have every way
// of marking calls, and most of marking thoughts.
var families = []string{
	"hermes+qwen3", "qwen3_coder+qwen3", "glm47+glm45", "kimi_k2+kimi_k25", "deepseek_v4+deepseek_v4",
	"minimax_m2+minimax_m2", "mistral+mistral", "gemma4+gemma4", "harmony+gpt_oss",
}

// takeCodecs measures what is done to the text of answers and requests, by the
// benchmarks beside the packages: in processes of their own, whose processor time
// is read from the kernel.
func takeCodecs(ctx context.Context, b *bench) ([]part, error) {
	t := &codecs{bench: b, ctx: ctx}
	parts := t.parsers()
	one := func(outcome) float64 { return 1 }
	for _, api := range []struct {
		name, pkg, encode, decode string
		operations                int // of encoding
		events                    func(outcome) float64
	}{
		{"chat", "openai", "AppendTextDelta/word", "DecodeChat/strings", 1_000_000, one},
		{"messages", "anthropic", "AppendDelta/word", "Decode", 1_000_000, one},
		// Whole answers, because a stream of Responses keeps its text for its end.
		{"responses", "openai/responses", "Stream", "Decode", 1_000, func(r outcome) float64 { return r.values["ns/op"] / r.values["ns/event"] }},
	} {
		parts = append(
			parts,
			median("SSE encoding of a delta, "+api.name, "ns", t.take(api.pkg, api.encode, api.operations, func(r outcome) float64 {
				return float64(r.cpu.Nanoseconds()) / api.events(r)
			})).atMost(400).aim(150),
			median("decoding 2 MB of 500 turns, "+api.name, "ms", t.take(api.pkg, api.decode, pick(b, 50, 10), func(r outcome) float64 {
				return r.cpu.Seconds() * 1000
			})).atMost(25).aim(12),
		)
	}
	return parts, t.err
}

// parsers measures all families and tells of the slowest.
func (t *codecs) parsers() (parts []part) {
	most := 0.0
	for _, size := range []struct{ name, what string }{{"token", "5 bytes"}, {"delta64", "64 bytes"}} {
		var slowest part
		var name string
		for _, family := range families {
			speed := func(r outcome) float64 {
				most = max(most, r.values["allocs/op"]/r.values["deltas/op"])
				bytes := r.values["MB/s"] * r.values["ns/op"] / 1000
				return bytes / r.cpu.Seconds() / 1e6
			}
			p := median("plain text in deltas of "+size.what, "MB/s",
				t.take("parser", "PlainText/"+family+"/"+size.name+"/text", pick(t.bench, 10_000, 4_000), speed))
			if name == "" || p.Value < slowest.Value {
				slowest, name = p, family
			}
		}
		parts = append(parts, slowest.atLeast(150).aimAtLeast(400).noted("the slowest of %d families, %s", len(families), name))
	}
	return append(parts, count("allocations per delta, rounded up", int(math.Ceil(most))).atMost(1).aim(0))
}

// codecs runs benchmarks. Its first error ends them.
type codecs struct {
	*bench
	ctx   context.Context
	built map[string]string // programs, by package
	root  string
	err   error
}

// outcome is what one operation of a benchmark costs, and what was printed.
type outcome struct {
	cpu    time.Duration
	values map[string]float64 // by unit
}

// take runs a benchmark of n operations a few times and returns a value of each
// run.
func (t *codecs) take(pkg, benchmark string, n int, value func(outcome) float64) (values []float64) {
	for range pick(t.bench, 5, 1) {
		few, err := t.once(pkg, benchmark, n/10)
		if err == nil {
			var all outcome
			if all, err = t.once(pkg, benchmark, n); err == nil {
				// What is done before the first operation is in both.
				all.cpu = max(1, (all.cpu-few.cpu)/time.Duration(n-n/10))
				values = append(values, value(all))
			}
		}
		if err != nil {
			t.err = err
			return []float64{0}
		}
	}
	return values
}

// once runs a benchmark in a process of its own. The cost is that of all of it.
func (t *codecs) once(pkg, benchmark string, n int) (outcome, error) {
	if t.err != nil {
		return outcome{}, t.err
	}
	program, err := t.program(pkg)
	if err != nil {
		return outcome{}, err
	}
	var pattern []string
	for part := range strings.SplitSeq("Benchmark"+benchmark, "/") {
		pattern = append(pattern, "^"+strings.ReplaceAll(part, "+", `\+`)+"$")
	}
	cmd := exec.CommandContext(t.ctx, program, "-test.run", "^$", "-test.bench", strings.Join(pattern, "/"), "-test.benchtime", fmt.Sprintf("%dx", n))
	cmd.Dir = filepath.Join(t.root, pkg)
	out, err := cmd.Output()
	if err != nil {
		return outcome{}, fmt.Errorf("%s: %w\n%s", pkg, err, out)
	}
	printed := map[string][]float64{}
	if err := readBenchmarks(out, printed); err != nil {
		return outcome{}, err
	}
	r := outcome{cpu: cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), values: map[string]float64{}}
	for key, values := range printed {
		if unit, ok := strings.CutPrefix(key, "Benchmark"+benchmark+" "); ok {
			r.values[unit] = values[0]
		}
	}
	if len(r.values) == 0 {
		return outcome{}, fmt.Errorf("%s: no benchmark %s was run", pkg, benchmark)
	}
	return r, nil
}

// program builds the tests of a package.
func (t *codecs) program(pkg string) (string, error) {
	if program := t.built[pkg]; program != "" {
		return program, nil
	}
	if t.built == nil {
		var err error
		if t.root, err = moduleRoot(t.ctx); err != nil {
			return "", err
		}
		t.built = map[string]string{}
	}
	t.progress("building the benchmarks of %s", pkg)
	program := filepath.Join(t.bench.programs.dir, strings.ReplaceAll(pkg, "/", "_")+".test")
	build := exec.CommandContext(t.ctx, "go", "test", "-c", "-o", program, "./"+pkg)
	build.Dir = t.root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	t.built[pkg] = program
	return program, nil
}
