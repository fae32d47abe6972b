package trace

import (
	"bufio"
	"fmt"
	"io"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Conversion is what [Convert] has written.
type Conversion struct {
	Rows      int
	BlockSize int // tokens of a block
	Skipped   int // recorded requests without hashes, which nobody can replay
}

// FormatError says that a recording wants another format.
type FormatError struct {
	Agents, Requests int // how many of the requests belong to agents
	Want             Format
}

// Error implements error.
func (e *FormatError) Error() string {
	return fmt.Sprintf("%d of %d requests belong to agents: want format %s", e.Agents, e.Requests, e.Want)
}

// exported is a row of a recorded request. Times are in milliseconds.
type exported struct {
	RequestID    string   `json:"request_id"`
	SessionID    string   `json:"session_id,omitzero"`
	Kind         string   `json:"request_kind,omitzero"`
	Timestamp    int64    `json:"timestamp"`
	InputLength  int      `json:"input_length"`
	OutputLength int      `json:"output_length"`
	HashIDs      []uint64 `json:"hash_ids"`

	WaitFor     []string       `json:"wait_for,omitempty"`
	Branches    []string       `json:"branches,omitempty"`
	PrefixReset *bool          `json:"prefix_reset,omitzero"`
	Delay       *int64         `json:"delay,omitzero"` // without what tools took
	ToolWait    int64          `json:"tool_wait_ms,omitzero"`
	ToolEvents  []exportedTool `json:"tool_events,omitempty"`

	NVExt  jsontext.Value `json:"nvext,omitzero"` // ours, and so is this
	Dynago known          `json:"dynago"`
}

// exportedTool is a tool whose result a row's prompt has.
type exportedTool struct {
	ID       string  `json:"tool_call_id"`
	Class    string  `json:"tool_class"`
	Started  int64   `json:"started_at_unix_ms"`
	Ended    int64   `json:"ended_at_unix_ms"`
	Duration float64 `json:"duration_ms"`
	Status   string  `json:"status"`
	Bytes    *uint64 `json:"output_bytes,omitzero"`
	Tokens   *uint64 `json:"output_tokens,omitzero"`
	Error    string  `json:"error_type,omitzero"`
}

// Convert writes what frontends have recorded, of format [Dynamo], as a trace of format
// [Mooncake], if no request belongs to an agent, or [AgenticMooncake], if some do; else
// it is an error. Rows come in the order in which requests arrived, and what waits for
// what is the same as when [Read] reads the records. Each hash gets the next number when
// it is first seen.
func Convert(to io.Writer, f Format, o ReadOptions, sources ...io.Reader) (Conversion, error) {
	if f != Mooncake && f != AgenticMooncake {
		return Conversion{}, fmt.Errorf("convert trace: format %s is not written, want %s or %s", f, Mooncake, AgenticMooncake)
	}
	if err := o.check(Dynamo, len(sources)); err != nil {
		return Conversion{}, err
	}
	rec, requests, err := recorded(o, sources)
	if err != nil {
		return Conversion{}, err
	}
	switch agents := rec.agents > 0; {
	case len(requests) == 0 && rec.skipped > 0:
		return Conversion{}, fmt.Errorf("%s: none of %d requests has the hashes of its prompt, without which nobody can replay it", name(sources[0]), rec.skipped)
	case len(requests) == 0:
		return Conversion{}, fmt.Errorf("%s holds no requests", name(sources[0]))
	case agents && f == Mooncake:
		return Conversion{}, &FormatError{rec.agents, len(requests), AgenticMooncake}
	case !agents && f == AgenticMooncake:
		return Conversion{}, &FormatError{0, len(requests), Mooncake}
	}
	out := bufio.NewWriter(to)
	numbers := map[uint64]uint64{}
	for i := range rec.calls {
		row := rec.export(i, numbers)
		if f == AgenticMooncake {
			rec.exportAgent(&row, i)
		}
		if err := json.MarshalWrite(out, &row, jsontext.AllowInvalidUTF8(true)); err != nil {
			return Conversion{}, fmt.Errorf("convert trace: request %q: %w", row.RequestID, err)
		}
		if err := out.WriteByte('\n'); err != nil {
			return Conversion{}, fmt.Errorf("convert trace: %w", err)
		}
	}
	if err := out.Flush(); err != nil {
		return Conversion{}, fmt.Errorf("convert trace: %w", err)
	}
	return Conversion{len(rec.calls), int(rec.blockSize), rec.skipped}, nil
}

// export returns what all rows say. Numbers are those of the hashes seen so far.
func (rec *recording) export(i int, numbers map[uint64]uint64) exported {
	c := &rec.calls[i]
	row := exported{
		RequestID: c.ID, Timestamp: c.start - rec.calls[0].start,
		InputLength: c.Prompt.Len(), OutputLength: c.output, HashIDs: make([]uint64, len(c.Prompt)), NVExt: c.nvext,
		Dynago: known{BlockSize: new(rec.blockSize)},
	}
	number := func(stream uint64) uint64 {
		n, ok := numbers[stream]
		if !ok {
			n = uint64(len(numbers))
			numbers[stream] = n
		}
		return n
	}
	for k, p := range c.Prompt {
		row.HashIDs[k] = number(p.Stream)
	}
	if c.repeated > 0 {
		row.Dynago.AnswerTokens = new(int64(c.repeated))
		at := row.InputLength
		for _, p := range c.Answer.Cut(c.repeated) {
			if at%int(rec.blockSize) == 0 { // else the block is that of what is before
				row.Dynago.AnswerIDs = append(row.Dynago.AnswerIDs, number(p.Stream))
			}
			at += int(p.Len)
		}
	}
	return row
}

// exportAgent adds what rows of agents say.
func (rec *recording) exportAgent(row *exported, i int) {
	c, g := &rec.calls[i], rec.graph
	row.SessionID, row.Kind, row.PrefixReset = c.Session, "foreground", new(g.before[i] < 0)
	switch {
	case g.background[c.Session]:
		row.Kind = "background_agent"
	case c.Session != "" && rec.parents[c.Session] != "":
		row.Kind = "agent"
	}
	for _, j := range g.opened[i] {
		row.Branches = append(row.Branches, g.calls[j].ID)
	}
	if len(c.After) == 0 {
		return
	}
	row.WaitFor, row.ToolWait = c.After, c.toolWait
	row.Delay = new(c.Delay.Milliseconds() - c.toolWait)
	for _, u := range c.tools {
		row.ToolEvents = append(row.ToolEvents, u.export())
	}
}

func (u *use) export() exportedTool {
	t := exportedTool{
		ID: u.row.ID, Class: u.row.Class, Started: u.start, Ended: u.end, Duration: float64(u.end - u.start),
		Status: u.row.Status, Bytes: u.row.Bytes, Tokens: u.row.Tokens, Error: u.row.Error,
	}
	if u.row.Duration != nil {
		t.Duration = *u.row.Duration
	}
	if t.Status == "" {
		t.Status = "succeeded"
		if u.failed {
			t.Status = "error"
		}
	}
	return t
}
