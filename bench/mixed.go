package main

import (
	"context"
)

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

func (m mixture) bytes() float64 { return float64(m.Heap) / float64(m.Held) }

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
	theirs, err := b.theirs(ctx, "B1")
	if err != nil {
		return nil, err
	}
	parts = append(parts, theirs...)
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
