package anthropic_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/anthropic"
	"github.com/dynago/dynago/chat"
)

// What a client asks for goes with the end of a message, or with the whole of it, and
// nowhere else; who asks for nothing sees the API as it is.
func TestMessagesCarry(t *testing.T) {
	id := uint32(5)
	events := []chat.Event{
		{Kind: chat.Start, Usage: chat.Usage{Prompt: 3}},
		{Kind: chat.Aside, Reason: "worker_id", Text: `{"decode_worker_id":7}`},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "Yes", IDs: []uint32{1, 2}},
		{Kind: chat.Aside, Reason: "worker_id", Text: `{"decode_worker_id":8}`},
		{Kind: chat.BlockStop, IDs: []uint32{3}},
		{Kind: chat.Aside, Reason: "timing", Text: `{"ttft_ms":1}`},
		{Kind: chat.Finished, IDs: []uint32{id}, Finish: chat.Finish{Reason: chat.FinishStopSequence, StopID: &id}, Usage: chat.Usage{Prompt: 3, Output: 4}},
	}
	for ext, want := range map[string]string{
		`{}`: ``,
		`{"extra_fields":["worker_id","timing","completion_token_ids","stop_reason"]}`: `{"worker_id":{"decode_worker_id":8},"timing":{"ttft_ms":1},"stop_reason":5,"completion_token_ids":[1,2,3,5]}`,
	} {
		told := events
		if want == "" {
			told = nil
			for _, e := range events {
				if e.Kind != chat.Aside {
					told = append(told, e)
				}
			}
		}
		c, err := anthropic.Decode([]byte(`{"model":"m","max_tokens":9,"messages":[{"role":"user","content":"a"}],"nvext":`+ext+`}`), anthropic.Dialect{}, anthropic.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e := c.Encoder(anthropic.Header{ID: "id", Model: "m"})
		var stream []byte
		for _, event := range told {
			stream = e.AppendEvent(stream, event)
		}
		stream = e.AppendEnd(stream)
		if want == "" && strings.Contains(string(stream), "nvext") || strings.Count(string(stream), `"nvext"`) > 1 {
			t.Errorf("%s: %s", ext, stream)
		}
		_, rest, ok := strings.Cut(string(stream), "event: message_delta\ndata: ")
		data, _, ends := strings.Cut(rest, "\n\n")
		if got := member(t, data); !ok || !ends || got != want {
			t.Errorf("%s: the end of the stream has %s, want %s", ext, got, want)
		}

		whole := c.Encoder(anthropic.Header{ID: "id", Model: "m"})
		answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
			for _, event := range told {
				whole.Note(event)
				if !yield(event, nil) {
					return
				}
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		if got := member(t, string(whole.AppendAnswer(nil, answers))); got != want {
			t.Errorf("%s: the message has %s, want %s", ext, got, want)
		}
	}
}

// member returns the member nvext of an object.
func member(t *testing.T, text string) string {
	t.Helper()
	var object struct {
		Ext json.RawMessage `json:"nvext"`
	}
	if err := json.Unmarshal([]byte(text), &object); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return string(object.Ext)
}
