package main

import (
	"errors"
	"fmt"
	"io"
	"iter"

	"github.com/dynago/dynago/trace/files"
)

type traceCommand struct {
	Show     traceShow     `cmd:"" help:"Show sessions as trees: turns, tools and sub-agents, what was cached, where each turn ran and why."`
	Stats    traceStats    `cmd:"" help:"Count a trace up: tokens, cache hits, times and tool pauses, of each chain and of all."`
	Perfetto tracePerfetto `cmd:"" help:"Draw a trace as a timeline for ui.perfetto.dev."`
	Mooncake traceMooncake `cmd:"" help:"Convert a trace into one that simulators take."`
	SATF     traceSATF     `cmd:"" name:"satf" help:"Write a trace as graphs of sessions for simulators of agents (SATF 2.0)."`
	Tail     traceTail     `cmd:"" help:"Show records as they are written, through all segments."`
}

// recordedSettings say which files a trace is in.
type recordedSettings struct {
	Names []string `arg:"" name:"trace" help:"Files of recorded requests, compressed by gzip or not; directories and patterns of such files; or what the names of segments begin with."`
}

// rows yields the records of all files. What cannot be read of them is told on standard
// error.
func (s *recordedSettings) rows(to outlet, tell bool) (iter.Seq2[files.Row, error], int, error) {
	paths, err := find(to, s.Names)
	if err != nil {
		return nil, 0, err
	}
	complaints := complaints{to: to.err}
	read := files.Read(paths, complaints.add)
	if !tell {
		read = files.Read(paths, nil)
	}
	return func(yield func(files.Row, error) bool) {
		read(yield)
		complaints.end()
	}, len(paths), nil
}

// find returns the files that names stand for. One that stands for nothing ends the
// program with code 2, as the converters do that others have.
func find(to outlet, names []string) ([]string, error) {
	paths, err := files.Find(names...)
	if missing, ok := errors.AsType[*files.MissingError](err); ok {
		fmt.Fprintf(to.err, "dynago: %v\n", missing)
		return nil, exit(2)
	}
	if err == nil && len(paths) == 0 {
		fmt.Fprintf(to.err, "dynago: trace: no files of a trace, which end in .jsonl or .jsonl.gz, are in %q\n", names)
		return nil, exit(2)
	}
	return paths, err
}

// complaints tells the first few problems, and counts the others.
type complaints struct {
	to io.Writer
	n  int
}

// mostComplaints are told.
const mostComplaints = 10

func (c *complaints) add(problem error) {
	if c.n++; c.n <= mostComplaints {
		fmt.Fprintf(c.to, "dynago: trace: %v\n", problem)
	}
}

func (c *complaints) end() {
	if more := c.n - mostComplaints; more > 0 {
		fmt.Fprintf(c.to, "dynago: trace: %d problems more of this kind\n", more)
	}
}
