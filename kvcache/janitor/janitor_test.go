package janitor_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/kvcache/janitor"
	"github.com/dynago/dynago/kvcache/store"
)

const hash = "4ebfa8a1f3c341517621838c6e1b9aa350307e3f00b3cbd1a07ef740f54396d6"

func Example() {
	b, ok := janitor.SGLang(hash + "_meta-llama-Llama-3.1-8B_0_2.bin")
	fmt.Println(b.Model, b.Hash[:8], ok)
	// Output: meta-llama-Llama-3.1-8B 4ebfa8a1 true
}

func TestLayouts(t *testing.T) {
	type block = janitor.Block
	for _, tt := range []struct {
		layout janitor.Layout
		name   string
		want   block // none if zero
	}{
		{janitor.SGLang, hash + "_m.bin", block{Model: "m", Hash: hash, Ranks: 1}},
		{janitor.SGLang, hash + "_m_1_2.bin", block{Model: "m", Hash: hash, Ranks: 2}},
		{janitor.SGLang, hash + "_m_1_2_4_0.bin", block{Model: "m", Hash: hash, Ranks: 8}},
		{janitor.SGLang, hash + "_m_1_2_4_0_cp1_2.bin", block{Model: "m", Hash: hash, Ranks: 16}},
		{janitor.SGLang, hash + "_m_4_3.bin", block{Model: "m", Hash: hash, Ranks: 4}},
		{janitor.SGLang, hash + "_m_4_4.bin", block{Model: "m_4_4", Hash: hash, Ranks: 1}},
		{janitor.SGLang, hash + "_m_0_99999999999999999999.bin", block{Model: "m_0_99999999999999999999", Hash: hash, Ranks: 1}},
		{janitor.SGLang, hash + "_1_2.bin", block{Model: "1_2", Hash: hash, Ranks: 1}},
		{janitor.SGLang, hash + ".index_a_b-7_0_1.bin", block{Model: "a_b-7", Hash: hash, Group: "index", Ranks: 1}},
		{janitor.SGLang, hash + "_m.bin.tmp", block{}},
		{janitor.SGLang, hash + ".bin", block{}},
		{janitor.SGLang, hash[1:] + "_m.bin", block{}},
		{janitor.SGLang, "dir/" + hash + "_m.bin", block{}},
		{janitor.SGLang, strings.ToUpper(hash) + "_m.bin", block{}},
		{janitor.VLLM, "a_b_0123456789ab_r3/4eb/fa_g0/" + hash + ".bin", block{Model: "a_b_0123456789ab", Hash: hash, Group: "0"}},
		{janitor.VLLM, "m_r0/4eb/fa_g12/" + hash + ".bin", block{Model: "m", Hash: hash, Group: "12"}},
		{janitor.VLLM, "m_r0/4eb/fb_g0/" + hash + ".bin", block{}},
		{janitor.VLLM, "m_r0/4eb/fa_g0/" + hash + ".bin_1a2b.tmp", block{}},
		{janitor.VLLM, "m/4eb/fa_g0/" + hash + ".bin", block{}},
		{janitor.VLLM, "m/config.json", block{}},
		{janitor.VLLM, "m_r0/4eb/fa_gx/" + hash + ".bin", block{}},
	} {
		if got, ok := tt.layout(tt.name); got != tt.want || ok != (tt.want != block{}) {
			t.Errorf("%s: %+v, %v", tt.name, got, ok)
		}
	}
}

// write writes a file as engines do: under another name first.
func write(dir, name string, content []byte) error {
	final := filepath.Join(dir, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(final), 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(final), filepath.Base(final)+"_*.tmp")
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close(), os.Rename(f.Name(), final))
}

func put(t *testing.T, dir, name string, size int, used time.Time) {
	t.Helper()
	if err := write(dir, name, make([]byte, size)); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(filepath.Join(dir, name), used, used); err != nil {
		t.Fatal(err)
	}
}

func sg(i, rank int) string { return fmt.Sprintf("%064x_m_%d_2.bin", i, rank) }

func vl(i, rank int) string {
	h := fmt.Sprintf("%064x", i)
	return fmt.Sprintf("m_0123456789ab_r%d/%s/%s_g0/%s.bin", rank, h[:3], h[3:5], h)
}

func open(t *testing.T, opts janitor.Options) *janitor.Janitor {
	t.Helper()
	j, err := janitor.Open(opts)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { j.Close() })
	return j
}

// files returns the names of all files of dir.
func files(t *testing.T, dir string) []string {
	t.Helper()
	var names []string
	err := fs.WalkDir(os.DirFS(dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			names = append(names, name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// The block that was used last by any of its ranks stays, and all files of one
// that goes are gone; what is no block is left alone.
func TestSweep(t *testing.T) {
	for name, layout := range map[string]struct {
		janitor.Layout
		name func(i, rank int) string
	}{"sglang": {janitor.SGLang, sg}, "vllm": {janitor.VLLM, vl}} {
		t.Run(name, func(t *testing.T) {
			dir, start := t.TempDir(), time.Unix(1e9, 0)
			for i := range 4 {
				put(t, dir, layout.name(i, 0), 100, start.Add(time.Duration(i)*time.Minute))
				put(t, dir, layout.name(i, 1), 100, start)
			}
			// Rank 1 of the oldest one was used just now.
			put(t, dir, layout.name(0, 1), 100, start.Add(time.Hour))
			put(t, dir, layout.name(1, 0)+".ret", 40, start)
			put(t, dir, "config.json", 1000, start)
			put(t, dir, layout.name(9, 0)+"_1.tmp", 1000, start)
			put(t, dir, layout.name(9, 0)+".tmp.12.34.5f", 1000, start)
			put(t, dir, layout.name(9, 0)+"_2.tmp", 1000, start.Add(2*time.Hour))
			put(t, dir, "notes.tmp", 1000, start)
			var events []string
			j := open(t, janitor.Options{
				Dir: dir, Layout: layout.Layout, Capacity: 500,
				Stored:  func(b janitor.Block) { events = append(events, "+"+b.Hash[60:]) },
				Removed: func(b janitor.Block) { events = append(events, "-"+b.Hash[60:]) },
			})
			now := start.Add(2 * time.Hour)
			got, err := j.Sweep(t.Context(), now)
			if want := (janitor.Swept{Blocks: 2, Bytes: 400, Evicted: 2, Orphans: 2}); err != nil || got != want {
				t.Errorf("swept %+v, %v; want %+v", got, err, want)
			}
			want := []string{layout.name(0, 0), layout.name(0, 1), layout.name(3, 0), layout.name(3, 1), layout.name(9, 0) + "_2.tmp", "config.json", "notes.tmp"}
			slices.Sort(want)
			if left := files(t, dir); !slices.Equal(left, want) {
				t.Errorf("left are %q, want %q", left, want)
			}
			if want := []string{"+0001", "+0002", "+0003", "+0000", "-0001", "-0002"}; !slices.Equal(events, want) {
				t.Errorf("events %q, want %q", events, want)
			}

			// One that loses a file by other hands is gone until it is whole again, and
			// a new one is not there before it has its second file.
			sweep := func(want ...string) {
				t.Helper()
				events = nil
				if _, err := j.Sweep(t.Context(), now); err != nil {
					t.Fatal(err)
				}
				if !slices.Equal(events, want) {
					t.Errorf("events %q, want %q", events, want)
				}
			}
			if err := os.Remove(filepath.Join(dir, layout.name(3, 0))); err != nil {
				t.Fatal(err)
			}
			sweep("-0003")
			put(t, dir, layout.name(5, 1), 100, now)
			sweep()
			put(t, dir, layout.name(3, 0), 100, now)
			sweep("+0003")
			put(t, dir, layout.name(5, 0), 100, now)
			sweep("+0005", "-0000")
		})
	}
}

// A record whose file has gone goes too, in time; one that lies beside its file
// stays, and so does one that was written before its file.
func TestRecordsThatAreLeft(t *testing.T) {
	dir, start := t.TempDir(), time.Unix(1e9, 0)
	put(t, dir, sg(1, 0), 100, start)
	put(t, dir, sg(1, 0)+".ret", 40, start)
	put(t, dir, sg(1, 0)+".ret.new", 40, start)
	put(t, dir, sg(2, 0)+".ret", 40, start)
	put(t, dir, sg(3, 0)+".ret", 40, start.Add(2*time.Hour))
	put(t, dir, "notes.ret", 40, start)
	got, err := open(t, janitor.Options{Dir: dir, Layout: janitor.SGLang, Capacity: 1000}).Sweep(t.Context(), start.Add(2*time.Hour))
	if want := (janitor.Swept{Blocks: 1, Bytes: 100, Orphans: 2}); err != nil || got != want {
		t.Errorf("swept %+v, %v; want %+v", got, err, want)
	}
	want := []string{sg(1, 0), sg(1, 0) + ".ret", sg(3, 0) + ".ret", "notes.ret"}
	if left := files(t, dir); !slices.Equal(left, want) {
		t.Errorf("left are %q, want %q", left, want)
	}
}

// A directory that leads elsewhere is not followed.
func TestSymlink(t *testing.T) {
	dir, other := t.TempDir(), t.TempDir()
	put(t, other, vl(1, 0), 100, time.Unix(1e9, 0))
	if err := os.Symlink(filepath.Join(other, "m_0123456789ab_r0"), filepath.Join(dir, "m_0123456789ab_r0")); err != nil {
		t.Fatal(err)
	}
	if got, err := open(t, janitor.Options{Dir: dir, Layout: janitor.VLLM}).Sweep(t.Context(), time.Now()); got.Evicted != 0 || err != nil {
		t.Errorf("swept %+v, %v", got, err)
	}
	if left := files(t, other); len(left) != 1 {
		t.Errorf("left are %q", left)
	}
}

// Engines that write and read while the janitor sweeps find whole files or
// none, and the events add up to what is there.
func TestEnginesAtWork(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	present := map[janitor.Block]bool{}
	j := open(t, janitor.Options{
		Dir: dir, Layout: janitor.VLLM, Capacity: 20 * 8000,
		Stored: func(b janitor.Block) {
			if present[b] {
				t.Errorf("%v stored twice", b)
			}
			present[b] = true
		},
		Removed: func(b janitor.Block) {
			if !present[b] {
				t.Errorf("%v removed and not stored", b)
			}
			delete(present, b)
		},
	})
	working, stop := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for w := range 3 {
		wg.Go(func() {
			rnd := rand.New(rand.NewPCG(uint64(w), 0))
			for working.Err() == nil {
				i := rnd.IntN(60)
				want := bytes.Repeat([]byte{byte(i)}, 8000)
				if rnd.IntN(2) == 0 {
					if err := write(dir, vl(i, 0), want); err != nil {
						t.Errorf("write: %v", err)
					}
					continue
				}
				got, err := os.ReadFile(filepath.Join(dir, vl(i, 0)))
				if err == nil && !bytes.Equal(got, want) || err != nil && !errors.Is(err, fs.ErrNotExist) {
					t.Errorf("read %d bytes, %v", len(got), err)
				}
			}
		})
	}
	evicted := 0
	for evicted < 100 && !t.Failed() {
		got, err := j.Sweep(ctx, time.Now())
		if err != nil || got.Bytes > 20*8000 {
			t.Errorf("swept %+v, %v", got, err)
		}
		evicted += got.Evicted
	}
	stop()
	wg.Wait()
	if _, err := j.Sweep(ctx, time.Now()); err != nil {
		t.Fatal(err)
	}
	for _, name := range files(t, dir) {
		b, ok := janitor.VLLM(name)
		if !ok || !present[b] {
			t.Errorf("%s is there, and was not told of", name)
		}
		delete(present, b)
	}
	if len(present) != 0 {
		t.Errorf("%d blocks are not there", len(present))
	}
}

func FuzzLayouts(f *testing.F) {
	f.Add(sg(1, 0))
	f.Add(vl(1, 0))
	f.Fuzz(func(t *testing.T, name string) {
		for _, layout := range []janitor.Layout{janitor.SGLang, janitor.VLLM} {
			if b, ok := layout(name); ok && (b.Hash == "" || !strings.Contains(name, b.Hash) || !strings.HasSuffix(name, ".bin")) {
				t.Errorf("%q is %+v", name, b)
			}
		}
	})
}

// What is wanted more stays, whenever it was used, and a later janitor knows.
func TestRetain(t *testing.T) {
	for _, attributes := range []bool{true, false} {
		dir, start := t.TempDir(), time.Unix(1e9, 0)
		for i := range 6 {
			put(t, dir, sg(i, 0), 100, start.Add(time.Duration(i)*time.Minute))
			put(t, dir, sg(i, 1), 100, start)
		}
		opts := janitor.Options{
			Dir: dir, Layout: janitor.SGLang, Capacity: 1200,
			Rank: func(record []byte, _ time.Time) int {
				if record == nil {
					return 35
				}
				return int(record[0])
			},
		}
		block := func(i int) janitor.Block {
			b, _ := janitor.SGLang(sg(i, 0))
			return b
		}
		j := open(t, opts)
		if err := j.Retain(block(0), []byte{100}); !errors.Is(err, store.ErrNotFound) {
			t.Errorf("before it was found: %v", err)
		}
		if _, err := j.Sweep(t.Context(), start); err != nil {
			t.Fatal(err)
		}
		for i, rank := range map[int]byte{0: 100, 1: 50, 5: 1} {
			if attributes {
				if err := j.Retain(block(i), []byte{rank}); err != nil {
					t.Fatal(err)
				}
			} else if err := os.WriteFile(filepath.Join(dir, sg(i, 1)+".ret"), []byte{rank}, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		opts.Capacity = 400
		got, err := open(t, opts).Sweep(t.Context(), start)
		if err != nil || got.Blocks != 2 {
			t.Errorf("swept %+v, %v", got, err)
		}
		want := []string{sg(0, 0), sg(0, 1), sg(1, 0), sg(1, 1)}
		left := slices.DeleteFunc(files(t, dir), func(name string) bool { return strings.HasSuffix(name, ".ret") && !strings.HasPrefix(name, sg(5, 1)) })
		if !slices.Equal(left, want) {
			t.Errorf("attributes %v: left are %q, want %q", attributes, left, want)
		}
	}
}
