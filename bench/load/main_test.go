package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dynago/dynago/bench/loadgen"
)

// TestHoldUntilInputEnds drives the command as the benchmarks do: it says when
// the streams are open, and lets go when its standard input ends.
func TestHoldUntilInputEnds(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.Copy(io.Discard, r.Body)
		fmt.Fprint(w, "data: {\"choices\":[]}\n\n")
		http.NewResponseController(w).Flush()
		<-r.Context().Done()
	}))
	defer server.Close()

	in, release := io.Pipe()
	report, out := io.Pipe()
	done := make(chan error, 1)
	go func() {
		done <- run(t.Context(), []string{"-url", server.URL, "-model", "m", "-mode", "hold", "-concurrency", "5"}, in, out)
		out.Close()
	}()

	decoder := json.NewDecoder(report)
	var held, end loadgen.Result
	if err := decoder.Decode(&held); err != nil || held.Open != 5 {
		t.Fatalf("first line: %+v, %v; want 5 open streams", held, err)
	}
	release.Close()
	if err := decoder.Decode(&end); err != nil || end.Open != 5 || end.Failures() != 0 {
		t.Errorf("last line: %+v, %v; want 5 streams open to the end", end, err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestBadConfigurationIsAnError(t *testing.T) {
	if err := run(t.Context(), []string{"-mode", "unary", "-concurrency", "0", "-n", "1"}, nil, &bytes.Buffer{}); err == nil {
		t.Error("no error for a load without connections")
	}
}
