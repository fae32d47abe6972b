package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/dynago/dynago/trace/perfetto"
	"github.com/dynago/dynago/trace/tree"
)

type tracePerfetto struct {
	recordedSettings
	Output   string `name:"output" short:"o" env:"DYN_OUTPUT" required:"" placeholder:"FILE" help:"Write the timeline here; - is standard output."`
	NoStages bool   `name:"no-stages" env:"DYN_NO_STAGES" help:"Leave out what requests spent their time on."`
	Markers  bool   `name:"include-markers" env:"DYN_INCLUDE_MARKERS" negatable:"" help:"Mark the first tokens of answers."`
	Pretty   bool   `name:"pretty" env:"DYN_PRETTY" negatable:"" help:"Indent the JSON."`
}

// Run draws a trace. All of it is held but for the hashes of prompts.
func (c *tracePerfetto) Run(to outlet) error {
	rows, n, err := c.rows(to, true)
	if err != nil {
		return err
	}
	var b tree.Builder
	for r, err := range rows {
		if err != nil {
			return err
		}
		b.Add(r.Record)
	}
	out := to.out
	if c.Output != "-" {
		if err := os.MkdirAll(filepath.Dir(c.Output), 0o777); err != nil {
			return fmt.Errorf("--output: %w", err)
		}
		f, err := os.Create(c.Output)
		if err != nil {
			return fmt.Errorf("--output: %w", err)
		}
		defer f.Close() //nolint:errcheck // it is closed below, where that may fail
		out = f
	}
	drawn, err := perfetto.Write(out, b.Tree(), perfetto.Options{NoStages: c.NoStages, Markers: c.Markers, Pretty: c.Pretty})
	if f, ok := out.(*os.File); ok && c.Output != "-" {
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("--output: %w", err)
	}
	fmt.Fprintf(to.err, "wrote %d requests and tools of %s to %s\n", drawn, count(n, "file"), c.Output)
	return nil
}
