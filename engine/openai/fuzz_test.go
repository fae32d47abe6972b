package openai

import (
	"bytes"
	"testing"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/answer"
	"github.com/dynago/dynago/engine/httpapi"
)

// Whatever a server sends, what is told of it keeps the order of answers and ends
// once, with a last event or with an error.
func FuzzHearing(f *testing.F) {
	for _, s := range []string{
		"data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"A\",\"reasoning\":\"B\"}}]}\n\ndata: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}],\"usage\":{}}\n\n",
		"data: {\"choices\":[{\"delta\":{\"tool_calls\":[{\"index\":1,\"id\":\"c\",\"function\":{\"name\":\"f\",\"arguments\":\"{\"}}]},\"finish_reason\":\"length\"}]}\n\ndata: [DONE]\n\n",
		"data: {\"error\":{\"code\":503}}\n\n", "data: {\"object\":\"error\"}\n\n", "data: {\"choices\":[{\"text\":\"x\",\"stop_reason\":\"\\ud800\",\"finish_reason\":\"abort\"}]}\n\n",
	} {
		f.Add([]byte(s))
	}
	r := &engine.Request{ID: "r-1"}
	f.Fuzz(func(t *testing.T, stream []byte) {
		ends, failed := 0, false
		answers, err := chat.Fold(func(yield func(chat.Event, error) bool) {
			h := &hearing{out: answer.New(r, func(e chat.Event, err error) bool {
				if e.Kind == chat.Finished {
					ends++
				}
				return yield(e, err)
			})}
			if err := h.run(t.Context(), func() {}, httpapi.Events(bytes.NewReader(stream))); err != nil {
				failed = true
				yield(chat.Event{}, err)
			}
		})
		if failed != (err != nil) || failed == (ends == 1) || !failed && len(answers) != 1 {
			t.Fatalf("%q: %d ends, failed %v, %+v, %v", stream, ends, failed, answers, err)
		}
	})
}
