package loadgen_test

import (
	"bufio"
	"fmt"
	"strings"

	"github.com/dynago/dynago/bench/loadgen"
)

func ExampleEvents() {
	stream := ": keep-alive\n\n" +
		"data: {\"choices\":[]}\n\n" +
		"data: [DONE]\n\n"
	for event, err := range loadgen.Events(bufio.NewReader(strings.NewReader(stream))) {
		if err != nil {
			fmt.Println("cut off:", err)
			return
		}
		fmt.Printf("%s\n", event.Data)
	}
	// Output:
	// {"choices":[]}
	// [DONE]
}
