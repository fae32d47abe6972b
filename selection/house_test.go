package selection_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// house is a service with all behind it.
type house struct {
	t       testing.TB
	fleet   *fleet.Fleet
	router  *router.Router
	service *selection.Service
	handler http.Handler
}

// newHouse makes a service whose workers tell no KV events, unless change says
// otherwise.
func newHouse(t testing.TB, change ...func(*selection.Config, *router.Config)) *house {
	t.Helper()
	c, rc := selection.Config{}, router.Config{Seed: 1}
	for _, f := range change {
		f(&c, &rc)
	}
	h := &house{t: t, fleet: fleet.New(fleet.Config{})}
	t.Cleanup(func() { h.fleet.Close() })
	var err error
	if h.router, err = router.New(rc, h.fleet); err != nil {
		t.Fatal(err)
	}
	c.Fleet, c.Router = h.fleet, h.router
	if h.service, err = selection.New(c); err != nil {
		t.Fatal(err)
	}
	h.handler = h.service.Handler()
	return h
}

// do sends a request and returns status and body.
func (h *house) do(method, path, body string, header ...string) (int, string) {
	h.t.Helper()
	r := httptest.NewRequest(method, path, strings.NewReader(body))
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	h.handler.ServeHTTP(w, r)
	text, err := io.ReadAll(w.Result().Body)
	if err != nil {
		h.t.Fatal(err)
	}
	return w.Code, string(text)
}

// object sends a request that must have a status, and returns its JSON object.
func (h *house) object(want int, method, path, body string, header ...string) map[string]any {
	h.t.Helper()
	status, text := h.do(method, path, body, header...)
	if status != want {
		h.t.Fatalf("%s %s: status %d, want %d\n%s", method, path, status, want, text)
	}
	var out map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil {
		h.t.Fatalf("%s %s: %v in %s", method, path, err, text)
	}
	return out
}

// list is object for an array of objects.
func (h *house) list(method, path, body string) []map[string]any {
	h.t.Helper()
	status, text := h.do(method, path, body)
	var out []map[string]any
	if err := json.Unmarshal([]byte(text), &out); err != nil || status != http.StatusOK {
		h.t.Fatalf("%s %s: status %d, %v in %s", method, path, status, err, text)
	}
	return out
}

// register registers a worker of blocks of four tokens.
func (h *house) register(id int, more ...string) {
	h.t.Helper()
	members := append([]string{
		fmt.Sprintf(`"worker_id":%d`, id), fmt.Sprintf(`"endpoint":"http://w%d"`, id), `"block_size":4`,
	}, more...)
	out := h.object(http.StatusCreated, "POST", "/workers", "{"+strings.Join(members, ",")+"}")
	if out["lifecycle"] != "schedulable" {
		h.t.Fatalf("worker %d is %v: %v", id, out["lifecycle"], out["not_schedulable_reasons"])
	}
}

// engines lets a worker of this process join, of which the test tells.
func (h *house) engines(id uint64, change ...func(*engine.Card)) *fleet.Reporter {
	h.t.Helper()
	r, err := h.fleet.Report(fleet.Entry{Name: fmt.Sprintf("own-%d", id), ID: id})
	if err != nil {
		h.t.Fatal(err)
	}
	card := &engine.Card{
		Model: "default", ContextLength: 4096, BlockSize: 4, DPSize: 1,
		HashScheme: engine.SchemeXXH3, Features: engine.Features{engine.FeatureEvents},
	}
	for _, f := range change {
		f(card)
	}
	r.Status(engine.Status{Epoch: 1, Revision: 1, State: engine.Ready, Card: card})
	return r
}

// caches tells that a rank has stored the blocks of a prompt on a tier.
func caches(t testing.TB, r *fleet.Reporter, rank uint32, number uint64, tier kv.Tier, prompt []uint32) {
	t.Helper()
	local := kv.AppendLocalHashes(nil, prompt, 4, kv.HashSeed)
	e := kv.Event{Tier: tier}
	for i, seq := range kv.AppendSeqHashes(nil, local) {
		e.Blocks = append(e.Blocks, kv.Block{Engine: kv.EngineHash(seq), Local: local[i]})
	}
	if err := r.Events(kv.Batch{Rank: rank, Epoch: 1, First: number, Last: number, Events: []kv.Event{e}}); err != nil {
		t.Fatal(err)
	}
}

// count returns the tokens from, from+1, … of a prompt of n, and their JSON.
func count(from uint32, n int) ([]uint32, string) {
	p := make([]uint32, n)
	for i := range p {
		p[i] = from + uint32(i)
	}
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	return p, string(text)
}

// clock is a time that a test moves.
type clock struct{ at time.Time }

func (c *clock) now() time.Time { return c.at }

func newClock() *clock { return &clock{time.Date(2026, 11, 30, 0, 0, 0, 0, time.UTC)} }
