package trace

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math"
	"slices"
	"time"

	"github.com/go-json-experiment/json/jsontext"
)

// record is a row of dynamo.request.trace.v1; of each kind only what replay
// needs. Some sinks wrap rows in an object with the member event.
type record struct {
	Event *record `json:"event"`

	Schema    string      `json:"schema"`
	EventType string      `json:"event_type"`
	EventTime *uint64     `json:"event_time_unix_ms"`
	Agent     *agent      `json:"agent_context"`
	Request   *finished   `json:"request"`
	Tool      *toolRecord `json:"tool"`
}

type agent struct {
	SessionID string `json:"session_id"`
	ParentID  string `json:"parent_session_id"`
	Trigger   string `json:"input_trigger"`

	// Of clients that name themselves in the body: SessionID is then their whole run.
	TrajectoryID     string `json:"trajectory_id"`
	ParentTrajectory string `json:"parent_trajectory_id"`
}

// chain returns the chain of turns that a row is of, and the one that has opened it.
func (a *agent) chain() (id, parent string) {
	switch {
	case a == nil:
		return "", ""
	case a.TrajectoryID != "":
		return a.TrajectoryID, a.ParentTrajectory
	}
	return a.SessionID, a.ParentID
}

type finished struct {
	RequestID    string   `json:"request_id"`
	OutputTokens *int64   `json:"output_tokens"`
	Received     *uint64  `json:"request_received_ms"`
	TotalTime    *float64 `json:"total_time_ms"`
	// NVExt and Dynago are ours: what the client asked, and what else is known.
	NVExt  jsontext.Value `json:"nvext"`
	Dynago reuse          `json:"dynago"`
	Replay *struct {
		BlockSize int64    `json:"trace_block_size"`
		Input     *int64   `json:"input_length"`
		Hashes    []uint64 `json:"input_sequence_hashes"`
	} `json:"replay"`
}

type toolRecord struct {
	ID       string   `json:"tool_call_id"`
	Class    string   `json:"tool_class"`
	Status   string   `json:"status"`
	Error    string   `json:"error_type"`
	Bytes    *uint64  `json:"output_bytes"`
	Tokens   *uint64  `json:"output_tokens"`
	Started  *uint64  `json:"started_at_unix_ms"`
	Ended    *uint64  `json:"ended_at_unix_ms"`
	Duration *float64 `json:"duration_ms"`
	Claude   *struct {
		Source   string `json:"source_request_id"`
		Consumer string `json:"consumer_request_id"`
		Child    string `json:"child_session_id"`
		Mode     string `json:"execution_mode"`
	} `json:"claude"`
}

const recordSchema = "dynamo.request.trace.v1"

// call is a recorded request, with the milliseconds of its start and end.
type call struct {
	Request
	start, end int64
	over       int64          // the same as end, and never later than it really was
	row        int            // among those of all calls
	output     int            // tokens, which may be none
	repeated   int            // with how many of its tokens the prompt behind it goes on
	nvext      jsontext.Value // as the row has it
	reuse      reuse
	tools      []*use // whose results its prompt has
	toolWait   int64  // milliseconds of Delay in which one of them ran
}

// use is a recorded use of a tool.
type use struct {
	session                 string
	start, end              int64
	source, consumer, child string // request ids, and a session
	background              bool
	row                     *toolRecord
	failed                  bool
}

// recording is what the rows of all sources say.
type recording struct {
	calls     []call
	uses      []use
	blockSize int64
	parents   map[string]string // of sessions, "" for none
	agents    int               // calls with agent context
	skipped   int               // calls that cannot be replayed
	graph     *graph            // of the calls of agents, in order
	ids       map[string]bool
	streams   map[uint64]uint64 // dense number of each hash, in the order of the file
}

// readRecords yields what frontends have recorded, as requests that wait for
// each other as those did.
func readRecords(o ReadOptions, sources []io.Reader) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		rec, requests, err := recorded(o, sources)
		if err != nil {
			yield(Request{}, err)
			return
		}
		o.tell(int(rec.blockSize), rec.skipped)
		for _, r := range requests {
			if !yield(r, nil) {
				return
			}
		}
	}
}

// recorded reads what frontends have recorded, and returns it as such and as requests.
func recorded(o ReadOptions, sources []io.Reader) (*recording, []Request, error) {
	rec := &recording{blockSize: int64(o.BlockSize), parents: map[string]string{}, ids: map[string]bool{}, streams: map[uint64]uint64{}}
	for _, source := range sources {
		for l, err := range lines[record](source) {
			if err == nil {
				err = rec.add(l, &o)
			}
			if err != nil {
				return nil, nil, err
			}
		}
	}
	requests, err := rec.lower(&o)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: %w", name(sources[0]), err)
	}
	return rec, requests, nil
}

// add takes one row.
func (rec *recording) add(l *line[record], o *ReadOptions) error {
	if l.row.Event != nil {
		l.row = *l.row.Event
	}
	row := &l.row
	switch {
	case row.Schema != recordSchema:
		return l.fault("schema", "got %q, want %q", row.Schema, recordSchema)
	case row.EventTime == nil:
		return l.fault("event_time_unix_ms", "missing")
	}
	switch row.EventType {
	case "request_payload", "tool_start":
		return nil
	case "request_end":
		return rec.addCall(l, o)
	case "tool_end", "tool_error":
		return rec.addUse(l)
	}
	return l.fault("event_type", "got %q, want request_end, request_payload, tool_start, tool_end or tool_error", row.EventType)
}

// unixTime returns a moment that is not absurd.
func (l *line[T]) unixTime(field string, ms uint64) (int64, error) {
	if most := uint64(maxTime / time.Millisecond); ms > most {
		return 0, l.fault(field, "got %d, want at most %d", ms, most)
	}
	return int64(ms), nil
}

// within returns a number of milliseconds.
func (l *line[T]) within(field string, ms float64) (int64, error) {
	if _, problem := duration(ms, time.Millisecond); problem != "" {
		return 0, l.fault(field, "%s", problem)
	}
	return int64(math.Round(ms)), nil
}

func (rec *recording) addCall(l *line[record], o *ReadOptions) error {
	row := l.row.Request
	if row == nil {
		return l.fault("request", "missing")
	}
	if row.Replay == nil {
		if o.Strict {
			return l.fault("request.replay", "missing, so that the request cannot be replayed")
		}
		rec.skipped++
		return nil
	}
	if row.RequestID == "" {
		return l.fault("request.request_id", "missing")
	}
	if rec.ids[row.RequestID] {
		return l.fault("request.request_id", "%q is there twice", row.RequestID)
	}
	rec.ids[row.RequestID] = true
	c := call{Request: Request{ID: row.RequestID}}
	if err := rec.prompt(l, &c); err != nil {
		return err
	}
	output, err := l.length("request.output_tokens", row.OutputTokens)
	if err != nil {
		return err
	}
	c.Answer, c.output, c.nvext, c.reuse = answer(len(rec.calls), max(output, 1)), output, row.NVExt, row.Dynago
	if err := l.asks("request.nvext", row.NVExt, &c.Request); err != nil {
		return err
	}
	if row.Received == nil {
		return l.fault("request.request_received_ms", "missing")
	}
	if c.start, err = l.unixTime("request.request_received_ms", *row.Received); err != nil {
		return err
	}
	if c.end, err = l.unixTime("event_time_unix_ms", *l.row.EventTime); err != nil {
		return err
	}
	if row.TotalTime != nil {
		took, err := l.within("request.total_time_ms", *row.TotalTime)
		if err != nil {
			return err
		}
		c.end, c.over = c.start+took, c.start+int64(*row.TotalTime)
	} else {
		c.over = c.end
	}
	c.end, c.over = max(c.end, c.start), max(c.over, c.start)
	if err := rec.addAgent(l, &c); err != nil {
		return err
	}
	rec.calls = append(rec.calls, c)
	return nil
}

// prompt makes the prompt of a call from the hashes of its blocks.
func (rec *recording) prompt(l *line[record], c *call) error {
	replay := l.row.Request.Replay
	size := replay.BlockSize
	switch {
	case size < 1 || size > maxBlockSize:
		return l.fault("request.replay.trace_block_size", "got %d, want 1 to %d", size, maxBlockSize)
	case rec.blockSize == 0:
		rec.blockSize = size
	case size != rec.blockSize:
		return l.fault("request.replay.trace_block_size", "got %d, and it was %d before", size, rec.blockSize)
	}
	input, err := l.length("request.replay.input_length", replay.Input)
	switch want := (int64(input) + size - 1) / size; {
	case err != nil:
		return err
	case input == 0:
		return l.fault("request.replay.input_length", "the prompt is empty")
	case int64(len(replay.Hashes)) != want:
		return l.fault("request.replay.input_sequence_hashes", "got %d, and %d tokens are %d blocks of %d", len(replay.Hashes), input, want, size)
	}
	ids := make([]uint64, len(replay.Hashes))
	for i, hash := range replay.Hashes {
		id, ok := rec.streams[hash]
		if !ok {
			id = uint64(len(rec.streams))
			rec.streams[hash] = id
		}
		ids[i] = id
	}
	c.Prompt = blocks(ids, int(size), input)
	return nil
}

func (rec *recording) addAgent(l *line[record], c *call) error {
	id, parent := l.row.Agent.chain()
	if id == "" {
		return nil
	}
	rec.agents++
	c.Session, c.Parent, c.Tool = id, parent, l.row.Agent.Trigger == "tool_result"
	known := rec.parents[id]
	if known != "" && parent != "" && parent != known {
		return l.fault("agent_context.parent_session_id", "got %q, and session %q had %q before", parent, id, known)
	}
	rec.parents[id] = cmp.Or(known, parent)
	return nil
}

func (rec *recording) addUse(l *line[record]) error {
	row := l.row.Tool
	session, _ := l.row.Agent.chain()
	switch {
	case row == nil:
		return l.fault("tool", "missing")
	case session == "":
		return l.fault("agent_context.session_id", "missing")
	}
	end, err := l.unixTime("tool.ended_at_unix_ms", *first(row.Ended, l.row.EventTime))
	if err != nil {
		return err
	}
	u := use{session: session, start: end, end: end, row: row, failed: l.row.EventType == "tool_error"}
	switch {
	case row.Started != nil:
		if u.start, err = l.unixTime("tool.started_at_unix_ms", *row.Started); err != nil {
			return err
		}
	case row.Duration != nil:
		took, err := l.within("tool.duration_ms", *row.Duration)
		if err != nil {
			return err
		}
		u.start = end - took
	}
	if u.start > u.end {
		return nil // nobody can say when it ran
	}
	if c := row.Claude; c != nil {
		if c.Mode != "blocking" && c.Mode != "background" {
			return l.fault("tool.claude.execution_mode", "got %q, want blocking or background", c.Mode)
		}
		u.source, u.consumer, u.child, u.background = c.Source, c.Consumer, c.Child, c.Mode == "background"
	}
	rec.uses = append(rec.uses, u)
	return nil
}

// sort puts the calls in the order of their arrival. Of a session that has several in one
// millisecond, as before an engine that answers at once, rows stand in the order in which
// calls have ended, and times that are rounded do not tell.
func (rec *recording) sort() {
	for i := range rec.calls {
		rec.calls[i].row = i
	}
	slices.SortFunc(rec.calls, func(a, b call) int {
		return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end), cmp.Compare(a.ID, b.ID))
	})
	for from, to := 0, 0; from < len(rec.calls); from = to {
		for to = from + 1; to < len(rec.calls) && rec.calls[to].start == rec.calls[from].start; to++ {
		}
		if to == from+1 {
			continue
		}
		places, calls := map[string][]int{}, map[string][]call{}
		for i, c := range rec.calls[from:to] {
			places[c.Session], calls[c.Session] = append(places[c.Session], from+i), append(calls[c.Session], c)
		}
		delete(places, "")
		for session, at := range places {
			of := calls[session]
			slices.SortFunc(of, func(a, b call) int { return cmp.Compare(a.row, b.row) })
			for k, i := range at {
				rec.calls[i] = of[k]
			}
		}
	}
}

// lower makes requests of the recording, in the order of their arrival. The
// first one arrives at 0.
func (rec *recording) lower(o *ReadOptions) ([]Request, error) {
	if o.Strict && rec.agents > 0 && rec.agents < len(rec.calls) {
		return nil, fmt.Errorf("%d of %d requests have an agent context and the others have none", rec.agents, len(rec.calls))
	}
	rec.sort()
	requests := make([]Request, len(rec.calls))
	if rec.agents > 0 {
		if err := rec.join(); err != nil {
			return nil, err
		}
		rec.repeat()
	}
	for i, c := range rec.calls {
		requests[i] = c.Request
		requests[i].At = time.Duration(c.start-rec.calls[0].start) * time.Millisecond
	}
	return requests, Check(requests)
}
