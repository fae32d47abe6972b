// Command virtual takes the figures of bench that need no clock: it replays
// workloads on the simulated fleet, which is the very router and the cores of mock
// engines in virtual time. It prints one JSON object:
//
//	virtual place
//	virtual routing -workload agents
//	virtual queue -load 1.1
//	virtual workflow
//	virtual pins
//	virtual subagents
//	virtual foresight -timing polynomial
//	virtual estimates
//
// Everything is seeded: the same command prints the same numbers on every
// machine.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dynago/dynago/bench/agents"
)

const measurements = "place, routing, queue, workflow, pins, subagents, foresight or estimates"

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "virtual:", err)
		os.Exit(2)
	}
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want " + measurements)
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	workload := flags.String("workload", "agents", "what is replayed: "+workloadNames())
	short := flags.Bool("short", false, "a small fleet for a short time, at a load that was found before")
	load := flags.Float64("load", 1.1, "of the queue, against the capacity of the fleet")
	timing := flags.String("timing", "roofline", "how the engines take time: roofline or polynomial")
	live := flags.Bool("live", false, "of queue, workflow and pins: what those figures do that are taken in real time")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	measure := measure
	if *live {
		measure = asLive
	}
	result, err := measure(args[0], *workload, *timing, *load, *short)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

func measure(what, workload, timing string, load float64, short bool) (any, error) {
	switch what {
	case "place":
		return place()
	case "routing":
		return routing(workload, timing, short)
	case "queue":
		c := crowd{workers: 4, span: 10 * time.Minute}
		if short {
			c = crowd{workers: 2, span: 2 * time.Minute, capacity: 14.5}
		}
		return overloaded(load, c)
	case "workflow":
		rounds := 20
		if short {
			rounds = 5
		}
		return workflow(rounds)
	case "pins":
		leads := 120
		if short {
			leads = 24
		}
		return pins(leads, 1.0/20, false)
	case "subagents":
		return subAgents(short)
	case "foresight":
		return foresight(timing, short)
	case "estimates":
		return estimates(short)
	}
	return nil, fmt.Errorf("no measurement %q: want %s", what, measurements)
}

// asLive measures what figures measure that are taken in real time. There engines know
// priorities, and nobody tells them which part of an answer was thinking.
func asLive(what, _, _ string, load float64, short bool) (any, error) {
	size := agents.Live(short)
	switch what {
	case "queue":
		return overloaded(load, crowd{size.Workers, size.Span, size.Rate, true})
	case "workflow":
		return press(pressure{Blocks: size.Blocks, Pause: size.Pause}, size.Rounds)
	case "pins":
		return pins(size.Leads, size.Pinned, true)
	}
	return nil, fmt.Errorf("no measurement %q in real time: want queue, workflow or pins", what)
}
