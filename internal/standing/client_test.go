package standing_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
)

// object is JSON as a client sees it.
type object = map[string]any

// post sends a request and returns status and body.
func (h *house) post(t testing.TB, path string, body object) (int, []byte) {
	t.Helper()
	raw, err := json.Marshal(body)
	check(t, err)
	resp, err := http.Post(h.url+path, "application/json", bytes.NewReader(raw))
	check(t, err)
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	check(t, err)
	return resp.StatusCode, answer
}

// unary asks for an answer in one piece.
func (h *house) unary(t testing.TB, path string, body object) object {
	t.Helper()
	status, raw := h.post(t, path, body)
	if status != http.StatusOK {
		t.Fatalf("%s: status %d: %s", path, status, raw)
	}
	var answer object
	check(t, json.Unmarshal(raw, &answer))
	return answer
}

// transcript is what a stream brought.
type transcript struct {
	chunks []object
	fault  object // the error frame, if any
	done   bool   // [DONE] came, last
}

func (h *house) stream(t testing.TB, path string, body object) transcript {
	t.Helper()
	body = maps.Clone(body)
	body["stream"] = true
	if body["stream_options"] == nil {
		body["stream_options"] = object{"include_usage": true}
	}
	raw, err := json.Marshal(body)
	check(t, err)
	resp, err := http.Post(h.url+path, "application/json", bytes.NewReader(raw))
	check(t, err)
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		t.Fatalf("%s: status %d: %s", path, resp.StatusCode, b)
	}
	return readStream(t, resp.Body)
}

func readStream(t testing.TB, r io.Reader) (s transcript) {
	t.Helper()
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 8<<20)
	for lines.Scan() {
		data, ok := strings.CutPrefix(lines.Text(), "data: ")
		switch {
		case !ok:
			continue
		case s.done:
			t.Fatalf("data behind the end: %s", data)
		case data == "[DONE]":
			s.done = true
			continue
		}
		var chunk object
		check(t, json.Unmarshal([]byte(data), &chunk))
		if fault, ok := chunk["error"].(object); ok {
			s.fault = fault
			continue
		}
		if s.fault != nil {
			t.Fatalf("data behind an error: %s", data)
		}
		s.chunks = append(s.chunks, chunk)
	}
	check(t, lines.Err())
	return s
}

// folded puts a stream together as SDKs do, without looking at how the server
// does it.
func (s transcript) folded(t testing.TB) object {
	t.Helper()
	if s.fault != nil || !s.done {
		t.Fatalf("stream ended with %v, done %v", s.fault, s.done)
	}
	var usage any
	choices := map[int]object{}
	finished := map[int]bool{}
	for i, chunk := range s.chunks {
		if u := chunk["usage"]; u != nil {
			if usage = u; i != len(s.chunks)-1 {
				t.Error("usage is not last")
			}
		}
		for _, c := range chunk["choices"].([]any) {
			c := c.(object)
			index := int(c["index"].(float64))
			if finished[index] {
				t.Fatalf("choice %d goes on behind its finish: %v", index, c)
			}
			choice := choices[index]
			if choice == nil {
				choice = object{"index": c["index"], "finish_reason": nil, "logprobs": nil}
				if _, ok := c["text"]; ok {
					choice["text"] = ""
				} else {
					choice["message"] = object{"content": nil}
				}
				choices[index] = choice
			}
			merge(choice, c)
			if c["finish_reason"] != nil {
				finished[index] = true
			}
		}
	}
	answer := object{"usage": usage}
	var list []any
	for i := range len(choices) {
		if !finished[i] {
			t.Fatalf("choice %d has no finish", i)
		}
		list = append(list, choices[i])
	}
	answer["choices"] = list
	return answer
}

// merge adds a chunk's choice to what is there.
func merge(choice, c object) {
	if text, ok := c["text"].(string); ok {
		choice["text"] = choice["text"].(string) + text
	}
	if delta, ok := c["delta"].(object); ok {
		message := choice["message"].(object)
		for key, v := range delta {
			switch v := v.(type) {
			case string:
				if key == "role" {
					message[key] = v
					continue
				}
				before, _ := message[key].(string)
				message[key] = before + v
			case []any: // tool calls
				for _, call := range v {
					mergeCall(message, call.(object))
				}
			}
		}
	}
	if c["finish_reason"] != nil {
		choice["finish_reason"] = c["finish_reason"]
	}
	if lp, ok := c["logprobs"].(object); ok {
		into, ok := choice["logprobs"].(object)
		if !ok {
			into = object{}
			choice["logprobs"] = into
		}
		for key, v := range lp {
			if list, ok := v.([]any); ok {
				before, _ := into[key].([]any)
				into[key] = append(before, list...)
			} else if _, ok := into[key]; !ok {
				into[key] = v
			}
		}
	}
}

func mergeCall(message, call object) {
	calls, _ := message["tool_calls"].([]any)
	index := int(call["index"].(float64))
	for len(calls) <= index {
		calls = append(calls, object{"function": object{"arguments": ""}})
	}
	into := calls[index].(object)
	for _, key := range []string{"id", "type"} {
		if v, ok := call[key]; ok {
			into[key] = v
		}
	}
	f, _ := call["function"].(object)
	function := into["function"].(object)
	if v, ok := f["name"]; ok {
		function["name"] = v
	}
	if v, ok := f["arguments"].(string); ok {
		function["arguments"] = function["arguments"].(string) + v
	}
	message["tool_calls"] = calls
}

// comparable strips what may differ between two answers to one request: names
// and times, and the random ids of calls.
func comparable(answer object) string {
	out := object{"usage": answer["usage"]}
	var list []any
	for _, c := range answer["choices"].([]any) {
		c := maps.Clone(c.(object))
		if m, ok := c["message"].(object); ok {
			m = maps.Clone(m)
			var calls []any
			for _, call := range asList(m["tool_calls"]) {
				call := maps.Clone(call.(object))
				if id, _ := call["id"].(string); len(id) < 10 {
					call["id"] = fmt.Sprintf("bad id %q", id)
				} else {
					call["id"] = "id"
				}
				delete(call, "index")
				calls = append(calls, call)
			}
			if calls != nil {
				m["tool_calls"] = calls
			}
			for k, v := range m {
				if v == nil && k != "content" {
					delete(m, k)
				}
			}
			c["message"] = m
		}
		list = append(list, c)
	}
	out["choices"] = list
	raw, err := json.MarshalIndent(out, "", " ")
	if err != nil {
		return err.Error()
	}
	return string(raw)
}

func asList(v any) []any {
	list, _ := v.([]any)
	return list
}
