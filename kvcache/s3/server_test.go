package s3_test

import (
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/s3"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

// TestServer runs the contract against the server that S3_ENDPOINT names, in the
// bucket S3_BUCKET with the keys S3_ACCESS_KEY and S3_SECRET_KEY: make e2e-s3.
// Without, there is the one in the process, in TestDriver.
func TestServer(t *testing.T) {
	opts := s3.Options{
		Endpoint: os.Getenv("S3_ENDPOINT"), Bucket: os.Getenv("S3_BUCKET"),
		AccessKey: os.Getenv("S3_ACCESS_KEY"), SecretKey: os.Getenv("S3_SECRET_KEY"), Lookup: 10 * time.Second,
	}
	if opts.Endpoint == "" {
		return
	}
	var n atomic.Int64
	prefix := func(o s3.Options) s3.Options {
		o.Prefix = fmt.Sprintf("run%d-%d/", time.Now().UnixNano(), n.Add(1))
		return o
	}
	storetest.Run(t, storetest.Kit{
		Open: func(t testing.TB) (store.Driver, func() store.Driver) {
			opts := prefix(opts)
			return made(t, opts), func() store.Driver { return made(t, opts) }
		},
		Largest: 100_000, Steps: 20,
	})
	t.Run("locks stay", func(t *testing.T) { locksStay(t, prefix(opts)) })
	t.Run("shards", func(t *testing.T) {
		opts := prefix(opts)
		opts.Shards = 4
		s, value := made(t, opts), storetest.Bytes(1, 4<<20)
		if err := s.Put(t.Context(), "k", value, []byte("tag")); err != nil {
			t.Fatal(err)
		}
		v, err := s.Get(t.Context(), "k")
		if err != nil || string(v.Bytes) != string(value) {
			t.Errorf("4 MiB in 4 shards: %v", err)
		}
	})
}

func made(t testing.TB, opts s3.Options) *s3.Store {
	t.Helper()
	s, err := s3.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestLocksStay(t *testing.T) {
	f := serve(t)
	locksStay(t, s3.Options{Endpoint: f.URL, Bucket: "blocks", AccessKey: "key", SecretKey: "secret", Lookup: 10 * time.Second})
}

// A writer who dies leaves a lock, which others respect until its deadline, and
// then one of them takes.
func locksStay(t *testing.T, opts s3.Options) {
	dying := opts
	dying.Instance, dying.Transport = "dying", onlyLocks{http.DefaultTransport}
	if err := made(t, dying).Put(t.Context(), "k", []byte("half"), nil); !errors.Is(err, store.ErrUnavailable) {
		t.Fatalf("the writer who dies: %v", err)
	}
	next := made(t, opts)
	if err := next.Put(t.Context(), "k", []byte("v"), nil); !errors.Is(err, store.ErrUnavailable) || next.Counts().Busy != 1 {
		t.Errorf("before the deadline: %v, %+v", err, next.Counts())
	}
	if v, err := next.Get(t.Context(), "k"); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("half a value: %v, %v", v, err)
	}
	later := opts
	later.Now = func() time.Time { return time.Now().Add(s3.Lease) }
	if err := made(t, later).Put(t.Context(), "k", []byte("v"), nil); err != nil {
		t.Errorf("after the deadline: %v", err)
	}
	if v, err := next.Get(t.Context(), "k"); err != nil || string(v.Bytes) != "v" {
		t.Errorf("the whole value: %v, %v", v, err)
	}
	if err := next.Put(t.Context(), "k", []byte("w"), nil); err != nil || next.Counts().Busy != 1 {
		t.Errorf("once it is unlocked: %v, %+v", err, next.Counts())
	}
}

// onlyLocks loses all that a writer does after it has a lock.
type onlyLocks struct{ http.RoundTripper }

func (o onlyLocks) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method == http.MethodDelete || r.Method == http.MethodPut && !strings.HasSuffix(r.URL.Path, ".lock") {
		return nil, errors.New("the writer is dead")
	}
	return o.RoundTripper.RoundTrip(r)
}
