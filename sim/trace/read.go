package trace

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
)

// Format names how a trace is written.
type Format string

// The formats. All have one JSON object a line.
const (
	// Mooncake has a row for each request: when it came, how long it was, and the
	// ids of its prompt's blocks.
	Mooncake Format = "mooncake"
	// MooncakeDelta is the same, but of a session's later rows a prompt is only
	// what is new.
	MooncakeDelta Format = "mooncake-delta"
	// AgenticMooncake is Mooncake with requests that wait for others.
	AgenticMooncake Format = "agentic_mooncake"
	// AppliedComputeAgentic has a row for each session, with lengths and pauses
	// and no time of arrival.
	AppliedComputeAgentic Format = "applied_compute_agentic"
	// Dynamo is dynamo.request.trace.v1, as frontends record it.
	Dynamo Format = "dynamo"
)

// Formats are all formats, the default first.
var Formats = []Format{Mooncake, MooncakeDelta, AgenticMooncake, AppliedComputeAgentic, Dynamo}

// ParseFormat reads the name of a format; - and _ are the same.
func ParseFormat(s string) (Format, error) {
	same := func(s string) string { return strings.ReplaceAll(s, "_", "-") }
	for _, f := range Formats {
		if same(s) == same(string(f)) {
			return f, nil
		}
	}
	var names []string
	for _, f := range Formats {
		names = append(names, string(f))
	}
	return "", fmt.Errorf("unknown trace format %q: want one of %s", s, strings.Join(names, ", "))
}

// ReadOptions say what a trace does not. The zero value is right for most.
type ReadOptions struct {
	// BlockSize is how many tokens an id of the trace stands for; 0 is what the
	// trace says, or [DefaultBlockSize] where it says nothing.
	BlockSize int
	// Strict refuses a trace of format Dynamo with requests that cannot be
	// replayed, or of which only some belong to agents.
	Strict bool
	// Prefix says how much of their first prompts sessions of format
	// AppliedComputeAgentic share.
	Prefix Prefix
	Seed   uint64 // of what is drawn

	told *Workload // what the trace says beside its requests; or nil
}

// Workload is a trace as a whole, with what it says of where it was recorded.
type Workload struct {
	Requests []Request
	// BlockSize is how many tokens a KV block had of the engines that served them; 0
	// where the trace does not say.
	BlockSize int
	// Skipped is how many recorded requests have no hashes, so that nobody can replay
	// them.
	Skipped int
}

// ReadAll is [Read] to the end of the trace.
func ReadAll(f Format, o ReadOptions, sources ...io.Reader) (Workload, error) {
	var w Workload
	o.told = &w
	for r, err := range Read(f, o, sources...) {
		if err != nil {
			return Workload{}, err
		}
		w.Requests = append(w.Requests, r)
	}
	return w, nil
}

// tell notes what a trace says of the engines that it was recorded of.
func (o *ReadOptions) tell(blockSize, skipped int) {
	if o.told != nil {
		o.told.BlockSize, o.told.Skipped = blockSize, skipped
	}
}

// DefaultBlockSize is the block size of the Mooncake traces.
const DefaultBlockSize = 512

// What a row may say is bounded, so that no sum of it overflows.
const (
	maxBlockSize = 1 << 20
	maxTokens    = 1 << 28 // of one prompt or answer
	maxTime      = time.Duration(3e18)
	maxLine      = 64 << 20 // bytes
)

// Read reads a trace, compressed by gzip or not, and yields its requests in the
// order of the file; those of Dynamo, which may have several sources, in the
// order of their arrival. It stops at the first error, which names the source, if
// it has a method Name, line and field. AgenticMooncake and Dynamo are held as a
// whole; of the others a line is held, and where each session stands.
func Read(f Format, o ReadOptions, sources ...io.Reader) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		if err := o.check(f, len(sources)); err != nil {
			yield(Request{}, err)
			return
		}
		requests := readers[f](o, sources)
		any := false
		for r, err := range requests {
			any = true
			if !yield(r, err) || err != nil {
				return
			}
		}
		if !any {
			yield(Request{}, fmt.Errorf("%s holds no requests", name(sources[0])))
		}
	}
}

var readers = map[Format]func(ReadOptions, []io.Reader) iter.Seq2[Request, error]{
	Mooncake:              readMooncake,
	MooncakeDelta:         readDelta,
	AgenticMooncake:       readAgentic,
	AppliedComputeAgentic: readApplied,
	Dynamo:                readRecords,
}

func (o *ReadOptions) check(f Format, sources int) error {
	switch {
	case !slices.Contains(Formats, f):
		_, err := ParseFormat(string(f))
		return err
	case o.BlockSize < 0 || o.BlockSize > maxBlockSize:
		return fmt.Errorf("trace block size: got %d, want 1 to %d", o.BlockSize, maxBlockSize)
	case sources == 0, sources > 1 && f != Dynamo:
		return fmt.Errorf("trace: got %d files, and format %s has exactly one", sources, f)
	}
	return o.Prefix.check()
}

// line is one row of a trace.
type line[T any] struct {
	row    T
	source string
	number int
}

// fault is an error of a field of the line.
func (l *line[T]) fault(field, format string, args ...any) error {
	return fmt.Errorf("%s, line %d: %s: %s", l.source, l.number, field, fmt.Sprintf(format, args...))
}

// lines decodes the lines of a source that are not blank.
func lines[T any](source io.Reader) iter.Seq2[*line[T], error] {
	return func(yield func(*line[T], error) bool) {
		plain, err := unpack(source)
		if err != nil {
			yield(nil, fmt.Errorf("%s: %w", name(source), err))
			return
		}
		scanner := bufio.NewScanner(plain)
		scanner.Buffer(nil, maxLine)
		l := &line[T]{source: name(source)}
		for scanner.Scan() {
			l.number++
			text := bytes.TrimSpace(scanner.Bytes())
			if len(text) == 0 {
				continue
			}
			var zero T
			l.row = zero
			if err := json.Unmarshal(text, &l.row); err != nil {
				yield(nil, l.malformed(err))
				return
			}
			if !yield(l, nil) {
				return
			}
		}
		if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
			yield(nil, fmt.Errorf("%s, line %d: it is longer than %d MiB", l.source, l.number+1, maxLine>>20))
		} else if err != nil {
			yield(nil, fmt.Errorf("%s, after line %d: %w", l.source, l.number, err))
		}
	}
}

// malformed says what is wrong with a line that does not decode.
func (l *line[T]) malformed(err error) error {
	se, ok := errors.AsType[*json.SemanticError](err)
	field := ""
	if ok {
		field = strings.ReplaceAll(strings.TrimPrefix(string(se.JSONPointer), "/"), "/", ".")
	}
	switch {
	case field == "":
		return fmt.Errorf("%s, line %d: %w", l.source, l.number, err)
	case se.GoType == nil:
		return l.fault(field, "%v", err)
	}
	got := "a " + se.JSONKind.String()
	if n := len(se.JSONValue); n > 0 && n < 64 {
		got = string(se.JSONValue)
	}
	return l.fault(field, "got %s, want %s", got, inWords(se.GoType))
}

// inWords says what JSON fits a type.
func inWords(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return inWords(t.Elem())
	case reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint32, reflect.Uint64:
		return "a whole number, 0 or more"
	case reflect.Float64:
		return "a number"
	case reflect.Slice:
		return "a list"
	case reflect.String:
		return "a string"
	case reflect.Bool:
		return "true or false"
	}
	return "an object"
}

// unpack returns the plain text of a source.
func unpack(r io.Reader) (io.Reader, error) {
	buffered := bufio.NewReader(r)
	if head, _ := buffered.Peek(2); !bytes.Equal(head, []byte{0x1f, 0x8b}) {
		return buffered, nil
	}
	return gzip.NewReader(buffered)
}

// name returns what a source calls itself.
func name(r io.Reader) string {
	if n, ok := r.(interface{ Name() string }); ok {
		return n.Name()
	}
	return "trace"
}

// duration returns so many of unit, or says that they are no time.
func duration(n float64, unit time.Duration) (d time.Duration, problem string) {
	most := float64(maxTime / unit)
	if !(n >= 0) || n > most {
		return 0, fmt.Sprintf("got %v, want a number from 0 to %.0e", n, most)
	}
	return time.Duration(math.Round(n * float64(unit))), ""
}

// first returns the first pointer that is not nil.
func first[T any](p ...*T) *T {
	for _, p := range p {
		if p != nil {
			return p
		}
	}
	return nil
}
