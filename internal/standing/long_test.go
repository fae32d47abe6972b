//go:build !race

package standing_test

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"net/http"
	"runtime"
	"runtime/debug"
	"strings"
	"testing"

	"github.com/dynago/dynago/internal/demo"
)

// What the next turn of a long conversation may allocate, all stages, the HTTP
// server and this test's client together: 60k tokens in, 48k of them as before,
// 500 out. Times vary with the machine and this does not, so this is what tells
// of a copy too many, or of work done anew for each token or block. Under the
// race detector pools forget at random, which is why it is not run there.
const (
	mostBytes  = 2_050_000 // one more copy of the body, of 277 kB, is too many
	mostAllocs = 3_000     // the index makes one for each new block, of which there are 780
)

func TestLongTurnsAllocateLittle(t *testing.T) {
	h := build(t, plan{workers: 1, context: 128 << 10})
	random := rand.New(rand.NewPCG(1, 2))
	var past []object
	for _, role := range []string{"system", "user", "assistant", "user", "assistant", "user", "assistant"} {
		past = append(past, object{"role": role, "content": essay(random, 31_600)})
	}
	const warm, measured = 3, 8
	var bodies [warm + measured][]byte
	for i := range bodies {
		body, err := json.Marshal(object{
			"model": demo.Name, "stream": true, "stream_options": object{"include_usage": true}, "ignore_eos": true, "max_tokens": 500,
			"messages": append(past[:len(past):len(past)], object{"role": "user", "content": essay(random, 55_000)}),
		})
		check(t, err)
		bodies[i] = body
	}

	var answer bytes.Buffer
	answer.Grow(1 << 20)
	turn := func(body []byte) {
		answer.Reset()
		resp, err := http.Post(h.url+"/v1/chat/completions", "application/json", bytes.NewReader(body))
		check(t, err)
		defer resp.Body.Close()
		_, err = answer.ReadFrom(resp.Body)
		check(t, err)
	}
	// Pools are kept for each processor, and emptied by a collection.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	defer debug.SetGCPercent(debug.SetGCPercent(-1))
	for _, body := range bodies[:warm] {
		turn(body)
	}
	h.idle(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for _, body := range bodies[warm:] {
		turn(body)
	}
	h.idle(t)
	runtime.ReadMemStats(&after)

	usage := readStream(t, &answer).folded(t)["usage"].(object)
	cached := usage["prompt_tokens_details"].(object)["cached_tokens"].(float64)
	if prompt := usage["prompt_tokens"].(float64); prompt < 58_000 || prompt > 62_000 || cached < 46_000 || cached > 50_000 || usage["completion_tokens"] != 500.0 {
		t.Fatalf("a turn of %v tokens, %v of them cached, %v out; want some 60000, 48000, 500", prompt, cached, usage["completion_tokens"])
	}
	allocated, allocs := (after.TotalAlloc-before.TotalAlloc)/measured, (after.Mallocs-before.Mallocs)/measured
	t.Logf("%d bytes in %d allocations for a body of %d bytes", allocated, allocs, len(bodies[warm]))
	if allocated > mostBytes || allocs > mostAllocs {
		t.Errorf("a turn takes %d bytes in %d allocations, want at most %d in %d", allocated, allocs, mostBytes, mostAllocs)
	}
}

// essay makes sentences of so many bytes.
func essay(random *rand.Rand, size int) string {
	words := strings.Fields("the river keeps its own time and every stone remembers how water came down from hills where " +
		"people once built small houses of wood with gardens between them to feed a family through long winter when roads are closed")
	var b strings.Builder
	for b.Len() < size {
		for range 6 + random.IntN(9) {
			b.WriteString(words[random.IntN(len(words))])
			b.WriteByte(' ')
		}
		b.WriteString("again. ")
	}
	return b.String()[:size]
}
