// Package ollama imitates Ollama, for tests and for trying things out without a
// model: models that are loaded when they are asked for and forgotten when nobody
// does, lines of JSON in place of events, prompts that are cut without a word.
//
// The one idea: tokens and times come from the mock engine, a byte to a token, and
// what is here is the wire and the memory alone. What the mock says between
// <think> and <tool_call> tags is parsed, as the server parses what models say.
package ollama

import (
	"errors"
	"net/http"
	"sync"
	"time"

	"github.com/dynago/dynago/engine/mock"
)

// Config says what server is imitated.
type Config struct {
	// Mock makes the tokens; its Model is the name of the first model. Its
	// vocabulary is bytes, and its MaxNumSeqs is OLLAMA_NUM_PARALLEL.
	Mock mock.Config
	// Others are further models that are installed.
	Others []string
	// Version is what the server says it is; "": [Version].
	Version string
	// Made is the context that the model was made for; 0: 2048.
	Made int
	// Loaded is the context with which it is loaded where nobody says; 0: 256.
	Loaded int
	// Capabilities are the model's; nil: completion, tools and thinking.
	Capabilities []string
	// Parameters are what the model brings, as lines of names and values.
	Parameters string
	// Queue is OLLAMA_MAX_QUEUE, 0: 512; KeepAlive is OLLAMA_KEEP_ALIVE, 0: 5 m.
	Queue     int
	KeepAlive time.Duration

	// CutsAlways is a server that does not know how to refuse a prompt that is too
	// long: it cuts it, whatever the request says.
	CutsAlways bool
	// OmitsCached leaves what was cached out of the count of the prompt.
	OmitsCached bool
	// Bare is a server that does not tell the abilities of models.
	Bare bool
}

// What the server says of itself.
const (
	Version = "0.99.0-fake"
	eos     = 256 // the id behind those of bytes
)

// Server is an http.Handler.
type Server struct {
	cfg    Config
	mux    *http.ServeMux
	mock   *mock.Engine
	memory memory
	mu     sync.Mutex
	digest string
}

// New returns a server with nothing loaded.
func New(cfg Config) (*Server, error) {
	if cfg.Mock.Args == (mock.Args{}) {
		cfg.Mock.Args = mock.DefaultArgs()
	}
	set(&cfg.Version, Version)
	set(&cfg.Made, 2048)
	set(&cfg.Loaded, 256)
	set(&cfg.Queue, 512)
	set(&cfg.KeepAlive, 5*time.Minute)
	if cfg.Capabilities == nil {
		cfg.Capabilities = []string{"completion", "tools", "thinking"}
	}
	if cfg.Made > cfg.Mock.Args.Capacity() {
		return nil, errors.New("the model was made for more than the mock engine has room for")
	}
	cfg.Mock.EOS = []uint32{eos}
	cfg.Mock.Encode = func(dst []uint32, text string) []uint32 {
		for i := range len(text) {
			dst = append(dst, uint32(text[i]))
		}
		return dst
	}
	m, err := mock.New(cfg.Mock)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, mux: http.NewServeMux(), mock: m, digest: "sha256:1"}
	s.memory.begin(cfg.Mock.Args.MaxNumSeqs, cfg.Queue, m.Restart)
	s.routes()
	return s, nil
}

func set[T comparable](v *T, to T) {
	var zero T
	if *v == zero {
		*v = to
	}
}

// Pull makes the first model another one under its name.
func (s *Server) Pull(digest string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.digest = digest
}

// Unload takes the model out of memory, as soon as nothing runs.
func (s *Server) Unload() { s.memory.unload() }

// Restart is a crash and a new start: connections break, and nothing is loaded.
func (s *Server) Restart() { s.memory.crash() }

// Context returns the context with which the model is loaded; 0: it is not.
func (s *Server) Context() int { return s.memory.now() }

// Close ends what runs.
func (s *Server) Close() error {
	s.memory.end()
	return s.mock.Close()
}

// ServeHTTP answers as the server would.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }
