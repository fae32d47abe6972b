//go:build realengine

package engines_test

import (
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"
)

// server is one engine, found at the same place after it was started anew.
type server struct {
	*process
	t       testing.TB // that it ends with
	kind    string
	url     string
	command func(port string) (env, args []string)
	startUp time.Duration // is the longest that it takes
	block   int           // tokens of a block; 1 where all but the last token are found again
	seqs    int           // run at a time
	// running, waiting and hits are what the server says of itself: requests that
	// run and wait, and tokens found in its cache so far.
	running, waiting, hits func(t testing.TB) float64
}

// start starts the server, and does not wait for it.
func (s *server) start() {
	s.t.Helper()
	env, args := s.command(s.url[strings.LastIndexByte(s.url, ':')+1:])
	s.process = start(s.t, s.kind+" at "+s.url, env, args...)
}

func (s *server) idle(t testing.TB) {
	t.Helper()
	eventually(t, time.Minute, s.url+" has nothing to do", func() bool { return s.running(t)+s.waiting(t) == 0 })
}

// again is how many tokens of a prompt are found at the second time.
func (s *server) again(prompt int) int { return (prompt - 1) / s.block * s.block }

// attached holds dynago against servers that start after it.
func attached(t *testing.T, d *dynago, servers ...*server) {
	if status, _ := ask("GET", d.url+"/ready", ""); status != http.StatusServiceUnavailable {
		t.Errorf("ready before any engine: status %d", status)
	}
	for _, s := range servers {
		s.start()
	}
	for _, s := range servers {
		d.awaits(t, s.url, "ready", s.startUp)
	}
	if status, text := ask("GET", d.url+"/v1/models", ""); status != http.StatusOK || !strings.Contains(text, `"context_window":4096`) {
		t.Errorf("models: status %d %s", status, text)
	}
	for _, s := range servers {
		d.learns(t, s)
	}
}

// learns waits until it is known that a server tells what was cached: its first
// answer shows it.
func (d *dynago) learns(t testing.TB, s *server) {
	t.Helper()
	eventually(t, 20*time.Second, "cached tokens are told", func() bool {
		return chat(t, d.url, question{text: "hello", header: d.at(t, s.url)}).cached() >= 0
	})
	d.settled(t)
}

// foreseen grows conversations on all servers until blocks are evicted, and wants
// every hit to be one that was predicted, and counted by the engine, too.
func foreseen(t *testing.T, d *dynago, servers ...*server) {
	engines := func() (sum float64) {
		for _, s := range servers {
			sum += s.hits(t)
		}
		return sum
	}
	d.settled(t)
	before, hits := d.prediction(t), engines()
	removed := func() float64 {
		return metric(t, d.url, "dynamo_component_kv_cache_events_applied", `event_type="removed"`, `status="ok"`)
	}
	gone := removed()
	for turn := range 5 {
		for n := range 6 {
			chat(t, d.url, question{text: story(n, 150+200*turn)})
			d.settled(t)
		}
	}
	again := chat(t, d.url, question{text: story(5, 950)})
	if want := servers[0].again(again.Usage.Prompt); again.cached() != want {
		t.Errorf("%d of %d tokens are cached at the second time, want %d", again.cached(), again.Usage.Prompt, want)
	}
	for n := range 14 { // some 24,000 tokens, which is more than there is room for
		chat(t, d.url, question{text: story(100+n, 3500)})
		d.settled(t)
	}
	for n := range 6 {
		chat(t, d.url, question{text: story(n, 950)})
		d.settled(t)
	}
	got := d.prediction(t).since(before)
	t.Logf("predicted %.0f tokens, reported %.0f, wrong blocks %.0f, evicted %.0f", got.predicted, got.reported, got.wrong, removed()-gone)
	if got.predicted != got.reported || got.reported == 0 || got.wrong != 0 {
		t.Errorf("%+v", got)
	}
	if now := engines() - hits; now != got.reported {
		t.Errorf("the engines count %.0f cached tokens, dynago %.0f", now, got.reported)
	}
	if removed() == gone {
		t.Error("no block was evicted: the prompts are too short for this test")
	}
}

// urgent fills a server, lets two requests wait, and wants the more urgent one
// first though it came last.
func urgent(t *testing.T, d *dynago, s *server) {
	s.idle(t)
	at := func(priority string) http.Header {
		h := d.at(t, s.url)
		h.Set("X-Dynamo-Request-Priority", priority)
		return h
	}
	var fill []*stream
	for n := range s.seqs {
		f := open(t, d.url, question{text: story(200+n, 60), tokens: 1500, header: at("5")})
		f.hears(t, 1)
		fill = append(fill, f)
	}
	late := open(t, d.url, question{text: story(210, 60), tokens: 500, header: at("1")})
	eventually(t, 10*time.Second, "one waits", func() bool { return s.waiting(t) == 1 })
	first := open(t, d.url, question{text: story(211, 60), tokens: 500, header: at("9")})
	eventually(t, 10*time.Second, "two wait", func() bool { return s.waiting(t) == 2 })
	fill[0].cancel()
	first.hears(t, 1)
	select {
	case <-late.first:
		t.Error("the less urgent request was not overtaken")
	default:
	}
	for _, f := range append(fill, late, first) {
		f.cancel()
	}
	s.idle(t)
}

// cancelled leaves a stream, and wants the engine to stop.
func cancelled(t *testing.T, d *dynago, s *server) {
	s.idle(t)
	f := open(t, d.url, question{text: story(300, 100), tokens: 3800, header: d.at(t, s.url)})
	f.hears(t, 20)
	if n := s.running(t); n != 1 {
		t.Errorf("%.0f requests run, want 1", n)
	}
	f.cancel()
	began := time.Now()
	s.idle(t)
	t.Logf("free after %v", time.Since(began).Round(time.Millisecond))
	select {
	case <-f.done:
	case <-time.After(time.Second):
		t.Error("the stream goes on")
	}
	if n := len(f.answer.Text); n > 3000 {
		t.Errorf("%d bytes came: the answer was all there before", n)
	}
}

// killed lets a server die with a stream, and come back.
func killed(t *testing.T, d *dynago, s *server) {
	old := question{text: story(600, 900), header: d.at(t, s.url)}
	chat(t, d.url, old)
	interrupted(t, d, s.url, story(601, 300), s.kill)

	eventually(t, time.Minute, "its death is seen", func() bool { return d.worker(t, s.url).State != "ready" })
	chat(t, d.url, question{text: "hello again"}) // the other one serves
	s.start()
	d.awaits(t, s.url, "ready", s.startUp)
	d.learns(t, s)
	before := d.prediction(t)
	if a := chat(t, d.url, old); a.cached() != 0 {
		t.Errorf("%d tokens are cached in a new process", a.cached())
	}
	d.settled(t)
	if got := d.prediction(t).since(before); got != (prediction{}) {
		t.Errorf("credit for a cache that is gone: %+v", got)
	}
	if a := chat(t, d.url, old); a.cached() != s.again(a.Usage.Prompt) {
		t.Errorf("%d of %d tokens are cached at the second time", a.cached(), a.Usage.Prompt)
	}
	if got := d.prediction(t).since(before); s.block > 1 && (got.predicted != got.reported || got.wrong != 0) {
		t.Errorf("by the events of the new process: %+v", got)
	}
}

// emptied resets a server's cache behind dynago's back. Servers tell of it when
// they compute next.
func emptied(t *testing.T, d *dynago, s *server, path string) {
	q := question{text: story(500, 900), header: d.at(t, s.url)}
	chat(t, d.url, q)
	d.settled(t)
	s.idle(t)
	if status, text := ask("POST", s.url+path, ""); status != http.StatusOK {
		t.Fatalf("reset: status %d %s", status, text)
	}
	chat(t, d.url, question{text: "hello", header: q.header})
	d.settled(t)
	before := d.prediction(t)
	if a := chat(t, d.url, q); a.cached() != 0 {
		t.Errorf("%d tokens are cached after a reset", a.cached())
	}
	if got := d.prediction(t).since(before); got != (prediction{}) {
		t.Errorf("after a reset %+v", got)
	}
}

// unheard lets a server do what nobody hears of, since its line is cut, and wants
// it to be learned afterwards.
func unheard(t *testing.T, d *dynago, s *server, wire *relay) {
	d.settled(t)
	q := question{text: story(400, 900), header: d.at(t, s.url)}
	wire.cut()
	direct := chat(t, s.url, question{text: q.text}) // and not through dynago
	heard := d.heard(t)
	wire.mend()
	eventually(t, 30*time.Second, "the missed events are known", func() bool { return d.heard(t) != heard })
	d.settled(t)
	before := d.prediction(t)
	a := chat(t, d.url, q)
	got := d.prediction(t).since(before)
	if want := float64(s.again(direct.Usage.Prompt)); got.predicted != want || got.reported != want || got.wrong != 0 || float64(a.cached()) != want {
		t.Errorf("after the gap %+v, cached %d, want %v", got, a.cached(), want)
	}
}

// gauge reads a value of a server's metrics.
func (s *server) gauge(name string) func(testing.TB) float64 {
	return func(t testing.TB) float64 { return metric(t, s.url, name) }
}

func itoa(n int) string { return strconv.Itoa(n) }
