package frontend

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"

	"github.com/dynago/dynago/openai"
	"github.com/dynago/dynago/trace/toolevents"
)

// toolEventsPath is where harnesses tell what tools did between two requests.
const toolEventsPath = "/v1/agent/tool_events"

// maxToolEvents is the size of a body of them, in bytes.
const maxToolEvents = 4 << 20

// toolRoutes are there where tools are recorded.
func (s *Server) toolRoutes() []route {
	if s.Tracing == nil || s.Tracing.Tools == nil {
		return nil
	}
	return []route{{"POST", "", toolEventsPath, s.toolEvents}}
}

// toolEvents answers POST /v1/agent/tool_events. It waits for no sink.
func (s *Server) toolEvents(w http.ResponseWriter, r *http.Request) {
	body, err := s.toolBody(w, r)
	if err != nil {
		s.refuse(w, err)
		return
	}
	b, err := s.Tracing.Tools.Body(body)
	switch {
	case errors.Is(err, toolevents.ErrTooMany):
		s.refuse(w, refusal(http.StatusRequestEntityTooLarge, "%v", err))
	case err != nil:
		s.refuse(w, refusal(http.StatusBadRequest, "%v", err))
	default:
		s.respond(w, http.StatusAccepted, fmt.Appendf(nil, `{"accepted":%d,"dropped":%d}`, len(b.Accepted), b.Dropped)) //nolint:errcheck // the client has gone, and nothing is left to do
	}
}

// lineTypes are what JSON on lines is called.
var lineTypes = []string{"application/x-ndjson", "application/ndjson", "application/jsonl", "application/x-jsonl", "application/jsonlines", "application/x-jsonlines"}

// toolBody reads a body of events.
func (s *Server) toolBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	kind := r.Header.Get("Content-Type")
	if media, _, err := mime.ParseMediaType(kind); !isJSON(kind) && (err != nil || !slices.Contains(lineTypes, media)) {
		return nil, refusal(http.StatusUnsupportedMediaType, "Expected request with Content-Type application/json or application/x-ndjson")
	}
	tooLarge := refusal(http.StatusRequestEntityTooLarge, "Request body exceeds the limit of %d MB for tool events", maxToolEvents>>20)
	// What is a little too long is read to its end all the same: who is still writing would
	// see a broken connection instead of the answer.
	body, err := s.payload(w, r)
	if err == nil && len(body) > maxToolEvents {
		err = tooLarge
	}
	return body, err
}

// toolDescription tells of the route.
func toolDescription() openai.Description {
	event := schemaRef("ToolEvent")
	return openai.Description{
		Operations: []openai.Operation{{
			Method: "post", Path: toolEventsPath, ID: "toolEvents", Summary: "Record what tools did between requests: one event, an array of events, or events on lines",
			Body: json.RawMessage(`{"oneOf":[` + event + `,{"type":"array","maxItems":` + fmt.Sprint(toolevents.MaxEvents) + `,"items":` + event + `}]}`), Answer: schemaRef("ToolEvents"), Status: http.StatusAccepted,
			Refusals: map[int]string{
				http.StatusBadRequest: "The body is not JSON, nor JSON on lines", http.StatusRequestEntityTooLarge: "Too many events, or too large",
				http.StatusUnsupportedMediaType: "The body is neither JSON nor JSON on lines",
			},
		}},
		Schemas: map[string]string{
			"ToolEvents": `{"type":"object","required":["accepted","dropped"],"properties":{"accepted":{"type":"integer"},"dropped":{"type":"integer","description":"Events that are wrong; the log says why."}}}`,
			"ToolEvent": `{"type":"object","description":"session_id, or agent_context, names the chain of turns.","required":["schema","event_type","event_time_unix_ms","tool"],"properties":{` +
				`"schema":{"enum":["dynamo.request.trace.v1","dynamo.agent.trace.v1"]},` +
				`"event_type":{"enum":["tool_start","tool_end","tool_error"]},` +
				`"event_time_unix_ms":{"type":"integer","minimum":0},` +
				`"event_source":{"const":"harness"},` +
				`"session_id":{"type":"string","maxLength":256},"parent_session_id":{"type":"string","maxLength":256},` +
				`"agent_context":{"type":"object","properties":{"session_id":{"type":"string","maxLength":256},"parent_session_id":{"type":"string","maxLength":256},"trajectory_id":{"type":"string","maxLength":256},"parent_trajectory_id":{"type":"string","maxLength":256},"session_type_id":{"type":"string","maxLength":256}}},` +
				`"tool":{"type":"object","required":["tool_call_id","tool_class"],"properties":{"tool_call_id":{"type":"string"},"tool_class":{"type":"string","description":"The name or the kind of the tool."},` +
				`"started_at_unix_ms":{"type":"integer","minimum":0},"ended_at_unix_ms":{"type":"integer","minimum":0},"duration_ms":{"type":"number"},` +
				`"status":{"enum":["running","succeeded","ok","success","error","failed","cancelled","canceled","timeout"]},` +
				`"output_tokens":{"type":"integer","minimum":0},"output_bytes":{"type":"integer","minimum":0},"tool_name_hash":{"type":"string"},"error_type":{"type":"string"}}}}}`,
		},
	}
}
