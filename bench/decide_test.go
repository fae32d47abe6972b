package main

import (
	"slices"
	"testing"
)

func TestReadBenchmarks(t *testing.T) {
	runs := map[string][]float64{}
	for range 2 {
		err := readBenchmarks([]byte(`goos: linux
BenchmarkRoute/workers=64-2         	  246424	     10679 ns/op	      3981 cpu-ns/op	       416 B/op	       1 allocs/op
PASS
`), runs)
		if err != nil {
			t.Fatal(err)
		}
	}
	if got := runs["BenchmarkRoute/workers=64 cpu-ns/op"]; !slices.Equal(got, []float64{3981, 3981}) || len(runs) != 4 {
		t.Errorf("got %v of %v", got, runs)
	}
	if err := readBenchmarks([]byte("BenchmarkX-2 1 many ns/op\n"), runs); err == nil {
		t.Error("no error for a line that is no benchmark's")
	}
}
