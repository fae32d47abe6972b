package sglang_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/sglang"
)

// Whatever a server sends, there is one end, and the ids are no more than the
// server counts.
func FuzzStream(f *testing.F) {
	for _, s := range []string{
		"data: " + chunk([]uint32{7}, 1, length) + "\n\ndata: [DONE]\n\n",
		"data: " + chunk([]uint32{7}, 1, "") + "\n\ndata: " + chunk([]uint32{7, 8}, 2, length) + "\n\n",
		`data: {"error":{"message":"x","code":503}}` + "\n\n",
		"data: " + chunk([]uint32{7}, 1, `,"finish_reason":{"type":"stop","matched":[50]},"output_token_logprobs":[[-1,7,null]],"input_token_logprobs":[[null,1,null]]`) + "\n\n",
		"data: " + chunk(nil, 1, `,"finish_reason":{"type":"stop","matched":50}`) + "\n\n",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		hs := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream")
			io.WriteString(w, text)
		}))
		defer hs.Close()
		e, err := sglang.New(sglang.Config{HTTP: httpapi.Config{URL: hs.URL}})
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		r := ask()
		r.Logprobs, r.PromptLogprobs = ptr(1), ptr(1)
		ends := 0
		for d, err := range e.Generate(t.Context(), r) {
			if err != nil || d.Finish != engine.Running {
				ends++
			}
			if err == nil && len(d.Logprobs) != len(d.TokenIDs) {
				t.Errorf("%d log probabilities for %d ids", len(d.Logprobs), len(d.TokenIDs))
			}
		}
		if ends != 1 {
			t.Errorf("%d ends", ends)
		}
	})
}
