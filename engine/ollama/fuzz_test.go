package ollama

import (
	"bytes"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/answer"
)

// Whatever a server sends, what is told of it keeps the order of answers and ends
// once, with a last event or with an error.
func FuzzRun(f *testing.F) {
	for _, s := range []string{
		"{\"message\":{\"content\":\"A\",\"thinking\":\"B\"}}\n{\"done\":true,\"done_reason\":\"stop\",\"eval_count\":3}\n",
		"{\"message\":{\"tool_calls\":[{\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":{\"x\":1}}}]},\"done\":true}\n",
		"{\"response\":\"x\"}\n{\"error\":\"y\"}\n", "{\"done\":true,\"prompt_eval_count\":100}\n", "null\n[]\n",
	} {
		f.Add([]byte(s))
	}
	r, at := &engine.Request{ID: "r-1"}, &place{context: 100}
	f.Fuzz(func(t *testing.T, stream []byte) {
		ends, failed := 0, false
		answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
			out := answer.New(r, func(e chat.Event, err error) bool {
				if e.Kind == chat.Finished {
					ends++
				}
				return yield(e, err)
			})
			lines := func(yield func([]byte, error) bool) {
				for line := range bytes.Lines(stream) {
					if !yield(line, nil) {
						return
					}
				}
			}
			if err := run(t.Context(), lines, out, at); err != nil {
				failed = true
				yield(chat.Event{}, err)
			}
		})
		if failed != (err != nil) || failed == (ends == 1) || !failed && len(answers) != 1 {
			t.Fatalf("%q: %d ends, failed %v, %+v, %v", stream, ends, failed, answers, err)
		}
	})
}

// Parameters are read as far as they make sense.
func FuzzParameters(f *testing.F) {
	f.Add("num_ctx                        4096\nstop                           \"<|im_end|>\"\nstop \"x\n")
	f.Fuzz(func(t *testing.T, text string) {
		for name, values := range parameters(text) {
			if name == "" || len(values) == 0 {
				t.Fatalf("%q: %q has %q", text, name, values)
			}
		}
	})
}
