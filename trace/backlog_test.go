package trace_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/dynago/dynago/trace"
)

// patient is a sink for which more is kept.
type patient struct{ *sink }

func (patient) Backlog() int { return 4 }

// A sink for which more is kept loses less.
func TestBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		slow := patient{&sink{name: "slow", gate: make(chan struct{})}}
		bus := trace.NewBus(2, discard, slow)
		for i := range 6 {
			bus.Publish(row(strconv.Itoa(i)))
			settle()
		}
		close(slow.gate)
		if err := bus.Close(t.Context()); err != nil {
			t.Error(err)
		}
		same(t, "slow", slow.ids(), "0", "2", "3", "4", "5")
		if got, want := fmt.Sprint(bus.Status()), "[{slow 6 1 0}]"; got != want {
			t.Errorf("status %s, want %s", got, want)
		}
	})
}

// Rows of requests are not all small: clients name calls of tools, and have long prompts.
// Before a sink that hangs they take no more memory than anything else.
func TestBacklogOfLongRows(t *testing.T) {
	long := strings.Repeat("x", 64<<20) // one for all
	for name, r := range map[string]func() *trace.Record{
		"results": func() *trace.Record {
			return &trace.Record{Request: &trace.Request{Dynago: &trace.Dynago{ToolResults: []string{long[:32<<20], long[:32<<20]}}}}
		},
		"calls": func() *trace.Record {
			return &trace.Record{Request: &trace.Request{Finish: &trace.Finish{ToolCalls: []trace.ToolCall{{ID: long[:32<<20], Name: long[:32<<20]}}}}}
		},
		"stops": func() *trace.Record {
			return &trace.Record{Request: &trace.Request{Finish: &trace.Finish{
				BackendReason: long[:16<<20], StopReason: []byte(long[:16<<20]), Choices: []trace.Choice{{StopReason: []byte(long[:32<<20])}},
			}}}
		},
		"hints": func() *trace.Record { return &trace.Record{Request: &trace.Request{NVExt: []byte(long)}} },
		"prompt": func() *trace.Record {
			return &trace.Record{Request: &trace.Request{Replay: &trace.Replay{Hashes: make([]uint64, 8<<20)}}}
		},
		"tool": func() *trace.Record {
			return &trace.Record{Tool: &trace.Tool{ID: long[:16<<20], Class: long[:16<<20], NameHash: long[:16<<20], ErrorType: long[:8<<20], Claude: []byte(long[:8<<20])}}
		},
		"later": func() *trace.Record {
			r := &trace.Record{Request: &trace.Request{Dynago: &trace.Dynago{ToolResults: []string{long[:32<<20]}}}}
			r.Later(32<<20, func(*trace.Record) {})
			return r
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hanging := &sink{name: "hanging", gate: make(chan struct{})}
				bus := trace.NewBus(100, discard, hanging)
				bus.Publish(row("first")) // it hangs with this one
				settle()
				record := r()
				for range 7 {
					bus.Publish(record)
				}
				if got, want := fmt.Sprint(bus.Status()), "[{hanging 8 3 0}]"; got != want {
					t.Errorf("status %s, want %s: four of 64 MiB", got, want)
				}
				close(hanging.gate)
				if err := bus.Close(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
