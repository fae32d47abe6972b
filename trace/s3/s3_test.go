package s3_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"
	"github.com/klauspost/compress/gzip"

	"github.com/dynago/dynago/trace"
	"github.com/dynago/dynago/trace/s3"
)

// fake is an S3 server that others wrote, in this process.
type fake struct {
	*httptest.Server
	backend *s3mem.Backend
	// before is asked before each request; true means that it has answered.
	before   func(w http.ResponseWriter, r *http.Request) bool
	requests atomic.Int64
	types    atomic.Pointer[string]
}

func serve(t testing.TB) *fake {
	t.Setenv("AWS_ACCESS_KEY_ID", "key")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret")
	f := &fake{backend: s3mem.New()}
	if err := f.backend.CreateBucket("traces"); err != nil {
		t.Fatal(err)
	}
	s := gofakes3.New(f.backend).Server()
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		kind := r.Header.Get("Content-Type")
		f.types.Store(&kind)
		if f.before != nil && f.before(w, r) {
			return
		}
		s.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) config() trace.S3Config {
	return trace.S3Config{Bucket: "traces", Region: "us-east-1", Prefix: "/team/a/", RollBytes: 64 << 20, FlushInterval: time.Second}
}

func (f *fake) lookup(name string) (string, bool) {
	value, ok := map[string]string{"AWS_ENDPOINT_URL": f.URL, "HOSTNAME": "pod-7"}[name]
	return value, ok
}

func open(t testing.TB, c trace.S3Config, lookup func(string) (string, bool)) *s3.Sink {
	t.Helper()
	s, err := s3.Open(c, lookup)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// objects returns what lies in the bucket, by name.
func (f *fake) objects(t testing.TB) map[string]string {
	t.Helper()
	list, err := f.backend.ListBucket("traces", nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, o := range list.Contents {
		got, err := f.backend.GetObject("traces", o.Key, nil)
		if err != nil {
			t.Fatal(err)
		}
		z, err := gzip.NewReader(got.Contents)
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		found[o.Key] = string(plain)
	}
	return found
}

func record(n int) *trace.Record {
	return &trace.Record{Schema: trace.Schema, EventType: trace.RequestEnd, EventTime: uint64(n), Request: &trace.Request{RequestID: fmt.Sprint("r", n)}}
}

func lines(records ...*trace.Record) string {
	var b bytes.Buffer
	for _, r := range records {
		line, _ := r.Append(nil)
		b.Write(append(line, '\n'))
	}
	return b.String()
}

// Objects are named by day, host, time, run and number, and hold bare lines.
func TestObjects(t *testing.T) {
	f := serve(t)
	s := open(t, f.config(), f.lookup)
	s3.SetClock(s, func() time.Time {
		return time.Date(2026, 9, 3, 23, 5, 9, 0, time.FixedZone("west", -3600))
	})
	ctx := t.Context()
	for _, write := range []func() error{
		func() error { return s.Write(ctx, []*trace.Record{record(1), record(2)}) },
		func() error { return s.Write(ctx, []*trace.Record{record(3)}) },
		func() error { return s.Tick(ctx) },
		func() error { return s.Tick(ctx) }, // nothing is not put
		func() error { return s.Write(ctx, []*trace.Record{record(4)}) },
		func() error { return s.Close(ctx) },
	} {
		if err := write(); err != nil {
			t.Fatal(err)
		}
	}
	name := regexp.MustCompile(`^team/a/2026/09/04/pod-7-000509-([0-9a-f]{32})-(00000[01])\.jsonl\.gz$`)
	want := map[string]string{"000000": lines(record(1), record(2), record(3)), "000001": lines(record(4))}
	got, runs := f.objects(t), map[string]bool{}
	for key, plain := range got {
		m := name.FindStringSubmatch(key)
		if m == nil || want[m[2]] != plain {
			t.Errorf("%s: %s", key, plain)
			continue
		}
		runs[m[1]] = true
	}
	if len(got) != 2 || len(runs) != 1 || *f.types.Load() != "application/gzip" {
		t.Errorf("%d objects of %d runs, %s", len(got), len(runs), *f.types.Load())
	}
}

// An object is put once its lines are long enough.
func TestRoll(t *testing.T) {
	f := serve(t)
	c := f.config()
	c.RollBytes, c.Prefix = int64(2*len(lines(record(1)))), ""
	s := open(t, c, f.lookup)
	if err := s.Write(t.Context(), []*trace.Record{record(1), record(2), record(3), record(4), record(5)}); err != nil {
		t.Fatal(err)
	}
	got := f.objects(t)
	for key := range got {
		if strings.HasPrefix(key, "/") || !strings.Contains(key, "/pod-7-") {
			t.Error(key)
		}
	}
	if len(got) != 2 {
		t.Errorf("%d objects of two records, want 2", len(got))
	}
	if err := s.Close(t.Context()); err != nil || len(f.objects(t)) != 3 {
		t.Errorf("%v, %d objects", err, len(f.objects(t)))
	}
}

// A server that is away for a while loses nothing; an answer that would be the same
// another time is believed.
func TestRetries(t *testing.T) {
	for _, tc := range []struct {
		name     string
		refuse   int // requests
		status   int
		lost     int
		requests int64
	}{
		{"away once", 1, 503, 0, 2},
		{"away twice", 2, 500, 0, 3},
		{"away", 9, 503, 3, 3},
		{"forbidden", 9, 403, 3, 1},
		{"slow down", 1, 429, 0, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f := serve(t)
			f.before = func(w http.ResponseWriter, r *http.Request) bool {
				if f.requests.Load() > int64(tc.refuse) {
					return false
				}
				w.WriteHeader(tc.status)
				return true
			}
			s := open(t, f.config(), f.lookup)
			if err := s.Write(t.Context(), []*trace.Record{record(1), record(2), record(3)}); err != nil {
				t.Fatal(err)
			}
			err := s.Tick(t.Context())
			lost, _ := errors.AsType[*trace.Lost](err)
			if n := 0; lost != nil {
				n = lost.Records
				if n != tc.lost {
					t.Errorf("lost %d: %v", n, err)
				}
			} else if tc.lost != 0 {
				t.Errorf("lost none: %v", err)
			}
			if f.requests.Load() != tc.requests {
				t.Errorf("%d requests, want %d", f.requests.Load(), tc.requests)
			}
			f.before = nil
			if err := s.Close(t.Context()); err != nil { // what was lost is not put again
				t.Error(err)
			}
			if want := map[bool]int{true: 1, false: 0}[tc.lost == 0]; len(f.objects(t)) != want {
				t.Errorf("%d objects", len(f.objects(t)))
			}
		})
	}
}

// stuck is a bucket that answers nothing.
type stuck struct{ asked int }

func (b *stuck) Put(ctx context.Context) error {
	b.asked++
	<-ctx.Done()
	return ctx.Err()
}

// A server that does not answer is given up after 30 s an attempt, 90 s in all.
func TestLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := open(t, trace.S3Config{Bucket: "traces", RollBytes: 1, FlushInterval: time.Second}, func(string) (string, bool) { return "", false })
		b := new(stuck)
		s3.SetPut(s, b.Put)
		began := time.Now()
		err := s.Write(t.Context(), []*trace.Record{record(1)})
		if lost, _ := errors.AsType[*trace.Lost](err); lost == nil || lost.Records != 1 {
			t.Errorf("%v", err)
		}
		if took := time.Since(began); took != 90*time.Second || b.asked != 3 {
			t.Errorf("%d attempts in %v", b.asked, took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began = time.Now()
		if err := s.Write(ctx, []*trace.Record{record(2)}); err == nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
	})
}

func TestBadConfig(t *testing.T) {
	none := func(string) (string, bool) { return "", false }
	for want, c := range map[string]trace.S3Config{
		"DYN_REQUEST_TRACE_S3_BUCKET": {}, "bucket \"a\"": {Bucket: "a"},
	} {
		if _, err := s3.Open(c, none); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	at := func(name string) (string, bool) { return "127.0.0.1:9000", name == "AWS_ENDPOINT_URL_S3" }
	if _, err := s3.Open(trace.S3Config{Bucket: "traces"}, at); err == nil || !strings.Contains(err.Error(), "want a URL such as") {
		t.Errorf("%v", err)
	}
}

func Example() {
	// In a pod whose service account may write to the bucket, no keys are named.
	s, err := s3.Open(trace.S3Config{Bucket: "traces", Region: "eu-central-1", RollBytes: 64 << 20, FlushInterval: 10 * time.Second}, func(string) (string, bool) { return "", false })
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(s.Name(), s.Interval(), s.Backlog())
	// Output: s3 10s 2048
}
