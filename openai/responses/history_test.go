package responses_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
)

// memory is a history in its simplest form.
type memory struct {
	conversations map[string][]responses.Item
	items         map[string]responses.Item
}

func (m memory) Conversation(id string) ([]responses.Item, bool) {
	items, ok := m.conversations[id]
	return items, ok
}

func (m memory) Item(id string) (responses.Item, bool) {
	item, ok := m.items[id]
	return item, ok
}

// TestConversationGoesOn answers a call, and goes on from its response in the
// three ways in which clients do: all ask for the same prompt.
func TestConversationGoesOn(t *testing.T) {
	const tools = `"tools":[` + read + `,` + group + `,` + patch + `]`
	first := decode(t, tools+`,"include":["reasoning.encrypted_content"]`, responses.Options{})
	enc := first.Encoder(header)
	for _, e := range answer(chat.FinishToolUse, thought("Look\n", "first."), words("I look."),
		calls("call_a", "mcp/read", `{"path": "a"}`), calls("call_b", "apply_patch", `{"input": "*** é\n"}`)) {
		enc.AppendEvent(nil, e)
	}
	enc.Complete(ended)
	output := enc.Items()
	known := memory{map[string][]responses.Item{header.ID: append(first.Input, output...)}, map[string]responses.Item{}}
	var raw, references string
	for _, item := range output {
		known.items[item.ID] = item
		raw += string(item.Wire) + ","
		references += `{"type":"item_reference","id":"` + item.ID + `"},`
		if id, ok := responses.ResponseOf(item.ID); !ok || id != header.ID {
			t.Errorf("item %s is of response %q", item.ID, id)
		}
	}
	const user, results = `{"role":"user","content":"Hi"},`, `{"type":"function_call_output","call_id":"call_a","output":"x"},{"type":"custom_tool_call_output","call_id":"call_b","output":"y"}`
	want := `user: text(Hi)
assistant: thinking(Look
first.) text(I look.) function(call_a read {"path": "a"}) custom(call_b apply_patch *** é
)
tool: result(call_a text(x))
tool: result(call_b text(y))`
	for name, members := range map[string]string{
		"all again":            `"input":[` + user + raw + results + `]`,
		"references":           `"input":[` + user + references + results + `]`,
		"previous_response_id": `"previous_response_id":"` + header.ID + `","input":[` + results + `]`,
	} {
		t.Run(name, func(t *testing.T) {
			c, err := responses.Decode([]byte(`{"model":"m",`+tools+`,`+members+`}`), responses.Options{})
			if err == nil {
				err = c.Resolve(known)
			}
			if err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(want, script(c.Request.Turns)); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
			for _, item := range c.Input {
				if item.Type == "item_reference" {
					t.Errorf("%s is still a reference", item.ID)
				}
			}
		})
	}
}

func TestNothingNewAfterPrevious(t *testing.T) {
	known := memory{conversations: map[string][]responses.Item{"resp_1": decode(t, "", responses.Options{}).Input}}
	for _, input := range []string{"", `,"input":null`, `,"input":[]`} {
		c, err := responses.Decode([]byte(`{"model":"m","previous_response_id":"resp_1"`+input+`}`), responses.Options{})
		if err == nil {
			err = c.Resolve(known)
		}
		if err != nil || script(c.Request.Turns) != "user: text(Hi)" {
			t.Errorf("%q: %v", input, err)
		}
	}
}

func TestNotFound(t *testing.T) {
	for _, h := range []responses.History{nil, memory{}} {
		for _, tt := range []struct {
			members string
			want    wire.Error
		}{
			{`"previous_response_id":"resp_x"`, wire.Error{
				Status: 400, Message: "Previous response with id 'resp_x' not found.",
				Type: "invalid_request_error", Param: "previous_response_id", Code: "previous_response_not_found",
			}},
			{`"input":[{"role":"user","content":"a"},{"id":"msg_x","type":null}]`, wire.Error{
				Status: 404, Message: "Item with id 'msg_x' not found.", Type: "invalid_request_error", Param: "input", Code: "item_not_found",
			}},
		} {
			c, err := responses.Decode([]byte(`{"model":"m",`+tt.members+`}`), responses.Options{})
			if err != nil {
				t.Fatal(err)
			}
			got, ok := errors.AsType[*wire.Error](c.Resolve(h))
			if !ok {
				t.Fatalf("%s: no error", tt.members)
			}
			if d := cmp.Diff(tt.want, *got); d != "" {
				t.Errorf("-want +got\n%s", d)
			}
		}
	}
}

// TestItemsAreNotWritten holds that two conversations may grow from the same
// items: neither sees what the other adds.
func TestItemsAreNotWritten(t *testing.T) {
	known := memory{conversations: map[string][]responses.Item{}}
	c := decode(t, `"input":[{"role":"assistant","content":"a"}]`, responses.Options{})
	known.conversations["resp_1"] = c.Input
	var scripts []string
	var calls []*responses.Call
	for _, more := range []string{"b", "c"} {
		c, err := responses.Decode([]byte(`{"model":"m","previous_response_id":"resp_1","input":[{"role":"assistant","content":"`+more+`"}]}`), responses.Options{})
		if err == nil {
			err = c.Resolve(known)
		}
		if err != nil {
			t.Fatal(err)
		}
		calls = append(calls, c)
	}
	for _, c := range calls {
		scripts = append(scripts, script(c.Request.Turns))
	}
	if d := cmp.Diff([]string{"assistant: text(a) text(b)", "assistant: text(a) text(c)"}, scripts); d != "" {
		t.Errorf("-want +got\n%s", d)
	}
}

// TestEnvelopeKey holds that thoughts sealed with a key are read with that key,
// and are foreign without it.
func TestEnvelopeKey(t *testing.T) {
	box, err := envelope.New("secret")
	if err != nil {
		t.Fatal(err)
	}
	c := decode(t, `"include":["reasoning.encrypted_content"],"reasoning":{"summary":"auto"}`, responses.Options{Envelope: box})
	var o object
	if err := json.Unmarshal(unary(c.Encoder(header), answer(chat.FinishStop, thought("Secret."))), &o); err != nil {
		t.Fatal(err)
	}
	item := o["output"].([]any)[0].(object)
	item["summary"] = []any{}
	raw, err := json.Marshal(item)
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		box  *envelope.Box
		want string
	}{{box, "assistant: thinking(Secret.)"}, {nil, ""}} {
		c := decode(t, `"input":[`+string(raw)+`]`, responses.Options{Envelope: tt.box})
		if got := script(c.Request.Turns); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
		}
	}
}

// TestEnvelopeOnRequest holds that thoughts are sealed for those who asked for
// that.
func TestEnvelopeOnRequest(t *testing.T) {
	for include, want := range map[string]bool{
		`[]`: false, `["message.output_text.logprobs"]`: false, `["file_search_call.results","reasoning.encrypted_content"]`: true,
	} {
		out := unary(decode(t, `"include":`+include, responses.Options{}).Encoder(header), answer(chat.FinishStop, thought("a")))
		if got := bytes.Contains(out, []byte(`"encrypted_content":"r1.`)); got != want {
			t.Errorf("include %s: sealed %v in %s", include, got, out)
		}
	}
}

func TestParseItemTakesOne(t *testing.T) {
	for _, raw := range []string{`{"role":"user","content":"a"} {}`, `{"role":"user","content":"a"`, `[]`, ``, `{"role":"king"}`} {
		if item, err := responses.ParseItem([]byte(raw)); err == nil {
			t.Errorf("%s became %+v", raw, item)
		} else if _, ok := err.(*wire.Error); !ok {
			t.Errorf("%s: %T", raw, err)
		}
	}
}

// TestItemsSurviveStorage holds that an item of an answer is the same when it is
// read again from its bytes.
func TestItemsSurviveStorage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		enc := anyCall(t).Encoder(header)
		for _, e := range answer(chat.FinishStop, anyAnswer(t)...) {
			enc.AppendEvent(nil, e)
		}
		items := enc.Items()
		var o object
		if err := json.Unmarshal(enc.AppendResponse(nil), &o); err != nil || len(items) != len(o["output"].([]any)) {
			t.Fatalf("%d items of %v, %v", len(items), o["output"], err)
		}
		for _, item := range items {
			again, err := responses.ParseItem(item.Wire)
			if err != nil {
				t.Fatal(err)
			}
			if again.ID != item.ID || again.Type != item.Type || string(again.Wire) != string(item.Wire) {
				t.Fatalf("%+v became %+v", item, again)
			}
		}
	})
}
