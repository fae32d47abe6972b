package trace_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"sync/atomic"
	"testing"

	"github.com/dynago/dynago/trace"
)

// full is a row as requests have it, of a prompt of so many tokens.
func full(tokens int) *trace.Record {
	prompt := make([]uint32, tokens)
	for i := range prompt {
		prompt[i] = uint32(i * 7919)
	}
	count := func(n uint64) *uint64 { return &n }
	ms := func(x float64) *float64 { return &x }
	var rank uint32
	return &trace.Record{
		Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: 1790000004250, Source: trace.SourceDynamo,
		Agent: &trace.AgentContext{SessionID: "bugfix-7:tester", ParentSessionID: "bugfix-7:lead", InputTrigger: "tool_result"},
		Request: &trace.Request{
			RequestID: "5d9f2a60-3c1e-4b7a-9a0e-1f2d3c4b5a69", XRequestID: "turn-12", Model: "acme/coder",
			InputTokens: count(uint64(tokens)), OutputTokens: count(31), CachedTokens: count(4), Received: count(1790000003000),
			PrefillWaitTime: ms(3.5), PrefillTime: ms(41), TTFT: ms(44.5), TotalTime: ms(1250.2), AvgITL: ms(40.19), QueueTime: ms(0), RoutingTime: ms(0.042),
			KVHitRate: ms(0.8), QueueDepth: count(0),
			Worker: &trace.Worker{PrefillWorkerID: count(8866479658062839), PrefillRank: &rank, DecodeWorkerID: count(8866479658062839), DecodeRank: &rank},
			Replay: trace.NewReplay(prompt, 16),
			Finish: &trace.Finish{
				Reason: "tool_calls", BackendReason: "stop",
				ToolCalls: []trace.ToolCall{{ID: "call-3", Name: "run_tests"}},
				Choices:   []trace.Choice{{Reason: "tool_calls", BackendReason: "stop"}},
			},
			Dynago: &trace.Dynago{Endpoint: "chat_completions", OverlapBlocks: count(4), InputBlocks: count(5), Attempts: 1},
		},
	}
}

// batch returns rows as alike as those of requests are: each has its own id, prompt and
// times, which a packer cannot find in the row before.
func batch(tokens int) []*trace.Record {
	random := rand.New(rand.NewPCG(1, 2))
	rows := make([]*trace.Record, 64)
	for i := range rows {
		r := full(tokens)
		r.EventTime += uint64(17 * i)
		id := func() uint64 { return random.Uint64() }
		r.Request.RequestID = fmt.Sprintf("%08x-%04x-4%03x-9%03x-%012x", id()>>32, id()>>48, id()>>52, id()>>52, id()>>16)
		*r.Request.Received += uint64(17 * i)
		for _, ms := range []*float64{r.Request.PrefillWaitTime, r.Request.PrefillTime, r.Request.TTFT, r.Request.TotalTime, r.Request.RoutingTime} {
			*ms = float64(random.IntN(100_000)) / 1000
		}
		*r.Request.AvgITL = random.Float64()
		for k := range r.Request.Replay.Hashes {
			r.Request.Replay.Hashes[k] = id()
		}
		rows[i] = r
	}
	return rows
}

// What a row costs until it is in a segment.
func BenchmarkFile(b *testing.B) {
	for _, tc := range []struct {
		name   string
		tokens int
	}{{"short", 60}, {"long", 60000}} {
		b.Run(tc.name, func(b *testing.B) {
			c := fileConfig(filepath.Join(b.TempDir(), "trace"))
			c.RollBytes = 1 << 40
			f, err := trace.OpenFile(c)
			if err != nil {
				b.Fatal(err)
			}
			rows, i := batch(tc.tokens), 0
			b.ReportAllocs()
			for b.Loop() {
				if err := f.Write(ctx, rows[i:i+1]); err != nil {
					b.Fatal(err)
				}
				i = (i + 1) % len(rows)
			}
			if err := f.Close(ctx); err != nil {
				b.Fatal(err)
			}
		})
	}
}

// counting is a sink that knows how many rows it has got.
type counting struct {
	*trace.File
	rows atomic.Int64
}

func (c *counting) Write(ctx context.Context, records []*trace.Record) error {
	c.rows.Add(int64(len(records)))
	return c.File.Write(ctx, records)
}

// What it costs to bring a row from a request to a segment, with the switches of goroutines
// that this takes: whoever publishes goes on to something else after each.
func BenchmarkBus(b *testing.B) {
	c := fileConfig(filepath.Join(b.TempDir(), "trace"))
	c.RollBytes = 1 << 40
	f, err := trace.OpenFile(c)
	if err != nil {
		b.Fatal(err)
	}
	to := &counting{File: f}
	bus := trace.NewBus(1024, discard, to)
	rows, published := batch(60), int64(0)
	b.ReportAllocs()
	for b.Loop() {
		bus.Publish(rows[published%int64(len(rows))])
		for published++; published-to.rows.Load() >= 512; {
			runtime.Gosched()
		}
		runtime.Gosched()
	}
	if err := bus.Close(ctx); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkAppend(b *testing.B) {
	r, line := full(60), []byte(nil)
	b.ReportAllocs()
	for b.Loop() {
		var err error
		if line, err = r.Append(line[:0]); err != nil {
			b.Fatal(err)
		}
	}
}
