package llamacpp

import (
	"strconv"
	"testing"

	"github.com/dynago/dynago/engine"
)

func FuzzChunk(f *testing.F) {
	f.Add([]byte(`{"tokens":[1,2],"content":"a","tokens_predicted":2,"completion_probabilities":[{"id":2,"logprob":-1}]}`), 1)
	f.Add([]byte(`{"stop":true,"stop_type":"eos","timings":{"cache_n":5},"prompt_progress":{"cache":1}}`), 0)
	f.Fuzz(func(t *testing.T, data []byte, k int) {
		c, err := read(data)
		if err != nil {
			return
		}
		k &= 15
		c.Content = "" // what is not plain would be asked of a server
		s := stream{e: &Engine{}, r: &engine.Request{TokenIDs: []uint32{1, 2, 3}, Logprobs: &k, Stop: engine.Stop{IDs: []uint32{7}, Hidden: []uint32{2}}}}
		for range 2 {
			d, ended, err := s.take(t.Context(), &c)
			if err != nil {
				return
			}
			if ended != (d.Finish != engine.Running) || ended && d.Usage == nil || len(d.Logprobs) != len(d.TokenIDs) {
				t.Fatalf("%s: %+v, ended %v", data, d, ended)
			}
			if u := d.Usage; u != nil && u.Cached != nil && (*u.Cached < 0 || *u.Cached > u.Prompt) {
				t.Fatalf("%s: %d of %d tokens were cached", data, *u.Cached, u.Prompt)
			}
			if ended {
				return
			}
		}
	})
}

func BenchmarkBody(b *testing.B) {
	for _, n := range []int{1000, 200_000} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			e := &Engine{}
			r := &engine.Request{TokenIDs: make([]uint32, n), Stop: engine.Stop{MaxTokens: 64, Hidden: []uint32{2}}}
			for i := range r.TokenIDs {
				r.TokenIDs[i] = uint32(i * 7919 % 150_000)
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := e.complete(r, &place{}); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkChunk(b *testing.B) {
	data := []byte(`{"index":0,"content":" token","tokens":[13347],"stop":false,"id_slot":2,"tokens_predicted":1,"tokens_evaluated":40}`)
	s := stream{e: &Engine{}, r: &engine.Request{Stop: engine.Stop{Hidden: []uint32{2}}}}
	b.ReportAllocs()
	for b.Loop() {
		c, err := read(data)
		if err != nil {
			b.Fatal(err)
		}
		if _, _, err := s.take(b.Context(), &c); err != nil {
			b.Fatal(err)
		}
	}
}
