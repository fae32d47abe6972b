package main

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/bench/agents"
)

// What is measured in virtual time is measured here through the server, by clients over
// HTTP, as it is: the router, its queue, engines and caches in one process, which
// compute some times as fast as life. All times are told as those of life.

// replayed sends a workload to a server that is started for it, and returns what came of
// it.
func (b *bench) replayed(ctx context.Context, workload string, speed float64, tag bool, serve []string, args ...string) ([]agents.Outcome, error) {
	s, err := b.serve(ctx, serve...)
	if err != nil {
		return nil, err
	}
	defer s.kill()
	args = append(args, "-url", s.url, "-model", s.model, "-workload", workload, "-speed", fmt.Sprint(speed), "-tag="+strconv.FormatBool(tag))
	if b.short {
		args = append(args, "-short")
	}
	var all []agents.Outcome
	if err := output(exec.CommandContext(ctx, b.programs.live, args...), &all); err != nil {
		return nil, err
	}
	return all, s.stop()
}

// hurried is a workload of requests in several tiers.
type hurried struct {
	workload, where string
	speed           float64
	serve           []string
	args            []string // of both programs
	of              map[string]string
	virtual         []agents.TierOutcome
}

// take sends it twice, in the order of arrival and by tiers.
func (h *hurried) take(ctx context.Context, b *bench) ([]part, error) {
	before, err := b.replayed(ctx, h.workload, h.speed, false, h.serve, h.args...)
	if err != nil {
		return nil, err
	}
	after, err := b.replayed(ctx, h.workload, h.speed, true, h.serve, h.args...)
	if err != nil {
		return nil, err
	}
	var parts []part
	for i, t := range agents.Compare(before, after, h.of) {
		v := h.virtual[i]
		if t.Tier == "low" {
			parts = append(parts, part{What: h.where + ": longest wait of the lowest tier", Value: t.Longest, Unit: "s"}.
				against("in virtual time", v.Longest).atMost(agents.Bound(before)).noted("until the first token; in order of arrival %s", number(t.Old)))
		}
		p := tierPart(h.where, t)
		if t.Tier == "high" {
			p = p.against("in virtual time", saved(v)).atLeast(savedLines[0]).aimAtLeast(savedLines[1])
		}
		parts = append(parts, p.noted("%s; in virtual time %s", tierNote(t), tierNote(v)))
	}
	return parts, nil
}

// takeLiveQueue measures what priorities do for those who are in a hurry, through the
// server: where more comes than two workers can do, and in workflows that share two
// workers of little memory.
func takeLiveQueue(ctx context.Context, b *bench) ([]part, error) {
	const load = 1.25
	size := agents.Live(b.short)
	queue := hurried{
		workload: "queue", where: fmt.Sprintf("Poisson at %v of capacity", load), speed: pick(b, 6.0, 10),
		args: []string{"-load", fmt.Sprint(load)},
	}
	flows := hurried{workload: "workflow", where: fmt.Sprintf("16 workflows, caches of %d blocks, %v between calls", size.Blocks, size.Pause), speed: pick(b, 3.0, 6)}
	var err error
	if _, queue.of, err = agents.Poisson(load*size.Rate, size.Span); err != nil {
		return nil, err
	}
	_, flows.of = agents.Workflows(16, size.Rounds, size.Pause)
	var parts []part
	for _, h := range []*hurried{&queue, &flows} {
		var virtual struct{ Tiers []agents.TierOutcome }
		if err := b.virtual(ctx, &virtual, append([]string{h.workload, "-live"}, h.args...)...); err != nil {
			return nil, err
		}
		h.virtual = virtual.Tiers
		blocks := ""
		if h == &flows {
			blocks = fmt.Sprintf(`,"num_gpu_blocks":%d`, size.Blocks)
		}
		h.serve = []string{
			"--workers", fmt.Sprint(size.Workers), "--router-queue-threshold", "1",
			"--extra-engine-args", fmt.Sprintf(`{"block_size":64,"speedup_ratio":%v%s}`, h.speed, blocks),
		}
		if blocks != "" {
			h.serve = append(h.serve, "--max-model-len", strconv.Itoa(size.Blocks*64))
		}
		taken, err := h.take(ctx, b)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", h.workload, err)
		}
		parts = append(parts, taken...)
	}
	return parts, nil
}

// takeLivePins measures what pins are worth to agents, through the server, whose one
// worker has a cache that is much too small.
func takeLivePins(ctx context.Context, b *bench) ([]part, error) {
	// Engines compute sixteen times as fast as one GPU beside everything else.
	const engine = 16
	speed := pick(b, 20, 50)
	var v struct {
		Requests, WorkingSet, Capacity, Budget, Pinned, Leads int
		Runs                                                  []agents.PinRun
	}
	if err := b.virtual(ctx, &v, "pins", "-live"); err != nil {
		return nil, err
	}
	size := agents.Live(b.short)
	w, err := agents.NewPinning(size.Leads, size.Pinned, true)
	if err != nil {
		return nil, err
	}
	h := agents.NewHistory(w.Asking)
	model, err := b.longModel(1 << 18)
	if err != nil {
		return nil, err
	}
	take := func(tag bool, kept string) (r agents.PinRun, err error) {
		all, err := b.replayed(ctx, "pins", float64(speed), tag, []string{
			"--workers", "1", "--model-path", model, "--max-model-len", strconv.Itoa(min(v.Capacity*64, 1<<18)),
			"--extra-engine-args", fmt.Sprintf(`{"block_size":64,"speedup_ratio":%d,"num_gpu_blocks":%d,%s}`, speed*engine, v.Capacity, kept),
		})
		if err != nil {
			return r, err
		}
		return h.Judge(all, w.Pin), nil
	}
	lru, err := take(false, `"evictor":"lru"`)
	if err != nil {
		return nil, fmt.Errorf("lru: %w", err)
	}
	pins, err := take(true, `"pin_budget_g1":0.2`)
	if err != nil {
		return nil, fmt.Errorf("pins: %w", err)
	}
	parts := judgePins("pins, sessions end", pins, lru, true)
	inVirtual := judgePins("", v.Runs[2], v.Runs[0], false)
	for i := range parts {
		v := &inVirtual[i]
		parts[i] = parts[i].noted("%s", joined(parts[i].Note, fmt.Sprintf("in virtual time %s %s", number(v.Value), v.Unit), v.Note))
	}
	last := &parts[len(parts)-1]
	*last = last.noted("%s; %d requests; %d of %d leads pin; cache of %d blocks for a working set of %d, %d of them for pins", last.Note, v.Requests, v.Pinned, v.Leads, v.Capacity, v.WorkingSet, v.Budget)
	return parts, nil
}

// joined joins notes, but for empty ones.
func joined(notes ...string) string {
	return strings.Join(slices.DeleteFunc(notes, func(s string) bool { return s == "" }), "; ")
}
