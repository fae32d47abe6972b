// Command index measures KV indexes for the figures B1 to B5 of bench.
// It prints one JSON object. A process takes one measurement, so that none
// profits from what another one left in memory:
//
//	index mixed  -index kvindex -corpus b1.bin
//	index split  -index kvindex -corpus b1.bin
//	index pair   -index kvindex -corpus b1.bin
//	index submit -index kvindex -corpus b1.bin
//	index agents -index kvindex -corpus ag.bin
//	index frames -index kvindex -corpus en.bin -tokens 16
//	index depth  -index kvindex -blocks 10000000
//	index memory -index kvindex -blocks 10000000
//	index lines
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
		return errors.New("want mixed, split, pair, submit, agents, frames, depth, memory or lines")
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	name := flags.String("index", "kvindex", "index to measure: "+contestantNames())
	corpus := flags.String("corpus", "", "history to replay, as bench/corpus writes it")
	blocks := flags.Int("blocks", 1_000_000, "blocks that the index holds")
	tokens := flags.Int("tokens", 16, "tokens of a block that engines tell of")
	dir := flags.String("dir", "", "folder for the sockets of engines")
	profile := flags.String("cpuprofile", "", "file for a profile of the processor's time")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if args[0] == "publish" {
		return engines(*corpus, *tokens, *dir, out)
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
	result, err := measure(args[0], c, *corpus, *blocks, *tokens)
	if err != nil {
		return err
	}
	return json.NewEncoder(out).Encode(result)
}

func measure(what string, c contestant, corpus string, blocks, tokens int) (any, error) {
	if replay := replays[what]; replay != nil || what == "frames" {
		h, err := workload.Open(corpus)
		if err != nil {
			return nil, err
		}
		defer h.Close()
		if replay == nil {
			return frames(c, corpus, h, tokens)
		}
		return replay(c, h)
	}
	if blocks < minBlocks {
		return nil, fmt.Errorf("-blocks %d: want at least %d", blocks, minBlocks)
	}
	switch what {
	case "lines":
		return measureLines(), nil
	case "depth":
		return depth(c, blocks)
	case "memory":
		return memory(c, blocks)
	}
	return nil, fmt.Errorf("unknown measurement %q", what)
}

// engines plays the engines of a history until the input ends.
func engines(corpus string, tokens int, dir string, out io.Writer) error {
	h, err := workload.Open(corpus)
	if err != nil {
		return err
	}
	defer h.Close()
	return publish(h, tokens, dir, os.Stdin, out)
}
