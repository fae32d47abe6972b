package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai/responses"
)

// What a client asks for stands in the response, which is the last event of a stream
// and no other.
func TestResponsesCarry(t *testing.T) {
	c, err := responses.Decode([]byte(`{"model":"m","input":"Hi","nvext":{"extra_fields":["worker_id","engine_data","completion_token_ids"]}}`), responses.Options{})
	if err == nil {
		err = c.Resolve(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	e := c.Encoder(responses.Header{ID: responses.NewID(), Model: "m"})
	stream := e.AppendOpening(nil)
	for _, event := range []chat.Event{
		{Kind: chat.Start},
		{Kind: chat.Aside, Reason: "worker_id", Text: `1`},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "Yes", IDs: []uint32{1, 2}},
		{Kind: chat.Aside, Reason: "engine_data", Text: `{"a":1}`},
		{Kind: chat.BlockStop},
		{Kind: chat.Finished, IDs: []uint32{3}, Finish: chat.Finish{Reason: chat.FinishStop}},
	} {
		stream = e.AppendEvent(stream, event)
	}
	stream = e.AppendEnd(stream, 1)
	const want = `{"worker_id":1,"engine_data":{"a":1},"completion_token_ids":[1,2,3]}`
	_, rest, _ := strings.Cut(string(stream), "event: response.completed\ndata: ")
	data, _, _ := strings.Cut(rest, "\n\n")
	var last struct {
		Response struct {
			Ext json.RawMessage `json:"nvext"`
		} `json:"response"`
	}
	if err := json.Unmarshal([]byte(data), &last); err != nil || string(last.Response.Ext) != want {
		t.Errorf("the last event has %s, want %s: %v", last.Response.Ext, want, err)
	}
	if n := strings.Count(string(stream), `"nvext"`); n != 1 {
		t.Errorf("%d events have the member:\n%s", n, stream)
	}
	if whole := e.AppendResponse(nil); !json.Valid(whole) || !strings.Contains(string(whole), `"nvext":`+want) {
		t.Errorf("the response is %s", whole)
	}
}
