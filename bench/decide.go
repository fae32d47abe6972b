package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// takeDecisions measures where requests go, by the benchmarks beside the router:
// the bookings that a decision meets are made by the router itself.
func takeDecisions(ctx context.Context, b *bench) ([]part, error) {
	root, err := moduleRoot(ctx)
	if err != nil {
		return nil, err
	}
	program := filepath.Join(b.programs.dir, "router.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-o", program, "./router")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return nil, fmt.Errorf("build: %w\n%s", err, out)
	}
	runs := map[string][]float64{}
	for range pick(b, 5, 1) {
		run := exec.CommandContext(ctx, program, "-test.run", "^$",
			"-test.bench", "^Benchmark(Route|Choice)$", "-test.benchtime", pick(b, "2s", "200ms"))
		run.Dir = root
		out, err := run.Output()
		if err != nil {
			return nil, fmt.Errorf("%s: %w\n%s", filepath.Base(program), err, out)
		}
		if err := readBenchmarks(out, runs); err != nil {
			return nil, err
		}
	}
	take := func(benchmark, unit string) []float64 {
		values := runs[benchmark+" "+unit]
		if values == nil {
			err = fmt.Errorf("no %s of %s was printed", unit, benchmark)
			return []float64{0}
		}
		return values
	}
	micro := func(what, benchmark, unit string) part {
		values := take(benchmark, unit)
		for i := range values {
			values[i] /= 1000
		}
		return median(what, "µs", values)
	}
	allocations := take("BenchmarkRoute/workers=64", "allocs/op")
	parts := []part{
		micro("64 workers, p50", "BenchmarkRoute/workers=64", "p50-ns").atMost(15).aim(6),
		micro("64 workers, CPU, release included", "BenchmarkRoute/workers=64", "cpu-ns/op"),
		micro("4,096 workers, p50", "BenchmarkRoute/workers=4096", "p50-ns").atMost(800).aim(200),
		micro("4,096 workers, CPU, release included", "BenchmarkRoute/workers=4096", "cpu-ns/op"),
		micro("cost and choice, 1,000 targets, CPU", "BenchmarkChoice/targets=1000", "cpu-ns/op").atMost(6).aim(1.5),
		count("allocations per decision", int(allocations[len(allocations)-1])).atMost(2).aim(0),
	}
	return parts, err
}

// readBenchmarks adds what benchmarks have printed to runs, by name and unit.
func readBenchmarks(out []byte, runs map[string][]float64) error {
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := fields[0]
		if i := strings.LastIndexByte(name, '-'); i > 0 { // the number of processors
			name = name[:i]
		}
		for i := 2; i+1 < len(fields); i += 2 {
			value, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return fmt.Errorf("benchmark line %q: %w", lines.Text(), err)
			}
			runs[name+" "+fields[i+1]] = append(runs[name+" "+fields[i+1]], value)
		}
	}
	return lines.Err()
}
