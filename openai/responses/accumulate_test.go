package responses_test

import (
	"encoding/json"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

type object = map[string]any

// accumulate adds up a stream as clients do, by the events alone, and returns the
// response. It is strict: it knows which members every event has to have, and it
// checks that each event says what the ones before it add up to. It shares
// nothing with the encoder.
func accumulate(stream []byte) (object, error) {
	a := accumulator{open: -1}
	frames := strings.Split(strings.TrimSuffix(string(stream), "\n\n"), "\n\n")
	for i, frame := range frames {
		if i == len(frames)-1 {
			if frame != "data: [DONE]" {
				return nil, fmt.Errorf("the stream ends with %q", frame)
			}
			break
		}
		if err := a.frame(frame); err != nil {
			return nil, fmt.Errorf("event %d: %w in\n%s", i, err, frame)
		}
	}
	if !a.ended {
		return nil, fmt.Errorf("no event has ended the response")
	}
	return a.response, nil
}

type accumulator struct {
	response object
	next     int
	open     int // index of the open item, or -1
	part     bool
	ended    bool
}

// required are the members of events, items and parts, from testdata.
var required = func() (m map[string]map[string]object) {
	raw, err := os.ReadFile("testdata/members.json")
	if err == nil {
		err = json.Unmarshal(raw, &m)
	}
	if err != nil {
		panic(err)
	}
	return m
}()

// check says which member of an object is absent, or of another type than the
// table says.
func check(table, kind string, o object) error {
	members, ok := required[table][kind]
	if !ok {
		return fmt.Errorf("%s %q is not in the table", table, kind)
	}
	for name, want := range members {
		v, ok := o[name]
		if !ok {
			return fmt.Errorf("%s %s has no member %s", table, kind, name)
		}
		got := "null"
		switch v.(type) {
		case string:
			got = "string"
		case float64:
			got = "number"
		case bool:
			got = "boolean"
		case []any:
			got = "array"
		case object:
			got = "object"
		}
		if !slices.Contains(strings.Split(want.(string), "|"), got) {
			return fmt.Errorf("%s %s: member %s is a %s, want %s", table, kind, name, got, want)
		}
	}
	return nil
}

func (a *accumulator) frame(frame string) error {
	name, data, ok := strings.Cut(frame, "\ndata: ")
	name, named := strings.CutPrefix(name, "event: ")
	if !ok || !named || strings.ContainsAny(data, "\r\n\u0085\u2028\u2029") {
		return fmt.Errorf("not an event line and one line of data")
	}
	var e object
	if err := json.Unmarshal([]byte(data), &e); err != nil {
		return err
	}
	kind, _ := e["type"].(string)
	switch {
	case kind != name:
		return fmt.Errorf("event %q has type %q", name, kind)
	case e["sequence_number"] != float64(a.next):
		return fmt.Errorf("number %v, want %d", e["sequence_number"], a.next)
	case a.ended:
		return fmt.Errorf("it comes after the end")
	case (a.response == nil) != (kind == "response.created"):
		return fmt.Errorf("it is not in its place")
	}
	a.next++
	if err := check("event", kind, e); err != nil {
		return err
	}
	if r, ok := e["response"].(object); ok {
		return a.lifecycle(kind, r)
	}
	return a.item(strings.TrimPrefix(kind, "response."), e)
}

func (a *accumulator) lifecycle(kind string, r object) error {
	if err := check("response", "response", r); err != nil {
		return err
	}
	status, _ := strings.CutPrefix(kind, "response.")
	items := r["output"].([]any)
	switch status {
	case "created", "queued", "in_progress":
		if len(items) > 0 || r["usage"] != nil {
			return fmt.Errorf("a response begins with output or usage")
		}
		if status == "created" && r["status"] == "in_progress" || status == r["status"] || status == "created" && r["status"] == "queued" {
			a.response = r
			return nil
		}
		return fmt.Errorf("it has status %v", r["status"])
	case "completed", "incomplete":
		if a.open >= 0 {
			return fmt.Errorf("item %d is open at the end", a.open)
		}
		if err := check("usage", "usage", r["usage"].(object)); err != nil {
			return err
		}
	}
	if r["status"] != status {
		return fmt.Errorf("it has status %v", r["status"])
	}
	if (r["error"] != nil) != (status == "failed") || (r["incomplete_details"] != nil) != (status == "incomplete") {
		return fmt.Errorf("error %v, incomplete_details %v", r["error"], r["incomplete_details"])
	}
	if (r["completed_at"] != nil) != (status == "completed") {
		return fmt.Errorf("completed_at %v", r["completed_at"])
	}
	got := a.response["output"].([]any)
	if a.open >= 0 { // a failed response shows what it was in the middle of
		if items[a.open].(object)["status"] != "incomplete" {
			return fmt.Errorf("item %d was open, and has status %v", a.open, items[a.open].(object)["status"])
		}
		got = got[:a.open]
		items = items[:a.open]
	}
	if d := cmp.Diff(got, items); d != "" {
		return fmt.Errorf("-accumulated +sent\n%s", d)
	}
	for i, v := range items {
		if v.(object)["status"] == "incomplete" && (i < len(items)-1 || status != "incomplete") {
			return fmt.Errorf("item %d of %d is incomplete in a response that is %s", i, len(items), status)
		}
	}
	a.ended, a.response = true, r
	return nil
}

func (a *accumulator) item(kind string, e object) error {
	items := a.response["output"].([]any)
	index := int(e["output_index"].(float64))
	if kind == "output_item.added" {
		item := e["item"].(object)
		if a.open >= 0 || index != len(items) || item["status"] != "in_progress" {
			return fmt.Errorf("item %d opens with status %v after %d items, %d being open", index, item["status"], len(items), a.open)
		}
		for _, earlier := range items {
			if earlier.(object)["id"] == item["id"] {
				return fmt.Errorf("a second item with id %v", item["id"])
			}
		}
		for _, content := range []string{"content", "summary", "arguments", "input"} {
			if v, ok := item[content]; ok && reflect.ValueOf(v).Len() > 0 {
				return fmt.Errorf("%s is not empty at the beginning", content)
			}
		}
		a.open, a.part = index, false
		a.response["output"] = append(items, item)
		return check("item", item["type"].(string), item)
	}
	if index != a.open {
		return fmt.Errorf("it is about item %d, and %d is open", index, a.open)
	}
	item := items[index].(object)
	if id, ok := e["item_id"]; ok && id != item["id"] {
		return fmt.Errorf("it is about item %v, and %v is open", id, item["id"])
	}
	if kind == "output_item.done" {
		done := e["item"].(object)
		if a.part {
			return fmt.Errorf("its part is open")
		}
		// What was not streamed comes now.
		for name, v := range done {
			if _, streamed := item[name]; !streamed && name != "status" {
				item[name] = v
			}
		}
		item["status"] = done["status"]
		if d := cmp.Diff(item, done); d != "" {
			return fmt.Errorf("-accumulated +sent\n%s", d)
		}
		if s := done["status"]; s != "completed" && s != "incomplete" {
			return fmt.Errorf("it ends with status %v", s)
		}
		a.open = -1
		return check("item", done["type"].(string), done)
	}
	what, how := kind[:strings.LastIndexByte(kind, '.')], kind[strings.LastIndexByte(kind, '.')+1:]
	switch what {
	case "content_part", "reasoning_summary_part":
		return a.parts(item, what, how, e)
	case "function_call_arguments":
		return streamed(item, "arguments", "arguments", how, e)
	case "custom_tool_call_input":
		return streamed(item, "input", "input", how, e)
	}
	member, text := "content", "text"
	if what == "reasoning_summary_text" {
		member = "summary"
	}
	if what == "refusal" {
		text = "refusal"
	}
	if !a.part {
		return fmt.Errorf("no part is open")
	}
	list := item[member].([]any)
	part := list[len(list)-1].(object)
	if l, ok := e["logprobs"].([]any); ok {
		if how == "delta" {
			part["logprobs"] = append(part["logprobs"].([]any), l...)
		} else if d := cmp.Diff(part["logprobs"], e["logprobs"]); d != "" {
			return fmt.Errorf("-accumulated +sent\n%s", d)
		}
	}
	return streamed(part, text, text, how, e)
}

func (a *accumulator) parts(item object, what, how string, e object) error {
	part := e["part"].(object)
	if err := check("part", part["type"].(string), part); err != nil {
		return err
	}
	member, at := "content", e["content_index"]
	if what == "reasoning_summary_part" {
		member, at = "summary", e["summary_index"]
	}
	list, _ := item[member].([]any)
	if how == "added" {
		if a.part || at != float64(len(list)) {
			return fmt.Errorf("part %v opens behind %d", at, len(list))
		}
		a.part = true
		item[member] = append(list, part)
		return nil
	}
	if !a.part {
		return fmt.Errorf("no part is open")
	}
	a.part = false
	if d := cmp.Diff(list[len(list)-1], any(part)); d != "" {
		return fmt.Errorf("-accumulated +sent\n%s", d)
	}
	return nil
}

// streamed adds a delta to a text, or compares the whole text with it.
func streamed(o object, member, whole, how string, e object) error {
	if how == "delta" {
		if e["delta"] == "" && len(anys(e["logprobs"])) == 0 {
			return fmt.Errorf("an empty delta")
		}
		o[member] = o[member].(string) + e["delta"].(string)
		return nil
	}
	if o[member] != e[whole] {
		return fmt.Errorf("accumulated %q, sent %q", o[member], e[whole])
	}
	if name, ok := e["name"]; ok && name != o["name"] {
		return fmt.Errorf("the call of %q ends as one of %q", o["name"], name)
	}
	return nil
}

func anys(v any) []any {
	l, _ := v.([]any)
	return l
}

// differ compares a response object with the one that a stream adds up to.
func differ(t testing.TB, unary []byte, whole object) string {
	t.Helper()
	var o object
	if err := json.Unmarshal(unary, &o); err != nil {
		t.Fatalf("%s: %v", unary, err)
	}
	return cmp.Diff(o, whole)
}
