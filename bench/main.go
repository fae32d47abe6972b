// Command bench takes the figures that the project answers for, and says
// whether they hold:
//
//	go run ./bench -id B8 -json out.json
//	go run ./bench -id all -short
//
// What each figure means, what passes and what was measured last is in
// README.md. Figures are CPU per unit of completed work, memory, counts, or
// ratios to a baseline taken in the same run, because wall times mean little on
// a shared machine. The server under test is the built binary in a process of
// its own, the load comes from another process, and the server's cost is read
// from the kernel's accounts of it; that needs Linux.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"
)

// figure is one figure, or a few that are taken together, under one id.
type figure struct {
	id, what string
	take     func(context.Context, *bench) ([]part, error)
}

var figures = []figure{
	{"B1", "index, one thread", takeIndexMixed},
	{"B2", "index, a writer and a reader", takeIndexPair},
	{"B3", "index, matches", takeIndexDepth},
	{"B4", "events of engines, one core", takeFrames},
	{"B5", "index, memory", takeIndexMemory},
	{"B6", "decisions of the router", takeDecisions},
	{"B7", "queue and priorities, virtual", takeQueue},
	{"B7H", "queue and priorities, by HTTP", takeLiveQueue},
	{"B8", "short unary chat, in-process", takeUnary},
	{"B8H", "short unary chat, engine by HTTP", takeUnaryHTTP},
	{"B9", "streamed events, in-process", takeStreams},
	{"B9H", "streamed events, engine by HTTP", takeStreamsHTTP},
	{"B10", "long prompts, in-process", takeLong},
	{"B11", "tokenizer, one core", takeTokens},
	{"B11L", "loading a tokenizer", takeVocabularies},
	{"B12", "ways to route, virtual", takeReplay},
	{"B13", "events that are lost", takeEventLoss},
	{"B14", "start, idle memory, size", takeStart},
	{"B15", "idle streams", takeIdle},
	{"B16", "soak", takeSoak},
	{"B18", "parsers and codecs", takeCodecs},
	{"B20", "pool of KV blocks, one core", takeBlocks},
	{"B21", "pins, virtual", takePins},
	{"B21H", "pins, by HTTP", takeLivePins},
	{"B22", "a prefix that sub-agents share, virtual", takeShared},
	{"B23", "kvstore, large values", takeValues},
	{"B24", "prompts that are computed ahead, virtual", takeForesight},
	{"B25", "calls of tensors, in-process", takeTensors},
	{"B26", "a trace of requests, in-process", takeTracing},
	{"B27", "the model in the box: its arithmetic, and the engine around it", takeTiny},
	{"B28", "lengths of answers and times of tools that are learned, virtual", takeEstimates},
}

// bench is what all figures share.
type bench struct {
	programs programs
	short    bool
	soak     time.Duration
	// reference is the built program of bench/reference; empty for none.
	reference string
	log       io.Writer // progress, for people
}

// pick returns full, or brief in the short form.
func pick[T any](b *bench, full, brief T) T {
	if b.short {
		return brief
	}
	return full
}

func (b *bench) progress(format string, args ...any) {
	fmt.Fprintf(b.log, format+"\n", args...)
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	sound, err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(2)
	case !sound:
		os.Exit(1)
	}
}

// run takes the figures that args ask for and says whether all counts are as
// they must be. A cost that misses its line is printed and recorded, and no more:
// a busy machine must not fail a build.
func run(ctx context.Context, args []string, out, log io.Writer) (sound bool, err error) {
	b := &bench{log: log}
	var ids idList
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.Var(&ids, "id", "figure to take, such as B8, several with commas, or all; may be repeated")
	flags.BoolVar(&b.short, "short", false, "about a minute for all: fewer and shorter runs")
	flags.DurationVar(&b.soak, "soak", 0, "length of the soak (default 10m; 20s with -short)")
	jsonPath := flags.String("json", "", "file for the records, one JSON object a line")
	binary := flags.String("dynago", "", "built dynago to measure (default: built from this checkout)")
	flags.StringVar(&b.reference, "reference", "", "built bench/reference, to set the index of another project beside B1 and B3")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	chosen, err := ids.figures()
	if err != nil {
		return false, err
	}
	if runtime.GOOS != "linux" {
		return false, fmt.Errorf("cost of a process is read from /proc, which %s lacks: run on Linux", runtime.GOOS)
	}
	if b.soak == 0 {
		b.soak = pick(b, 10*time.Minute, 20*time.Second)
	}

	dir, err := os.MkdirTemp("", "dynago-bench-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(dir)
	if b.programs, err = build(ctx, dir, *binary); err != nil {
		return false, err
	}

	records, err := b.take(ctx, chosen, out)
	if *jsonPath != "" {
		err = errors.Join(err, writeRecords(*jsonPath, records))
	}
	return !slices.ContainsFunc(records, record.broken), err
}

// take takes the chosen figures one after the other and prints each as it is
// there. One that cannot be taken does not keep the others from it.
func (b *bench) take(ctx context.Context, chosen []figure, out io.Writer) ([]record, error) {
	machine := thisMachine()
	fmt.Fprintln(out, machine)
	var records []record
	var failed []error
	for _, f := range chosen {
		b.progress("%s: %s …", f.id, f.what)
		start := time.Now()
		parts, err := f.take(ctx, b)
		if err != nil {
			failed = append(failed, fmt.Errorf("%s: %w", f.id, err))
			continue
		}
		r := newRecord(f, parts, machine)
		r.Short, r.Seconds = b.short, time.Since(start).Seconds()
		fmt.Fprint(out, r.lines())
		records = append(records, r)
	}
	return records, errors.Join(failed...)
}

func writeRecords(path string, records []record) error {
	file, err := os.Create(path)
	if err != nil {
		return fmt.Errorf("records: %w", err)
	}
	encoder := json.NewEncoder(file)
	encoder.SetEscapeHTML(false)
	for _, r := range records {
		if err := encoder.Encode(r); err != nil {
			file.Close()
			return fmt.Errorf("record of %s: %w", r.ID, err)
		}
	}
	return file.Close()
}

// idList is a flag that names figures.
type idList []string

func (l *idList) String() string { return strings.Join(*l, ",") }

func (l *idList) Set(s string) error {
	for id := range strings.SplitSeq(s, ",") {
		*l = append(*l, strings.ToUpper(strings.TrimSpace(id)))
	}
	return nil
}

// figures returns the chosen figures in their order of above.
func (l idList) figures() ([]figure, error) {
	var known []string
	for _, f := range figures {
		known = append(known, f.id)
	}
	names := strings.Join(known, ", ")
	if len(l) == 0 {
		return nil, fmt.Errorf("no -id: want one or more of %s, or all", names)
	}
	for _, id := range l {
		if id != "ALL" && !slices.Contains(known, id) {
			return nil, fmt.Errorf("-id %s: want one of %s, or all", id, names)
		}
	}
	var chosen []figure
	for _, f := range figures {
		if slices.Contains(l, "ALL") || slices.Contains(l, f.id) {
			chosen = append(chosen, f)
		}
	}
	return chosen, nil
}
