package store_test

import (
	"fmt"

	"github.com/dynago/dynago/openai/responses/store"
)

// A second response goes on from the first, and finds what was said before it.
func Example() {
	s, err := store.New(store.Options{})
	if err != nil {
		panic(err)
	}
	first, _ := store.NewRecord(store.Record{
		ID: "resp_1", Status: "completed",
		Input: []store.Item{{ID: "msg_a", JSON: []byte(`{"role":"user","content":"Hello"}`)}},
	}, []byte(`{"id":"resp_1","output":[{"id":"msg_b","role":"assistant","content":"Hi!"}]}`))
	s.Put(first, nil)

	second, _ := store.NewRecord(store.Record{
		ID: "resp_2", Previous: "resp_1", Status: "completed",
		Input: []store.Item{{ID: "msg_c", JSON: []byte(`{"role":"user","content":"How are you?"}`)}},
	}, []byte(`{"id":"resp_2","output":[{"id":"msg_d","role":"assistant","content":"Fine."}]}`))
	s.Put(second, nil)
	s.Delete("", "resp_1") // what goes on from it stays whole

	last, before, _ := s.Conversation("", "resp_2")
	for _, item := range append(before, last.Output...) {
		fmt.Println(string(item.JSON))
	}
	// Output:
	// {"role":"user","content":"Hello"}
	// {"id":"msg_b","role":"assistant","content":"Hi!"}
	// {"role":"user","content":"How are you?"}
	// {"id":"msg_d","role":"assistant","content":"Fine."}
}
