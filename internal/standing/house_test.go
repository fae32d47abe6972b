// Package standing holds the properties that every answer keeps, whatever the
// request, the route, or how the engine cuts its output. They run over the
// whole house, from the HTTP edge to the mock engine, and read the answers as a
// client does.
package standing_test

import (
	"cmp"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/internal/demo"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// house is a whole system behind an HTTP server.
type house struct {
	url      string
	front    *frontend.Server
	pipeline *pipeline.Pipeline
	fleet    *fleet.Fleet
	router   *router.Router
	engines  []*mock.Engine
}

// plan says how a house differs from the usual one.
type plan struct {
	script     string // YAML; empty = prose
	workers    int    // 0 = 2
	template   func(string) string
	migration  int
	timing     *sse.Timing
	limits     pipeline.Limits
	inhibit    time.Duration
	bodyLimit  int64
	maxRunning int
	tokenMS    float64 // 0 = no delay
	context    int     // tokens; 0 = what the demo model was made for
	replay     bool    // put answers back as they were
	routing    router.Config
	// encode makes tokens of what the engines say; nil = as the tokenizer does.
	encode func(dst []uint32, text string) []uint32
	// wrap, if not nil, goes around each engine.
	wrap func(engine.Engine) engine.Engine
}

var files = sync.OnceValue(func() fstest.MapFS {
	fs := fstest.MapFS{}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "generation_config.json", "config.json"} {
		b, err := demo.File(name)
		if err != nil {
			panic(err)
		}
		fs[name] = &fstest.MapFile{Data: b}
	}
	return fs
})

func build(t testing.TB, p plan) *house {
	t.Helper()
	model, err := prompt.Load(func(name string) ([]byte, error) {
		b, err := files().ReadFile(name)
		if name == "chat_template.jinja" && p.template != nil {
			b = []byte(p.template(string(b)))
		}
		return b, err
	}, prompt.Parsers{})
	check(t, err)
	model.ContextLength = cmp.Or(p.context, model.ContextLength)
	model.ReplayRaw = p.replay

	var script *mock.Script
	if p.script != "" {
		script, err = mock.LoadScript(strings.NewReader(p.script))
		check(t, err)
	}
	inhibit := p.inhibit
	if inhibit == 0 {
		inhibit = -1
	}
	h := &house{fleet: fleet.New(fleet.Config{Inhibit: inhibit})}
	p.routing.Seed = 1
	h.router, err = router.New(p.routing, h.fleet)
	check(t, err)
	h.pipeline = pipeline.New(pipeline.Config{
		Fleet: h.fleet, Router: h.router, MigrationLimit: p.migration, Limits: p.limits,
		Load: func(*engine.Card) (*prompt.Model, error) { return model, nil },
	})
	args := mock.DefaultArgs()
	args.BlockSize, args.SpeedupRatio = 16, 0
	if p.tokenMS > 0 {
		args.TimingModel, args.DecodeMS, args.SpeedupRatio = "constant", p.tokenMS, 1
	}
	if p.maxRunning > 0 {
		args.MaxNumSeqs = p.maxRunning
	}
	encode := model.Tokenizer.Append
	if p.encode != nil {
		encode = p.encode
	}
	for i := range cmp.Or(p.workers, 2) {
		e, err := mock.New(mock.Config{
			Model: demo.Name, Args: args, Seed: 1, Script: script, Encode: encode,
			EOS: model.EOS, VocabSize: model.Tokenizer.Size(), ContextLength: uint32(model.ContextLength),
		})
		check(t, err)
		h.engines = append(h.engines, e)
		entry := fleet.Entry{Name: fmt.Sprintf("mock-%d", i), Engine: e}
		if p.wrap != nil {
			entry.Engine = p.wrap(e)
		}
		_, err = h.fleet.Add(entry)
		check(t, err)
	}
	waitFor(t, "all workers are ready", func() bool {
		for _, w := range h.fleet.Snapshot() {
			if !w.Ready() {
				return false
			}
		}
		return true
	})
	h.front, err = frontend.New(frontend.Config{Backend: h.pipeline, KServe: true, Timing: p.timing, BodyLimit: p.bodyLimit})
	check(t, err)
	web := httptest.NewUnstartedServer(h.front.Handler())
	// The kernel must not read in place of a client that sleeps.
	web.Config.ConnState = func(c net.Conn, state http.ConnState) {
		if state == http.StateNew {
			c.(*net.TCPConn).SetWriteBuffer(8 << 10) //nolint:errcheck // a test would fail visibly
		}
	}
	web.Start()
	h.url = web.URL
	t.Cleanup(func() {
		web.Close()
		check(t, h.fleet.Close())
	})
	return h
}

// idle fails the test unless everything that a request held comes back.
func (h *house) idle(t testing.TB) {
	t.Helper()
	waitFor(t, "all bookings are released", func() bool {
		for _, l := range h.router.Loads() {
			if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
				return false
			}
		}
		return true
	})
	waitFor(t, "no engine runs anything", func() bool { return h.running(t) == 0 })
}

// running returns how many requests the engines have not come to the end of.
func (h *house) running(t testing.TB) (n int64) {
	for _, w := range h.fleet.Snapshot() {
		for load := range w.Engine().Load(t.Context()) {
			for _, r := range load.Ranks {
				n += r.Running + r.Waiting
			}
			break
		}
	}
	return n
}

// waitFor waits for a condition that other goroutines bring about.
func waitFor(t testing.TB, what string, holds func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for deadline := time.Now().Add(20 * time.Second); !holds(); <-tick.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited too long until %s", what)
		}
	}
}

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
