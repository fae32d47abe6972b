package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"github.com/dynago/dynago/bench/stats"
)

// The indexes that are measured: the router's, and the one it is shown beside.
const (
	ours  = "kvindex"
	other = "positional"
)

const million = 1e6

// spent is a time in seconds.
type spent struct {
	Wall    float64 `json:"wall"`
	Thread  float64 `json:"thread"`
	Process float64 `json:"process"`
}

// mixture is what one pass over a history took.
type mixture struct {
	spent
	Blocks int       `json:"blocks"`
	Ops    int       `json:"ops"`
	Tenths []float64 `json:"tenths"`
	Steady int       `json:"steady"`
	Failed int       `json:"failed"`
	Found  int       `json:"found"`
	Held   int       `json:"held"`
	Heap   int       `json:"heap"`
}

func (m mixture) rate() float64 { return float64(m.Blocks) / m.Thread / million }

// kept is the rate of the last tenth as a share of that of the first one in
// which caches were full.
func (m mixture) kept() float64 { return m.Tenths[len(m.Tenths)-1] / m.Tenths[m.Steady] }

// takeIndexMixed measures the index on one thread, in a history of ten turnovers
// of the workers' caches.
func takeIndexMixed(ctx context.Context, b *bench) ([]part, error) {
	history, err := b.history(ctx, "B1")
	if err != nil {
		return nil, err
	}
	our, err := indexRuns[mixture](ctx, b, pick(b, 5, 1), "mixed", "-index", ours, "-corpus", history)
	if err != nil {
		return nil, err
	}
	var beside, harness mixture
	if err := b.index(ctx, &beside, "mixed", "-index", other, "-corpus", history); err != nil {
		return nil, err
	}
	if err := b.index(ctx, &harness, "mixed", "-index", "none", "-corpus", history); err != nil {
		return nil, err
	}
	var machine struct{ Chased, Touched float64 }
	if err := b.index(ctx, &machine, "lines"); err != nil {
		return nil, err
	}
	parts := []part{
		median("one thread, block operations", "M/s", each(our, mixture.rate)).against(other, beside.rate()).atLeast(14).aimAtLeast(30),
		median("last tenth against the first steady one", "×", each(our, mixture.kept)).against(other, beside.kept()).atLeast(0.8),
		median("in wall time", "M/s", each(our, func(m mixture) float64 { return float64(m.Blocks) / m.Wall / million })),
		median("with the collector's time", "M/s", each(our, func(m mixture) float64 { return float64(m.Blocks) / m.Process / million })),
		median("queries and events", "M/s", each(our, func(m mixture) float64 { return float64(m.Ops) / m.Thread / million })),
		median("live bytes per block held at the end", "B", each(our, mixture.bytes)).against(other, beside.bytes()),
	}
	var apart struct{ Query, Store, Remove float64 }
	if err := b.index(ctx, &apart, "split", "-index", ours, "-corpus", history); err != nil {
		return nil, err
	}
	parts = append(parts,
		part{What: "a block asked for", Value: apart.Query, Unit: "ns"},
		part{What: "a block stored", Value: apart.Store, Unit: "ns"},
		part{What: "a block removed", Value: apart.Remove, Unit: "ns"},
	)
	parts = append(parts,
		part{What: "this machine, a random line of 64 MiB read and written", Value: machine.Touched, Unit: "ns"},
		part{What: "this machine, a random line that the one before named", Value: machine.Chased, Unit: "ns"},
	)
	failed, differ := beside.Failed, 0
	for _, m := range our {
		failed += m.Failed
		if m.Found != beside.Found {
			differ++
		}
	}
	return append(parts,
		part{What: "harness alone, a block operation", Value: harness.Thread / float64(harness.Blocks) * 1e9, Unit: "ns"},
		count("events refused", failed).atMost(0),
		count("runs whose answers are not those of "+other, differ).atMost(0),
	), nil
}

func (m mixture) bytes() float64 { return float64(m.Heap) / float64(m.Held) }

// paired is what a writer and a reader beside each other took.
type paired struct {
	Blocks  int           `json:"blocks"`
	Wall    float64       `json:"wall"`
	Writer  float64       `json:"writer"`
	Reader  float64       `json:"reader"`
	Lag     float64       `json:"lag"`
	Latency stats.Latency `json:"latency"`
	Clock   float64       `json:"clock"`
	Failed  int           `json:"failed"`
}

// rate is what the two threads do on two cores that nobody else uses: the busier
// one sets it.
func (p paired) rate() float64 { return float64(p.Blocks) / max(p.Writer, p.Reader) / million }

// takeIndexPair measures the index with a thread that writes and one that reads.
func takeIndexPair(ctx context.Context, b *bench) ([]part, error) {
	history, err := b.history(ctx, "B1")
	if err != nil {
		return nil, err
	}
	our, err := indexRuns[paired](ctx, b, pick(b, 5, 1), "pair", "-index", ours, "-corpus", history)
	if err != nil {
		return nil, err
	}
	var beside paired
	if err := b.index(ctx, &beside, "pair", "-index", other, "-corpus", history); err != nil {
		return nil, err
	}
	type submitted struct {
		Submitted, Drained float64
		Blocks, Failed     int
	}
	handed, err := indexRuns[submitted](ctx, b, pick(b, 3, 1), "submit", "-index", ours, "-corpus", history)
	if err != nil {
		return nil, err
	}
	failed := beside.Failed
	for _, p := range our {
		failed += p.Failed
	}
	for _, s := range handed {
		failed += s.Failed
	}
	p50 := func(p paired) float64 { return p.Latency.P50 }
	p99 := func(p paired) float64 { return p.Latency.P99 }
	return []part{
		median("writer and reader, block operations by the busier one's time", "M/s", each(our, paired.rate)).against(other, beside.rate()).atLeast(16).aimAtLeast(30),
		median("match while writing, p99", "µs", each(our, p99)).against(other, p99(beside)).atMost(10).aim(5).noted("the clock's %.2f µs included", our[0].Clock),
		median("match while writing, p50", "µs", each(our, p50)).against(other, p50(beside)),
		median("in wall time", "M/s", each(our, func(p paired) float64 { return float64(p.Blocks) / p.Wall / million })),
		median("writer's processor time", "s", each(our, func(p paired) float64 { return p.Writer })),
		median("reader's time in queries", "s", each(our, func(p paired) float64 { return p.Reader })),
		median("from the last event to the last answer", "ms", each(our, func(p paired) float64 { return p.Lag * 1e3 })),
		median("handed over, in wall time, removals not counted, queue not drained", "M/s", each(handed, func(s submitted) float64 { return float64(s.Blocks) / s.Submitted / million })).
			noted("the method behind the 170 M that were published for another index; says nothing of what is finished"),
		median("the same until the queue is drained", "M/s", each(handed, func(s submitted) float64 { return float64(s.Blocks) / s.Drained / million })),
		count("events refused", failed).atMost(0),
	}, nil
}

// answers are the latencies of some queries.
type answers struct {
	stats.Latency
	Disturbed float64 `json:"disturbed"`
	Wrong     int     `json:"wrong"`
}

// takeIndexDepth measures matches in indexes of a million and of ten million
// blocks, and those of agents.
func takeIndexDepth(ctx context.Context, b *bench) ([]part, error) {
	var parts []part
	wrong := 0
	for i, blocks := range []int{10_000_000, 1_000_000}[pick(b, 0, 1):] {
		deep, bad, err := b.depth(ctx, blocks)
		if err != nil {
			return nil, err
		}
		if i == 0 {
			for j := range deep {
				deep[j] = deep[j].atMost([]float64{2.5, 8}[j%2]).aim([]float64{1.3, 4}[j%2])
			}
		}
		parts, wrong = append(parts, deep...), wrong+bad
	}
	agents, bad, err := b.agents(ctx)
	if err != nil {
		return nil, err
	}
	return append(append(parts, agents...), count("events refused and answers that are wrong", wrong+bad).atMost(0)), nil
}

// depth returns p50 and p99 for prompts of which nothing, half and all is held.
func (b *bench) depth(ctx context.Context, blocks int) (parts []part, wrong int, err error) {
	type deep struct {
		Miss, Half, Full answers
		Failed           int
	}
	args := []string{"depth", "-blocks", strconv.Itoa(blocks), "-index"}
	our, err := indexRuns[deep](ctx, b, pick(b, 5, 1), append(args, ours)...)
	if err != nil {
		return nil, 0, err
	}
	var beside deep
	if err := b.index(ctx, &beside, append(args, other)...); err != nil {
		return nil, 0, err
	}
	for _, hit := range []struct {
		name string
		of   func(deep) answers
	}{
		{"nothing", func(d deep) answers { return d.Miss }},
		{"half", func(d deep) answers { return d.Half }},
		{"all", func(d deep) answers { return d.Full }},
	} {
		p50 := func(d deep) float64 { return hit.of(d).P50 }
		p99 := func(d deep) float64 { return hit.of(d).P99 }
		what := fmt.Sprintf("%d M blocks, 128 asked for, %s held", blocks/million, hit.name)
		parts = append(parts,
			median(what+", p50", "µs", each(our, p50)).against(other, p50(beside)),
			median(what+", p99", "µs", each(our, p99)).against(other, p99(beside)),
		)
		for _, d := range our {
			wrong += hit.of(d).Wrong
		}
		wrong += hit.of(beside).Wrong
	}
	for _, d := range our {
		wrong += d.Failed
	}
	return parts, wrong + beside.Failed, nil
}

// agents returns what agents cost whose conversations grow turn by turn.
func (b *bench) agents(ctx context.Context) (parts []part, wrong int, err error) {
	type agentic struct {
		mixture
		Late answers `json:"late"`
	}
	history, err := b.history(ctx, "AG")
	if err != nil {
		return nil, 0, err
	}
	our, err := indexRuns[agentic](ctx, b, pick(b, 5, 1), "agents", "-index", ours, "-corpus", history)
	if err != nil {
		return nil, 0, err
	}
	var beside agentic
	if err := b.index(ctx, &beside, "agents", "-index", other, "-corpus", history); err != nil {
		return nil, 0, err
	}
	for _, a := range append(our, beside) {
		wrong += a.Failed + a.Late.Wrong
		if a.Found != beside.Found {
			wrong++
		}
	}
	cost := func(a agentic) float64 { return 1e9 * a.Thread / float64(a.Blocks) }
	p50 := func(a agentic) float64 { return a.Late.P50 }
	p99 := func(a agentic) float64 { return a.Late.P99 }
	return []part{
		median("agents, a block operation", "ns", each(our, cost)).against(other, cost(beside)).atMost(40).aim(25),
		median("agents, late query of 430 blocks, p50", "µs", each(our, p50)).against(other, p50(beside)).atMost(8).aim(4),
		median("agents, late query of 430 blocks, p99", "µs", each(our, p99)).against(other, p99(beside)),
	}, wrong, nil
}

// takeFrames measures what it costs to read what engines publish, and to apply
// it.
func takeFrames(ctx context.Context, b *bench) ([]part, error) {
	type ingested struct {
		Blocks, Stored, Bytes, Failed, Lost int
		Process, Allocs                     float64
	}
	rate := func(n ingested) float64 { return float64(n.Blocks) / n.Process / million }
	history, err := b.history(ctx, "EN")
	if err != nil {
		return nil, err
	}
	var parts []part
	failed := 0
	for i, tokens := range []int{16, 64} {
		args := []string{"frames", "-corpus", history, "-tokens", strconv.Itoa(tokens), "-index"}
		our, err := indexRuns[ingested](ctx, b, pick(b, 5, 1), append(args, ours)...)
		if err != nil {
			return nil, err
		}
		var read ingested
		if err := b.index(ctx, &read, append(args, "none")...); err != nil {
			return nil, err
		}
		what := fmt.Sprintf("vLLM's messages, blocks of %d tokens", tokens)
		all := median(what+", read, decoded and applied", "M blocks/s", each(our, rate)).against("reading and decoding alone", rate(read)).
			noted("stored and removed alike; %.0f bytes each", float64(our[0].Bytes)/float64(our[0].Blocks))
		allocs := median(what+", allocations per block", "", each(our, func(n ingested) float64 { return n.Allocs }))
		if i == 0 {
			all, allocs = all.atLeast(3).aimAtLeast(6), allocs.atMost(0.01).noted("less than one in a hundred blocks is none: buffers of the connection")
		}
		parts = append(parts, all, allocs)
		for _, n := range append(our, read) {
			failed += n.Failed + n.Lost
		}
	}
	return append(parts, count("messages and events lost or refused", failed).atMost(0)), nil
}

// takeIndexMemory measures what the index holds, gives back, and costs the
// collector.
func takeIndexMemory(ctx context.Context, b *bench) ([]part, error) {
	type footprint struct {
		Blocks             int
		One, Further, Left float64
		Resident           float64
		ResidentLeft       float64 `json:"resident_left"`
		Empty              float64 `json:"collect_empty"`
		Full               float64 `json:"collect_full"`
		Failed             int
	}
	var small, large, smallBeside, largeBeside []footprint
	many := strconv.Itoa(pick(b, 10_000_000, 1_000_000))
	for _, run := range []struct {
		index, blocks string
		n             int
		into          *[]footprint
	}{
		{ours, "1000000", pick(b, 5, 1), &small},
		{ours, many, pick(b, 5, 1), &large},
		{other, "1000000", 1, &smallBeside},
		{other, many, 1, &largeBeside},
	} {
		runs, err := indexRuns[footprint](ctx, b, run.n, "memory", "-index", run.index, "-blocks", run.blocks)
		if err != nil {
			return nil, err
		}
		*run.into = runs
	}
	one := func(f footprint) float64 { return f.One }
	further := func(f footprint) float64 { return f.Further }
	left := func(f footprint) float64 { return 100 * f.Left }
	collect := func(f footprint) float64 { return f.Full / f.Empty }
	against := func(what, unit string, our, beside []footprint, f func(footprint) float64) part {
		return median(what, unit, each(our, f)).against(other, f(beside[0]))
	}
	failed := 0
	for _, f := range append(append(small, large...), append(smallBeside, largeBeside...)...) {
		failed += f.Failed
	}
	name := fmt.Sprintf("%d M blocks, ", large[0].Blocks/million+large[0].Blocks%million/500_000)
	return []part{
		against("1 M blocks, live bytes per block, one owner", "B", small, smallBeside, one).atMost(64).aim(40),
		against("for each further owner", "B", small, smallBeside, further).atMost(28).aim(24),
		against("heap after all were removed, of the peak", "%", small, smallBeside, left).atMost(10),
		against(name+"live bytes per block, one owner", "B", large, largeBeside, one).atMost(64).aim(40),
		against(name+"heap after all were removed, of the peak", "%", large, largeBeside, left).atMost(10),
		against(name+"full collection against an empty index", "×", large, largeBeside, collect).atMost(1.2),
		median(name+"full collection", "µs", each(large, func(f footprint) float64 { return f.Full })),
		median(name+"resident bytes per block", "B", each(large, func(f footprint) float64 { return f.Resident })),
		median(name+"resident after all were removed, of the peak", "%", each(large, func(f footprint) float64 { return 100 * f.ResidentLeft })),
		count("events refused", failed).atMost(0),
	}, nil
}

// history returns the file of a corpus, written when it is first asked for.
func (b *bench) history(ctx context.Context, name string) (string, error) {
	path := filepath.Join(b.programs.dir, name+".bin")
	if _, err := os.Stat(path); err == nil || !errors.Is(err, fs.ErrNotExist) {
		return path, err
	}
	args := []string{"-name", name, "-out", path}
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
