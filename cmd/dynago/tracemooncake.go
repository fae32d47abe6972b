package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/dynago/dynago/sim/trace"
	"github.com/dynago/dynago/trace/files"
)

type traceMooncake struct {
	Names   []string `arg:"" optional:"" name:"trace" help:"Files, directories and patterns, as other commands take them."`
	Inputs  []string `name:"input-path" env:"DYN_INPUT_PATH" placeholder:"PATH" help:"The same; repeatable."`
	Output  string   `name:"output-file" short:"o" env:"DYN_OUTPUT_FILE" required:"" placeholder:"FILE" help:"Write the trace here, once all of it is known."`
	Agentic bool     `name:"agentic" env:"DYN_AGENTIC" negatable:"" help:"Write what waits for what; wanted for a trace with agents in it, and refused for one without."`
	Strict  bool     `name:"strict" env:"DYN_STRICT" negatable:"" help:"Refuse requests that cannot be replayed, and a trace of which only some requests belong to agents."`
}

// Run converts a trace. All of it is held, since a request may wait for any other.
func (c *traceMooncake) Run(to outlet) error {
	names := append(append([]string{}, c.Names...), c.Inputs...)
	if len(names) == 0 {
		return errors.New("nothing to convert: name files of recorded requests, or give them by --input-path")
	}
	paths, err := find(to, names)
	if err != nil {
		return err
	}
	sources, done, err := open(to, paths)
	if err != nil {
		return err
	}
	defer done()
	format := trace.Mooncake
	if c.Agentic {
		format = trace.AgenticMooncake
	}
	var told trace.Conversion
	err = writeWhole("--output-file", c.Output, func(out io.Writer) (err error) {
		told, err = trace.Convert(out, format, trace.ReadOptions{Strict: c.Strict}, sources...)
		return err
	})
	if wrong, ok := errors.AsType[*trace.FormatError](err); ok && c.Agentic {
		return fmt.Errorf("--agentic: none of %d requests belongs to an agent: want it without", wrong.Requests)
	} else if ok {
		return fmt.Errorf("%d of %d requests belong to agents, and their turns wait for each other: want --agentic", wrong.Agents, wrong.Requests)
	}
	if err != nil {
		return err
	}
	if told.Skipped > 0 {
		fmt.Fprintf(to.err, "dynago: trace: %s left out, because no hashes of its prompt were recorded\n", count(told.Skipped, "request"))
	}
	fmt.Fprintf(to.out, "Rows: %d\nTrace block size: %d\n", told.Rows, told.BlockSize)
	return nil
}

// open opens files for those who decode lines by themselves. What cannot be read of them
// is told on standard error. Done closes them.
func open(to outlet, paths []string) (sources []io.Reader, done func(), err error) {
	complaints := complaints{to: to.err}
	var opened []*files.Source
	done = func() {
		for _, s := range opened {
			s.Close() //nolint:errcheck // it was only read
		}
		complaints.end()
	}
	for _, path := range paths {
		s, err := files.Open(path, complaints.add)
		if err != nil {
			done()
			return nil, nil, err
		}
		opened, sources = append(opened, s), append(sources, s)
	}
	return sources, done, nil
}

// writeWhole writes a file as a whole, or leaves what was there before: it is written in a
// directory of its own beside its place. Flag is the setting that names it.
func writeWhole(flag, path string, write func(io.Writer) error) error {
	directory := filepath.Dir(path)
	if err := os.MkdirAll(directory, 0o777); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	beside, err := os.MkdirTemp(directory, ".dynago-*")
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	defer os.RemoveAll(beside) //nolint:errcheck // what stays is empty, or was told of
	f, err := os.Create(filepath.Join(beside, filepath.Base(path)))
	if err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if err := write(f); err != nil {
		return errors.Join(err, f.Close())
	}
	if err := f.Close(); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	if err := os.Rename(f.Name(), path); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}
