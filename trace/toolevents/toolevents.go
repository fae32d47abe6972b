// Package toolevents takes what harnesses tell of the tools that they run: events
// over a ZMQ socket in MessagePack, or over HTTP in JSON, become records of the trace.
//
// The one idea: there is one form inside. MessagePack is rewritten as JSON, and both
// forms that are in use, a flat one and the whole record, are judged by one function,
// so that what is refused on one way is refused on the other, for the same reason.
package toolevents

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/trace"
)

// Bounds of what is taken.
const (
	// MaxEvent is the size of one event, in bytes.
	MaxEvent = 64 << 10
	// MaxEvents is how many come in one body, fewer than wait for a sink by default.
	MaxEvents = 1000
	// maxID is the size of names of chains, in bytes, as it is for requests.
	maxID = 256
)

// event is both forms. The flat one has ids at its top; the whole record has them in
// agent_context.
type event struct {
	Schema    string  `json:"schema"`
	EventType string  `json:"event_type"`
	EventTime *uint64 `json:"event_time_unix_ms"`
	Source    string  `json:"event_source"`

	SessionID       string              `json:"session_id"`
	ParentSessionID string              `json:"parent_session_id"`
	Agent           *trace.AgentContext `json:"agent_context"`

	Tool    *trace.Tool    `json:"tool"`
	Request jsontext.Value `json:"request"`
	Payload jsontext.Value `json:"payload"`
}

// Decode reads one event in JSON. The error says what is wrong with it, and nothing of
// what is in it but the names of its members. Members that are not known are passed over.
func Decode(text []byte) (*trace.Record, error) {
	if len(text) > MaxEvent {
		return nil, fmt.Errorf("an event of %d bytes; want at most %d", len(text), MaxEvent)
	}
	if jsontext.Value(text).Kind() != '{' {
		return nil, errors.New("an event is an object")
	}
	var e event
	if err := json.Unmarshal(text, &e); err != nil {
		return nil, fmt.Errorf("read the event: %w", err)
	}
	return e.record()
}

// record checks an event, and returns it as a record of its own.
func (e *event) record() (*trace.Record, error) {
	r := &trace.Record{Schema: trace.Schema, EventType: e.EventType, Source: trace.SourceHarness, Tool: e.Tool}
	switch {
	case e.Schema != trace.Schema && e.Schema != trace.LegacySchema:
		return nil, fmt.Errorf("schema: want %s", trace.Schema)
	case !r.IsTool():
		return nil, errors.New("event_type: want tool_start, tool_end or tool_error")
	case e.Source != "" && e.Source != trace.SourceHarness:
		return nil, errors.New("event_source: want harness, or nothing")
	case e.EventTime == nil:
		return nil, errors.New("event_time_unix_ms: want a whole number")
	case given(e.Request) || given(e.Payload):
		return nil, errors.New("an event of a tool has no request and no payload")
	}
	r.EventTime = *e.EventTime
	var err error
	if r.Agent, err = e.agent(); err != nil {
		return nil, err
	}
	if err := checkTool(r.Tool); err != nil {
		return nil, err
	}
	return r, nil
}

func given(v jsontext.Value) bool { return len(v) > 0 && v.Kind() != 'n' }

// agent returns which chain the event is of. Names of trajectories stay what they are
// beside the name of a run; alone they are an older way to name a chain.
func (e *event) agent() (*trace.AgentContext, error) {
	a := e.Agent
	if a == nil {
		a = &trace.AgentContext{SessionID: e.SessionID, ParentSessionID: e.ParentSessionID}
	}
	a.KVHints = nil // is the server's own
	for _, id := range []*string{&a.SessionTypeID, &a.SessionID, &a.ParentSessionID, &a.TrajectoryID, &a.ParentTrajectoryID} {
		if *id = strings.TrimSpace(*id); len(*id) > maxID {
			return nil, fmt.Errorf("the name of a session has %d bytes; want at most %d", len(*id), maxID)
		}
	}
	if a.SessionID == "" && a.TrajectoryID != "" {
		a.SessionID, a.ParentSessionID = a.TrajectoryID, a.ParentTrajectoryID
		a.SessionFinal = cmp.Or(a.SessionFinal, a.TrajectoryFinal)
		a.SessionTypeID, a.TrajectoryID, a.ParentTrajectoryID, a.TrajectoryFinal = "", "", "", nil
	}
	if a.SessionID == "" {
		return nil, errors.New("session_id: want the name of the session, or trajectory, that the tool was used in")
	}
	if a.ParentTrajectoryID == a.TrajectoryID {
		a.ParentTrajectoryID = ""
	}
	if a.ParentSessionID == a.SessionID {
		a.ParentSessionID = ""
	}
	return a, nil
}

// statuses are what producers say, and what records do.
var statuses = map[string]string{
	"": "", "running": "running",
	"succeeded": "succeeded", "ok": "succeeded", "success": "succeeded",
	"error": "error", "failed": "error",
	"cancelled": "cancelled", "canceled": "cancelled", "timeout": "cancelled",
}

func checkTool(t *trace.Tool) error {
	if t == nil {
		return errors.New("tool: want what was used")
	}
	if strings.TrimSpace(t.ID) == "" {
		return errors.New("tool.tool_call_id: want the id of the call")
	}
	if strings.TrimSpace(t.Class) == "" {
		return errors.New("tool.tool_class: want the name or the kind of the tool")
	}
	status, ok := statuses[strings.ToLower(t.Status)]
	if !ok {
		return errors.New("tool.status: want running, succeeded, error or cancelled")
	}
	t.Status = status
	if d := t.Duration; d != nil && (math.IsNaN(*d) || math.IsInf(*d, 0)) {
		return errors.New("tool.duration_ms: want a finite number")
	}
	return nil
}
