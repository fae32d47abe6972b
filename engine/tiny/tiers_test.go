package tiny_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
)

// tiered returns arguments of a small device with something below.
func tiered(change func(*mock.Args)) mock.Args {
	a := tiny.DefaultArgs(small())
	a.BlockSize, a.NumGPUBlocks = 4, 24
	change(&a)
	return a
}

// settled waits until all blocks of a prompt lie on a tier of an engine.
func settled(t *testing.T, e *tiny.Engine, tier kv.Tier, blocks int) {
	t.Helper()
	eventually(t, "the blocks do not come", func() bool { return e.CacheStats()[0].Tiers[tier].Stored >= blocks })
}

// eventually waits until something holds that another goroutine brings about.
func eventually(t *testing.T, otherwise string, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); <-time.After(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(otherwise)
		}
	}
}

// What an engine leaves on its disk, another one finds, if it has the same weights.
func TestDiskIsFoundAgain(t *testing.T) {
	o := tiny.Options{Model: small(), Args: tiered(func(a *mock.Args) { a.DiskBlocks = 50 }), Lower: tiny.Lower{Dir: t.TempDir()}}
	p := prompt(1, 42)
	want := plain(t, small(), p, 8)
	first := start(t, o)
	if got, _ := generate(t, first, ask(p, 8)); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	settled(t, first, kv.TierDisk, 10)
	if _, err := tiny.New(o); err == nil || !strings.Contains(err.Error(), o.Lower.Dir) {
		t.Errorf("a disk that another engine has: %v", err)
	}
	first.Close()
	second := start(t, o)
	got, last := generate(t, second, ask(p, 8))
	if !slices.Equal(got, want) || *last.Usage.Cached != 40 {
		t.Errorf("%v with %d cached tokens, want %v with 40", got, *last.Usage.Cached, want)
	}
	second.Close()
	// Other weights of the same shape, and another shape.
	for _, m := range []*llama.Model{llama.Random(small().Config(), 99), slow()} {
		o.Model = m
		other := start(t, o)
		want := plain(t, m, p, 8)
		if got, last := generate(t, other, ask(p, 8)); !slices.Equal(got, want) || *last.Usage.Cached != 0 {
			t.Errorf("%v with %d tokens of another model, want %v with none", got, *last.Usage.Cached, want)
		}
		other.Close()
	}
}

// A disk without a place of its own goes with the engine.
func TestDiskGoesWithEngine(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	e := start(t, tiny.Options{Model: small(), Args: tiered(func(a *mock.Args) { a.DiskBlocks = 50 })})
	found := func() []string {
		all, err := filepath.Glob(filepath.Join(os.TempDir(), "dynago-tiny-*"))
		if err != nil {
			t.Fatal(err)
		}
		return all
	}
	if len(found()) != 1 {
		t.Errorf("%v, want one", found())
	}
	e.Close()
	if len(found()) != 0 {
		t.Errorf("%v is left", found())
	}
}

// What one engine has computed another loads from the store that they share.
func TestStoreIsShared(t *testing.T) {
	shared, err := memory.New(memory.Options{Capacity: 4 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer shared.Close()
	o := tiny.Options{Model: small(), Args: tiered(func(*mock.Args) {}), Lower: tiny.Lower{Store: shared}}
	p := prompt(1, 42)
	want, _ := generate(t, start(t, o), ask(p, 8))
	eventually(t, "the blocks are not shared", func() bool { return shared.Usage().Entries >= 10 })
	e := start(t, o)
	got, last := generate(t, e, ask(p, 8))
	if !slices.Equal(got, want) || *last.Usage.Cached != 40 {
		t.Errorf("%v with %d cached tokens, want %v with 40", got, *last.Usage.Cached, want)
	}
	if n := e.CacheStats()[0].Tiers[kv.TierShared].HitTokens; n != 40 {
		t.Errorf("%d tokens from the store", n)
	}
	o.Model = slow()
	if _, last := generate(t, start(t, o), ask(p, 1)); *last.Usage.Cached != 0 {
		t.Errorf("%d tokens of another model", *last.Usage.Cached)
	}
}

// A store of the process keeps what was asked for last.
func TestStoreOfProcess(t *testing.T) {
	a := tiered(func(a *mock.Args) { a.SharedBlocks = 3 })
	if d, err := tiny.NewStore(tiered(func(*mock.Args) {}), small()); d != nil || err != nil {
		t.Errorf("arguments without one: %v, %v", d, err)
	}
	d, err := tiny.NewStore(a, small())
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	value, ctx := make([]byte, small().BlockBytes(a.BlockSize)), t.Context()
	has := func(k int) bool {
		v, err := d.Get(ctx, fmt.Sprint(k))
		if err == nil {
			v.Release()
		}
		return err == nil
	}
	const many = 500
	for k := range many {
		if err := d.Put(ctx, fmt.Sprint(k), value, nil); err != nil {
			t.Fatal(err)
		}
		if !has(0) {
			t.Fatalf("what is asked for all the time has gone when %d were stored", k)
		}
	}
	if !has(many-1) || !has(many-3) || has(1) {
		t.Error("what was stored last is not there, or what was stored first is")
	}
	if n := entries(ctx, d); n < 3 || n == many {
		t.Errorf("%d values", n)
	}
}

func entries(ctx context.Context, d store.Driver) (n int) {
	for range d.Scan(ctx) {
		n++
	}
	return n
}

func TestTiersThatCannotBe(t *testing.T) {
	for want, a := range map[string]mock.Args{
		"g3_shared": tiered(func(a *mock.Args) { a.DiskBlocks, a.DiskShared = 9, true }),
		"no store":  tiered(func(a *mock.Args) { a.HostBlocks, a.SharedBlocks = 9, 9 }),
	} {
		if _, err := tiny.New(tiny.Options{Name: "tiny", Model: small(), Args: a}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
