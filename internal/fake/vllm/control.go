package vllm

import (
	"context"
	"net/http"
	"slices"
	"sync"
)

// Ways in which a server rests: it takes requests and lets them hang.
const (
	sleeping = "sleeping"
	paused   = "paused"
)

// rest is whether and how a server rests.
type rest struct {
	mu   sync.Mutex
	how  string
	over chan struct{} // closed when the rest is over
}

// begin ends one rest and begins another; "" is none.
func (r *rest) begin(how string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.how != "" {
		close(r.over)
	}
	if r.how = how; how != "" {
		r.over = make(chan struct{})
	}
}

func (r *rest) is(how string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.how == how
}

// end waits until the server rests no more, and says whether ctx has not ended
// before.
func (r *rest) end(ctx context.Context) bool {
	for {
		r.mu.Lock()
		how, over := r.how, r.over
		r.mu.Unlock()
		if how == "" {
			return true
		}
		select {
		case <-over:
		case <-ctx.Done():
			return false
		}
	}
}

// routeControls adds the routes of the development mode.
func (s *Server) routeControls() {
	tell := func(path string, do func()) {
		s.route("POST", path, func(w http.ResponseWriter, r *http.Request) {
			s.mu.Lock()
			s.told = append(s.told, r.URL.String())
			s.mu.Unlock()
			do()
		})
	}
	s.route("GET", "/server_info", s.info)
	s.route("POST", "/reset_prefix_cache", s.reset)
	tell("/reset_mm_cache", func() {})
	tell("/reset_encoder_cache", func() {})
	tell("/sleep", func() {
		s.mock.Forget() // unless something runs
		s.Sleep()
	})
	tell("/wake_up", s.Wake)
	tell("/pause", func() { s.rest.begin(paused) })
	tell("/resume", func() { s.rest.begin("") })
	for path, how := range map[string]string{"/is_sleeping": sleeping, "/is_paused": paused} {
		s.route("GET", path, func(w http.ResponseWriter, _ *http.Request) {
			write(w, http.StatusOK, map[string]any{path[1:]: s.rest.is(how)})
		})
	}
}

// reset forgets what is cached, unless something runs.
func (s *Server) reset(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	s.told = append(s.told, r.URL.String())
	s.mu.Unlock()
	s.resets.Add(1)
	write(w, http.StatusOK, map[string]any{"success": s.mock.Forget()})
}

// Sleep makes the server accept what comes and answer nothing, until it wakes.
func (s *Server) Sleep() { s.rest.begin(sleeping) }

// Wake ends a sleep.
func (s *Server) Wake() { s.rest.begin("") }

// Told returns what the server was told to do, as it was addressed, in order.
func (s *Server) Told() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.told)
}

// Resets returns how often the cache was to be forgotten.
func (s *Server) Resets() int64 { return s.resets.Load() }
