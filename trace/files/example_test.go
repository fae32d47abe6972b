package files_test

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/dynago/dynago/trace/files"
)

func ExampleRead() {
	directory, err := os.MkdirTemp("", "trace")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(directory)
	text := `{"timestamp":7,"event":{"schema":"dynamo.request.trace.v1","event_type":"request_end","event_time_unix_ms":1790000004250,"request":{"request_id":"5d9f2a60"}}}`
	if err := os.WriteFile(filepath.Join(directory, "trace.jsonl"), []byte(text+"\n{\"torn"), 0o600); err != nil {
		panic(err)
	}
	paths, err := files.Find(directory)
	if err != nil {
		panic(err)
	}
	complain := func(error) { fmt.Println("something is torn") }
	for row, err := range files.Read(paths, complain) {
		if err != nil {
			panic(err)
		}
		fmt.Println("line", row.Line, "is of request", row.RequestID())
	}
	// Output:
	// line 1 is of request 5d9f2a60
	// something is torn
}
