package kvevent_test

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvindex"
)

// churn is the messages of an engine whose cache is full: each stores new
// blocks and removes as many old ones, as vLLM writes it.
type churn struct {
	payloads [][]byte
	stores   int // blocks stored by all of them together
}

// newChurn makes messages of events with some blocks each, of size tokens, in a
// cache of held blocks. Together they turn the cache over a whole number of
// times, so that they may be decoded over and over.
func newChurn(held, perEvent, size, perMessage int) (fill, steady churn) {
	rng := rand.New(rand.NewPCG(42, 0))
	key := func(i int) uint64 { return uint64(i+1) * 0x9e3779b97f4a7c15 }
	token := func() uint32 {
		// Frequent tokens have small ids, the way vocabularies are made.
		return uint32(128_000 * rng.Float64() * rng.Float64() * rng.Float64())
	}
	store := func(first, n int) obj {
		var keys list
		var parent any
		if first%1024 != 0 {
			parent = key(first - 1)
		}
		tokens := make([]uint32, 0, n*size)
		for i := range n {
			keys = append(keys, key(first+i))
			for range size {
				tokens = append(tokens, token())
			}
		}
		return obj{
			{"type", "BlockStored"},
			{"block_hashes", keys},
			{"parent_block_hash", parent},
			{"token_ids", tokens},
			{"block_size", size},
			{"lora_id", nil},
			{"medium", "GPU"},
			{"lora_name", nil},
			{"extra_keys", make(list, n)},
			{"group_idx", 0},
			{"kv_cache_spec_kind", "full_attention"},
		}
	}
	removal := func(i int) obj {
		return obj{{"type", "BlockRemoved"}, {"block_hashes", list{key(i)}}, {"medium", "GPU"}, {"group_idx", 0}}
	}
	// Twice as many keys as the cache holds go round.
	keys := 2 * held
	for at := 0; at < held; at += perMessage {
		var events list
		for i := at; i < at+perMessage; i += perEvent {
			events = append(events, store(i, perEvent))
		}
		fill.payloads = append(fill.payloads, pack(list{1.5, events, 0}))
		fill.stores += perMessage
	}
	for at := held; at < held+keys; at += perMessage {
		var events list
		for i := at; i < at+perMessage; i++ {
			events = append(events, removal((i-held)%keys))
		}
		for i := at; i < at+perMessage; i += perEvent {
			events = append(events, store(i%keys, perEvent))
		}
		steady.payloads = append(steady.payloads, pack(list{1.5, events, 0}))
		steady.stores += perMessage
	}
	return fill, steady
}

// Blocks stored per second, each with the removal of another one, in a cache
// that is full: decoding, filing and hashing.
func BenchmarkDecode(b *testing.B) {
	benchmarkChurn(b, func([]kv.Event) {})
}

// The same, with an index behind it.
func BenchmarkDecodeAndApply(b *testing.B) {
	x := kvindex.New()
	benchmarkChurn(b, func(events []kv.Event) {
		for _, e := range events {
			if err := x.Apply(kv.Target{Worker: 1}, e); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func benchmarkChurn(b *testing.B, apply func([]kv.Event)) {
	for _, c := range []struct{ held, size, perEvent int }{
		{1 << 15, 16, 1}, {1 << 15, 16, 16}, {1 << 15, 16, 64}, {1 << 15, 64, 1}, {1 << 15, 64, 64}, {1 << 19, 16, 16},
	} {
		b.Run(fmt.Sprintf("tokens=%d/blocks=%d/held=%d", c.size, c.perEvent, c.held), func(b *testing.B) {
			fill, steady := newChurn(c.held, c.perEvent, c.size, 256)
			d := kvevent.NewDecoder(kvevent.Config{BlockSize: c.size})
			decode := func(c churn) (bytes int) {
				for _, p := range c.payloads {
					bytes += len(p)
					_, events, err := d.Decode(p)
					if err != nil {
						b.Fatal(err)
					}
					apply(events)
				}
				return bytes
			}
			apply([]kv.Event{{Kind: kv.Cleared}})
			decode(fill)
			decode(steady)
			b.ReportAllocs()
			b.ResetTimer()
			rounds, bytes, before := 0, 0, cpu()
			for b.Loop() {
				bytes += decode(steady)
				rounds++
			}
			blocks, seconds := float64(rounds*steady.stores), (cpu() - before).Seconds()
			b.ReportMetric(seconds/blocks*1e9, "cpu-ns/block")
			b.ReportMetric(blocks/seconds/1e6, "Mblocks/cpu-s")
			b.ReportMetric(float64(bytes)/seconds/1e6, "MB/cpu-s")
			if counts := d.Counts(); len(drops(counts)) > 0 || d.Held(0) != c.held {
				b.Errorf("dropped %v, holds %d", drops(counts), d.Held(0))
			}
		})
	}
}

// cpu is what the process has used so far: the machine may be shared.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

var sink kv.LocalHash

// What hashing alone costs, to compare with.
func BenchmarkHashAlone(b *testing.B) {
	for _, size := range []int{16, 64} {
		b.Run(fmt.Sprintf("tokens=%d", size), func(b *testing.B) {
			tokens := make([]uint32, size)
			for b.Loop() {
				tokens[0]++
				sink = kv.HashBlock(tokens, kv.HashSeed)
			}
		})
	}
}
