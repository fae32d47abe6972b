package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"time"

	"github.com/dynago/dynago/bench/loadgen"
)

// load runs the generator to its end.
func (b *bench) load(ctx context.Context, url, model string, flags ...string) (loadgen.Result, error) {
	var result loadgen.Result
	args := append([]string{"-url", url, "-model", model}, flags...)
	command := exec.CommandContext(ctx, b.programs.load, args...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return result, fmt.Errorf("load generator: %w", err)
	}
	if err := json.Unmarshal(out, &result); err != nil {
		return result, fmt.Errorf("report of the load generator: %w", err)
	}
	return result, nil
}

// cleanLoad runs the generator and accepts no failed request.
func (b *bench) cleanLoad(ctx context.Context, url, model string, flags ...string) (loadgen.Result, error) {
	r, err := b.load(ctx, url, model, flags...)
	if err != nil {
		return r, err
	}
	if bad := r.Failures() + r.Hung; bad > 0 || r.Requests == 0 {
		return r, fmt.Errorf("load: %d requests done, %d hung, failed: %v", r.Requests, r.Hung, r.Failed)
	}
	return r, nil
}

// cost runs the generator and returns the processor time that p spent on the
// load.
func (b *bench) cost(ctx context.Context, p *process, url, model string, flags ...string) (loadgen.Result, time.Duration, error) {
	before, err := p.cpu()
	if err != nil {
		return loadgen.Result{}, 0, err
	}
	r, err := b.cleanLoad(ctx, url, model, flags...)
	if err != nil {
		return r, 0, err
	}
	after, err := p.cpu()
	return r, after - before, err
}

// micros is d spread over n units, in microseconds.
func micros(d time.Duration, n int) float64 {
	return float64(d) / float64(time.Microsecond) / float64(n)
}

// holding is a generator that holds streams open.
type holding struct {
	*process
	input   io.WriteCloser
	reports *json.Decoder
}

// hold opens streams and returns when all have had their first event.
func (b *bench) hold(ctx context.Context, s *server, streams int, flags ...string) (*holding, loadgen.Result, error) {
	args := append([]string{"-url", s.url, "-model", s.model, "-mode", "hold", "-concurrency", fmt.Sprint(streams)}, flags...)
	command := exec.CommandContext(ctx, b.programs.load, args...)
	input, err1 := command.StdinPipe()
	output, in, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		return nil, loadgen.Result{}, err
	}
	command.Stdout = in
	p, err := start(command)
	in.Close()
	if err != nil {
		return nil, loadgen.Result{}, err
	}
	h := &holding{p, input, json.NewDecoder(output)}
	var held loadgen.Result
	if err := h.reports.Decode(&held); err != nil {
		defer h.kill()
		return nil, held, fmt.Errorf("load generator: %w: %s", err, p.lastWords(5))
	}
	return h, held, nil
}

// release lets all streams go and returns what became of them.
func (h *holding) release() (loadgen.Result, error) {
	var end loadgen.Result
	h.input.Close()
	err := h.reports.Decode(&end)
	<-h.ended
	if err = errors.Join(err, h.err); err != nil {
		return end, fmt.Errorf("load generator: %w: %s", err, h.lastWords(5))
	}
	return end, nil
}
