package kvcache_test

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
	"pgregory.net/rapid"
)

// machine runs one random history over a pool and its model.
type machine struct {
	p       *kvcache.Pool
	m       *keeper
	held    []kvcache.Ref
	turns   []turn
	present map[kv.SeqHash]bool // by the events that the pool gives rise to
}

// turn is a request that runs.
type turn struct {
	id   kvcache.SessionID
	refs []kvcache.Ref
}

// TestAnyHistory runs random histories of everything that can be asked of a pool
// over pool and model, and demands the same slots, victims, classes, tags and
// counts after each step. Sequences come from a small tree, and a dozen sessions
// share two dozen slots, so that requests meet in blocks all the time.
//
// With -tags invariants the pool looks at itself after each operation, too.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(1, 16).Draw(t, "slots")
		budget := int64(rapid.IntRange(0, n).Draw(t, "budget"))
		hard := rapid.Bool().Draw(t, "hard")
		reject := rapid.Bool().Draw(t, "reject")
		order := kvcache.EvictRetention
		if rapid.IntRange(0, 3).Draw(t, "another order") == 0 {
			order = rapid.SampledFrom([]kvcache.Eviction{kvcache.EvictLRU, kvcache.EvictFIFO, kvcache.EvictPriorities}).Draw(t, "order")
		}
		x := &machine{
			p:       kvcache.NewPool(kvcache.PoolConfig{Blocks: n, Eviction: order, PinBudget: budget, HardPins: hard, Reject: reject}),
			m:       newKeeper(order, n, budget, hard),
			present: map[kv.SeqHash]bool{},
		}
		t.Repeat(map[string]func(*rapid.T){
			"allocate":  x.allocate,
			"match":     x.match,
			"scattered": x.scattered,
			"touch":     x.touch,
			"release":   x.release,
			"begin":     x.begin,
			"begin2":    x.begin,
			"end":       x.end,
			"end2":      x.end,
			"retain":    x.retain,
			"pin":       x.pin,
			"unpin":     x.unpin,
			"open":      x.open,
			"close":     x.close,
			"compact":   x.compact,
			"mark":      x.mark,
			"discard":   x.discard,
			"inherit":   x.inherit,
			"update":    x.update,
			"time":      x.time,
			"":          x.check,
		})
	})
}

func path(t *rapid.T) []kv.SeqHash {
	var seq []kv.SeqHash
	h := kv.SeqHash(1)
	for range rapid.IntRange(1, 6).Draw(t, "depth") {
		h = h*2 + kv.SeqHash(rapid.IntRange(0, 1).Draw(t, "branch"))
		seq = append(seq, h)
	}
	return seq
}

// session draws a session, or none. Odd ones are ephemeral, and some are held.
func session(t *rapid.T) (kvcache.SessionID, kvcache.SessionOptions) {
	id := kvcache.SessionID(rapid.IntRange(0, 11).Draw(t, "session"))
	return id, kvcache.SessionOptions{Timeout: time.Duration(5+10*(id%3)) * 10 * time.Second, Ephemeral: id%2 == 1}
}

func ttl(t *rapid.T) time.Duration {
	return time.Duration(rapid.IntRange(0, 6).Draw(t, "ttl")) * 20 * time.Second
}

func (x *machine) allocate(t *rapid.T) {
	want := rapid.IntRange(0, 4).Draw(t, "n")
	spare := rapid.Bool().Draw(t, "spare")
	x.held = append(x.held, x.take(t, want, spare)...)
}

// take allocates from both, or fails from both.
func (x *machine) take(t *rapid.T, want int, spare bool) []kvcache.Ref {
	allocate := x.p.Allocate
	if spare {
		allocate = x.p.AllocateSpare
	}
	refs, evicted, ok := allocate(nil, want)
	slots, victims, can := x.m.allocate(want, spare)
	if ok != can || !slices.Equal(evicted, victims) {
		t.Fatalf("allocate %d, spare %v: %v, evicted %v, want %v, %v", want, spare, ok, evicted, can, victims)
	}
	for k := range slots {
		if int(refs[k]) != slots[k] {
			t.Fatalf("allocated %v, want %v", refs, slots)
		}
	}
	x.gone(t, evicted)
	return refs
}

func (x *machine) gone(t *rapid.T, hashes []kv.SeqHash) {
	for _, h := range hashes {
		if !x.present[h] {
			t.Fatalf("%d removed and not stored", h)
		}
		delete(x.present, h)
	}
}

func (x *machine) find(t *rapid.T, id kvcache.SessionID, seq []kv.SeqHash) []kvcache.Ref {
	refs := x.p.MatchFor(id, nil, seq)
	for k, h := range seq {
		i := x.m.find(h)
		if i < 0 {
			if len(refs) != k {
				t.Fatalf("matched %d of %v, want %d", len(refs), seq, k)
			}
			break
		}
		x.m.slots[i].refs++
		x.m.settle()
		x.m.hit(i, id)
		if k >= len(refs) || refs[k] != kvcache.Ref(i) {
			t.Fatalf("matched %v, want slot %d at %d", refs, i, k)
		}
	}
	return refs
}

func (x *machine) match(t *rapid.T) {
	id, _ := session(t)
	x.held = append(x.held, x.find(t, id, path(t))...)
}

func (x *machine) scattered(t *rapid.T) {
	id, _ := session(t)
	seq := path(t)
	for k, r := range x.p.MatchScattered(id, nil, seq) {
		i := x.m.find(seq[k])
		if (r == kvcache.Root) != (i < 0) || i >= 0 && r != kvcache.Ref(i) {
			t.Fatalf("found %d in slot %d, want %d", seq[k], r, i)
		}
		if i >= 0 {
			x.m.slots[i].refs++
			x.m.settle()
			x.m.hit(i, id)
			x.held = append(x.held, r)
		}
	}
}

func (x *machine) touch(t *rapid.T) {
	seq := path(t)
	x.p.Touch(seq)
	for _, h := range slices.Backward(seq) {
		i := x.m.find(h)
		if i < 0 {
			continue
		}
		s := &x.m.slots[i]
		s.refs++
		x.m.settle()
		for k := range s.pins {
			if p := &s.pins[k]; !p.hard && p.until > x.m.now {
				p.until = max(p.until, x.m.now+p.ttl)
			}
		}
		s.refs--
		x.m.settle()
	}
}

func (x *machine) give(refs []kvcache.Ref) {
	x.p.Release(refs)
	for _, r := range slices.Backward(refs) {
		s := &x.m.slots[r]
		if s.refs--; s.refs == 0 && (s.state == kvcache.Mutable || s.state == kvcache.Duplicate) {
			if s.state == kvcache.Duplicate && s.foreign {
				x.m.usedByOthers(s.up)
			}
			x.m.free(int(r))
		}
		x.m.settle()
	}
}

func (x *machine) release(t *rapid.T) {
	if len(x.held) == 0 {
		return
	}
	var refs []kvcache.Ref
	for range rapid.IntRange(1, len(x.held)).Draw(t, "n") {
		k := rapid.IntRange(0, len(x.held)-1).Draw(t, "which")
		refs = append(refs, x.held[k])
		x.held = slices.Delete(x.held, k, k+1)
	}
	x.give(refs)
}

// begin is a request's way up to its last token: open, match, allocate, publish.
func (x *machine) begin(t *rapid.T) {
	id, o := session(t)
	seq := path(t)
	if id != 0 {
		prompt := seq[:rapid.IntRange(0, len(seq)).Draw(t, "prompt")]
		x.p.BeginTurn(id, o, prompt)
		x.m.begin(id, o, prompt)
	}
	// Some did not look closely, and compute what is there already.
	looked := len(seq) - max(0, rapid.IntRange(-9, 6).Draw(t, "blind"))
	refs := x.find(t, id, seq[:max(looked, 0)])
	found := len(refs)
	fresh := x.take(t, len(seq)-found, false)
	for k, r := range fresh {
		parent := kvcache.Root
		if k += found; k > 0 {
			parent = refs[k-1]
		}
		r = x.publish(t, r, seq[k], parent)
		refs = append(refs, r)
		if rapid.IntRange(0, 3).Draw(t, "tag at once") == 0 {
			x.p.Tag(id, refs[k:])
			x.m.stored(id, refs[k:])
		}
	}
	if rapid.IntRange(0, 2).Draw(t, "priority") == 0 && len(refs) > 0 {
		at := rapid.IntRange(0, len(refs)-1).Draw(t, "at")
		r := retention(t)
		x.p.Retain(refs[at], r)
		x.m.retain(x.m.primary(refs[at]), r)
	}
	x.turns = append(x.turns, turn{id, refs})
}

func (x *machine) publish(t *rapid.T, r kvcache.Ref, h kv.SeqHash, parent kvcache.Ref) kvcache.Ref {
	m := x.m
	i := m.find(h)
	reject := i >= 0
	got, outcome := x.p.Publish(r, h, parent)
	s := &m.slots[r]
	switch outcome {
	case kvcache.Added:
		if x.present[h] || i >= 0 {
			t.Fatalf("%d stored twice", h)
		}
		x.present[h] = true
		s.state, s.hash, s.up, s.born = kvcache.Primary, h, -1, m.tick()
		if parent != kvcache.Root {
			s.up = m.primary(parent)
		}
	case kvcache.Doubled:
		s.state, s.hash, s.up, s.foreign = kvcache.Duplicate, h, i, true
	case kvcache.Rejected:
		m.slots[i].refs++
		m.free(int(r))
	}
	if reject != (outcome != kvcache.Added) {
		t.Fatalf("publish %d: %d, model has it in %d", h, outcome, i)
	}
	m.settle()
	if i >= 0 && len(m.slots[i].tags) == 0 {
		m.slots[i].foreign = true
		m.raise(i)
	}
	return got
}

func (x *machine) end(t *rapid.T) {
	if len(x.turns) == 0 {
		return
	}
	k := rapid.IntRange(0, len(x.turns)-1).Draw(t, "turn")
	u := x.turns[k]
	x.turns = slices.Delete(x.turns, k, k+1)
	if rapid.IntRange(0, 2).Draw(t, "thinking") == 0 {
		from := rapid.IntRange(0, len(u.refs)).Draw(t, "from")
		deferred := rapid.Bool().Draw(t, "deferred")
		x.p.MarkThinking(u.id, u.refs, from, deferred)
		x.m.thought(u.id, u.refs, from, deferred)
	}
	x.p.EndTurn(u.id, u.refs)
	x.m.endTurn(u.id, u.refs)
	x.give(u.refs)
}

func retention(t *rapid.T) kvcache.Retention {
	return kvcache.Retention{
		Priority: rapid.SampledFrom([]uint8{0, 20, 34, 35, 36, 80, 100}).Draw(t, "priority"),
		TTL:      ttl(t),
		Floor:    rapid.Bool().Draw(t, "floor"),
	}
}

func (x *machine) retain(t *rapid.T) {
	seq := path(t)
	r := retention(t)
	x.p.SetRetention(seq, r)
	for _, h := range slices.Backward(seq) {
		if i := x.m.find(h); i >= 0 {
			x.m.retain(i, r)
		}
	}
}

func (x *machine) pin(t *rapid.T) {
	id, _ := session(t)
	seq := path(t)
	pin := kvcache.Pin{
		Owner: id, TTL: ttl(t), Hard: rapid.Bool().Draw(t, "hard"),
		Tenant: kvcache.TenantID(rapid.IntRange(0, 2).Draw(t, "tenant")), Share: rapid.Float64Range(0, 1).Draw(t, "share"),
	}
	if pin.TTL == 0 {
		x.p.Pin(seq, pin)
		x.unpinAll(seq, func(p pinned) bool { return p.owner == pin.Owner && p.tenant == pin.Tenant })
		return
	}
	got := x.p.Pin(seq, pin)
	if want := (kvcache.PinResult{Requested: len(seq), Pinned: x.m.pin(seq, pin)}); got != want {
		t.Fatalf("pin %v: %+v, want %+v", seq, got, want)
	}
}

func (x *machine) unpin(t *rapid.T) {
	id, _ := session(t)
	seq := path(t)
	got := x.p.Unpin(seq, id)
	if want := x.unpinAll(seq, func(p pinned) bool { return p.owner == id }); got != want {
		t.Fatalf("unpinned %d of %v, want %d", got, seq, want)
	}
}

// unpinAll ends pins in the model and returns of how many blocks.
func (x *machine) unpinAll(seq []kv.SeqHash, ends func(pinned) bool) (blocks int) {
	for _, h := range slices.Backward(seq) {
		i := x.m.find(h)
		if i < 0 {
			continue
		}
		had := len(x.m.slots[i].pins)
		if x.m.unpin(&x.m.slots[i], ends, false); len(x.m.slots[i].pins) < had {
			blocks++
		}
	}
	return blocks
}

func (x *machine) open(t *rapid.T) {
	if id, o := session(t); id != 0 {
		o.Timeout += ttl(t)
		x.p.OpenSession(id, o)
		x.m.open(id, o)
	}
}

func (x *machine) close(t *rapid.T) {
	id, _ := session(t)
	if got, want := x.p.CloseSession(id), x.m.close(id); got != want {
		t.Fatalf("closed session %d while %v, want %v", id, got, want)
	}
}

func (x *machine) compact(t *rapid.T) {
	id, _ := session(t)
	x.p.Compact(id)
	x.m.compact(id)
}

// mark makes a block ephemeral, or once, or not to be written.
func (x *machine) mark(t *rapid.T) {
	seq := path(t)
	i := x.m.find(seq[len(seq)-1])
	if i < 0 {
		return
	}
	switch s := &x.m.slots[i]; rapid.IntRange(0, 2).Draw(t, "mark") {
	case 0:
		x.p.SetEphemeral(kvcache.Ref(i))
		x.m.lower(i, false)
	case 1:
		x.p.SetOnce(kvcache.Ref(i))
		if s.once = true; s.idle() && x.m.byClass() {
			s.key = x.m.tick()
		}
	case 2:
		x.p.SetSkipWrite(kvcache.Ref(i))
		s.skip = true
	}
}

// beginning is when time began for records.
var beginning = time.UnixMilli(0)

func (x *machine) record(t *rapid.T) kvcache.Record {
	id, _ := session(t)
	r := kvcache.Record{
		Priority:  retention(t).Priority,
		Ephemeral: rapid.Bool().Draw(t, "ephemeral"),
		SkipWrite: rapid.Bool().Draw(t, "skip"),
		Session:   id,
		Epoch:     uint32(rapid.IntRange(0, 4).Draw(t, "epoch")),
	}
	deadline := func(name string) int64 {
		return max(0, (x.m.now + time.Duration(rapid.IntRange(-2, 5).Draw(t, name))*30*time.Second).Milliseconds())
	}
	if rapid.Bool().Draw(t, "until") {
		r.PriorityDeadline = deadline("priority until")
	}
	if rapid.Bool().Draw(t, "pinned") {
		r.PinDeadline, r.SoftPin = deadline("pinned until"), true
		r.HardPin = rapid.Bool().Draw(t, "hard")
	}
	return r
}

func (x *machine) inherit(t *rapid.T) {
	seq := path(t)
	if i := x.m.find(seq[len(seq)-1]); i >= 0 {
		r := x.record(t)
		x.p.Inherit(kvcache.Ref(i), r, beginning)
		x.m.inherit(i, r)
	}
}

func (x *machine) update(t *rapid.T) {
	seq, r := path(t), x.record(t)
	want := 0
	got := x.p.Update(seq, r, beginning)
	for _, h := range slices.Backward(seq) {
		if i := x.m.find(h); i >= 0 && x.m.update(i, r) {
			want++
		}
	}
	if got != want {
		t.Fatalf("updated %d of %v, want %d", got, seq, want)
	}
}

func (x *machine) discard(t *rapid.T) {
	seq := path(t)
	h := seq[len(seq)-1]
	got := x.p.Discard(h)
	i := x.m.find(h)
	if i < 0 {
		return
	}
	s := &x.m.slots[i]
	want := s.idle() && !x.m.children(i, func(*kept) bool { return true })
	if got != want {
		t.Fatalf("discarded %d: %v, want %v", h, got, want)
	}
	if want {
		x.m.removed = append(x.m.removed, h)
		x.m.free(i)
		return
	}
	s.once = true
	x.m.lower(i, false)
}

// time goes on, for the pool by steps that make no difference, and now and then
// back, which makes none either.
func (x *machine) time(t *rapid.T) {
	from := x.m.now
	x.m.advance(from + time.Duration(rapid.IntRange(0, 12).Draw(t, "steps"))*10*time.Second)
	for _, part := range rapid.SliceOfN(rapid.IntRange(-2, 10), 0, 3).Draw(t, "parts") {
		x.p.Advance(from + (x.m.now-from)*time.Duration(part)/10)
	}
	x.p.Advance(x.m.now)
}

// check compares all that can be seen.
func (x *machine) check(t *rapid.T) {
	p, m := x.p, x.m
	removed := p.TakeRemoved(nil)
	if !slices.Equal(removed, m.removed) {
		t.Fatalf("removed %v, want %v", removed, m.removed)
	}
	x.gone(t, removed)
	if got := p.TakePromoted(nil); !slices.Equal(got, m.promoted) {
		t.Fatalf("promoted %v, want %v", got, m.promoted)
	}
	m.removed, m.promoted = nil, nil
	if got, want := p.Stats(), m.stats(); got != want {
		t.Fatalf("stats %+v, want %+v", got, want)
	}
	for i := range m.slots {
		s, r := &m.slots[i], kvcache.Ref(i)
		if got := p.State(r); got != s.state {
			t.Fatalf("slot %d is %s, want %s", i, got, s.state)
		}
		if !s.published() {
			continue
		}
		if !x.present[s.hash] || p.Hash(r) != s.hash {
			t.Fatalf("slot %d holds %d, told %v", i, p.Hash(r), x.present)
		}
		if got, want := p.Shared(r), s.shared; got != want || p.SkipWrite(r) != s.skip {
			t.Fatalf("slot %d: shared %v, skips %v, want %v, %v", i, got, p.SkipWrite(r), want, s.skip)
		}
		if got, want := p.Record(r, beginning), m.record(i); got != want {
			t.Fatalf("slot %d travels with %+v, want %+v", i, got, want)
		}
		if tags := p.Tags(nil, r); !slices.Equal(tags, s.tags) {
			t.Fatalf("slot %d has tags %v, want %v", i, tags, s.tags)
		}
	}
	for id := range kvcache.SessionID(12) {
		if got, want := p.Held(id), m.live(id); got != want {
			t.Fatalf("session %d holds %d, want %d", id, got, want)
		}
	}
	if p.Sessions() != len(m.sessions) {
		t.Fatalf("%d sessions, want %v", p.Sessions(), m.ids())
	}
	// What looks at deadlines comes last, and not always, so that what is due
	// piles up.
	if rapid.Bool().Draw(t, "look") {
		return
	}
	if got, want := p.Available(), m.available(false); got != want {
		t.Fatalf("available %d, want %d", got, want)
	}
	if got, want := p.Spare(), m.available(true); got != want {
		t.Fatalf("spare %d, want %d", got, want)
	}
	if got, _ := p.PinBudget(); got != m.pinned() {
		t.Fatalf("pinned %d, want %d", got, m.pinned())
	}
	for tenant := range kvcache.TenantID(3) {
		if got, want := p.PinnedFor(tenant), m.pinnedFor(tenant); tenant > 0 && got != want {
			t.Fatalf("pinned %d for tenant %d, want %d", got, tenant, want)
		}
	}
	for i := range m.slots {
		if s := &m.slots[i]; s.published() && p.Class(kvcache.Ref(i)) != s.class() {
			t.Fatalf("slot %d is %s, want %s", i, p.Class(kvcache.Ref(i)), s.class())
		}
	}
}
