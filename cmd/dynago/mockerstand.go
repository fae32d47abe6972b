package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/chat"
	"github.com/dynago/dynago/internal/fake/llama"
	"github.com/dynago/dynago/internal/fake/mishap"
	"github.com/dynago/dynago/internal/fake/ollama"
	"github.com/dynago/dynago/internal/fake/publish"
	"github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/internal/fake/trtllm"
	"github.com/dynago/dynago/internal/fake/vllm"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/tokenizer"
)

// imitation is what is said of a server beyond its flags. Everything in it may be
// changed while it runs.
type imitation struct {
	// Quirks are those of the build: members of the configuration of the server
	// that is imitated. Other quirks are those of another process, which begins its
	// life with them.
	Quirks map[string]jsontext.Value `json:"quirks,omitempty"`
	// Faults happen to requests.
	Faults mishap.Faults `json:"faults"`
	// Events are mishaps of KV events.
	Events publish.Faults `json:"events"`
}

// stand is one server that imitates an engine, with what may happen to it.
type stand struct {
	kind   string
	model  *imitated
	kv     publish.Config
	number int
	admin  *http.ServeMux
	door   *mishap.Door

	mu     sync.RWMutex
	now    imitation
	behind server
}

// server is a fake, whichever.
type server struct {
	http.Handler
	engine *mock.Engine       // nil where it is hidden
	events *publish.Publisher // or nil
	// restart is a crash and a new start; nil: there is nothing that it would change.
	restart func()
	close   func()
}

// newStand makes the i-th server.
func newStand(c *mockerCommand, model *imitated, i int) (*stand, error) {
	s := &stand{kind: *c.Mocker.API, model: model, number: i, admin: http.NewServeMux()}
	var err error
	if s.kv, err = eventsConfig(c.Mocker.Events, i*model.args.DPSize); err != nil {
		return nil, fmt.Errorf("--kv-events-config: %w", err)
	}
	if s.kv.Endpoint != "" && s.kind != "vllm" && s.kind != "sglang" {
		return nil, fmt.Errorf("--kv-events-config: %s publishes nothing; of --api there are vllm and sglang that do", s.kind)
	}
	said, err := documents(c.Mocker.Say, i, c.Mocker.Count)
	if err != nil {
		return nil, fmt.Errorf("--mocker-config: %w", err)
	}
	s.door = mishap.NewDoor(http.HandlerFunc(s.pass))
	if err := s.change(true, said...); err != nil {
		return nil, fmt.Errorf("--mocker-config: %w", err)
	}
	s.routes()
	return s, nil
}

// change makes other things true of the server: members that are there replace
// those before. Where one cannot be, nothing changes. Other quirks are those of
// another process, which begins its life.
func (s *stand) change(first bool, said ...jsontext.Value) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	next := s.now
	next.Quirks = maps.Clone(s.now.Quirks)
	for _, document := range said {
		if err := strictly(document, &next); err != nil {
			return err
		}
	}
	if err := next.Faults.Check(); err != nil {
		return fmt.Errorf("faults: %w", err)
	}
	if first || !sameQuirks(next.Quirks, s.now.Quirks) {
		open, err := s.build(next.Quirks)
		if err != nil {
			return err
		}
		if !first {
			s.behind.close() // its ports are needed
		}
		if s.behind, err = open(); err != nil {
			return err
		}
	}
	s.now = next
	if p := s.behind.events; p != nil {
		p.SetFaults(next.Events)
	}
	return s.door.Set(next.Faults)
}

func sameQuirks(a, b map[string]jsontext.Value) bool {
	return maps.EqualFunc(a, b, func(v, w jsontext.Value) bool { return bytes.Equal(v, w) })
}

// build returns how to open the server with some quirks, which are right.
func (s *stand) build(said map[string]jsontext.Value) (open func() (server, error), err error) {
	m := s.model.mock
	m.Name = fmt.Sprintf("mocker-%d", s.number)
	switch s.kind {
	case "vllm":
		c := vllm.Config{PromptTokensDetails: true, Events: s.kv}
		if err = quirks(said, &c); err == nil {
			c.Mock = m
			return func() (server, error) {
				f, err := vllm.New(c)
				if err != nil {
					return server{}, err
				}
				return server{f, f.Engine(), f.Events(), f.Restart, func() { f.Close() }}, nil //nolint:errcheck // it has nothing to say
			}, nil
		}
	case "sglang":
		c := sglang.Config{Events: s.kv, Bootstrap: s.model.rooms}
		if err = quirks(said, &c); err == nil {
			c.Mock = m
			return func() (server, error) {
				f, err := sglang.New(c)
				if err != nil {
					return server{}, err
				}
				return server{f, f.Engine(), f.Events(), f.Restart, func() { f.Close() }}, nil //nolint:errcheck // it has nothing to say
			}, nil
		}
	case "trtllm":
		c := trtllm.Config{Model: m.Model, Transceiver: s.model.transceiver}
		if err = quirks(said, &c); err == nil {
			return func() (server, error) {
				e, err := mock.New(m)
				if err != nil {
					return server{}, err
				}
				c := c
				c.Engine = e
				f := trtllm.New(c)
				return server{f, e, nil, f.Restart, func() { f.Close(); e.Close() }}, nil //nolint:errcheck // it has nothing to say
			}, nil
		}
	case "llamacpp":
		c := llama.Config{Alias: m.Model, ContextLength: int(m.ContextLength)}
		if err = quirks(said, &c); err == nil {
			c.Mock, c.Vocabulary = m, s.model.spell
			return func() (server, error) {
				f, err := llama.New(c)
				if err != nil {
					return server{}, err
				}
				return server{f, nil, nil, f.Restart, func() { f.Close() }}, nil //nolint:errcheck // it has nothing to say
			}, nil
		}
	case "ollama":
		c := ollama.Config{Loaded: int(m.ContextLength), Made: int(m.ContextLength)}
		if err = quirks(said, &c); err == nil {
			c.Mock = m
			c.Mock.VocabSize = 0 // its vocabulary is bytes
			return func() (server, error) {
				f, err := ollama.New(c)
				if err != nil {
					return server{}, err
				}
				return server{f, nil, nil, f.Restart, func() { f.Close() }}, nil //nolint:errcheck // it has nothing to say
			}, nil
		}
	case "openai":
		c := chat.Config{}
		if err = quirks(said, &c); err == nil {
			c.Mock, c.Vocabulary = m, s.model.spell
			return func() (server, error) {
				f, err := chat.New(c)
				if err != nil {
					return server{}, err
				}
				return server{f, f.Engine(), nil, f.Restart, func() { f.Close() }}, nil //nolint:errcheck // it has nothing to say
			}, nil
		}
	}
	return nil, err
}

// events returns what tells of the caches, or nil.
func (s *stand) events() *publish.Publisher {
	s.mu.RLock()
	defer s.mu.RUnlock()
	return s.behind.events
}

// close ends the server.
func (s *stand) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.behind.close()
}

// attachAs is what --engine says of the server: its address, and what it does not
// tell by itself.
func (s *stand) attachAs(at *net.TCPAddr) string {
	host := at.IP.String()
	if at.IP.IsUnspecified() {
		host = "127.0.0.1"
	}
	text := s.kind + "=http://" + net.JoinHostPort(host, strconv.Itoa(at.Port))
	if p := s.events(); p != nil && s.kind == "vllm" {
		text += ",events=" + p.Endpoint()
		if p.Replay() != "" {
			text += ",replay=" + p.Replay()
		}
	}
	if s.kind == "trtllm" {
		text += fmt.Sprintf(",context_length=%d", s.model.mock.ContextLength)
	}
	return text
}

// ServeHTTP answers for the engine, and for what may happen to it.
func (s *stand) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, "/admin/") {
		s.admin.ServeHTTP(w, r)
		return
	}
	s.door.ServeHTTP(w, r)
}

// pass hands a request to the process that runs now.
func (s *stand) pass(w http.ResponseWriter, r *http.Request) {
	s.mu.RLock()
	h := s.behind.Handler
	s.mu.RUnlock()
	h.ServeHTTP(w, r)
}

// mostSaid bounds a document that is posted.
const mostSaid = 1 << 20

// routes are those by which what may happen is changed.
func (s *stand) routes() {
	s.admin.HandleFunc("GET /admin/config", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		answer(w, http.StatusOK, s.now)
	})
	s.admin.HandleFunc("POST /admin/config", func(w http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(http.MaxBytesReader(w, r.Body, mostSaid))
		if err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		said, err := parse(text)
		if err == nil {
			err = s.change(false, said)
		}
		if err != nil {
			answer(w, http.StatusBadRequest, map[string]string{"error": err.Error()})
			return
		}
		s.mu.RLock()
		defer s.mu.RUnlock()
		answer(w, http.StatusOK, s.now)
	})
	s.admin.HandleFunc("GET /admin/cache", func(w http.ResponseWriter, r *http.Request) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		if s.behind.engine == nil {
			answer(w, http.StatusNotImplemented, map[string]string{"error": s.kind + " has no cache that could be told"})
			return
		}
		answer(w, http.StatusOK, cached(r.Context(), s.behind.engine, s.model.args.DPSize))
	})
	s.admin.HandleFunc("POST /admin/forget", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		answer(w, http.StatusOK, map[string]bool{"forgotten": s.behind.engine != nil && s.behind.engine.Forget()})
	})
	s.admin.HandleFunc("POST /admin/restart", func(w http.ResponseWriter, _ *http.Request) {
		s.mu.RLock()
		defer s.mu.RUnlock()
		if s.behind.restart == nil {
			answer(w, http.StatusNotImplemented, map[string]string{"error": s.kind + " is the same after a restart"})
			return
		}
		s.behind.restart()
		answer(w, http.StatusOK, map[string]bool{"restarted": true})
	})
}

// rankCache is what one rank has cached.
type rankCache struct {
	Rank   uint32         `json:"dp_rank"`
	Blocks []kv.LocalHash `json:"tokens_hashes"`
}

// cached returns what an engine has cached, by the hashes of its blocks' tokens.
func cached(ctx context.Context, e *mock.Engine, ranks int) []rankCache {
	list := make([]rankCache, ranks)
	left := ranks
	for b, err := range e.Events(ctx, nil) {
		if err != nil || int(b.Rank) >= ranks {
			break
		}
		c := &list[b.Rank]
		c.Rank = b.Rank
		for _, event := range b.Events {
			for _, block := range event.Blocks {
				c.Blocks = append(c.Blocks, block.Local)
			}
		}
		if b.Snapshot == kv.SnapshotEnd {
			slices.Sort(c.Blocks)
			left--
		}
		if left == 0 {
			break
		}
	}
	return list
}

func answer(w http.ResponseWriter, status int, v any) {
	text, err := json.Marshal(v, json.Deterministic(true))
	if err != nil {
		status, text = http.StatusInternalServerError, []byte(err.Error())
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	w.Write(append(text, '\n')) //nolint:errcheck // the client has gone
}

// spell is how a model spells, for servers that stream text.
type spell struct{ *tokenizer.Tokenizer }

// Spell returns the bytes of an id, none for one that is special.
func (s spell) Spell(id uint32) []byte {
	if s.IsSpecial(id) {
		return nil
	}
	return s.Bytes(id)
}

// Encode returns the ids of a text.
func (s spell) Encode(text string) []uint32 { return s.Append(nil, text) }
