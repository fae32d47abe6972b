package remote_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/router/remote"
	"github.com/dynago/dynago/span"
)

// patient is long enough for any machine: tests that are not about time must not
// depend on it.
const patient = 10 * time.Second

// serverFallback is what the fallback of these tests picks.
const fallbackRow = 2

type fallback struct{ learned atomic.Int64 }

func (*fallback) Pick(context.Context, *router.Query, []router.Candidate) (int, error) {
	return fallbackRow, nil
}

func (f *fallback) Learn(router.Outcome) { f.learned.Add(1) }

// policy returns one that asks the server at url.
func policy(t testing.TB, url string, change ...func(*remote.Config)) *remote.Policy {
	t.Helper()
	c := remote.Config{URL: url, Timeout: patient, Fallback: new(fallback)}
	for _, f := range change {
		f(&c)
	}
	p, err := remote.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

// server starts one.
func server(t testing.TB, serve http.HandlerFunc) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(serve)
	t.Cleanup(s.Close)
	return s
}

func says(text string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, text) }
}

func candidates() []router.Candidate {
	c := make([]router.Candidate, 3)
	for i := range c {
		c[i] = router.Candidate{Target: kv.Target{Worker: uint64(i + 1)}, BlockSize: 16, Cost: float64(3 - i)}
	}
	return c
}

func pick(t testing.TB, p *remote.Policy) int {
	t.Helper()
	i, err := p.Pick(context.Background(), &router.Query{ID: "r", Model: "m"}, candidates())
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// A server that answers is followed, over one connection.
func TestPick(t *testing.T) {
	var connections, requests atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		var question struct {
			Request    struct{ ID, Model string }
			Candidates []struct {
				WorkerID uint64  `json:"worker_id"`
				Cost     float64 `json:"cost"`
			}
		}
		err := json.NewDecoder(r.Body).Decode(&question)
		if err != nil || r.Method != "POST" || r.URL.Path != "/where" || r.Header.Get("Content-Type") != "application/json" ||
			question.Request.ID != "r" || question.Request.Model != "m" || len(question.Candidates) != 3 || question.Candidates[1].Cost != 2 {
			t.Errorf("got %s %s with %+v, %v", r.Method, r.URL, question, err)
		}
		fmt.Fprintf(w, `{"worker_id": %d}`, question.Candidates[1].WorkerID)
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	s.Start()
	defer s.Close()
	p := policy(t, s.URL+"/where")
	for range 20 {
		if got := pick(t, p); got != 1 {
			t.Fatalf("got %d, want 1", got)
		}
	}
	if got := p.Stats(); got != (remote.Stats{Answers: 20}) {
		t.Errorf("got %+v", got)
	}
	if requests.Load() != 20 || connections.Load() != 1 {
		t.Errorf("%d requests over %d connections, want 20 over 1", requests.Load(), connections.Load())
	}
}

// A question is asked in the trace of the request that it is about.
func TestPickWithinATrace(t *testing.T) {
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	got := make(chan http.Header, 2)
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		got <- r.Header
		io.WriteString(w, `{"choice":1}`)
	})
	p := policy(t, s.URL)
	c, _ := span.Parse(parent, "a=b")
	for _, tc := range []struct {
		ctx           context.Context
		parent, state string
	}{
		{span.With(t.Context(), &span.Within{Context: c}), parent, "a=b"},
		{t.Context(), "", ""},
	} {
		if _, err := p.Pick(tc.ctx, &router.Query{ID: "r", Model: "m"}, candidates()); err != nil {
			t.Fatal(err)
		}
		if h := <-got; h.Get("Traceparent") != tc.parent || h.Get("Tracestate") != tc.state {
			t.Errorf("it was asked within %q, %q, want %q, %q", h.Get("Traceparent"), h.Get("Tracestate"), tc.parent, tc.state)
		}
	}
}

// A server may close a connection that has waited just as it is asked over it:
// then it is asked over another.
func TestServerClosesConnection(t *testing.T) {
	var asked sync.Map // by the client's address
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if _, again := asked.LoadOrStore(r.RemoteAddr, true); again {
			panic(http.ErrAbortHandler)
		}
		if r.Header.Get("Idempotency-Key") != "" {
			t.Error("the header is for us alone")
		}
		io.WriteString(w, `{"choice":1}`)
	})
	p := policy(t, s.URL)
	for range 5 {
		if got := pick(t, p); got != 1 {
			t.Errorf("got %d, want what the server picks", got)
		}
	}
	if got := p.Stats(); got != (remote.Stats{Answers: 5}) {
		t.Errorf("got %+v", got)
	}
}

// Whatever a server does wrong, the fallback decides.
func TestFallback(t *testing.T) {
	endless := func(w http.ResponseWriter, r *http.Request) {
		chunk := bytes.Repeat([]byte(" "), 32<<10)
		for r.Context().Err() == nil {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	}
	for _, c := range []struct {
		name  string
		serve http.HandlerFunc
		want  remote.Stats
	}{
		{"declines", says(`{}`), remote.Stats{Declined: 1}},
		{"wrong row", says(`{"choice":3}`), remote.Stats{WrongRows: 1}},
		{"wrong worker", says(`{"worker_id":77}`), remote.Stats{WrongRows: 1}},
		{"no JSON", says(`<html>`), remote.Stats{Malformed: 1}},
		{"nothing", says(``), remote.Stats{Malformed: 1}},
		{"too much", says(`{"choice":0` + strings.Repeat(" ", 65<<10) + `}`), remote.Stats{Malformed: 1}},
		{"too much after the answer", says(`{"choice":0}` + strings.Repeat(" ", 65<<10)), remote.Stats{Malformed: 1}},
		{"endless", endless, remote.Stats{Malformed: 1}},
		{"endless header", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("X", strings.Repeat("x", 64<<10))
			io.WriteString(w, `{"choice":0}`)
		}, remote.Stats{Unreachable: 1}},
		{"status", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(500)
			io.WriteString(w, `{"choice":0}`)
		}, remote.Stats{Statuses: 1}},
		{"another 2xx", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(204) }, remote.Stats{Statuses: 1}},
		{"redirect", func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusTemporaryRedirect)
		}, remote.Stats{Unreachable: 1}},
		{"compressed", func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Accept-Encoding") == "gzip" {
				t.Error("compression is asked for")
			}
			w.Header().Set("Content-Encoding", "gzip")
			io.WriteString(w, "\x1f\x8b\x08")
		}, remote.Stats{Malformed: 1}},
		{"breaks off", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			io.WriteString(w, `{"choice":0}`)
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		}, remote.Stats{Unreachable: 1}},
		{"hangs up", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, remote.Stats{Unreachable: 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := policy(t, server(t, c.serve).URL)
			if got := pick(t, p); got != fallbackRow {
				t.Errorf("got %d, want what the fallback picks", got)
			}
			if got := p.Stats(); got != c.want {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// A server that is slow, or sends its answer byte by byte, is not waited for.
func TestTimeout(t *testing.T) {
	for name, before := range map[string]string{"before the answer": "", "within the answer": `{"choice":`} {
		t.Run(name, func(t *testing.T) {
			s := server(t, func(w http.ResponseWriter, r *http.Request) {
				if before != "" {
					io.WriteString(w, before)
					w.(http.Flusher).Flush()
				}
				io.ReadAll(r.Body) // else the server does not see that we are gone
				<-r.Context().Done()
			})
			p := policy(t, s.URL, func(c *remote.Config) { c.Timeout = 50 * time.Millisecond })
			start := time.Now()
			if got := pick(t, p); got != fallbackRow {
				t.Errorf("got %d, want what the fallback picks", got)
			}
			if took := time.Since(start); took < 50*time.Millisecond || took > patient {
				t.Errorf("it took %v, want 50 ms", took)
			}
			if got := p.Stats(); got != (remote.Stats{Timeouts: 1}) {
				t.Errorf("got %+v", got)
			}
		})
	}
}

// Of questions that a server has left unanswered, whatever it did instead, neither
// a connection nor a goroutine is left.
func TestNothingIsLeft(t *testing.T) {
	var open, asked atomic.Int64
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		w.Header().Set("Content-Length", "1000000000")
		for n := asked.Add(1); r.Context().Err() == nil; {
			switch n % 3 {
			case 0: // nothing
				<-r.Context().Done()
			case 1: // a byte now and then
				io.WriteString(w, " ")
				w.(http.Flusher).Flush()
				select {
				case <-r.Context().Done():
				case <-time.After(time.Millisecond):
				}
			case 2: // as much as there is room for
				if _, err := w.Write(make([]byte, 32<<10)); err != nil {
					return
				}
			}
		}
	}))
	s.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		switch state {
		case http.StateNew:
			open.Add(1)
		case http.StateClosed:
			open.Add(-1)
		}
	}
	s.Start()
	defer s.Close()
	before := runtime.NumGoroutine()
	var clock atomic.Int64
	p := policy(t, s.URL, func(c *remote.Config) {
		c.Timeout = 20 * time.Millisecond
		c.Now = func() time.Time { return time.Unix(1_800_000_000+60*clock.Add(1), 0) } // it is always worth a try
	})
	const questions = 30
	for range questions {
		if got := pick(t, p); got != fallbackRow {
			t.Fatalf("got %d, want what the fallback picks", got)
		}
	}
	if got := p.Stats(); got.Timeouts+got.Malformed != questions {
		t.Errorf("got %+v", got)
	}
	until(t, "all connections are closed", func() bool { return open.Load() == 0 })
	until(t, "no goroutine is left", func() bool { return runtime.NumGoroutine() <= before })
}

// A request whose client leaves is not the server's fault.
func TestClientLeaves(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	gone := errors.New("the client is gone")
	s := server(t, func(_ http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		cancel(gone)
		<-r.Context().Done()
	})
	p := policy(t, s.URL)
	if _, err := p.Pick(ctx, new(router.Query), candidates()); !errors.Is(err, gone) {
		t.Errorf("got %v, want why the client is gone", err)
	}
	if got := p.Stats(); got != (remote.Stats{}) {
		t.Errorf("got %+v, want nothing", got)
	}
}

// One who tries whether a server is well again, and leaves, does not keep others
// from trying.
func TestClientLeavesDuringTry(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	var asked, clock atomic.Int64
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		switch n := asked.Add(1); {
		case n <= 5:
			w.WriteHeader(http.StatusInternalServerError)
		case n == 6:
			cancel()
			<-r.Context().Done()
		default:
			io.WriteString(w, `{"choice":0}`)
		}
	})
	p := policy(t, s.URL, func(c *remote.Config) {
		c.Now = func() time.Time { return time.Unix(1_800_000_000, clock.Load()) }
	})
	for range 5 {
		pick(t, p)
	}
	clock.Add(int64(time.Second))
	if _, err := p.Pick(ctx, new(router.Query), candidates()); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want that the client is gone", err)
	}
	if got := pick(t, p); got != 0 {
		t.Errorf("got %d, want what the server picks, which is well again", got)
	}
}

// A dead server is asked a few times, and then left alone for a while; when it is
// back it is followed again. It is logged once that it is dead, and once that it
// is back.
func TestDeadServer(t *testing.T) {
	var dead atomic.Bool
	var asked atomic.Int64
	s := server(t, func(w http.ResponseWriter, _ *http.Request) {
		asked.Add(1)
		if dead.Load() {
			w.WriteHeader(503)
			return
		}
		io.WriteString(w, `{"choice":0}`)
	})
	var lines lines
	var clock atomic.Int64
	p := policy(t, s.URL, func(c *remote.Config) {
		c.Logger = slog.New(slog.NewTextHandler(&lines, nil))
		c.Now = func() time.Time { return time.Unix(1_800_000_000, clock.Load()) }
	})
	pick(t, p)
	dead.Store(true)
	for range 1000 {
		if got := pick(t, p); got != fallbackRow {
			t.Fatalf("got %d, want what the fallback picks", got)
		}
	}
	if n := asked.Load(); n != 1+5 {
		t.Errorf("the server was asked %d times, want 6", n)
	}
	if got := p.Stats(); got != (remote.Stats{Answers: 1, Statuses: 5, Skipped: 995, Open: true}) {
		t.Errorf("got %+v", got)
	}
	clock.Add(int64(250 * time.Millisecond))
	pick(t, p)
	pick(t, p)
	if n := asked.Load(); n != 1+5+1 {
		t.Errorf("the server was asked %d times, want one more", n)
	}
	dead.Store(false)
	clock.Add(int64(500 * time.Millisecond))
	for range 3 {
		if got := pick(t, p); got != 0 {
			t.Errorf("got %d, want what the server picks", got)
		}
	}
	if got := p.Stats(); got.Open || got.Answers != 4 {
		t.Errorf("got %+v", got)
	}
	// What fails after that is told at once, with how many were kept
	// quiet: three before, and the try.
	dead.Store(true)
	pick(t, p)
	text := lines.String()
	for line, want := range map[string]int{"of no use": 2, "left alone": 1, "well again": 1, "more=0": 1, "more=4": 1} {
		if n := strings.Count(text, line); n != want {
			t.Errorf("%d lines say %q, want %d:\n%s", n, line, want, text)
		}
	}
}

// lines is a log that several may write.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Nobody listens at all.
func TestUnreachable(t *testing.T) {
	s := server(t, says(`{"choice":0}`))
	s.Close()
	p := policy(t, s.URL)
	if got := pick(t, p); got != fallbackRow {
		t.Errorf("got %d, want what the fallback picks", got)
	}
	if got := p.Stats(); got != (remote.Stats{Unreachable: 1}) {
		t.Errorf("got %+v", got)
	}
}

// Without another fallback the least cost is picked.
func TestDefaultFallback(t *testing.T) {
	p := policy(t, server(t, says(`{}`)).URL, func(c *remote.Config) { c.Fallback = nil })
	if got := pick(t, p); got != 2 {
		t.Errorf("got %d, want the least cost", got)
	}
}

// A server that asks for outcomes is told them; one that does not, is not. The
// fallback learns in any case.
func TestOutcomes(t *testing.T) {
	told := make(chan string, 10)
	var wanted atomic.Bool
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		if r.URL.Path == "/p/outcome" {
			told <- string(body)
			io.WriteString(w, "anything")
			return
		}
		fmt.Fprintf(w, `{"choice":0,"outcomes":%v}`, wanted.Load())
	})
	learner := new(fallback)
	p := policy(t, s.URL+"/p", func(c *remote.Config) { c.Fallback = learner })
	o := router.Outcome{
		ID: "r-1", Target: kv.Target{Worker: 7, Rank: 1}, PromptTokens: 2048, CachedTokens: 1440, OutputTokens: 212,
		First: 81_500 * time.Microsecond, Total: 3010 * time.Millisecond, End: router.Completed,
	}
	pick(t, p)
	p.Learn(o)
	wanted.Store(true)
	pick(t, p)
	p.Learn(o)
	next := func() string {
		t.Helper()
		select {
		case text := <-told:
			return text
		case <-time.After(patient):
			t.Fatal("the server is not told")
			return ""
		}
	}
	if got, want := next(), `{"outcomes":[{"id":"r-1","worker_id":7,"dp_rank":1,"prompt_tokens":2048,"cached_tokens":1440,"output_tokens":212,"first_token_ms":81.5,"total_ms":3010,"end":"completed"}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	until(t, "the first is counted", func() bool { return p.Stats().Told == 1 })
	p.Learn(router.Outcome{ID: "r-2", CachedTokens: -1, End: router.Failed})
	if got, want := next(), `{"outcomes":[{"id":"r-2","worker_id":0,"dp_rank":0,"prompt_tokens":0,"output_tokens":0,"total_ms":0,"end":"failed"}]}`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	wanted.Store(false)
	pick(t, p)
	p.Learn(o)
	p.Close()
	if n := learner.learned.Load(); n != 4 {
		t.Errorf("the fallback has learned %d times, want 4", n)
	}
	if got := p.Stats(); got.Told+got.Lost != 2 || len(told) != 0 {
		t.Errorf("%d were told and %d lost, and %d more came, want 2, 0 and 0", got.Told, got.Lost, len(told))
	}
}

// until waits for a condition.
func until(t *testing.T, what string, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(patient); !ok(); <-tick.C {
		if time.Now().After(end) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// A server that is left alone is not told anything either.
func TestOutcomesOfDeadServer(t *testing.T) {
	var asked atomic.Int64
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/outcome" {
			t.Error("it was told")
		}
		if asked.Add(1) > 1 {
			w.WriteHeader(http.StatusInternalServerError)
		}
		io.WriteString(w, `{"choice":0,"outcomes":true}`)
	})
	p := policy(t, s.URL)
	for range 6 {
		pick(t, p)
	}
	p.Learn(router.Outcome{ID: "r"})
	if got := p.Stats(); !got.Open || got.Lost != 1 || got.Told != 0 {
		t.Errorf("got %+v, want one outcome lost", got)
	}
}

// Outcomes neither wait for a server that hangs nor pile up; and closing the
// policy ends it all.
func TestOutcomesAreBounded(t *testing.T) {
	hanging := make(chan struct{}, 1)
	s := server(t, func(w http.ResponseWriter, r *http.Request) {
		io.ReadAll(r.Body)
		if r.URL.Path == "/outcome" {
			hanging <- struct{}{}
			<-r.Context().Done()
			return
		}
		io.WriteString(w, `{"choice":0,"outcomes":true}`)
	})
	p := policy(t, s.URL)
	pick(t, p)
	p.Learn(router.Outcome{ID: "first"})
	<-hanging
	for range 5000 {
		p.Learn(router.Outcome{ID: "r"})
	}
	if got := p.Stats(); got.Lost != 5000-4096 {
		t.Errorf("%d are lost, want %d", got.Lost, 5000-4096)
	}
	p.Close()
	if got := p.Stats(); got.Told != 0 || got.Lost != 5001 {
		t.Errorf("%d are told and %d lost, want none and all", got.Told, got.Lost)
	}
	p.Learn(router.Outcome{ID: "late"})
}

func TestNewFaults(t *testing.T) {
	for says, c := range map[string]remote.Config{
		`url: got "", want http`:            {},
		`url: got "ftp://h", want http`:     {URL: "ftp://h"},
		`url: got "http:///p", want http`:   {URL: "http:///p"},
		`want no query`:                     {URL: "http://h?x=1"},
		`invalid port`:                      {URL: "http://h:x"},
		`timeout: got -1s, want more than`:  {URL: "http://h", Timeout: -time.Second},
		`timeout: got 1m0s, want more than`: {URL: "http://h", Timeout: time.Minute},
		`http://u:xxxxx@h?x=1`:              {URL: "http://u:secret@h?x=1"},
	} {
		if _, err := remote.New(c); err == nil || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("got %v, want %s", err, says)
		}
	}
}

// A policy file, or an address alone, makes one.
func TestConstruct(t *testing.T) {
	g := router.NewRegistry()
	if err := g.Register(router.RemoteType, remote.Construct(patient)); err != nil {
		t.Fatal(err)
	}
	s := server(t, says(`{"choice":0}`))
	choose := func(name string, parameters map[string]any) (router.Roles, error) {
		return g.Choose(router.Choice{Policy: name, File: &router.Selection{
			Instances: []router.Instance{{Name: "mine", Type: "remote", Parameters: parameters}},
		}}, router.Recipe{Mode: router.RoundRobin})
	}
	for name, parameters := range map[string]map[string]any{
		s.URL:  nil,
		"mine": {"url": s.URL, "timeout_ms": 9000.5, "fallback": "least-busy"},
	} {
		roles, err := choose(name, parameters)
		if err != nil {
			t.Fatal(err)
		}
		if i, err := roles.Pick(context.Background(), new(router.Query), candidates()); i != 0 || err != nil {
			t.Errorf("%s: got %d, %v, want what the server picks", name, i, err)
		}
		for _, p := range roles {
			p.(*remote.Policy).Close()
		}
	}
	for says, parameters := range map[string]map[string]any{
		"want http://":                       {},
		"timeout_ms: got 0, want more than":  {"url": "http://h", "timeout_ms": 0},
		"timeout_ms: got -1, want more than": {"url": "http://h", "timeout_ms": -1},
		"fallback: unknown policy type":      {"url": "http://h", "fallback": "nobody"},
		"made of itself":                     {"url": "http://h", "fallback": "mine"},
		"tiemout":                            {"url": "http://h", "tiemout": 5},
	} {
		if _, err := choose("mine", parameters); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: got %v, want %s", parameters, err, says)
		}
	}
}

// A server of two lines: it picks whoever is busy with least.
func Example() {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var question struct {
			Candidates []struct {
				Active int `json:"active_requests"`
			}
		}
		if err := json.NewDecoder(r.Body).Decode(&question); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		best := 0
		for i, c := range question.Candidates {
			if c.Active < question.Candidates[best].Active {
				best = i
			}
		}
		fmt.Fprintf(w, `{"choice": %d}`, best)
	}))
	defer s.Close()
	policy, err := remote.New(remote.Config{URL: s.URL, Timeout: time.Second})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer policy.Close()
	i, err := policy.Pick(context.Background(), &router.Query{ID: "r"}, []router.Candidate{{Requests: 5}, {Requests: 2}, {Requests: 7}})
	fmt.Println(i, err)
	// Output: 1 <nil>
}

// BenchmarkPick asks a server on this machine.
func BenchmarkPick(b *testing.B) {
	s := server(b, says(`{"choice":0}`))
	p := policy(b, s.URL)
	c := make([]router.Candidate, 8)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := p.Pick(context.Background(), new(router.Query), c); err != nil {
			b.Fatal(err)
		}
	}
}
