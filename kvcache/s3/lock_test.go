package s3_test

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/s3"
	"github.com/dynago/dynago/kvcache/store"
)

// A lock of another holds until its deadline; one's own, an expired one and one
// that makes no sense do not.
func TestLocks(t *testing.T) {
	now := time.Date(2026, 11, 30, 10, 0, 0, 0, time.UTC)
	lock := func(instance string, deadline time.Duration) string {
		return fmt.Sprintf(`{"instance_id":%q,"acquired_at":"2026-11-30T09:00:00Z","deadline":%q}`, instance, now.Add(deadline).Format(time.RFC3339))
	}
	for _, tt := range []struct {
		name, lock string
		put        bool
	}{
		{"another's", lock("other", time.Second), false},
		{"another's, late", lock("other", 0), true},
		{"our own", lock("me", time.Hour), true},
		{"empty", "", true},
		{"no JSON", "{", true},
		{"no instance", lock("", time.Hour), true},
		{"no deadline", `{"instance_id":"other"}`, true},
		{"bad deadline", `{"instance_id":"other","deadline":"soon"}`, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			f := serve(t)
			s := f.open(t, func(o *s3.Options) { o.Instance, o.Now = "me", func() time.Time { return now } })
			f.put(t, "k.lock", tt.lock, nil)
			err := s.Put(t.Context(), "k", []byte("v"), nil)
			want := []string{"k", "k.meta"}
			if !tt.put {
				want = []string{"k.lock"}
			}
			if (err == nil) != tt.put || err != nil && !errors.Is(err, store.ErrUnavailable) {
				t.Errorf("Put: %v", err)
			}
			if got := f.names(t); !slices.Equal(got, want) {
				t.Errorf("objects %q, want %q", got, want)
			}
			if c := s.Counts(); c.Busy != map[bool]int{false: 1}[tt.put] || c.Failures != 0 {
				t.Errorf("counts %+v", c)
			}
		})
	}
}

// Of many instances that write one key at once some may drop their value, and
// whoever reads finds one of those that were written.
func TestInstancesAtOnce(t *testing.T) {
	f := serve(t)
	var wg sync.WaitGroup
	written := make([]bool, 8)
	for i := range written {
		s := f.open(t, func(o *s3.Options) { o.Instance = fmt.Sprint(i) })
		wg.Go(func() {
			for range 10 {
				switch err := s.Put(t.Context(), "k", fmt.Appendf(nil, "value %d", i), nil); {
				case err == nil:
					written[i] = true
				case !errors.Is(err, store.ErrUnavailable):
					t.Errorf("Put: %v", err)
				}
			}
		})
	}
	wg.Wait()
	v, err := f.open(t, nil).Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	var i int
	if _, err := fmt.Sscanf(string(v.Bytes), "value %d", &i); err != nil || !written[i] {
		t.Errorf("read %q, %v; written: %v", v.Bytes, err, written)
	}
	if names := f.names(t); !slices.Equal(names, []string{"k", "k.meta"}) {
		t.Errorf("objects %q", names)
	}
}

func FuzzLease(f *testing.F) {
	f.Add([]byte(`{"instance_id":"a","acquired_at":"2026-11-30T09:00:00Z","deadline":"2026-11-30T09:05:00Z"}`))
	f.Add([]byte(`{"instance_id":"a","deadline":""}`))
	f.Add([]byte(`[]`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if l, ok := s3.ReadLease(b); ok && (l.Instance == "" || l.Deadline.IsZero()) {
			t.Errorf("%q binds, with %+v", b, l)
		}
	})
}

func FuzzMeta(f *testing.F) {
	f.Add("4", "00ff", "v1;AQID")
	f.Add("-4", "zz", "v2;")
	f.Fuzz(func(t *testing.T, size, sum, tag string) {
		m, ok := s3.ReadMeta(map[string]string{"kv-size": size, "kv-xxh3": sum, "kv-ret": tag})
		if !ok {
			return
		}
		if m.Size < 0 || len(m.Tag) > store.MaxTag {
			t.Fatalf("%q %q %q: %+v", size, sum, tag, m)
		}
		if again, ok := s3.ReadMeta(m.Written); !ok || again.Size != m.Size || string(again.Tag) != string(m.Tag) {
			t.Fatalf("%+v became %+v", m, again)
		}
	})
}

func FuzzNames(f *testing.F) {
	f.Add("1:abc", "p/")
	f.Add("a/b.meta=", "")
	f.Fuzz(func(t *testing.T, key, name string) {
		if got, ok := s3.KeyOf(s3.NameOf(key) + ".meta"); !ok || got != key {
			t.Errorf("%q is named %q, which is %q", key, s3.NameOf(key), got)
		}
		if got, ok := s3.KeyOf(name); ok && s3.NameOf(got)+".meta" != name {
			t.Errorf("%q is of %q, which is named %q", name, got, s3.NameOf(got))
		}
	})
}
