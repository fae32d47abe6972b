// Command corpus writes one of the histories that the KV index is measured with
// to a file, so that another index can be run on the very same:
//
//	go run ./bench/corpus -name B1 -out b1.bin
//
// README.md describes the file.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"

	"github.com/dynago/dynago/bench/workload"
)

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "corpus:", err)
		os.Exit(2)
	}
}

func run(args []string, out io.Writer) error {
	flags := flag.NewFlagSet("corpus", flag.ContinueOnError)
	name := flags.String("name", "B1", "AG, B1, C44 or EN")
	path := flags.String("out", "", "file to write")
	short := flags.Bool("short", false, "about a tenth of it")
	sequence := flags.Bool("sequence-keys", false, "let sequence hashes be the engines' keys, the same on every worker")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if *path == "" {
		return errors.New("no -out: want a file to write")
	}
	keys := workload.OwnKeys
	if *sequence {
		keys = workload.SequenceKeys
	}
	c, err := workload.Named(*name, *short, keys)
	if err != nil {
		return err
	}
	if err := c.WriteFile(*path); err != nil {
		return err
	}
	n := workload.CountsOf(c.Ops)
	return json.NewEncoder(out).Encode(map[string]any{
		"name": *name, "short": *short, "workers": c.Workers, "operations": len(c.Ops),
		"queried": n.Queried, "stored": n.Stored, "removed": n.Removed, "steady_tenth": c.Steady(),
	})
}
