package selection_test

import (
	"fmt"
	"testing"
)

// BenchmarkReserve books a prompt of 8,192 tokens among 64 workers, and frees it.
func BenchmarkReserve(b *testing.B) {
	h := newHouse(b)
	for id := range 64 {
		h.register(id)
	}
	_, text := count(0, 8192)
	for i := 0; b.Loop(); i++ {
		id := fmt.Sprint(i)
		if status, answer := h.do("POST", "/select_and_reserve", `{"selection_id":"`+id+`","token_ids":`+text+`}`); status != 200 {
			b.Fatal(answer)
		}
		h.do("DELETE", "/reservations/"+id, "")
	}
}
