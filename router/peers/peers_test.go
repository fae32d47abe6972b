package peers_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/peers"
)

// still is a worker that is ready, at once or after some time, and does nothing.
type still struct {
	epoch uint64
	late  time.Duration
}

func (s still) Card(ctx context.Context) iter.Seq2[engine.Status, error] {
	return func(yield func(engine.Status, error) bool) {
		select {
		case <-ctx.Done():
			return
		case <-time.After(s.late):
		}
		card := &engine.Card{Model: "m", ContextLength: 4096, BlockSize: 4, DPSize: 1, HashScheme: engine.SchemeXXH3}
		if yield(engine.Status{Epoch: s.epoch, Revision: 1, State: engine.Ready, Card: card}, nil) {
			<-ctx.Done()
		}
	}
}

func (still) Events(ctx context.Context, _ []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(func(kv.Batch, error) bool) { <-ctx.Done() }
}

func (still) Load(ctx context.Context) iter.Seq2[engine.Load, error] {
	return func(func(engine.Load, error) bool) { <-ctx.Done() }
}

func (still) Generate(context.Context, *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) { yield(engine.Delta{}, errors.New("not here")) }
}

// town is frontends that reach each other by their names.
type town struct {
	t      *testing.T
	mu     sync.Mutex
	houses map[string]*house
	posts  map[string]int // by the address that they went to
	late   time.Duration  // that workers take to say what they are
}

// house is one frontend.
type house struct {
	*peers.Peers
	town   *town
	name   string
	fleet  *fleet.Fleet
	router *router.Router
	cancel context.CancelFunc
	key    string
	deaf   bool // to what it is sent
}

func newTown(t *testing.T) *town {
	w := &town{t: t, houses: map[string]*house{}, posts: map[string]int{}}
	t.Cleanup(func() {
		for _, h := range w.houses {
			h.close()
		}
	})
	return w
}

// RoundTrip lets a house hear what is posted to its address.
func (w *town) RoundTrip(r *http.Request) (*http.Response, error) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	if len(body) > peers.MaxMessage {
		w.t.Errorf("a message of %d bytes", len(body))
	}
	w.mu.Lock()
	w.posts[r.Host]++
	h := w.houses[r.Host]
	w.mu.Unlock()
	answer := func(status int, text string) (*http.Response, error) {
		return &http.Response{
			StatusCode: status, Status: fmt.Sprintf("%d %s", status, http.StatusText(status)),
			Body: io.NopCloser(strings.NewReader(text)), Request: r,
		}, nil
	}
	switch {
	case h == nil || h.deaf:
		return nil, errors.New("connection refused")
	case r.URL.Path != peers.Path || r.Method != http.MethodPost:
		return answer(404, "")
	case r.Header.Get("Authorization") != "Bearer "+h.key:
		return answer(401, "")
	}
	heard, err := h.Hear(body)
	if err != nil {
		w.t.Errorf("%s cannot read %.200s: %v", h.name, body, err)
		return answer(400, "")
	}
	text, err := json.Marshal(heard)
	if err != nil {
		return nil, err
	}
	return answer(200, string(text))
}

// open opens a frontend at an address, with workers of these epochs from id 1 on.
func (w *town) open(host, name string, epochs ...uint64) *house {
	w.t.Helper()
	h := &house{town: w, name: name, fleet: fleet.New(fleet.Config{}), key: "k"}
	var err error
	if h.router, err = router.New(router.Config{Mode: router.RoundRobin, SessionTTL: time.Minute}, h.fleet); err != nil {
		w.t.Fatal(err)
	}
	for i, epoch := range epochs {
		if _, err := h.fleet.Add(fleet.Entry{Name: fmt.Sprint("w", i+1), ID: uint64(i + 1), Engine: still{epoch, w.late}}); err != nil {
			w.t.Fatal(err)
		}
	}
	if h.Peers, err = peers.New(peers.Config{
		Router: h.router, Fleet: h.fleet, Name: name, Key: "k", Transport: w,
		Addresses: []string{"http://a", "http://b", "http://c/"},
		Known:     func(w *fleet.Worker) (uint64, bool) { return w.Status().Epoch, w.ID() != 3 },
	}); err != nil {
		w.t.Fatal(err)
	}
	w.mu.Lock()
	w.houses[host] = h
	w.mu.Unlock()
	var ctx context.Context
	ctx, h.cancel = context.WithCancel(context.Background())
	go h.Run(ctx)
	go h.router.Run(ctx)
	synctest.Wait()
	return h
}

func (h *house) close() {
	h.cancel()
	h.fleet.Close() //nolint:errcheck // nothing is left to do
	synctest.Wait()
}

// leave closes the frontend at an address.
func (w *town) leave(host string) {
	w.mu.Lock()
	h := w.houses[host]
	delete(w.houses, host)
	w.mu.Unlock()
	h.close()
}

// turn is a turn of a session, which returns the worker.
func (h *house) turn(id string, change ...func(*router.Query)) uint64 {
	h.town.t.Helper()
	q := router.Query{Model: "m", Tokens: []uint32{1, 2, 3, 4, 5}, Session: router.Session{ID: id}}
	for _, f := range change {
		f(&q)
	}
	b, err := h.router.Route(context.Background(), &q)
	if err != nil {
		h.town.t.Fatal(err)
	}
	b.Prefilled()
	b.Completed()
	b.Release()
	return b.Decision().Target.Worker
}

// at returns where a session is bound, 0 if it is not.
func (h *house) at(id string) uint64 {
	t, _, _ := h.router.SessionTarget(&router.Query{Model: "m", Session: router.Session{ID: id}})
	return t.Worker
}

func (h *house) of(address string) peers.Stats {
	for _, s := range h.Stats() {
		if s.Address == address {
			return s
		}
	}
	h.town.t.Helper()
	h.town.t.Fatalf("nothing is known of %s", address)
	return peers.Stats{}
}

func wait(d time.Duration) {
	<-time.After(d)
	synctest.Wait()
}

// A session goes on at its worker whichever frontend its turns come to, and ends for
// all.
func TestTwoFrontends(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		a, b := w.open("a", "ra", 7, 8), w.open("b", "rb", 7, 8)
		wait(2 * time.Second)
		for i := range 8 {
			id := fmt.Sprint("s", i)
			home := a.turn(id)
			wait(100 * time.Millisecond)
			if got := b.turn(id); got != home {
				t.Errorf("%s: on %d at the other frontend, want %d", id, got, home)
			}
		}
		if list := b.router.SessionList("m"); len(list) != 8 || list[0].From != "ra" {
			t.Errorf("%+v", list)
		}
		b.turn("s1", func(q *router.Query) { q.Session.Final = true })
		wait(100 * time.Millisecond)
		if a.at("s1") != 0 || a.at("s2") == 0 {
			t.Errorf("s1 is on %d, s2 on %d", a.at("s1"), a.at("s2"))
		}
		if s := a.of("http://b"); !s.Up || s.Queued != 0 || s.Sent < 8 || s.Failures > 1 || s.Dropped > 0 || s.Wholes != 1 || s.Adopted < 8 {
			t.Errorf("%+v", s)
		}
		if self := a.of("http://a"); self.Up || self.Failures > 0 || self.Sent > 0 {
			t.Errorf("it tells itself: %+v", self)
		}
		wait(2 * time.Minute)
		if list := b.router.SessionList("m"); len(list) != 0 {
			t.Errorf("%+v", list)
		}
	})
}

// A frontend that has just begun is told all before its workers have said what they are.
func TestWorkersThatAreLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		a := w.open("a", "ra", 7, 8)
		wait(2 * time.Second)
		homes := map[string]uint64{"s1": a.turn("s1"), "s2": a.turn("s2")}
		ended := a.turn("s3")
		w.late = 20 * time.Second
		b := w.open("b", "rb", 7, 8)
		wait(10 * time.Second)
		a.turn("s3", func(q *router.Query) { q.Session.Final = true })
		if b.at("s1") != 0 || ended == 0 {
			t.Fatal("it was not late")
		}
		wait(20 * time.Second)
		for id, home := range homes {
			if got := b.at(id); got != home {
				t.Errorf("%s: on %d at the frontend whose workers were late, want %d", id, got, home)
			}
		}
		if got := b.at("s3"); got != 0 {
			t.Errorf("s3 has ended, and is on %d", got)
		}
	})
}

// Nobody waits for a peer that is not there: it costs one message now and then, and
// nothing is kept for it. When it comes it is told all, also if it comes anew.
func TestPeerThatIsNotThere(t *testing.T) {
	// Of what comes before its workers have said what they are it thinks again in a second.
	const told = 1100 * time.Millisecond
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		a := w.open("a", "ra", 7, 8)
		wait(5 * time.Minute)
		if n := w.posts["b"]; n < 10 || n > 25 {
			t.Errorf("%d messages in five minutes", n)
		}
		home := a.turn("s")
		if s := a.of("http://b"); s.Up || s.Queued != 0 || s.Dropped != 0 {
			t.Errorf("%+v", s)
		}
		b := w.open("b", "rb", 7, 8)
		wait(told) // it says so itself
		if b.at("s") != home || !a.of("http://b").Up {
			t.Errorf("on %d, want %d: %+v", b.at("s"), home, a.of("http://b"))
		}
		wait(2 * time.Second)
		w.leave("b")
		b = w.open("b", "rb2", 7, 8)
		wait(told)
		if b.at("s") != home {
			t.Errorf("when it was restarted: on %d, want %d", b.at("s"), home)
		}
		// One that learns nothing by itself is asked who it is.
		b.cancel()
		w.mu.Lock()
		a.deaf = true
		w.mu.Unlock()
		w.leave("b")
		b = w.open("b", "rb3", 7, 8)
		wait(6 * time.Second)
		if b.at("s") != home {
			t.Errorf("when it was restarted and could not say so: on %d, want %d", b.at("s"), home)
		}
	})
}

// What a peer does not hear in time is dropped, counted, and told later.
func TestFullOutbox(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		a, b := w.open("a", "ra", 7, 8), w.open("b", "rb", 7, 8)
		wait(20 * time.Second)
		const sessions = 5000
		for i := range sessions {
			a.turn(fmt.Sprint("s", i))
		}
		if s := a.of("http://b"); s.Queued != 4096 || s.Dropped != 2*(sessions-4096) {
			t.Errorf("%+v", s)
		}
		wait(time.Second)
		if n := b.router.Sessions().Bindings; n != sessions {
			t.Errorf("it knows %d sessions, want %d", n, sessions)
		}
		if s := a.of("http://b"); s.Wholes != 2 || s.Queued != 0 {
			t.Errorf("%+v", s)
		}
		if n := w.posts["b"]; n > 60 {
			t.Errorf("%d messages", n)
		}
	})
}

// Only what both mean is taken over: workers that both know, in the same life.
func TestWorkersOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		a, b := w.open("a", "ra", 7, 8, 9, 10), w.open("b", "rb", 7, 88, 9)
		wait(2 * time.Second)
		for id := range uint64(4) {
			a.turn(fmt.Sprint("s", id+1), func(q *router.Query) { q.PinWorker = id + 1 })
		}
		wait(100 * time.Millisecond)
		for id, why := range map[uint64]string{2: "another life", 3: "everybody's own", 4: "not there"} {
			if got := b.at(fmt.Sprint("s", id)); got != 0 {
				t.Errorf("%s: it is bound to %d", why, got)
			}
		}
		if b.at("s1") != 1 {
			t.Errorf("on %d", b.at("s1"))
		}
		if s := b.of("http://a"); s.Ignored != 2 { // of which one was never told
			t.Errorf("%+v", s)
		}
	})
}

// A key that a peer does not know is a failure that the log explains.
func TestRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newTown(t)
		b := w.open("b", "rb", 7)
		w.mu.Lock()
		b.key = "another"
		w.mu.Unlock()
		a := w.open("a", "ra", 7)
		wait(time.Minute)
		if s := a.of("http://b"); s.Up || s.Failures < 3 {
			t.Errorf("%+v", s)
		}
	})
}

func TestParseAddress(t *testing.T) {
	for text, want := range map[string]string{
		"http://b:8000": "http://b:8000", "https://b/": "https://b", "http://b/x/": "http://b/x",
		"b:8000": "", "ftp://b": "", "http://": "", "http://u@b": "", "http://b?x=1": "", "http://b#x": "", ":": "",
	} {
		got, err := peers.ParseAddress(text)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: %q, %v", text, got, err)
		}
	}
}

// FuzzHear reads what anybody may send: whatever it is, nothing but sound bindings of
// known workers comes of it.
func FuzzHear(f *testing.F) {
	f.Add([]byte(`{"router_id":"x","bindings":[{"model":"m","session_id":"s","worker_id":1,"dp_rank":0,"epoch":"7","bound_by":"x","number":3,"ttl_s":5,"timeout_s":60}]}`))
	f.Add([]byte(`{"router_id":"x","bindings":[{"model":"m","session_id":"s","worker_id":1,"bound_by":"x","ttl_s":0}]}`))
	f.Add([]byte(`{"router_id":"x","bindings":[{"model":"m","session_id":"s","worker_id":1,"bound_by":"x","ttl_s":1e300,"timeout_s":-1}]}`))
	f.Add([]byte(`{"router_id":"x","bindings":[{"role":"prefill","model":"m","session_id":"s","worker_id":1,"bound_by":"x","ttl_s":1,"timeout_s":1}]}`))
	f.Add([]byte(`{"router_id":"self","bindings":[{}]}`))
	f.Add([]byte(`[]`))
	workers := fleet.New(fleet.Config{})
	f.Cleanup(func() { workers.Close() }) //nolint:errcheck // nothing is left to do
	if _, err := workers.Add(fleet.Entry{Name: "w", ID: 1, Engine: still{epoch: 7}}); err != nil {
		f.Fatal(err)
	}
	for changed := workers.Changed(); workers.Worker(1).Card() == nil; changed = workers.Changed() {
		<-changed
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		r, err := router.New(router.Config{}, fleet.New(fleet.Config{}))
		if err != nil {
			t.Fatal(err)
		}
		p, err := peers.New(peers.Config{Router: r, Fleet: workers, Name: "self", Known: func(*fleet.Worker) (uint64, bool) { return 7, true }})
		if err != nil {
			t.Fatal(err)
		}
		h, err := p.Hear(body)
		if err != nil {
			return
		}
		if h.Router != "self" || h.Adopted+h.Ignored > 256 || h.Adopted > 0 && bytes.Contains(body, []byte(`"router_id":"self"`)) {
			t.Errorf("%+v", h)
		}
		for _, e := range r.Bindings() {
			if e.TTL <= 0 || e.Timeout <= 0 || e.Target.Worker != 1 || e.Model != "m" || e.ID == "" || len(e.ID) > 256 {
				t.Errorf("%+v", e)
			}
		}
	})
}

// Two frontends tell each other where sessions are bound.
func Example() {
	one, two := fleet.New(fleet.Config{}), fleet.New(fleet.Config{})
	defer one.Close()
	defer two.Close()
	names := map[*fleet.Fleet]string{one: "one", two: "two"}
	known := map[*fleet.Fleet]*peers.Peers{}
	for f, name := range names {
		r, err := router.New(router.Config{SessionTTL: time.Minute}, f)
		if err != nil {
			panic(err)
		}
		known[f], err = peers.New(peers.Config{
			Router: r, Fleet: f, Name: name,
			Known: func(*fleet.Worker) (uint64, bool) { return 0, true },
		})
		if err != nil {
			panic(err)
		}
	}
	heard, err := known[two].Hear([]byte(`{"router_id":"one","bindings":[
		{"model":"m","session_id":"s","worker_id":7,"dp_rank":0,"bound_by":"one","number":1,"ttl_s":60,"timeout_s":60}]}`))
	fmt.Println(heard.Router, heard.Adopted, heard.Ignored, err) // it has no worker 7
	// Output: two 0 1 <nil>
}
