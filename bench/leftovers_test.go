package main

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

const profile = `goroutine profile: total 5
3 @ 0x1 0x2
#	0x1	net.read+0x10	net/fd.go:1
#	0x2	net/http.(*conn).serve+0x20	net/http/server.go:2

1 @ 0x3
#	0x3	main.main+0x30	main.go:3

1 @ 0x4 0x2
#	0x4	net.write+0x10	net/fd.go:4
#	0x2	net/http.(*conn).serve+0x21	net/http/server.go:2
`

func TestGoroutinesByWhereTheyBegan(t *testing.T) {
	got, err := parseGoroutines(strings.NewReader(profile))
	want := goroutines{"net/http.(*conn).serve": 4, "main.main": 1}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("goroutines %v, %v; want %v", got, err, want)
	}
	more := got.above(goroutines{"net/http.(*conn).serve": 3, "main.main": 2})
	if want := (goroutines{"net/http.(*conn).serve": 1}); !maps.Equal(more, want) || more.total() != 1 {
		t.Errorf("above the idle level: %v, want %v", more, want)
	}
	if _, err := parseGoroutines(strings.NewReader("not found")); err == nil {
		t.Error("no error for a page that is no profile: it must not count as none")
	}
}

// TestLeftoversAreWaitedFor has a server that comes to rest after some readings,
// and ones that never do.
func TestLeftoversAreWaitedFor(t *testing.T) {
	tests := []struct {
		name            string
		requests, conns []int // by reading, the last one for good
		want            leftovers
	}{
		{"comes to rest", []int{9, 4, 0}, []int{3, 2, 2}, leftovers{}},
		{"requests leak", []int{9, 2, 3}, []int{2}, leftovers{requests: 2}},
		{"goroutines leak", []int{0}, []int{9, 4, 5}, leftovers{goroutines: goroutines{"net/http.(*conn).serve": 2}}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			readings := 0
			admin := http.NewServeMux()
			admin.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "dynamo_frontend_active_requests %d\n", tt.requests[min(readings, len(tt.requests)-1)])
				fmt.Fprint(w, "dynamo_frontend_worker_active_decode_blocks 0\n")
			})
			admin.HandleFunc("/debug/pprof/goroutine", func(w http.ResponseWriter, _ *http.Request) {
				fmt.Fprintf(w, "%d @ 0x1\n#\t0x1\tnet/http.(*conn).serve+0x20\tserver.go:2\n", tt.conns[min(readings, len(tt.conns)-1)])
				readings++
			})
			listener := httptest.NewServer(admin)
			defer listener.Close()

			s := &server{admin: listener.URL}
			got, err := s.leftovers(t.Context(), goroutines{"net/http.(*conn).serve": 2}, 500*time.Millisecond)
			if err != nil || got.requests != tt.want.requests || !maps.Equal(got.goroutines, tt.want.goroutines) {
				t.Errorf("leftovers = %+v, %v; want %+v", got, err, tt.want)
			}
		})
	}
}
