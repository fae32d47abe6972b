package openai_test

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/dynago/dynago/internal/wire"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai"
)

type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// checkString compares our handling of a string with the JSON library's.
func checkString(t failer, s string) {
	t.Helper()
	want := string([]rune(s)) // with U+FFFD for each byte that is no UTF-8
	body := openai.AppendPrompt(nil, s)
	value := jsontext.Value(body)
	if !value.IsValid() {
		t.Fatalf("%q is written as %s", s, body)
	}
	var out struct{ Prompt string }
	if err := json.Unmarshal(body, &out); err != nil || out.Prompt != want {
		t.Fatalf("%q is read back as %q, %v", s, out.Prompt, err)
	}
	if strings.ContainsAny(string(body), "\u0085\u2028\u2029\n\r") {
		t.Fatalf("%q is written with a line break: %q", s, body)
	}
	// The way back, from what the library writes and from what we write. A NUL
	// is no text.
	quoted, err := jsontext.AppendQuote(nil, want)
	if err != nil {
		t.Fatalf("%q: %v", want, err)
	}
	want = strings.ReplaceAll(want, "\x00", "\uFFFD")
	for _, q := range []string{string(quoted), string(body[len(`{"prompt":`) : len(body)-1])} {
		c, err := openai.DecodeChat([]byte(`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":`+q+`}]}]}`), openai.Options{})
		if err != nil {
			t.Fatalf("%s: %v", q, err)
		}
		if got := c.Requests[0].Turns[0].Blocks[0].Text; got != want {
			t.Fatalf("%s is read as %q, want %q", q, got, want)
		}
	}
}

func FuzzString(f *testing.F) {
	for _, s := range []string{"", "a", "\x00\x1f\x7f\u0080\u0085", "\u2028\u2029\u2030", "\xff\xc3\xe2\x80", "\"\\/<>&", "😀\ud7ff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) { checkString(t, s) })
}

func seed(f *testing.F, rules []refusal, good ...string) {
	for _, r := range rules {
		if len(r.body) < 2000 {
			f.Add([]byte(r.body))
		}
	}
	for _, s := range good {
		f.Add([]byte(s))
	}
}

// checkError holds what every refusal has.
func checkError(t *testing.T, err error) {
	t.Helper()
	e, ok := err.(*wire.Error)
	if !ok {
		t.Fatalf("%T: %v", err, err)
	}
	if e.Status != 400 && e.Status != 501 || e.Message == "" || !utf8.ValidString(e.Message) || len(e.Message) > 4000 {
		t.Fatalf("%d %q", e.Status, e.Message)
	}
	if body := openai.AppendError(nil, e); !json.Valid(body) {
		t.Fatalf("%s", body)
	}
}

// checkRequest holds what every accepted request has: text is UTF-8 without
// NUL, kept JSON is JSON.
func checkRequest(t *testing.T, r *chat.Request) {
	t.Helper()
	text := func(s string) {
		if !utf8.ValidString(s) || strings.Contains(s, "\x00") {
			t.Fatalf("%q is no text", s)
		}
	}
	raw := func(v json.RawMessage) {
		if v != nil && !jsontext.Value(v).IsValid(jsontext.AllowDuplicateNames(true)) {
			t.Fatalf("%q is no JSON", v)
		}
	}
	var blocks func([]chat.Block)
	blocks = func(list []chat.Block) {
		for _, b := range list {
			text(b.Text)
			raw(b.Wire)
			if b.Use != nil {
				text(b.Use.ID + b.Use.Name + b.Use.Args)
			}
			if b.Media != nil {
				text(b.Media.Data + b.Media.MediaType + b.Media.Detail)
			}
			if b.Result != nil {
				text(b.Result.ID + b.Result.Name)
				blocks(b.Result.Blocks)
			}
		}
	}
	for _, turn := range r.Turns {
		text(turn.Name)
		blocks(turn.Blocks)
	}
	for _, tool := range r.Tools {
		text(tool.Name + tool.Description)
		raw(tool.Schema)
		raw(tool.Wire)
	}
	raw(r.TemplateArgs)
	raw(r.Output.Schema)
	text(r.Model + r.Output.Pattern + strings.Join(r.Sampling.Stop, ""))
	if n := r.Sampling.Choices(); n < 1 || n > 128 {
		t.Fatalf("%d choices", n)
	}
}

func FuzzDecodeChat(f *testing.F) {
	seed(f, chatRefusals,
		ask(named+`,"n":3,"logit_bias":{"1":2},"stop":["a"],"metadata":{"a":{}},"chat_template_kwargs":{"thinking":"on"},"nvext":{"annotations":["x"],"retention":{"ranges":[{"end":4,"priority":3}]}}`),
		talk(`{"role":"assistant","reasoning_content":["a","b"],"tool_calls":[{"id":"i","function":{"name":"f","arguments":{"\ud800":"\u0000"}}}]},{"role":"tool","tool_call_id":"i","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,AA"}}]}`),
		ask(`"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}},"guided_json":"{}"`))
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, o := range []openai.Options{{}, {RejectUnknown: true, StrictNVExt: true}} {
			c, err := openai.DecodeChat(body, o)
			if err != nil {
				checkError(t, err)
				continue
			}
			checkRequest(t, c.Requests[0])
			if a := c.Encoder(header).AppendAnswer(nil, make([]chat.Answer, 1)); !json.Valid(a) {
				t.Fatalf("%s", a)
			}
		}
	})
}

func FuzzDecodeCompletion(f *testing.F) {
	seed(f, completionRefusals, complete(`"n":2,"echo":true,"logprobs":1`), `{"model":"m","prompt":[[1,2],[3]]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := openai.DecodeCompletion(body, openai.Options{})
		if err != nil {
			checkError(t, err)
			return
		}
		if c.Choices() < 1 || c.Choices() > 128 {
			t.Fatalf("%d choices", c.Choices())
		}
		for _, r := range c.Requests {
			checkRequest(t, r)
			if r.Prompt == nil || (r.Prompt.Text == "") == (len(r.Prompt.IDs) == 0) {
				t.Fatalf("prompt %+v", r.Prompt)
			}
		}
	})
}

func FuzzDecodeTokenize(f *testing.F) {
	seed(f, tokenizeRefusals, `{"model":"m","messages":[{"role":"user","content":"a"}]}`)
	seed(f, detokenizeRefusals, `{"model":"m","tokens":[1,2]}`)
	f.Fuzz(func(t *testing.T, body []byte) {
		if c, err := openai.DecodeTokenize(body, openai.Options{}); err != nil {
			checkError(t, err)
		} else {
			checkRequest(t, c.Request)
		}
		if _, err := openai.DecodeDetokenize(body, openai.Options{}); err != nil {
			checkError(t, err)
		}
	})
}
