package vllm

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
)

// Pieces bring the same whether they come one by one or together, and up to the
// first that cannot be read.
func TestTogether(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		k := 0
		r := &engine.Request{TokenIDs: []uint32{7}, Stop: engine.Stop{
			MaxTokens: 99, MinTokens: rapid.IntRange(0, 3).Draw(t, "at least"), Hidden: []uint32{2},
		}}
		if rapid.Bool().Draw(t, "log probabilities") {
			r.Logprobs = &k
		}
		var pieces [][]byte
		for i := range rapid.IntRange(1, 9).Draw(t, "pieces") {
			var piece string
			switch rapid.IntRange(0, 8).Draw(t, "kind") {
			case 0:
				piece = `{"choices":[],"usage":{"prompt_tokens":1,"completion_tokens":9,"prompt_tokens_details":{"cached_tokens":1}}}`
			case 1:
				piece = `{"error":{"message":"no","code":503}}`
			case 2:
				piece = `{"choices":[{"index":0,"token_ids":[],"finish_reason":"length"}]}`
			default:
				id := rapid.Uint32Range(1, 3).Draw(t, "id")
				piece = fmt.Sprintf(`{"choices":[{"index":0,"token_ids":[%d]}],"x":%d}`, id, i)
				if r.Logprobs != nil {
					piece = fmt.Sprintf(`{"choices":[{"index":0,"token_ids":[%d],"logprobs":{"content":[{"token_id":%[1]d,"logprob":-%d}]}}]}`, id, i)
				}
			}
			pieces = append(pieces, []byte(piece))
		}
		single, together := answer{r: r, tellsCached: true}, answer{r: r, tellsCached: true}
		var want, got engine.Delta
		gather := func(to *engine.Delta, d engine.Delta) {
			to.TokenIDs, to.Logprobs = append(to.TokenIDs, d.TokenIDs...), append(to.Logprobs, d.Logprobs...)
		}
		var wantErr, gotErr error
		for _, piece := range pieces {
			over := single.finished()
			d, err := single.read(piece)
			if gather(&want, d); err != nil && !over {
				wantErr = err
				break
			}
		}
		for rest := pieces; len(rest) > 0 && gotErr == nil; {
			n := rapid.IntRange(1, len(rest)).Draw(t, "together")
			var d engine.Delta
			d, gotErr = together.take(rest[:n])
			gather(&got, d)
			rest = rest[n:]
		}
		if !slices.Equal(got.TokenIDs, want.TokenIDs) || !reflect.DeepEqual(got.Logprobs, want.Logprobs) || (gotErr == nil) != (wantErr == nil) {
			t.Fatalf("together %+v, %v; one by one %+v, %v", got, gotErr, want, wantErr)
		}
		if wantErr != nil {
			return
		}
		end, _ := single.terminal()
		if last, _ := together.terminal(); !reflect.DeepEqual(last, end) {
			t.Fatalf("the end: together %+v, one by one %+v", last, end)
		}
	})
}
