// Command live sends a server what bench/virtual gives to a simulated fleet, over HTTP
// and in real time, and prints what came of each request, one [agents.Outcome] after
// the other:
//
//	live -url http://127.0.0.1:8000 -workload queue -load 1.25 -speed 6 -tag
//
// The workers of the server are to compute so many times as fast as life; requests
// come as much sooner, and what is printed is as much slower than what was measured.
// Without -tag no request says how important it is, what should stay cached, or whose
// it is.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/dynago/dynago/bench/agents"
	"github.com/dynago/dynago/sim/trace"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "live:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var p player
	flags := flag.NewFlagSet("live", flag.ContinueOnError)
	flags.StringVar(&p.url, "url", "http://127.0.0.1:8000", "server")
	flags.StringVar(&p.model, "model", "dynago/demo", "model name")
	workload := flags.String("workload", "queue", "what is sent: queue, workflow or pins")
	load := flags.Float64("load", 1.25, "of the queue, against the capacity of the fleet")
	flags.Float64Var(&p.speed, "speed", 1, "how many times as fast as life everything is")
	flags.BoolVar(&p.tag, "tag", false, "let requests say how important they are, and what should stay cached")
	short := flags.Bool("short", false, "fewer requests")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if !(p.speed > 0) {
		return fmt.Errorf("-speed %v: want more than 0", p.speed)
	}
	w, err := p.requests(*workload, *load, agents.Live(*short))
	if err != nil {
		return err
	}
	all, err := p.play(ctx, w)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(all)
}

// requests returns a workload as it is to be sent.
func (p *player) requests(workload string, load float64, size agents.Size) ([]trace.Request, error) {
	switch workload {
	case "queue", "workflow":
		w, of, err := agents.Poisson(load*size.Rate, size.Span)
		if workload == "workflow" {
			w, of = agents.Workflows(16, size.Rounds, size.Pause)
		}
		if p.tag {
			w = agents.Tag(w, of)
		}
		return w, err
	case "pins":
		p.whole = true
		pinning, err := agents.NewPinning(size.Leads, size.Pinned, true)
		if err != nil {
			return nil, err
		}
		return pinning.Telling, nil
	}
	return nil, fmt.Errorf("no workload %q: want queue, workflow or pins", workload)
}
