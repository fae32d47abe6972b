package responses_test

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
)

// FuzzDecode holds that whatever a client sends is refused with a 400 or a 404
// that says why, or becomes a request of clean text; that its response object is
// JSON on one line; and that its items can be read again.
func FuzzDecode(f *testing.F) {
	f.Add([]byte(`{"model":"m","input":"Hi"}`))
	f.Add(session(8, 2000))
	for _, tr := range transcripts {
		f.Add([]byte(`{"model":"m","input":"Hi",` + tr.members + `}`))
	}
	f.Add([]byte(`{"model":"m","input":[{"role":"user","content":[{"type":"input_file","file_data":"data:text/plain;base64,aGk="}]},{"type":"shell_call_output","call_id":"c","output":[{"stdout":"\ud800"}]},{"type":"item_reference","id":"x"}]}`))
	f.Add([]byte("{\"model\":\"m\",\"input\":[{\"role\":\"user\",\"content\":\"a\x01\xff\"}],\"tools\":[{\"type\":\"custom\",\"name\":\"c\"}\n]}"))
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := responses.Decode(body, responses.Options{})
		if err == nil {
			err = c.Resolve(nil)
		}
		if err != nil {
			if e, ok := errors.AsType[*wire.Error](err); !ok || e.Status != 400 && e.Status != 404 || e.Message == "" {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		for _, turn := range c.Request.Turns {
			for _, b := range turn.Blocks {
				checkText(t, b.Text)
				if b.Use != nil {
					checkText(t, b.Use.Args)
					checkText(t, b.Use.Name)
				}
				if b.Result != nil {
					for _, b := range b.Result.Blocks {
						checkText(t, b.Text)
					}
				}
			}
		}
		for _, item := range c.Input {
			if again, err := responses.ParseItem(item.Wire); err != nil || again.Type != item.Type {
				t.Fatalf("item %s cannot be read again: %v", item.Wire, err)
			}
		}
		if _, err := accumulate(stream(c.Encoder(header), answer(chat.FinishStop, words("a")), nil)); err != nil {
			t.Fatal(err)
		}
	})
}

func checkText(t *testing.T, s string) {
	t.Helper()
	if !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
		t.Fatalf("%q is not clean", s)
	}
}

// FuzzParseItem holds that an item that was read is read again to the same.
func FuzzParseItem(f *testing.F) {
	f.Add([]byte(`{"type":"message","role":"user","content":"a"}`))
	f.Add([]byte(`{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}`))
	f.Add([]byte(`{"type":"shell_call_output","call_id":"c","output":[{"stdout":"a","outcome":{"type":"exit","exit_code":1}}]}`))
	f.Add([]byte(`{"type":"reasoning","summary":[{"type":"summary_text","text":"a"}],"encrypted_content":"r1.e30"}`))
	f.Fuzz(func(t *testing.T, raw []byte) {
		item, err := responses.ParseItem(raw)
		if err != nil {
			if _, ok := errors.AsType[*wire.Error](err); !ok {
				t.Fatalf("refused with %v", err)
			}
			return
		}
		again, err := responses.ParseItem(item.Wire)
		if err != nil || again.ID != item.ID || again.Type != item.Type || string(again.Wire) != string(item.Wire) {
			t.Fatalf("%s became %s: %v", item.Wire, again.Wire, err)
		}
	})
}

// FuzzEncode holds that any text in any blocks, cut anywhere, is a stream that
// clients accept, and that the arguments of a custom tool are unwrapped alike
// however they are cut.
func FuzzEncode(f *testing.F) {
	f.Add("a", "{\"input\":\"*** \\u00e9\\ud83d\\ude00\\\"\"}", uint16(0b1011), uint8(0))
	f.Add("\u2028\x00\xff", "{ \"input\" : \"\\", uint16(7), uint8(1))
	f.Add("", "{\"inputs\":1}", uint16(1), uint8(2))
	f.Fuzz(func(t *testing.T, text, args string, cuts uint16, form uint8) {
		if !utf8.ValidString(text) || !utf8.ValidString(args) {
			return // no parser gives half a character
		}
		members := []string{`"tools":[` + patch + `]`, `"tools":[` + patch + `],"reasoning":{"summary":"auto"}`, `"tools":[` + patch + `],"include":["reasoning.encrypted_content"]`}[form%3]
		raw := []responses.RawReasoning{responses.RawOff, responses.RawOpenAI, responses.RawOpenResponses}[form/3%3]
		call := decode(t, members, responses.Options{RawReasoning: raw})
		make := func(cuts uint16) []chat.Event {
			return answer(chat.FinishStop, thought(cutUp(text, cuts)...), calls("call_a", "apply_patch", cutUp(args, cuts)...), words(cutUp(text, cuts)...), calls("call_b", "read", cutUp(args, cuts)...))
		}
		got, err := accumulate(stream(call.Encoder(header), make(cuts), nil))
		if err != nil {
			t.Fatal(err)
		}
		if d := differ(t, unary(call.Encoder(header), make(0)), got); d != "" {
			t.Fatalf("whole and in pieces: %s", d)
		}
		item := got["output"].([]any)[1].(object)
		if want := jsonText(naiveInput(args)); item["input"] != want {
			t.Fatalf("%q is unwrapped to %q, want %q", args, item["input"], want)
		}
	})
}

// jsonText is a text after a way through JSON.
func jsonText(s string) string {
	var back string
	raw, _ := json.Marshal(s)
	json.Unmarshal(raw, &back) //nolint:errcheck // it was just made
	return back
}

// cutUp cuts a text behind each character whose bit is set.
func cutUp(text string, cuts uint16) []string {
	var list []string
	last := 0
	n := 0
	for i := range text {
		if i > last && cuts>>(n%16)&1 == 1 {
			list, last = append(list, text[last:i]), i
		}
		n++
	}
	return append(list, text[last:])
}
