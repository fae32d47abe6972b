//go:build e2e

package e2e_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"image"
	"image/png"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"
)

// The cases of the Open Responses compliance suite, by their names there.

type object = map[string]any

func message(role string, content any) object {
	return object{"type": "message", "role": role, "content": content}
}

var weatherTool = object{
	"type": "function", "name": "get_weather", "description": "Tells the weather of a place.",
	"parameters": object{"type": "object", "properties": object{"location": object{"type": "string"}}, "required": []string{"location"}},
}

func picture32(t testing.TB) string {
	t.Helper()
	var b bytes.Buffer
	if err := png.Encode(&b, image.NewGray(image.Rect(0, 0, 32, 32))); err != nil {
		t.Fatal(err)
	}
	return "data:image/png;base64," + base64.StdEncoding.EncodeToString(b.Bytes())
}

func TestOpenResponses(t *testing.T) {
	s := serve(t, "--speedup-ratio", "0", "--mock-script", script(t), "--image-placeholder")
	for name, tc := range map[string]struct {
		body object
		want string // type of an item of the output
	}{
		"basic-response": {body: object{"input": []object{message("user", "Say hello in three words.")}}},
		"system-prompt":  {body: object{"input": []object{message("system", "Speak as a pirate."), message("user", "Say hello.")}}},
		"multi-turn": {body: object{"input": []object{
			message("user", "My name is Alice."), message("assistant", "Hello Alice!"), message("user", "What is my name?"),
		}}},
		"assistant-phase": {body: object{"input": []object{
			message("user", "Fix it."),
			{"type": "message", "role": "assistant", "content": "I look first.", "phase": "commentary"},
			{"type": "message", "role": "assistant", "content": []object{{"type": "output_text", "text": "Done."}}, "phase": "final_answer"},
			message("user", "Thanks. What was it?"),
		}}},
		"tool-calling": {body: object{"input": []object{message("user", "What is the weather in Rome?")}, "tools": []object{weatherTool}}, want: "function_call"},
		"image-input": {body: object{"input": []object{message("user", []object{
			{"type": "input_text", "text": "What is in this picture?"}, {"type": "input_image", "image_url": picture32(t)},
		})}}},
	} {
		t.Run(name, func(t *testing.T) {
			s.respond(t, tc.body).check(t, tc.want)
		})
		// The suite streams two of them; all hold.
		t.Run(name+", streaming", func(t *testing.T) {
			s.respondStreaming(t, tc.body).check(t, tc.want)
		})
	}

	t.Run("compact-response", func(t *testing.T) {
		status, body := s.send(t, "/v1/responses/compact", object{
			"model": s.model, "prompt_cache_key": "a-session",
			"input": []object{message("user", "My name is Alice."), message("assistant", "Hello Alice!")},
		})
		var v any
		if err := json.Unmarshal(body, &v); err != nil || status != http.StatusOK {
			t.Fatalf("status %d, %v: %s", status, err, body)
		}
		fits(t, "compaction", "compaction resource", v)
		if v.(object)["object"] != "response.compaction" || !slices.Contains(types(v.(object)["output"]), "compaction") {
			t.Errorf("no compaction: %s", body)
		}
	})
	t.Run("compact-missing-model", func(t *testing.T) {
		status, body := s.send(t, "/v1/responses/compact", object{"input": "hello"})
		if status != http.StatusBadRequest && status != http.StatusUnprocessableEntity {
			t.Errorf("status %d: %s", status, body)
		}
	})
}

func TestOpenResponsesWebSocket(t *testing.T) {
	s := serve(t, "--speedup-ratio", "0", "--mock-script", script(t))
	question := object{"input": []object{message("user", "What is the weather in Rome?")}, "tools": []object{weatherTool}, "store": false}
	// follow is what goes on from the call that the question leads to.
	follow := func(t *testing.T, r response) object {
		t.Helper()
		return object{
			"previous_response_id": r["id"], "tools": []object{weatherTool}, "store": false,
			"input": []object{{"type": "function_call_output", "call_id": r.item(t, "function_call")["call_id"], "output": "21 degrees"}},
		}
	}
	answered := func(t *testing.T, r response) {
		t.Helper()
		r.check(t, "message")
		if text := r.text(); text != "It says: 21 degrees" {
			t.Errorf("the answer is %q: the context is lost", text)
		}
	}

	t.Run("websocket-response", func(t *testing.T) {
		s.dial(t).create(t, object{"input": []object{message("user", "hello")}}).check(t, "message")
	})
	t.Run("websocket-sequential-responses", func(t *testing.T) {
		c := s.dial(t)
		first := c.create(t, object{"input": []object{message("user", "hello")}}).check(t, "message")
		if second := c.create(t, object{"input": []object{message("user", "hello")}}).check(t, "message"); second["id"] == first["id"] {
			t.Errorf("both responses are %v", first["id"])
		}
	})
	t.Run("websocket-continuation", func(t *testing.T) {
		c := s.dial(t)
		answered(t, c.create(t, follow(t, c.create(t, question).check(t, "function_call"))))
	})
	t.Run("websocket-reconnect-store-false-recovery", func(t *testing.T) {
		first := s.dial(t).create(t, question).check(t, "function_call")
		c := s.dial(t)
		c.fails(t, follow(t, first), "previous_response_not_found")
		whole := follow(t, first)
		delete(whole, "previous_response_id")
		whole["input"] = append([]object{message("user", "What is the weather in Rome?"), first.item(t, "function_call")}, whole["input"].([]object)...)
		answered(t, c.create(t, whole))
	})
	t.Run("websocket-previous-response-not-found", func(t *testing.T) {
		s.dial(t).fails(t, object{"previous_response_id": "resp_none", "input": "hello"}, "previous_response_not_found")
	})
	t.Run("websocket-failed-continuation-evicts-cache", func(t *testing.T) {
		c := s.dial(t)
		first := c.create(t, question).check(t, "function_call")
		bad := follow(t, first)
		bad["temperature"] = 9
		c.fails(t, bad, "")
		c.fails(t, follow(t, first), "previous_response_not_found")
	})
	t.Run("websocket-compact-new-chain", func(t *testing.T) {
		status, body := s.send(t, "/v1/responses/compact", object{"model": s.model, "input": []object{message("user", "My name is Alice."), message("assistant", "Hello!")}})
		var compact struct{ Output []object }
		if err := json.Unmarshal(body, &compact); err != nil || status != http.StatusOK {
			t.Fatalf("status %d, %v: %s", status, err, body)
		}
		c := s.dial(t)
		first := c.create(t, object{"input": append(compact.Output, message("user", "hello")), "store": false}).check(t, "message")
		c.create(t, object{"previous_response_id": first["id"], "input": "hello", "store": false}).check(t, "message")
	})
}

// response is a response object.
type response object

// check wants a response that is completed and has the item.
func (r response) check(t testing.TB, item string) response {
	t.Helper()
	fits(t, "response", "response", object(r))
	if r["status"] != "completed" || len(types(r["output"])) == 0 {
		t.Errorf("status %v with output %v", r["status"], r["output"])
	}
	if item != "" && !slices.Contains(types(r["output"]), item) {
		t.Errorf("output %v has no %s", types(r["output"]), item)
	}
	return r
}

// item returns the first item of a type.
func (r response) item(t testing.TB, kind string) object {
	t.Helper()
	list, _ := r["output"].([]any)
	for _, v := range list {
		if o, ok := v.(object); ok && o["type"] == kind {
			return o
		}
	}
	t.Fatalf("no %s in %v", kind, r["output"])
	return nil
}

// text joins the text of the messages.
func (r response) text() (text string) {
	list, _ := r["output"].([]any)
	for _, v := range list {
		parts, _ := v.(object)["content"].([]any)
		for _, p := range parts {
			if s, ok := p.(object)["text"].(string); ok && v.(object)["type"] == "message" {
				text += s
			}
		}
	}
	return text
}

func types(v any) (list []string) {
	items, _ := v.([]any)
	for _, item := range items {
		if o, ok := item.(object); ok {
			if s, ok := o["type"].(string); ok {
				list = append(list, s)
			}
		}
	}
	return list
}

// send posts a body and returns the answer.
func (s *server) send(t testing.TB, path string, body object) (status int, answer []byte) {
	t.Helper()
	text, err := json.Marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+path, bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if answer, err = io.ReadAll(resp.Body); err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, answer
}

// asked returns a body with the model, and more.
func (s *server) asked(body, more object) object {
	all := object{"model": s.model}
	for _, o := range []object{body, more} {
		for k, v := range o {
			all[k] = v
		}
	}
	return all
}

func (s *server) respond(t testing.TB, body object) (r response) {
	t.Helper()
	status, answer := s.send(t, "/v1/responses", s.asked(body, object{"stream": false}))
	if err := json.Unmarshal(answer, &r); err != nil || status != http.StatusOK {
		t.Fatalf("status %d, %v: %s", status, err, answer)
	}
	return r
}

// respondStreaming checks each event and returns the response at the end.
func (s *server) respondStreaming(t testing.TB, body object) response {
	t.Helper()
	status, answer := s.send(t, "/v1/responses", s.asked(body, object{"stream": true}))
	frames, ended := strings.CutSuffix(string(answer), "\n\ndata: [DONE]\n\n")
	if !ended || status != http.StatusOK {
		t.Fatalf("status %d: the stream does not end with [DONE]: %s", status, answer)
	}
	var events []object
	for frame := range strings.SplitSeq(frames, "\n\n") {
		name, data, ok := strings.Cut(frame, "\ndata: ")
		var e object
		if err := json.Unmarshal([]byte(data), &e); err != nil || !ok {
			t.Fatalf("%v: %q is no event", err, frame)
		}
		if name != "event: "+e["type"].(string) {
			t.Errorf("the name of an event of type %v is %q", e["type"], name)
		}
		events = append(events, e)
	}
	return checkEvents(t, events)
}

// checkEvents checks events one by one, and that each item is a state machine: it is
// added, its parts come and are done, and it is done.
func checkEvents(t testing.TB, events []object) response {
	t.Helper()
	open, done := map[any]bool{}, map[any]bool{}
	for i, e := range events {
		fits(t, "event", "event", e)
		if e["sequence_number"] != float64(i) {
			t.Errorf("event %d has the number %v", i, e["sequence_number"])
		}
		index := e["output_index"]
		switch e["type"] {
		case "response.output_item.added":
			if len(open) > 0 || done[index] {
				t.Errorf("item %v is added while %v are open", index, open)
			}
			open[index] = true
		case "response.output_item.done":
			if !open[index] {
				t.Errorf("item %v is done, and was not added", index)
			}
			delete(open, index)
			done[index] = true
		default:
			if index != nil && !open[index] {
				t.Errorf("%v of item %v, which is not open", e["type"], index)
			}
		}
	}
	if len(events) < 3 || events[0]["type"] != "response.created" || len(open) > 0 {
		t.Fatalf("of %d events the first is %v, and at the end %v are open", len(events), events[0], open)
	}
	last, _ := events[len(events)-1]["response"].(object)
	if got, want := len(done), len(types(last["output"])); got != want {
		t.Errorf("%d items were sent, the response has %d", got, want)
	}
	return response(last)
}

// socket is a client on a WebSocket.
type socket struct {
	s    *server
	conn *websocket.Conn
}

func (s *server) dial(t testing.TB) *socket {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	conn, _, err := websocket.Dial(ctx, strings.Replace(s.url, "http", "ws", 1)+"/v1/responses", nil)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(64 << 20)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return &socket{s, conn}
}

// turn asks and reads up to the last event, or an error.
func (c *socket) turn(t testing.TB, body object) (events []object) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := wsjson.Write(ctx, c.conn, c.s.asked(body, object{"type": "response.create"})); err != nil {
		t.Fatal(err)
	}
	for {
		var e object
		if err := wsjson.Read(ctx, c.conn, &e); err != nil {
			t.Fatalf("%v after %v", err, events)
		}
		events = append(events, e)
		switch e["type"] {
		case "response.completed", "response.incomplete", "response.failed", "error":
			return events
		}
	}
}

func (c *socket) create(t testing.TB, body object) response {
	t.Helper()
	return checkEvents(t, c.turn(t, body))
}

// fails wants an error, of a code if one is given.
func (c *socket) fails(t testing.TB, body object, code string) {
	t.Helper()
	events := c.turn(t, body)
	last := events[len(events)-1]
	inner, _ := last["error"].(object)
	if last["type"] != "error" || code != "" && inner["code"] != code {
		t.Errorf("got %v, want the error %s", last, code)
	}
}
