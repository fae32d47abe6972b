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
)

const measurements = "place, routing, queue, workflow, pins, subagents or foresight"

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
	if err := flags.Parse(args[1:]); err != nil {
		return err
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
		return overloaded(load, short)
	case "workflow":
		return workflow(short)
	case "pins":
		return pins(short)
	case "subagents":
		return subAgents(short)
	case "foresight":
		return foresight(timing, short)
	}
	return nil, fmt.Errorf("no measurement %q: want %s", what, measurements)
}
