package s3_test

import (
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/dynago/dynago/kvcache/s3"
	"github.com/dynago/dynago/kvcache/store"
)

// clock is moved by hand.
type clock struct {
	mu  sync.Mutex
	now time.Time
}

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) Add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
}

// After five failures in a row nothing is asked for five seconds, then one
// question; the first that is answered ends it.
func TestBreaker(t *testing.T) {
	f := serve(t)
	ctx, c := t.Context(), &clock{now: time.Unix(1e9, 0)}
	s := f.open(t, func(o *s3.Options) { o.Now = c.Now })
	if err := s.Put(ctx, "k", []byte("v"), nil); err != nil {
		t.Fatal(err)
	}
	f.do(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, "overloaded", http.StatusServiceUnavailable)
		return true
	})
	asked := func(want int64) {
		t.Helper()
		before := f.requests.Load()
		if _, err := s.Stat(ctx, "k"); !errors.Is(err, store.ErrUnavailable) {
			t.Fatalf("Stat of a server that is away: %v", err)
		}
		if got := f.requests.Load() - before; got != want {
			t.Fatalf("%d requests, want %d", got, want)
		}
	}
	for range 5 {
		asked(1)
	}
	for range 3 {
		asked(0)
		c.Add(5*time.Second - 1)
		asked(0)
		c.Add(1)
		asked(1)
	}
	f.do(passes)
	c.Add(5 * time.Second)
	for range 2 {
		if v, err := s.Get(ctx, "k"); err != nil || string(v.Bytes) != "v" {
			t.Fatalf("of a server that is back: %v", err)
		}
	}
	if n := s.Counts(); n.Failures != 8 || n.Refused != 6 || n.Open {
		t.Errorf("counts %+v", n)
	}
}

func passes(http.ResponseWriter, *http.Request) bool { return false }

// A server that takes its time is a miss after 50 ms, and no failure of the
// caller's; one that is not there at all is one as well.
func TestSlowServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := s3.New(s3.Options{Endpoint: "http://kv.test", Bucket: "blocks", Transport: silent{}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for i := range 5 {
			start := time.Now()
			if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) {
				t.Fatalf("Get: %v", err)
			}
			if took := time.Since(start); took != s3.Lookup {
				t.Errorf("lookup %d took %v", i, took)
			}
		}
		start := time.Now()
		if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) || time.Since(start) != 0 {
			t.Errorf("with an open breaker: %v after %v", err, time.Since(start))
		}
		time.Sleep(store.BreakerPause)
		if _, err := s.Get(t.Context(), "k"); time.Since(start) != store.BreakerPause+s3.Lookup {
			t.Errorf("half open: %v after %v", err, time.Since(start))
		}
	})
	nobody, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	nobody.Close()
	s, err := s3.New(s3.Options{Endpoint: "http://" + nobody.Addr().String(), Bucket: "blocks"})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Get of nobody: %v", err)
	}
	if err := s.Put(t.Context(), "k", nil, nil); !errors.Is(err, store.ErrUnavailable) {
		t.Errorf("Put to nobody: %v", err)
	}
	for _, err := range s.Scan(t.Context()) {
		if !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Scan of nobody: %v", err)
		}
	}
}

// silent is a server that never answers.
type silent struct{}

func (silent) RoundTrip(r *http.Request) (*http.Response, error) {
	<-r.Context().Done()
	return nil, r.Context().Err()
}

// late is a server that takes its time for each answer.
type late struct {
	http.Handler
	by time.Duration
}

func (l late) RoundTrip(r *http.Request) (*http.Response, error) {
	select {
	case <-time.After(l.by):
	case <-r.Context().Done():
		return nil, r.Context().Err()
	}
	answer, r := httptest.NewRecorder(), r.Clone(r.Context())
	r.Header.Set("Content-Length", strconv.FormatInt(r.ContentLength, 10))
	if r.Body == nil {
		r.Body = http.NoBody
	}
	l.ServeHTTP(answer, r)
	return answer.Result(), nil
}

// Nobody waits for a writer: a server that is too slow for readers gets the value, and
// is not taken for one that is away.
func TestWriterHasTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := s3mem.New()
		if err := objects.CreateBucket("blocks"); err != nil {
			t.Fatal(err)
		}
		of := s3.Options{Endpoint: "http://kv.test", Bucket: "blocks", Region: "us-east-1", Transport: late{gofakes3.New(objects).Server(), 2 * s3.Lookup}}
		s, err := s3.New(of)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for range 6 {
			if err := s.Put(t.Context(), "k", []byte("v"), nil); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := s.Get(t.Context(), "k"); !errors.Is(err, store.ErrUnavailable) {
			t.Errorf("Get: %v", err)
		}
		if n := s.Counts(); n.Failures != 1 {
			t.Errorf("counts %+v, want the reader's failure alone", n)
		}
	})
}

// Wherever a writer fails, the key has what it had, or nothing, or the value;
// and its lock is given back or may be taken in time.
func TestEveryRequestFails(t *testing.T) {
	for _, before := range []bool{false, true} {
		for from := range 10 {
			f, ctx, c := serve(t), t.Context(), &clock{now: time.Unix(1e9, 0)}
			s := f.open(t, func(o *s3.Options) { o.Shards, o.Now = 2, c.Now })
			if before {
				if err := s.Put(ctx, "k", []byte("0123"), nil); err != nil {
					t.Fatal(err)
				}
			}
			var mu sync.Mutex
			n := 0
			f.do(func(w http.ResponseWriter, _ *http.Request) bool {
				mu.Lock()
				defer mu.Unlock()
				if n++; n > from {
					http.Error(w, "broken", http.StatusInternalServerError)
				}
				return n > from
			})
			put := s.Put(ctx, "k", []byte("abcdef"), nil)
			if put == nil && from < 6 {
				t.Errorf("%d requests were answered, and Put is content", from)
			}
			f.do(passes)
			c.Add(time.Hour)
			other := f.open(t, func(o *s3.Options) { o.Shards, o.Now = 2, c.Now })
			v, err := other.Get(ctx, "k")
			switch {
			case put == nil && (err != nil || string(v.Bytes) != "abcdef"):
				t.Errorf("%d requests were answered: Put is content, and then %v", from, err)
			case put != nil && err == nil && (!before || string(v.Bytes) != "0123"):
				t.Errorf("%d requests were answered: read %q", from, v.Bytes)
			}
			if err := other.Put(ctx, "k", []byte("xyz!"), nil); err != nil {
				t.Errorf("%d requests were answered: another cannot write: %v", from, err)
			}
			if v, err := other.Get(ctx, "k"); err != nil || string(v.Bytes) != "xyz!" {
				t.Errorf("%d requests were answered: then %v", from, err)
			}
		}
	}
}

// What is wrong is said at the start.
func TestOptions(t *testing.T) {
	for want, opts := range map[string]s3.Options{
		"want a URL such as": {Endpoint: "127.0.0.1:9000", Bucket: "blocks"},
		"without a path":     {Endpoint: "http://127.0.0.1:9000/path", Bucket: "blocks"},
		"bucket \"\"":        {Endpoint: "http://127.0.0.1:9000"},
		"bucket \"kv\"":      {Endpoint: "http://127.0.0.1:9000", Bucket: "kv"},
		"may be negative":    {Endpoint: "http://127.0.0.1:9000", Bucket: "blocks", Shards: -1},
	} {
		if _, err := s3.New(opts); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", opts, err, want)
		}
	}
}
