// Command index measures KV indexes for the figures B1, B2, B3 and B5 of bench.
// It prints one JSON object. A process takes one measurement, so that none
// profits from what another one left in memory:
//
//	index mixed  -index kvindex -corpus b1.bin
//	index split  -index kvindex -corpus b1.bin
//	index pair   -index kvindex -corpus b1.bin
//	index submit -index kvindex -corpus b1.bin
//	index agents -index kvindex -corpus ag.bin
//	index depth  -index kvindex -blocks 10000000
//	index memory -index kvindex -blocks 10000000
//
// A corpus is a file that the program bench/corpus writes.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"runtime/pprof"

	"github.com/dynago/dynago/bench/workload"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "index:", err)
		os.Exit(2)
	}
}

// replays are the measurements that replay a corpus.
var replays = map[string]func(contestant, *workload.Corpus) (any, error){
	"mixed":  func(c contestant, h *workload.Corpus) (any, error) { return mixed(c, h) },
	"split":  func(c contestant, h *workload.Corpus) (any, error) { return split(c, h) },
	"pair":   func(c contestant, h *workload.Corpus) (any, error) { return pair(c, h) },
	"submit": func(c contestant, h *workload.Corpus) (any, error) { return submit(c, h) },
	"agents": func(c contestant, h *workload.Corpus) (any, error) { return agents(c, h) },
}

func run(args []string, out io.Writer) error {
	if len(args) == 0 {
		return errors.New("want mixed, split, pair, submit, agents, depth or memory")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	name := flags.String("index", "kvindex", "index to measure: "+contestantNames())
	corpus := flags.String("corpus", "", "history to replay, as bench/corpus writes it")
	blocks := flags.Int("blocks", 1_000_000, "blocks that the index holds")
	profile := flags.String("cpuprofile", "", "file for a profile of the processor's time")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	c, err := contestantOf(*name)
	if err != nil {
		return err
	}
	if *profile != "" {
		file, err := os.Create(*profile)
		if err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer file.Close()
		if err := pprof.StartCPUProfile(file); err != nil {
			return fmt.Errorf("profile: %w", err)
		}
		defer pprof.StopCPUProfile()
	}
	result, err := measure(args[0], c, *corpus, *blocks)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

func measure(what string, c contestant, corpus string, blocks int) (any, error) {
	if replay := replays[what]; replay != nil {
		h, err := workload.Open(corpus)
		if err != nil {
			return nil, err
		}
		defer h.Close()
		return replay(c, h)
	}
	if blocks < minBlocks {
		return nil, fmt.Errorf("-blocks %d: want at least %d", blocks, minBlocks)
	}
	switch what {
	case "depth":
		return depth(c, blocks)
	case "memory":
		return memory(c, blocks)
	}
	return nil, fmt.Errorf("unknown measurement %q", what)
}
