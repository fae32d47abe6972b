// Package llama imitates llama-server, the HTTP server of llama.cpp, for tests
// and for trying things out without a model: its routes, its slots, its stream
// with pings and without a [DONE], and how it keeps the ids of an unfinished
// character to itself.
//
// The one idea: tokens and times come from the mock engine, and what is here is
// the wire alone. A slot is a place in a queue that remembers one prompt.
package llama

import (
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/dynago/dynago/engine/mock"
)

// Config says what server is imitated.
type Config struct {
	// Mock makes the tokens. Its MaxNumSeqs is the number of slots.
	Mock mock.Config
	// ContextLength is that of a slot; 0: what the mock engine has room for.
	ContextLength int
	// Alias is --alias: what the server calls its model; empty: the name of its file.
	Alias string
	// Adapters are files of LoRA adapters, loaded at scale 1.
	Adapters []string
	// NoMetrics and NoSlots are a server without --metrics and with --no-slots.
	NoMetrics, NoSlots bool
	// SlotActions is --slot-save-path; only erase does something.
	SlotActions bool
	// Pings puts a comment before every event.
	Pings bool
	// OldUsage tells how full the cache is, as builds up to 2025 do.
	OldUsage bool
	// Markers makes a mark of its own in each life, as builds of 2026 do.
	Markers bool
	// Router is a server that starts others, and has no model.
	Router bool
	// Vocabulary is that of the model; nil: [Bytes].
	Vocabulary Vocabulary
}

// Vocabulary is how a model spells.
type Vocabulary interface {
	// Spell returns the bytes of an id, none for one that is special.
	Spell(id uint32) []byte
	// Encode returns the ids of a text.
	Encode(text string) []uint32
}

// eosText is how the end of a sequence is written.
const eosText = "</s>"

// Server is an http.Handler.
type Server struct {
	cfg     Config
	mux     *http.ServeMux
	mock    *mock.Engine
	context int
	words   Vocabulary

	mu      sync.Mutex
	life    *life
	loading atomic.Bool
	asleep  atomic.Bool
}

// life is a server from its start to its end.
type life struct {
	slots             *slots
	prompt, predicted atomic.Int64 // tokens so far
	marker            string
}

// New returns a server, which begins ready.
func New(cfg Config) (*Server, error) {
	if cfg.Mock.Args == (mock.Args{}) {
		cfg.Mock.Args = mock.DefaultArgs()
	}
	m, err := mock.New(cfg.Mock)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), mock: m, context: cfg.ContextLength, words: cfg.Vocabulary}
	if most := cmp.Or(int(cfg.Mock.ContextLength), cfg.Mock.Args.Capacity()); s.context == 0 {
		s.context = most
	} else if s.context > most {
		return nil, errors.Join(m.Close(), fmt.Errorf("a context of %d tokens, and room for %d", s.context, most))
	}
	if s.words == nil {
		s.words = Bytes{}
	}
	s.life = s.born()
	s.routes()
	return s, nil
}

func (s *Server) born() *life {
	l := &life{slots: newSlots(s.cfg.Mock.Args.MaxNumSeqs)}
	if s.cfg.Markers {
		l.marker = "<__media_" + rand.Text() + "__>"
	}
	return l
}

func (s *Server) now() *life {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.life
}

// Restart is a crash and a new start: connections break, slots are empty, and
// what was counted begins at nothing.
func (s *Server) Restart() {
	s.mu.Lock()
	old := s.life
	s.life = s.born()
	s.mu.Unlock()
	old.slots.close()
	s.mock.Restart()
}

// SetLoading says whether the server is loading its model, and refuses
// everything meanwhile.
func (s *Server) SetLoading(on bool) { s.loading.Store(on) }

// Sleep takes the model out of memory, with all that is cached, until something is
// asked of it.
func (s *Server) Sleep() {
	s.now().slots.forget()
	s.asleep.Store(true)
}

// Asleep says whether the model is out of memory.
func (s *Server) Asleep() bool { return s.asleep.Load() }

// Close ends what runs.
func (s *Server) Close() error {
	s.now().slots.close()
	return s.mock.Close()
}

// ServeHTTP answers as the server would.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if s.loading.Load() {
		refuse(w, http.StatusServiceUnavailable, "unavailable_error", "Loading model")
		return
	}
	switch r.URL.Path {
	case "/health", "/props", "/v1/models":
	default:
		s.asleep.Store(false)
	}
	s.mux.ServeHTTP(w, r)
}
