package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kvcache/s3"
	"github.com/dynago/dynago/kvcache/store"
)

// Whatever a server, or something before it, answers for the bytes of a value, what
// is read was put, or nothing is.
func TestOddAnswers(t *testing.T) {
	const value = "0123456789"
	with := func(status int, header map[string]string, body string) func(http.ResponseWriter) {
		return func(w http.ResponseWriter) {
			for name, v := range header {
				w.Header().Set(name, v)
			}
			w.WriteHeader(status)
			io.WriteString(w, body)
		}
	}
	dated := map[string]string{"Last-Modified": time.Unix(1e9, 0).UTC().Format(http.TimeFormat), "ETag": `"1"`}
	for name, answer := range map[string]func(http.ResponseWriter){
		"a short body":       with(200, dated, value[:9]),
		"a long body":        with(200, dated, value+"!"),
		"no body":            with(200, dated, ""),
		"other bytes":        with(200, dated, "0123456788"),
		"a page for people":  with(200, map[string]string{"Content-Type": "text/html"}, "<html>Please log in</html>"),
		"a part":             with(206, map[string]string{"Content-Range": "bytes 0-8/10", "ETag": `"1"`}, value[:9]),
		"a redirect":         with(301, map[string]string{"Location": "/blocks/k"}, ""),
		"another redirect":   with(307, map[string]string{"Location": "/blocks/k"}, value),
		"no permission":      with(403, nil, "<Error><Code>RequestTimeTooSkewed</Code></Error>"),
		"too many":           with(503, nil, "<Error><Code>SlowDown</Code></Error>"),
		"nothing of its own": with(304, nil, ""),
		"compressed":         with(200, map[string]string{"Content-Encoding": "gzip", "ETag": `"1"`}, "\x1f\x8b0123456"),
		"a body that ends early": func(w http.ResponseWriter) {
			w.Header().Set("Content-Length", "10")
			w.Header().Set("Last-Modified", dated["Last-Modified"])
			io.WriteString(w, value[:4])
			w.(http.Flusher).Flush()
			panic(http.ErrAbortHandler)
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t)
			s := f.open(t, nil)
			if err := s.Put(t.Context(), "k", []byte(value), nil); err != nil {
				t.Fatal(err)
			}
			f.do(func(w http.ResponseWriter, r *http.Request) bool {
				odd := r.Method == http.MethodGet && r.URL.Path == "/blocks/k"
				if odd {
					answer(w)
				}
				return odd
			})
			v, err := s.Get(t.Context(), "k")
			if err == nil {
				t.Errorf("read %q", v.Bytes)
			}
			if !errors.Is(err, store.ErrUnavailable) && !errors.Is(err, store.ErrCorrupt) {
				t.Errorf("Get: %v", err)
			}
		})
	}
}

// slow is a server whose answers begin, and never end.
type slow struct{}

func (slow) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{
		Status: "200 OK", StatusCode: 200, ProtoMajor: 1, ProtoMinor: 1, Request: r,
		Header: http.Header{"Content-Type": {"application/xml"}}, ContentLength: -1,
		Body: io.NopCloser(drip{r.Context()}),
	}, nil
}

type drip struct{ ctx context.Context }

func (d drip) Read(b []byte) (int, error) {
	select {
	case <-time.After(time.Second):
		b[0] = ' '
		return 1, nil
	case <-d.ctx.Done():
		return 0, d.ctx.Err()
	}
}

// A listing whose answer does not end is a failure like others.
func TestSlowListing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := s3.New(s3.Options{Endpoint: "http://kv.test", Bucket: "blocks", Transport: slow{}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		for n := range store.BreakerFailures {
			start := time.Now()
			for _, err := range s.Scan(t.Context()) {
				if !errors.Is(err, store.ErrUnavailable) {
					t.Errorf("Scan: %v", err)
				}
			}
			if took := time.Since(start); took != s3.Transfer || s.Counts().Failures != n+1 {
				t.Errorf("the listing ended after %v, %+v", took, s.Counts())
			}
		}
		if !s.Counts().Open {
			t.Error("the server is asked again and again")
		}
	})
}

// Whoever takes his time with what a listing gives him is no failure of the
// server's.
func TestSlowReaderOfAListing(t *testing.T) {
	f := serve(t)
	writer, s := f.open(t, nil), f.open(t, func(o *s3.Options) { o.Transfer = 100 * time.Millisecond })
	for i := range 40 {
		if err := writer.Put(t.Context(), fmt.Sprint(i), []byte("v"), nil); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, err := range s.Scan(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 1 {
			waited, stop := context.WithTimeout(t.Context(), 150*time.Millisecond)
			<-waited.Done()
			stop()
		}
	}
	if n != 40 {
		t.Errorf("%d entries, want 40", n)
	}
}

// A writer who is told to stop does not wait for a server that is silent, not even
// to give its lock back.
func TestWriterIsToldToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locked := make(chan struct{})
		s, err := s3.New(s3.Options{Endpoint: "http://kv.test", Bucket: "blocks", Transport: onlyALock{locked}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			<-locked
			cancel()
		}()
		start := time.Now()
		if err := s.Put(ctx, "k", []byte("v"), nil); !errors.Is(err, context.Canceled) {
			t.Errorf("Put: %v", err)
		}
		if took := time.Since(start); took > time.Second {
			t.Errorf("Put went on for %v", took)
		}
	})
}

// Whoever waits behind a writer whom the server does not answer gives up when he
// wants to.
func TestWaiterIsToldToStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		locked := make(chan struct{})
		s, err := s3.New(s3.Options{Endpoint: "http://kv.test", Bucket: "blocks", Transport: onlyALock{locked}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		var first sync.WaitGroup
		first.Go(func() { s.Put(ctx, "k", []byte("v"), nil) })
		<-locked
		for name, call := range map[string]func(context.Context) error{
			"Put":    func(ctx context.Context) error { return s.Put(ctx, "k", []byte("v"), nil) },
			"Delete": func(ctx context.Context) error { return s.Delete(ctx, "k") },
			"Retag":  func(ctx context.Context) error { return s.Retag(ctx, "k", nil) },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
			start := time.Now()
			if err := call(ctx); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 10*time.Millisecond {
				t.Errorf("%s: %v after %v", name, err, time.Since(start))
			}
			cancel()
		}
		cancel()
		first.Wait()
	})
}

// onlyALock is a server that has nothing, gives a lock, and is silent from then on.
type onlyALock struct{ locked chan struct{} }

func (o onlyALock) RoundTrip(r *http.Request) (*http.Response, error) {
	answer := func(status int) (*http.Response, error) {
		return &http.Response{
			Status: http.StatusText(status), StatusCode: status, ProtoMajor: 1, ProtoMinor: 1, Request: r,
			Header: http.Header{"Etag": {`"1"`}}, Body: http.NoBody,
		}, nil
	}
	switch {
	case r.Method == http.MethodHead:
		return answer(404)
	case r.Method == http.MethodPut && strings.HasSuffix(r.URL.Path, ".lock"):
		return answer(200)
	case r.Method == http.MethodPut:
		close(o.locked)
	}
	<-r.Context().Done()
	return nil, r.Context().Err()
}
