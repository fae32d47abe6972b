package responses_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/openai/responses"
)

// TestCustomInput lists what the text is that a model passes to a custom tool.
func TestCustomInput(t *testing.T) {
	for _, tt := range []struct{ args, want string }{
		{`{"input":"a"}`, "a"},
		{"{\n \"input\" :\t\"a\\nb\"\r\n}", "a\nb"},
		{`{"input":"\"\\\/\b\f\n\r\t\u00e9"}`, "\"\\/\b\f\n\r\té"},
		{`{"input":"\ud83d\ude00"}`, "😀"},
		{`{"input":"\ud83dx\ude00\ud83d\ud83d\ude00\ud83d"}`, "\uFFFDx\uFFFD\uFFFD😀\uFFFD"},
		{`{"input":"\ud83d\n"}`, "\uFFFD\n"},
		{`{"input":"\u0000"}`, "\uFFFD"},
		{"{\"input\":\"raw\n\ttext\"}", "raw\n\ttext"},
		{`{"input":"\d+\u12 é\é"}`, `\d+\u12 é\é`},
		{`{"input":"a"}, and then`, "a"},
		{`{"input":"a","why":"b"}`, "a"},
		{`{"input":""}`, ""},
		// Cut off.
		{`{"input":"a`, "a"},
		{`{"input":"a\`, "a"},
		{`{"input":"a\u00`, "a"},
		{`{"input":"a\ud83d`, "a\uFFFD"},
		{`{"inp`, `{"inp`},
		// Something else is the text itself.
		{``, ``},
		{`*** Begin`, `*** Begin`},
		{`é`, `é`},
		{`{"input":7}`, `{"input":7}`},
		{`{"inputs":"a"}`, `{"inputs":"a"}`},
		{`{"why":"b","input":"a"}`, `{"why":"b","input":"a"}`},
		{`"a"`, `"a"`},
		{`{"input":` + strings.Repeat(" ", 100) + `"a"}`, `{"input":` + strings.Repeat(" ", 100) + `"a"}`},
	} {
		call := decode(t, `"tools":[`+patch+`]`, responses.Options{})
		for _, size := range []int{1, 2, 5, 1000} {
			events := rechunk(answer(chat.FinishToolUse, calls("call_a", "apply_patch", tt.args)), size)
			var o object
			if err := json.Unmarshal(unary(call.Encoder(header), events), &o); err != nil {
				t.Fatal(err)
			}
			if got := o["output"].([]any)[0].(object)["input"]; got != tt.want {
				t.Errorf("%s, in pieces of %d: got %q, want %q", tt.args, size, got, tt.want)
			}
		}
	}
}

// TestCustomByKind holds that a call that is said to be one of a custom tool goes
// out as such, although the tool is not in the request.
func TestCustomByKind(t *testing.T) {
	b := calls("call_a", "gone", `{"input":"x"}`)
	b.tool.Kind = chat.ToolCustom
	for _, tools := range []string{"", `"tools":[` + patch + `]`} {
		items := mustAccumulate(t, stream(decode(t, tools, responses.Options{}).Encoder(header), answer(chat.FinishToolUse, b), nil))["output"].([]any)
		if item := items[0].(object); item["type"] != "custom_tool_call" || item["input"] != "x" {
			t.Errorf("got %v", item)
		}
	}
}
