package s3_test

import (
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/s3"
)

// Wherever a writer dies, nothing is left of it after a sweep but what is whole.
func TestSweep(t *testing.T) {
	for _, shards := range []int{1, 2} {
		for from := range int64(8) {
			f, ctx, c := serve(t), t.Context(), &clock{now: time.Now()}
			open := func(instance string) *s3.Store {
				return f.open(t, func(o *s3.Options) { o.Shards, o.Now, o.Instance, o.Prefix = shards, c.Now, instance, "kv/" })
			}
			s := open("sweeps")
			if err := s.Put(ctx, "whole", []byte("0123"), nil); err != nil {
				t.Fatal(err)
			}
			whole := f.names(t)
			var n atomic.Int64
			f.do(func(w http.ResponseWriter, r *http.Request) bool {
				dead := n.Add(1) > from
				if dead {
					http.Error(w, "dead", http.StatusInternalServerError)
				}
				return dead
			})
			open("dies").Put(ctx, "a/b", []byte("abcd"), nil)
			f.do(passes)
			before := f.names(t)
			// Others' things, and what is too young.
			f.put(t, "kv/README", "for people", nil)
			f.put(t, "kv/notes.lock", "for people", nil)
			f.put(t, "other", "bucket", nil)
			if got, err := s.Sweep(ctx); got != 0 || err != nil {
				t.Errorf("%d shards, %d requests: at once %d objects are removed, %v", shards, from, got, err)
			}
			c.Add(time.Hour)
			got, err := s.Sweep(ctx)
			if err != nil {
				t.Errorf("%d shards, %d requests: %v", shards, from, err)
			}
			want := slices.Concat(whole, []string{"kv/README", "kv/notes.lock", "other"})
			if slices.Contains(before, "kv/a=2Fb.meta") {
				for _, name := range before {
					if strings.Contains(name, "a=2Fb") && !strings.HasSuffix(name, ".lock") {
						want = append(want, name)
					}
				}
			}
			slices.Sort(want)
			if names := f.names(t); !slices.Equal(names, want) || got != len(before)+3-len(want) {
				t.Errorf("%d shards, %d requests: %d of %q are removed, %q are left, want %q", shards, from, got, before, names, want)
			}
		}
	}
}
