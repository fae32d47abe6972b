package kvcache_test

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

var records = []kvcache.Record{
	kvcache.NeutralRecord,
	{},
	{Priority: 100, PriorityDeadline: 1, Session: 1<<64 - 1, Epoch: 1<<32 - 1, Parent: 1<<32 - 1},
	{Priority: 80, SoftPin: true, PinDeadline: 1 << 62, SkipWrite: true},
	{Priority: 80, HardPin: true, PinDeadline: 1_700_000_000_000, Ephemeral: true},
}

func TestRecordLayout(t *testing.T) {
	r := kvcache.Record{
		Priority: 80, Ephemeral: true, HardPin: true, SkipWrite: true,
		PriorityDeadline: 0x0102030405060708, PinDeadline: 0x1112131415161718, Session: 0x2122232425262728,
		Epoch: 0x31323334, Parent: 0x41424344,
	}
	want := []byte{
		80, 1, 5, 0, 8, 7, 6, 5, 4, 3, 2, 1, 0x18, 0x17, 0x16, 0x15, 0x14, 0x13, 0x12, 0x11,
		0x28, 0x27, 0x26, 0x25, 0x24, 0x23, 0x22, 0x21, 0x34, 0x33, 0x32, 0x31, 0x44, 0x43, 0x42, 0x41, 0, 0, 0, 0,
	}
	if got := r.Append(nil); !bytes.Equal(got, want) || len(got) != kvcache.RecordSize {
		t.Errorf("%x, want %x", got, want)
	}
	for _, r := range records {
		if got, err := kvcache.DecodeRecord(r.Append(nil)); got != r || err != nil {
			t.Errorf("%+v came back as %+v, %v", r, got, err)
		}
	}
}

func TestCorruptRecordIsNeutral(t *testing.T) {
	good := records[3].Append(nil)
	for name, spoil := range map[string]func([]byte) []byte{
		"short":               func(b []byte) []byte { return b[:39] },
		"long":                func(b []byte) []byte { return append(b, 0) },
		"priority":            func(b []byte) []byte { b[0] = 101; return b },
		"class":               func(b []byte) []byte { b[1] = 2; return b },
		"flags":               func(b []byte) []byte { b[2] |= 8; return b },
		"filler":              func(b []byte) []byte { b[39] = 1; return b },
		"pin and no deadline": func(b []byte) []byte { copy(b[12:20], make([]byte, 8)); return b },
		"deadline and no pin": func(b []byte) []byte { b[2] &^= 2; return b },
		"before 1970":         func(b []byte) []byte { b[11] = 0x80; return b },
	} {
		got, err := kvcache.DecodeRecord(spoil(slices.Clone(good)))
		if err == nil || got != kvcache.NeutralRecord {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	for _, r := range records {
		f.Add(r.Append(nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := kvcache.DecodeRecord(b)
		if err != nil {
			if r != kvcache.NeutralRecord {
				t.Errorf("%v, and %+v", err, r)
			}
			return
		}
		if got := r.Append(nil); !bytes.Equal(got, b) {
			t.Errorf("%x came back as %x", b, got)
		}
		// Whatever it says, a pool can live with it.
		p := kvcache.NewPool(kvcache.PoolConfig{Blocks: 2, PinBudget: 1, HardPins: true})
		refs := store(t, p, 1)
		p.Inherit(refs[0], r, time.Unix(1_700_000_000, 0))
		p.Release(refs)
		p.Advance(1 << 62)
		if n := p.Available(); n < 1 {
			t.Errorf("available %d with %+v", n, r)
		}
	})
}

// A block pinned on one worker leaves it, and is loaded by another whose clock
// began at another time: there it outlives others just as long.
func TestRetentionTravels(t *testing.T) {
	const skew = 5 * time.Second
	began := time.Unix(1_700_000_000, 0)
	a, b := pinning(40, 10), pinning(40, 10)
	zeroA, zeroB := began, began.Add(-3*time.Hour)
	a.OpenSession(7, kvcache.SessionOptions{Timeout: time.Hour})
	seq := run(1, 5)
	a.BeginTurn(7, kvcache.SessionOptions{}, seq)
	refs := store(t, a, seq...)
	a.Retain(refs[4], kvcache.Retention{Priority: 80, TTL: 2 * time.Minute})
	a.Tag(7, refs)
	a.Pin(seq, kvcache.Pin{Owner: 7, TTL: 10 * time.Minute})
	a.EndTurn(7, refs)
	a.Release(refs)
	var travelling [][]byte
	for _, r := range refs {
		travelling = append(travelling, a.Record(r, zeroA).Append(nil))
	}

	b.Advance(3*time.Hour + time.Minute)
	loaded := store(t, b, seq...)
	for i, r := range loaded {
		record, err := kvcache.DecodeRecord(travelling[i])
		if err != nil {
			t.Fatal(err)
		}
		if record.Session != 7 || !record.SoftPin {
			t.Errorf("block %d travels with %+v", i, record)
		}
		b.Inherit(r, record, zeroB)
	}
	b.Release(loaded)
	flood(t, b, 400)
	if n := present(b, seq); n != 5 {
		t.Fatalf("%d of 5 pinned blocks left where they were loaded", n)
	}
	for _, c := range []struct {
		name string
		p    *kvcache.Pool
		from time.Duration
	}{{"the first", a, 0}, {"the second", b, 3 * time.Hour}} {
		c.p.Advance(c.from + 10*time.Minute - skew)
		flood(t, c.p, 400)
		if n := present(c.p, seq); n != 5 {
			t.Errorf("%s has %d blocks shortly before the deadline", c.name, n)
		}
		c.p.Advance(c.from + 10*time.Minute + skew)
		flood(t, c.p, 400)
		if n := present(c.p, seq); n != 0 {
			t.Errorf("%s has %d blocks shortly after the deadline", c.name, n)
		}
	}
}

func TestRecordOfPriority(t *testing.T) {
	zero := time.Unix(1_700_000_000, 0)
	p := kvcache.New(4)
	refs := store(t, p, 1)
	p.Retain(refs[0], kvcache.Retention{Priority: 80, TTL: time.Minute})
	p.SetSkipWrite(refs[0])
	want := kvcache.Record{Priority: 80, SkipWrite: true, PriorityDeadline: zero.Add(time.Minute).UnixMilli()}
	if got := p.Record(refs[0], zero); got != want {
		t.Errorf("in use: %+v, want %+v", got, want)
	}
	p.Advance(10 * time.Second)
	p.Release(refs)
	p.Advance(30 * time.Second)
	want.PriorityDeadline = zero.Add(70 * time.Second).UnixMilli()
	if got := p.Record(refs[0], zero); got != want {
		t.Errorf("idle: %+v, want %+v", got, want)
	}
	p.Advance(70 * time.Second)
	if got := p.Record(refs[0], zero); got != (kvcache.Record{Priority: 35, SkipWrite: true}) {
		t.Errorf("expired: %+v", got)
	}
	other := store(t, p, kv.SeqHash(2))
	p.SetEphemeral(other[0])
	if got := p.Record(other[0], zero); !got.Ephemeral || !got.SkipWrite {
		t.Errorf("ephemeral: %+v", got)
	}
}

// What has been asked for bytes that lie on several workers reaches all of them, in
// any order and more than once: the latest epoch wins.
func TestUpdatesArriveInAnyOrder(t *testing.T) {
	zero := time.Unix(1_700_000_000, 0)
	at := func(d time.Duration) int64 { return zero.Add(d).UnixMilli() }
	updates := []kvcache.Record{
		{Epoch: 1, Priority: 80, Session: 7, SoftPin: true, PinDeadline: at(time.Hour)},
		{Epoch: 2, Priority: 80, PriorityDeadline: at(time.Minute), Session: 7},
		{Epoch: 3, Priority: kvcache.Neutral, Session: 7, Ephemeral: true, SkipWrite: true},
		{Epoch: 4, Priority: 20, Session: 7},
	}
	classes := []kvcache.Class{kvcache.SoftPinned, kvcache.High, kvcache.Ephemeral, kvcache.Low}
	for last := range updates {
		for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {2, 0, 3, 1, 2}} {
			p := pinning(8, 4)
			p.OpenSession(7, kvcache.SessionOptions{})
			p.Release(store(t, p, 1, 2, 3))
			applied, latest := 0, uint32(0)
			for _, k := range order {
				if k > last {
					continue
				}
				want := 0
				if updates[k].Epoch > latest {
					latest, want = updates[k].Epoch, 2
				}
				if got := p.Update([]kv.SeqHash{1, 2, 99}, updates[k], zero); got != want {
					t.Errorf("update %d of %v up to %d: %d blocks, want %d", k, order, last, got, want)
				}
				applied++
			}
			r, _ := p.Find(2)
			if got := p.Class(r); applied > 0 && got != classes[last] {
				t.Errorf("%v up to %d: %v, want %v", order, last, got, classes[last])
			}
			if got := p.Record(r, zero); got != updates[last] && last > 0 {
				t.Errorf("%v up to %d: travels on as %+v, want %+v", order, last, got, updates[last])
			}
			if other, _ := p.Find(3); p.Class(other) != kvcache.Plain {
				t.Errorf("%v: a block that was not named is %v", order, p.Class(other))
			}
		}
	}
}

// Bytes that come from below with an older record change nothing.
func TestOldRecordIsNotInherited(t *testing.T) {
	zero := time.Unix(1_700_000_000, 0)
	p := kvcache.New(4)
	refs := store(t, p, 1)
	p.Inherit(refs[0], kvcache.Record{Epoch: 5, Priority: 80}, zero)
	p.Inherit(refs[0], kvcache.Record{Epoch: 4, Priority: 10}, zero)
	if got := p.Record(refs[0], zero); got.Priority != 80 || got.Epoch != 5 {
		t.Errorf("%+v", got)
	}
	p.Release(refs)
	p.Discard(1)
	if got := p.Record(store(t, p, 1)[0], zero); got != kvcache.NeutralRecord {
		t.Errorf("stored anew: %+v", got)
	}
}

// An update takes a pin away, or moves its end, but never to an earlier time, as any
// other pin would; also where time is counted from before 1970.
func TestUpdatedPins(t *testing.T) {
	zero := time.Unix(-1_000_000_000, 0)
	at := func(d time.Duration) int64 { return zero.Add(50 * 365 * 24 * time.Hour).Add(d).UnixMilli() }
	for deadline, want := range map[int64]time.Duration{
		0: 0, at(-time.Hour): 0, at(time.Minute): time.Hour, at(2 * time.Hour): 2 * time.Hour,
	} {
		p := pinning(4, 4)
		p.Advance(50 * 365 * 24 * time.Hour)
		p.Release(store(t, p, 1))
		p.Pin([]kv.SeqHash{1}, kvcache.Pin{Owner: 7, TTL: time.Hour})
		p.Update([]kv.SeqHash{1}, kvcache.Record{
			Epoch: 1, Priority: kvcache.Neutral, Session: 7, SoftPin: deadline > 0, PinDeadline: deadline,
		}, zero)
		r, _ := p.Find(1)
		got := p.Record(r, zero).PinDeadline
		if want == 0 && got != 0 || want > 0 && got != at(want) {
			t.Errorf("updated to %d: pinned until %d, want %v", deadline, got, want)
		}
	}
}

// A block that is only kept from lower tiers lies where it lay, and is promoted by
// the first who finds it.
func TestInheritedSkipWrite(t *testing.T) {
	p := kvcache.New(4)
	p.Release(store(t, p, 1, 2, 3))
	r, _ := p.Find(3)
	p.Inherit(r, kvcache.Record{Priority: kvcache.Neutral, SkipWrite: true}, time.Unix(0, 0))
	p.Release(p.Match(nil, []kv.SeqHash{1, 2, 3}))
	if got := p.TakePromoted(nil); !slices.Equal(got, []kvcache.Ref{r}) {
		t.Errorf("promoted %v, want %v", got, r)
	}
	if got, want := victims(p, 4), []kv.SeqHash{3, 2, 1}; !slices.Equal(got, want) {
		t.Errorf("evicted %v, want %v", got, want)
	}
}
