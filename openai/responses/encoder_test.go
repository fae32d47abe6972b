package responses_test

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai/responses"
)

func TestIDs(t *testing.T) {
	seen := map[string]bool{}
	for range 100 {
		id := responses.NewID()
		if seen[id] || !regexp.MustCompile(`^resp_[0-9a-f]{32}$`).MatchString(id) {
			t.Fatalf("id %q", id)
		}
		seen[id] = true
	}
	for _, id := range []string{"", "msg", "msg_", "msg_0011", "msg_00112233445566778899aabbccddeeff"} {
		if of, ok := responses.ResponseOf(id); ok {
			t.Errorf("item %q is of response %q", id, of)
		}
	}
	// Every item has an id of its own, however many there are.
	var many []block
	for range 300 {
		many = append(many, words("a"))
	}
	enc := decode(t, "", responses.Options{}).Encoder(header)
	for _, e := range answer(chat.FinishStop, many...) {
		enc.AppendEvent(nil, e)
	}
	ids := map[string]bool{}
	for _, item := range enc.Items() {
		if of, ok := responses.ResponseOf(item.ID); !ok || of != header.ID || ids[item.ID] {
			t.Errorf("item %s is of response %s", item.ID, of)
		}
		ids[item.ID] = true
	}
	if len(ids) != 300 {
		t.Errorf("%d items", len(ids))
	}
}

// objectOf returns the response as it is.
func objectOf(t *testing.T, enc *responses.Encoder) (o object) {
	t.Helper()
	if err := json.Unmarshal(enc.AppendResponse(nil), &o); err != nil {
		t.Fatal(err)
	}
	if o["status"] != string(enc.Status()) {
		t.Errorf("status %v is shown as %v", enc.Status(), o["status"])
	}
	return o
}

// TestLifeInTheBackground goes through what a client sees who asks again and
// again.
func TestLifeInTheBackground(t *testing.T) {
	enc := decode(t, `"background":true`, responses.Options{}).Encoder(header)
	if o := objectOf(t, enc); o["status"] != "queued" || o["background"] != true || o["completed_at"] != nil {
		t.Errorf("at first %v", o)
	}
	events := answer(chat.FinishStop, words("a", "b"))
	for _, e := range events[:3] {
		enc.AppendEvent(nil, e)
	}
	o := objectOf(t, enc)
	if item := o["output"].([]any)[0].(object); o["status"] != "in_progress" || item["status"] != "in_progress" || textOf(item) != "a" {
		t.Errorf("later %v", o)
	}
	for _, e := range events[3:] {
		enc.AppendEvent(nil, e)
	}
	enc.Complete(ended)
	if o := objectOf(t, enc); o["status"] != "completed" || o["completed_at"] != float64(ended) {
		t.Errorf("at last %v", o)
	}
}

func TestCancelled(t *testing.T) {
	enc := decode(t, "", responses.Options{}).Encoder(header)
	for _, e := range answer(chat.FinishStop, thought("t"), words("a", "b"))[:6] {
		enc.AppendEvent(nil, e)
	}
	enc.Cancel()
	o := objectOf(t, enc)
	items := o["output"].([]any)
	if o["status"] != "cancelled" || o["error"] != nil || len(items) != 2 || items[0].(object)["status"] != "completed" || items[1].(object)["status"] != "incomplete" {
		t.Errorf("got %v", o)
	}
}

// TestEndWithoutFinish holds that a stream which ends without saying so has
// failed: it never looks complete.
func TestEndWithoutFinish(t *testing.T) {
	for n := range len(answer(chat.FinishStop, words("a"))) {
		enc := decode(t, "", responses.Options{}).Encoder(header)
		o := mustAccumulate(t, stream(enc, answer(chat.FinishStop, words("a"))[:n], nil))
		if o["status"] != "failed" || o["error"].(object)["code"] != "server_error" {
			t.Errorf("after %d events: %v", n, o)
		}
	}
}

// TestBrokenGrammar holds that blocks which are not closed are closed before
// anything else begins.
func TestBrokenGrammar(t *testing.T) {
	events := []chat.Event{
		start(1),
		{Kind: chat.TextDelta, Text: "lost"},
		{Kind: chat.BlockStop},
		{Kind: chat.BlockStart, BlockKind: chat.Text},
		{Kind: chat.TextDelta, Text: "a"},
		{Kind: chat.BlockStart, Index: 1, BlockKind: chat.ToolCall},
		{Kind: chat.ArgsDelta, Index: 1, Text: "{}"},
		{Kind: chat.BlockStop, Index: 1},
		{Kind: chat.ArgsDelta, Index: 1, Text: "{}"},
		{Kind: chat.BlockStop, Index: 1},
		{Kind: chat.BlockStart, Index: 2, BlockKind: chat.Text},
		finish(chat.FinishStop, 1),
	}
	items := mustAccumulate(t, stream(decode(t, "", responses.Options{}).Encoder(header), events, nil))["output"].([]any)
	if len(items) != 3 || textOf(items[0].(object)) != "a" || textOf(items[1].(object)) != "{}" || textOf(items[2].(object)) != "" {
		t.Errorf("got %v", items)
	}
}

// TestEndIsOnOneLine holds that nothing which a client sent breaks the framing.
func TestEndIsOnOneLine(t *testing.T) {
	c, err := responses.Decode([]byte("{\"model\":\"m\",\"input\":\"a\",\"instructions\":\"a\\r\\nb\u2029\",\"metadata\":\r\n{\"k\":\"\u0085\"},\"tools\":[\n{\"type\":\"custom\",\n\"name\":\"c\"}\n]}"), responses.Options{})
	if err == nil {
		err = c.Resolve(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	o := mustAccumulate(t, stream(c.Encoder(header), answer(chat.FinishStop), nil))
	if o["instructions"] != "a\r\nb\u2029" || o["metadata"].(object)["k"] != "\u0085" || !strings.Contains(string(c.Encoder(header).AppendResponse(nil)), `{"type":"custom", "name":"c"}`) {
		t.Errorf("got %v", o)
	}
}

// TestOpeningFromAnywhere holds that the opening may be asked for while events
// come, as a timer does, and is always the same.
func TestOpeningFromAnywhere(t *testing.T) {
	call := decode(t, "", responses.Options{})
	want := string(call.Encoder(header).AppendOpening(nil))
	enc, got := call.Encoder(header), make(chan string)
	go func() { got <- string(enc.AppendOpening(nil)) }()
	for _, e := range answer(chat.FinishStop, words("a", "b"), thought("c")) {
		enc.AppendEvent(nil, e)
	}
	enc.Complete(ended)
	if s := <-got; s != want {
		t.Errorf("got %s\nwant %s", s, want)
	}
}
