package disk_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/kvcache/disk"
	"github.com/dynago/dynago/kvcache/store"
	"github.com/dynago/dynago/kvcache/storetest"
)

// step is one change of a key, and the part of the log in which it happened.
type step struct {
	key        string
	value, tag []byte // of a Put; a Retag has a tag alone
	op         string // "put", "retag", "delete"
	begin, end int
}

// state is what a key has; a nil state is nothing.
type state struct{ value, tag string }

// next returns what the key of s has after s.
func (s step) next(before *state) *state {
	switch {
	case s.op == "put":
		return &state{string(s.value), string(s.tag)}
	case s.op == "retag" && before != nil:
		return &state{before.value, string(s.tag)}
	case s.op == "retag":
		return nil
	}
	return nil
}

// history runs n random changes on a store over a new platter.
func history(t *testing.T, seed uint64, n int, opts disk.Options) (*platter, []step) {
	p := &platter{}
	s, err := disk.Over(t.Context(), opts, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	rnd := rand.New(rand.NewPCG(seed, 0))
	var steps []step
	for i := range n {
		st := step{key: fmt.Sprint("key", rnd.IntN(5)), op: "put", begin: len(p.log)}
		switch rnd.IntN(8) {
		case 0, 1:
			st.op = "delete"
			err = s.Delete(t.Context(), st.key)
		case 2:
			st.op, st.tag = "retag", storetest.Bytes(uint64(i), rnd.IntN(60))
			if err = s.Retag(t.Context(), st.key, st.tag); errors.Is(err, store.ErrNotFound) {
				err = nil
			}
		default:
			st.value = storetest.Bytes(seed<<20|uint64(i), []int{10, 300, 2000, 5000, 13000}[rnd.IntN(5)])
			st.tag = storetest.Bytes(uint64(i), rnd.IntN(60))
			if err = s.Put(t.Context(), st.key, st.value, st.tag); errors.Is(err, store.ErrFull) {
				continue
			}
		}
		if err != nil {
			t.Fatal(err)
		}
		st.end = len(p.log)
		steps = append(steps, st)
	}
	return p, steps
}

// get returns what s has under key, and whether it could be read.
func get(t *testing.T, s *disk.Store, key string) (*state, error) {
	v, err := s.Get(context.Background(), key)
	if errors.Is(err, store.ErrNotFound) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer v.Release()
	return &state{string(v.Bytes), string(v.Tag)}, nil
}

func same(a, b *state) bool { return a == b || a != nil && b != nil && *a == *b }

// Wherever a process ends, be it in the middle of a write, the next one finds
// exactly what was acknowledged, and of the change under way all or nothing.
func TestCrashAtEveryByte(t *testing.T) {
	for _, sync := range []bool{false, true} {
		p, steps := history(t, 1, 60, disk.Options{Capacity: 20 << 12, Sync: sync})
		opens := 0
		for at := range len(p.log) + 1 {
			cuts := []int{0}
			if at < len(p.log) {
				n := len(p.log[at].data)
				for cut := 1; cut < n; cut += max(1, min(n-1-cut, n/7)) {
					cuts = append(cuts, cut)
				}
			}
			for _, cut := range cuts {
				opens++
				checkCrash(t, p.after(at, cut), steps, at, cut, sync)
			}
		}
		t.Logf("%d crashes", opens)
	}
}

// checkCrash opens what is left after so many writes, checks it, lives on for a
// while, and opens it once more.
func checkCrash(t *testing.T, p *platter, steps []step, at, cut int, sync bool) {
	t.Helper()
	want, maybe := map[string]*state{}, map[string]*state{}
	for _, st := range steps {
		switch {
		case st.end <= at:
			want[st.key] = st.next(want[st.key])
		case st.begin <= at:
			maybe[st.key] = st.next(want[st.key])
		}
	}
	for life := range 2 {
		s, err := disk.Over(t.Context(), disk.Options{Capacity: 20 << 12, Sync: sync}, p.values(), p.records())
		if err != nil {
			t.Fatalf("after %d writes and %d bytes: %v", at, cut, err)
		}
		for i := range 5 {
			key := fmt.Sprint("key", i)
			got, err := get(t, s, key)
			other, under := maybe[key]
			if err != nil || !same(got, want[key]) && (!under || !same(got, other)) {
				t.Fatalf("life %d, after %d writes and %d bytes: %s is %s (%v), want %s, or %s (%v)", life, at, cut, key, show(got), err, show(want[key]), show(other), under)
			}
			want[key] = got
			delete(maybe, key)
		}
		if life > 0 {
			break
		}
		// What was deleted stays so, and new values harm no others.
		if err := s.Delete(t.Context(), "key0"); err != nil {
			t.Fatal(err)
		}
		want["key0"] = nil
		value := storetest.Bytes(uint64(at), 5000)
		switch err := s.Put(t.Context(), "key1", value, nil); {
		case err == nil:
			want["key1"] = &state{string(value), ""}
		case !errors.Is(err, store.ErrFull):
			t.Fatal(err)
		}
	}
}

func show(s *state) string {
	if s == nil {
		return "nothing"
	}
	return fmt.Sprintf("%d bytes %x…", len(s.value), s.value[:min(4, len(s.value))])
}

// A machine that loses its power forgets any of the writes that were not
// synced, or parts of them. With Sync what was acknowledged is there
// nevertheless; without, what is read was put under its key once.
func TestPowerLoss(t *testing.T) {
	for _, sync := range []bool{false, true} {
		for seed := range uint64(12) {
			p, steps := history(t, seed+10, 60, disk.Options{Capacity: 20 << 12, Sync: sync})
			rnd := rand.New(rand.NewPCG(seed, 1))
			for range 40 {
				checkPowerLoss(t, p, steps, rnd, sync)
			}
		}
	}
}

func checkPowerLoss(t *testing.T, p *platter, steps []step, rnd *rand.Rand, sync bool) {
	at := rnd.IntN(len(p.log) + 1)
	var synced [2]int
	for i, w := range p.log[:at] {
		if w.op == "sync" {
			synced[w.file] = i
		}
	}
	left := &platter{}
	for i, w := range p.log[:at] {
		n := len(w.data)
		if i >= synced[w.file] && w.op == "write" {
			n = []int{0, n, n / 512 / 2 * 512, rnd.IntN(n + 1)}[rnd.IntN(4)]
		}
		left.files[w.file].apply(w, n)
	}
	s, err := disk.Over(t.Context(), disk.Options{Capacity: 20 << 12}, left.values(), left.records())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5 {
		key := fmt.Sprint("key", i)
		got, err := get(t, s, key)
		var ever []*state
		var last *state
		settled := true
		for _, st := range steps {
			if st.key != key || st.begin > at {
				continue
			}
			last = st.next(last)
			ever = append(ever, last)
			settled = settled && st.end <= at
		}
		if got != nil && !slices.ContainsFunc(ever, func(s *state) bool { return same(s, got) }) {
			t.Fatalf("%s is %s, which it never was", key, show(got))
		}
		if sync && settled && (err != nil || !same(got, last)) {
			t.Fatalf("after %d of %d writes %s is %s (%v), but %s was synced", at, len(p.log), key, show(got), err, show(last))
		}
	}
}

// Whatever happens to the files between two lives, what is read was put.
func TestDamage(t *testing.T) {
	p, steps := history(t, 3, 60, disk.Options{Capacity: 20 << 12})
	want := map[string]*state{}
	for _, st := range steps {
		want[st.key] = st.next(want[st.key])
	}
	check := func(name string, left *platter) (missing int) {
		t.Helper()
		s, err := disk.Over(t.Context(), disk.Options{Capacity: 20 << 12}, left.values(), left.records())
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for key, w := range want {
			got, err := get(t, s, key)
			if got != nil && !same(got, w) {
				t.Fatalf("%s: %s is %s, want %s or nothing", name, key, show(got), show(w))
			}
			if err != nil {
				if again, err := get(t, s, key); again != nil || err != nil {
					t.Fatalf("%s: %s is there after it could not be read: %v", name, key, err)
				}
			}
			if !same(got, w) {
				missing++
			}
		}
		return missing
	}
	if n := check("untouched", p.clone()); n > 0 {
		t.Fatalf("%d keys are missing from what is whole", n)
	}
	rnd := rand.New(rand.NewPCG(4, 4))
	hurt := 0
	for file := range p.files {
		used := len(bytes.TrimRight(p.files[file], "\x00"))
		for range 1000 {
			left := p.clone()
			bit := rnd.IntN(used * 8)
			left.files[file][bit/8] ^= 1 << (bit % 8)
			hurt += check(fmt.Sprintf("bit %d of file %d", bit, file), left)
		}
		for range 200 {
			left := p.clone()
			left.files[file] = left.files[file][:rnd.IntN(used)]
			hurt += check(fmt.Sprintf("file %d cut at %d", file, len(left.files[file])), left)
		}
		for range 200 {
			left := p.clone()
			from, to := rnd.IntN(used), rnd.IntN(used)
			copy(left.files[file][from:], slices.Clone(left.files[file][to:min(used, to+rnd.IntN(8192))]))
			hurt += check("misplaced bytes", left)
		}
	}
	if hurt == 0 {
		t.Error("no damage was ever noticed")
	}
}

// A store that is opened with less room keeps what still has a place.
func TestLessCapacity(t *testing.T) {
	p := &platter{}
	s, err := disk.Over(t.Context(), disk.Options{Capacity: 100 << 12}, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 10 {
		if err := s.Put(t.Context(), fmt.Sprint(i), storetest.Bytes(uint64(i), 10<<12), nil); err != nil {
			t.Fatal(err)
		}
	}
	s, err = disk.Over(t.Context(), disk.Options{Capacity: 45 << 12}, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	if c, u := s.Counts(), s.Usage(); c.Kept != 4 || c.Dropped != 6 || u.Entries != 4 || u.Used != 40<<12 {
		t.Errorf("counts %+v, usage %+v; want 4 of 10", c, u)
	}
	if len(p.files[0]) != 45<<12 {
		t.Errorf("the file has %d bytes", len(p.files[0]))
	}
}

// A value that no longer has a place is gone; what its key had before, of which a
// record was left, is not there instead.
func TestNoOlderValue(t *testing.T) {
	p := &platter{}
	s, err := disk.Over(t.Context(), disk.Options{Capacity: 100 << 12}, p.values(), p.records())
	if err != nil {
		t.Fatal(err)
	}
	put := func(key string, seed uint64) {
		t.Helper()
		if err := s.Put(t.Context(), key, storetest.Bytes(seed, 10<<12), nil); err != nil {
			t.Fatal(err)
		}
	}
	put("k", 1)
	put("other", 2)
	old := slices.Clone(p.files[1][:512])
	put("k", 3)
	copy(p.files[1][:512], old) // the record of the first one, as if it had not been erased
	for _, capacity := range []int64{30 << 12, 20 << 12} {
		left := p.clone()
		s, err := disk.Over(t.Context(), disk.Options{Capacity: capacity}, left.values(), left.records())
		if err != nil {
			t.Fatal(err)
		}
		var want *state
		if capacity == 30<<12 {
			want = &state{string(storetest.Bytes(3, 10<<12)), ""}
		}
		if got, err := get(t, s, "k"); !same(got, want) || err != nil {
			t.Errorf("with %d pages k is %s, %v; want %s", capacity>>12, show(got), err, show(want))
		}
		if got, err := get(t, s, "other"); got == nil || err != nil {
			t.Errorf("with %d pages other is %s, %v", capacity>>12, show(got), err)
		}
	}
}

// One store to a directory.
func TestLocked(t *testing.T) {
	opts := disk.Options{Dir: t.TempDir(), Capacity: 1 << 20}
	_, _ = opened(t, opts)
	if _, err := disk.Open(t.Context(), opts); err == nil || !strings.Contains(err.Error(), "directory of its own") {
		t.Errorf("a second store over a directory: %v", err)
	}
}

func FuzzRecord(f *testing.F) {
	p := &platter{}
	s, err := disk.Over(context.Background(), disk.Options{Capacity: 1 << 20}, p.values(), p.records())
	if err != nil {
		f.Fatal(err)
	}
	for i, n := range []int{0, 100, 5000, 100_000} {
		if err := s.Put(context.Background(), fmt.Sprint("key", i), storetest.Bytes(1, n), []byte("tag")[:i]); err != nil {
			f.Fatal(err)
		}
		f.Add([]byte(p.files[1][i*512:][8:512]))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		// The checksum is put right, or nothing would ever get past it.
		whole := disk.Sealed(b)
		if again, err := disk.Reencode(whole); err == nil {
			if twice, err := disk.Reencode(again); err != nil || !bytes.Equal(again, twice) {
				t.Fatalf("%x\nbecame\n%x, %v", again, twice, err)
			}
		}
		left := &platter{files: [2]image{make(image, 64<<12), whole}}
		s, err := disk.Over(t.Context(), disk.Options{Capacity: 64 << 12}, left.values(), left.records())
		if err != nil {
			t.Fatal(err)
		}
		for e, err := range s.Scan(t.Context()) {
			if err != nil {
				t.Fatal(err)
			}
			if v, err := s.Get(t.Context(), e.Key); err == nil {
				if int64(len(v.Bytes)) != e.Size {
					t.Fatalf("%d bytes of %d", len(v.Bytes), e.Size)
				}
				v.Release()
			}
		}
		if err := s.Put(t.Context(), "k", make([]byte, 5000), nil); err != nil && !errors.Is(err, store.ErrFull) {
			t.Fatal(err)
		}
		u := s.Usage()
		if u.Used < 0 || u.Used > u.Capacity {
			t.Fatalf("usage %+v", u)
		}
	})
}
