package tree_test

import (
	"fmt"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/tree"
)

func Example() {
	lines := []string{
		`{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":4000,"agent_context":{"session_id":"lead"},"request":{"request_id":"r1","request_received_ms":1000,"finish_reason_metadata":{"tool_calls":[{"id":"call-1","name":"run_tests"}]}}}`,
		`{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":9000,"agent_context":{"session_id":"lead"},"request":{"request_id":"r2","request_received_ms":7500}}`,
	}
	var b tree.Builder
	for _, line := range lines {
		record, ok, err := trace.Decode([]byte(line))
		if err != nil || !ok {
			panic(err)
		}
		b.Add(record)
	}
	for _, session := range b.Tree().Sessions {
		for _, turn := range session.Turns {
			fmt.Println(session.ID, turn.Request.RequestID, turn.End.Sub(turn.Start))
			for _, tool := range turn.Tools {
				fmt.Println("  ", tool.Class, tool.Duration)
			}
		}
	}
	// Output:
	// lead r1 3s
	//    run_tests 3.5s
	// lead r2 1.5s
}
