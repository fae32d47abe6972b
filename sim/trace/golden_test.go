package trace_test

import (
	"iter"
	"math"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/sim/trace"
)

// collect returns all of a sequence that has no errors.
func collect(t testing.TB, requests iter.Seq2[trace.Request, error]) []trace.Request {
	t.Helper()
	var all []trace.Request
	for r, err := range requests {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, r)
	}
	return all
}

// recorded returns one of the traces beside the benchmarks, which is read once.
func recorded(t testing.TB, name string) []trace.Request {
	t.Helper()
	w, ok := traces.Load(name)
	if !ok {
		file, err := os.Open("../../bench/data/" + name + "_trace.jsonl.gz")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		w, _ = traces.LoadOrStore(name, collect(t, trace.Read(trace.Mooncake, trace.ReadOptions{}, file)))
	}
	return slices.Clone(w.([]trace.Request))
}

var traces sync.Map

func TestRecordedTraces(t *testing.T) {
	for name, want := range map[string]trace.Statistics{
		"conversation": {
			Requests: 12031, Span: 3536999 * time.Millisecond,
			Input:  trace.Distribution{Mean: 12035, P50: 6909, P90: 27367, P99: 85401, Max: 126195},
			Output: trace.Distribution{Mean: 343, P50: 350, P90: 597, P99: 1120, Max: 2000},
			Blocks: 288500, Unique: 182790, Reused: 105710,
		},
		"synthetic": {
			Requests: 3993, Span: 1022025 * time.Millisecond,
			Input:  trace.Distribution{Mean: 15325, P50: 11587, P90: 38615, P99: 66456, Max: 191378},
			Output: trace.Distribution{Mean: 149, P50: 69, P90: 389, P99: 768, Max: 893},
			Blocks: 121877, Unique: 43924, Reused: 77953,
		},
	} {
		got := trace.Analyse(recorded(t, name), 512)
		got.Input.Mean, got.Output.Mean = math.Round(got.Input.Mean), math.Round(got.Output.Mean)
		if got != want {
			t.Errorf("%s:\n got %+v\nwant %+v", name, got, want)
		}
	}
}

// One cache, rows in the order of the file.
func TestOneCache(t *testing.T) {
	for name, want := range map[string]map[int]int{
		"conversation": {1_000: 12_847, 5_000: 32_260, 10_000: 61_046, 50_000: 102_290, 0: 105_710},
		"synthetic":    {1_000: 10_252, 5_000: 34_043, 10_000: 51_669, 50_000: 77_953, 0: 77_953},
	} {
		chains := trace.Chains(recorded(t, name), 512)
		for capacity, want := range want {
			cache := trace.NewCache(capacity)
			hits := 0
			for _, chain := range chains {
				hits += cache.Match(chain)
				cache.Touch(chain)
			}
			if hits != want {
				t.Errorf("%s, %d blocks: %d hits, want %d", name, capacity, hits, want)
			}
		}
	}
}

// What placement alone makes of the traces, to three digits.
func TestPlacement(t *testing.T) {
	type cell struct{ roundRobin, kv float64 }
	for name, rows := range map[string]map[int][3]cell{
		"conversation": {
			4:  {{.053, .084}, {.110, .262}, {.178, .359}},
			8:  {{.061, .173}, {.098, .330}, {.134, .365}},
			16: {{.060, .259}, {.090, .359}, {.099, .366}},
		},
		"synthetic": {
			4:  {{.070, .225}, {.193, .529}, {.361, .640}},
			8:  {{.063, .363}, {.162, .627}, {.226, .640}},
			16: {{.057, .520}, {.124, .640}, {.136, .640}},
		},
	} {
		chains := trace.Chains(recorded(t, name), 512)
		for workers, cells := range rows {
			for i, capacity := range []int{1_000, 4_000, 16_000} {
				rr := trace.Place(chains, trace.PlaceOptions{Workers: workers, Capacity: capacity, RoundRobin: true, Forward: true})
				kv := trace.Place(chains, trace.PlaceOptions{Workers: workers, Capacity: capacity, LoadWeight: 0.02, Forward: true})
				tail := trace.Place(chains, trace.PlaceOptions{Workers: workers, Capacity: capacity, LoadWeight: 0.02})
				t.Logf("%s, %2d workers of %5d blocks: %.4f / %.4f, imbalance %.2f / %.2f", name, workers, capacity, rr.Hit, kv.Hit, rr.Imbalance, kv.Imbalance)
				if math.Abs(rr.Hit-cells[i].roundRobin) > 0.0006 || math.Abs(kv.Hit-cells[i].kv) > 0.0006 {
					t.Errorf("%s, %d workers of %d blocks: %.4f / %.4f, want %.3f / %.3f", name, workers, capacity, rr.Hit, kv.Hit, cells[i].roundRobin, cells[i].kv)
				}
				if tail.Hit < kv.Hit-0.0001 {
					t.Errorf("%s, %d workers of %d blocks: %.4f with the head kept longest, want at least the %.4f without", name, workers, capacity, tail.Hit, kv.Hit)
				}
				if kv.Imbalance > 1.015 || rr.Imbalance > 1.135 {
					t.Errorf("%s, %d workers of %d blocks: imbalance %.3f / %.3f, want at most 1.13 / 1.01", name, workers, capacity, rr.Imbalance, kv.Imbalance)
				}
			}
		}
	}
}
