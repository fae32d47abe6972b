package s3_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/johannesboyne/gofakes3"
	"github.com/johannesboyne/gofakes3/backend/s3mem"

	"github.com/dynago/dynago/kvcache/s3"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

func Example() {
	bucket := s3mem.New()
	if err := bucket.CreateBucket("blocks"); err != nil {
		panic(err)
	}
	server := httptest.NewServer(gofakes3.New(bucket).Server())
	defer server.Close()
	s, err := s3.New(s3.Options{Endpoint: server.URL, Bucket: "blocks", Lookup: time.Second})
	if err != nil {
		panic(err)
	}
	defer s.Close()
	ctx := context.Background()
	if err := s.Put(ctx, "block", []byte("keys and values"), nil); err != nil {
		panic(err)
	}
	v, err := s.Get(ctx, "block")
	if err != nil {
		panic(err)
	}
	fmt.Printf("%s\n", v.Bytes)
	// Output: keys and values
}

// fake is an S3 server that others wrote, in this process, which can be made to
// misbehave.
type fake struct {
	*httptest.Server
	backend *s3mem.Backend
	// before is asked before each request; true means that it has answered.
	before   atomic.Pointer[func(w http.ResponseWriter, r *http.Request) bool]
	requests atomic.Int64
}

func serve(t testing.TB) *fake {
	f := &fake{backend: s3mem.New()}
	if err := f.backend.CreateBucket("blocks"); err != nil {
		t.Fatal(err)
	}
	inner := gofakes3.New(f.backend, gofakes3.WithAutoBucket(false)).Server()
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		f.requests.Add(1)
		if before := f.before.Load(); before != nil && (*before)(w, r) {
			return
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

// do lets before answer requests.
func (f *fake) do(before func(w http.ResponseWriter, r *http.Request) bool) { f.before.Store(&before) }

// names returns the names of all objects.
func (f *fake) names(t testing.TB) []string {
	t.Helper()
	list, err := f.backend.ListBucket("blocks", nil, gofakes3.ListBucketPage{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, c := range list.Contents {
		names = append(names, c.Key)
	}
	slices.Sort(names)
	return names
}

// put puts an object past the store.
func (f *fake) put(t testing.TB, name, body string, user map[string]string) {
	t.Helper()
	all := map[string]string{"Last-Modified": time.Unix(1e9, 0).UTC().Format(http.TimeFormat)}
	maps.Copy(all, user)
	// The fake keeps the metadata of what is replaced.
	if _, err := f.backend.DeleteObject("blocks", name); err != nil {
		t.Fatal(err)
	}
	if _, err := f.backend.PutObject("blocks", name, all, strings.NewReader(body), int64(len(body)), nil); err != nil {
		t.Fatal(err)
	}
}

// open returns a store over f.
func (f *fake) open(t testing.TB, change func(*s3.Options)) *s3.Store {
	opts := s3.Options{Endpoint: f.URL, Bucket: "blocks", AccessKey: "key", SecretKey: "secret", Lookup: 10 * time.Second}
	if change != nil {
		change(&opts)
	}
	s, err := s3.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestDriver(t *testing.T) {
	storetest.Run(t, storetest.Kit{
		Open: func(t testing.TB) (store.Driver, func() store.Driver) {
			f := serve(t)
			return f.open(t, nil), func() store.Driver { return f.open(t, nil) }
		},
		Largest: 100_000, Steps: 20,
	})
}

// What lies in the bucket is what others who share it expect.
func TestObjects(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	s := f.open(t, func(o *s3.Options) { o.Prefix = "llama/" })
	if err := s.Put(ctx, "1:CUrLYDFnmBa:13A3sGnbCSf", []byte("0123"), []byte{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	if got, want := f.names(t), []string{"llama/1:CUrLYDFnmBa:13A3sGnbCSf", "llama/1:CUrLYDFnmBa:13A3sGnbCSf.meta"}; !slices.Equal(got, want) {
		t.Errorf("objects %q, want %q", got, want)
	}
	for _, name := range f.names(t) {
		o, err := f.backend.HeadObject("blocks", name)
		if err != nil || o.Metadata["X-Amz-Meta-Kv-Ret"] != "v1;AQID" {
			t.Errorf("%s has metadata %v, %v", name, o.Metadata, err)
		}
	}

	f = serve(t)
	s = f.open(t, func(o *s3.Options) { o.Shards = 2 })
	if err := s.Put(ctx, "a/b", []byte("0123"), nil); err != nil {
		t.Fatal(err)
	}
	if got, want := f.names(t), []string{"0/a=2Fb", "1/a=2Fb", "a=2Fb.meta"}; !slices.Equal(got, want) {
		t.Errorf("objects %q, want %q", got, want)
	}
	o, err := f.backend.GetObject("blocks", "1/a=2Fb", nil)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(o.Contents); string(b) != "23" || err != nil {
		t.Errorf("the second shard is %q, %v", b, err)
	}
	v, err := s.Get(ctx, "a/b")
	if err != nil || string(v.Bytes) != "0123" {
		t.Errorf("Get: %v, %v", v, err)
	}
	if err := s.Put(ctx, "odd", []byte("012"), nil); !errors.Is(err, store.ErrTooLarge) {
		t.Errorf("three bytes in two shards: %v", err)
	}
}

// Without `.meta` there is nothing, and with one whose bytes are gone, of the
// wrong length or others there is nothing either.
func TestTornValues(t *testing.T) {
	f := serve(t)
	ctx := t.Context()
	s := f.open(t, nil)
	for name, tear := range map[string]func(){
		"no meta":      func() { f.backend.DeleteObject("blocks", "k.meta") },
		"no bytes":     func() { f.backend.DeleteObject("blocks", "k") },
		"fewer bytes":  func() { f.put(t, "k", "012", nil) },
		"other bytes":  func() { f.put(t, "k", "4567", nil) },
		"foreign meta": func() { f.put(t, "k.meta", "", nil) },
		"broken meta": func() {
			f.put(t, "k.meta", "", map[string]string{"X-Amz-Meta-Kv-Size": "-4", "X-Amz-Meta-Kv-Xxh3": "zz"})
		},
		"lying meta": func() {
			f.put(t, "k.meta", "", map[string]string{"X-Amz-Meta-Kv-Size": "4000000000000", "X-Amz-Meta-Kv-Xxh3": "00"})
		},
	} {
		if err := s.Put(ctx, "k", []byte("0123"), nil); err != nil {
			t.Fatal(name, err)
		}
		tear()
		if v, err := s.Get(ctx, "k"); err == nil {
			t.Errorf("%s: read %q", name, v.Bytes)
		}
		if err := s.Put(ctx, "k", []byte("0123"), nil); err != nil {
			t.Errorf("%s: Put: %v", name, err)
		}
		if v, err := s.Get(ctx, "k"); err != nil {
			t.Errorf("%s: after another Put: %v, %v", name, v, err)
		}
		if err := s.Delete(ctx, "k"); err != nil {
			t.Fatal(name, err)
		}
		if names := f.names(t); len(names) != 0 {
			t.Errorf("%s: %q stay", name, names)
		}
	}
	if c := s.Counts(); c.Corrupt != 3 || c.Open {
		t.Errorf("counts %+v", c)
	}
}
