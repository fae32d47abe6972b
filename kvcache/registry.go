package kvcache

import (
	"fmt"
	"slices"
	"time"

	"github.com/dynago/dynago/kv"
)

// Registry is all that one worker caches: its tiers, and what is on its way
// between them. It decides what is copied where and when, and leaves the copying
// to its caller, who asks Start for transfers, carries them out in its own time,
// and says how each one went with Finish. (A [Carrier] does that in virtual
// time.) Like a pool it has no goroutine, clock or lock, and calls on it, and on
// registries that share a tier with it, must not overlap.
//
//	          Load, Prefetch
//	G1 device ◀───────────┬──────────────┐
//	   │ WriteThrough     │              │      a block read from below also
//	   ▼                  │              │      stays in G2 on its way up
//	G2 host ◀─────────────┴───────┐      │
//	   │                          │      │
//	   ├──▶ G3 disk ──────────────┤      │
//	   └──▶ G4 shared ────────────┴──────┘
//
// A block lies in a slot of its target from the moment it is under way, and is
// published there when it has arrived. Its source is held so long, so that no
// slot is given to someone else while it is read.
type Registry struct {
	cfg    Config
	device *Tier
	ways   []*way // ordered by edge
	moves  map[moveKey]*move
	nextID uint64
	now    time.Duration

	underway      map[uint64]*Transfer // what was started
	gates         [tiers]gate          // of the ways up, by where they come from
	promoted      []uint64
	loads         []*load // that have not ended, in the order they came
	loaded        []Loaded
	early         []*prefetch // that have not ended, in the order they came
	past          []Prefetch  // the newest that have
	wishes        map[kv.SeqHash]wish
	manyWishes    int
	refs          []Ref // scratch
	reserved      int   // device slots that prefetches hold and have not filled
	loadStats     LoadStats
	prefetchStats PrefetchStats
}

// Config says what a registry consists of.
type Config struct {
	// Tiers by kind; a worker has a device, and any of the others.
	Device, Host, Disk, Shared *Tier
	// BlockBytes is what one block is long, on every tier.
	BlockBytes int64
	// Ways says how fast the ways are; those that are not named have the zero
	// WayConfig. Ways that the tiers do not allow are an error.
	Ways map[Edge]WayConfig
	// MinPriority keeps blocks of lower retention priority from leaving the
	// device, and with them all that follow in the same request; 0 = no limit.
	MinPriority uint8
	// DiskFilter and SharedFilter, if any, say what is worth writing there.
	DiskFilter, SharedFilter *FrequencyFilter
	// NoReadThrough keeps blocks that are loaded from disk or the shared store
	// out of the host tier.
	NoReadThrough bool
	// Contiguous loads only runs that go down the tiers and never up again. If it
	// is not set each block comes from the fastest tier that has it.
	Contiguous bool
	// Zero is the moment from which time is counted, for records that travel with
	// blocks. Registries that share a tier have the same.
	Zero time.Time
	// PrefetchShare is the part of the device's blocks that prefetches which
	// nobody has used yet may hold; 0 = 0.10.
	PrefetchShare float64
}

// Edge is the way from one tier to another.
type Edge struct{ From, To kv.Tier }

// String returns the edge in words, for labels: "device_host_pinned".
func (e Edge) String() string { return e.From.String() + "_" + e.To.String() }

func (e Edge) down() bool { return e.From < e.To }

// WayConfig says what a way can do.
type WayConfig struct {
	// Link is how fast it is. The registry only uses it to estimate times.
	Link LinkConfig
	// Transfers is how many are under way at a time; 0 = 4, and 1 from host to
	// disk.
	Transfers int
	// Batch is the most blocks of one transfer; 0 = 16.
	Batch int
	// Queue is how many blocks may wait to be written; 0 = 65,536.
	Queue int
}

// Defaults of a WayConfig and a Config.
const (
	defaultTransfers = 4
	defaultBatch     = 16
	defaultQueue     = 65536
	defaultPrefetch  = 0.10
)

// way is one edge with what waits for it and what is on it.
type way struct {
	Edge
	cfg      WayConfig
	from, to *Tier
	filter   *FrequencyFilter
	writes   writeQueue          // downwards: what may be written
	index    int                 // in Registry.ways
	queued   map[kv.SeqHash]bool // what is in it
	reads    [2][]*move          // upwards: in front and in the background, FIFO
	busy     int                 // transfers under way
	gate     *gate
	stats    WayStats
}

// WayStats counts what a way has done. Nothing in it decreases.
type WayStats struct {
	Edge      Edge
	Transfers int64 // that have ended
	Blocks    int64 // that have arrived
	Bytes     int64
	Time      time.Duration // that all transfers together have taken
	Failed    int64         // blocks lost on the way
	Skipped   [Skips]int64
	Moving    int // blocks under way
	Waiting   int // blocks that wait
}

// Transfer is a batch of blocks to be copied from the slots of one tier to those
// of another. It belongs to the caller from Start to Finish, and is not changed
// by it.
type Transfer struct {
	ID         uint64
	Edge       Edge
	Background bool // gives way to others
	Bytes      int64
	Began      time.Duration
	Copies     []Copy

	moves []*move
}

func (x *Transfer) way() *way { return x.moves[0].way }

// Copy is one block of a transfer.
type Copy struct {
	Block    Block
	From, To Ref
}

// Fault is what became of one block of a transfer.
type Fault uint8

// Faults.
const (
	Arrived     Fault = iota // whole and checked
	Lost                     // what was to be read is gone or wrong; it is forgotten
	Unreachable              // it could not be read or written now
)

// move is one block on its way, or waiting to be.
type move struct {
	way        *way
	block      Block
	record     Record // its retention, which goes with it
	from, to   Ref
	state      moveState
	background bool
	transfer   *Transfer
	// A move to the device fills a slot of a load, until the load gives it up.
	load *load
	pos  int
	// Those who wait for the block.
	waiters []waiter
	early   bool // by a prefetch, and nobody else has asked for it
}

type moveState uint8

const (
	moveQueued  moveState = iota
	moveOngoing           // part of a transfer
	moveArrived           // in its slot; not published before what precedes it
)

// moveKey finds a move by where it goes.
type moveKey struct {
	to   kv.Tier
	hash kv.SeqHash
}

// waiter is a position of a load, or a prefetch, that a move is of use to.
type waiter struct {
	load     *load
	pos      int
	prefetch *prefetch
}

// NewRegistry returns a registry over the given tiers, which may hold blocks.
func NewRegistry(cfg Config) (*Registry, error) {
	if cfg.Device == nil || cfg.BlockBytes < 0 {
		return nil, fmt.Errorf("kvcache: a registry needs a device tier and blocks of at least 0 bytes, has %d", cfg.BlockBytes)
	}
	if cfg.Shared != nil && cfg.Host == nil && cfg.Disk == nil {
		return nil, fmt.Errorf("kvcache: a shared tier needs a host or a disk tier above it")
	}
	if cfg.PrefetchShare <= 0 {
		cfg.PrefetchShare = defaultPrefetch
	}
	r := &Registry{
		cfg: cfg, device: cfg.Device,
		moves: map[moveKey]*move{}, underway: map[uint64]*Transfer{}, wishes: map[kv.SeqHash]wish{},
	}
	for k := range kv.Tier(tiers) {
		if t := r.Tier(k); t != nil && t.kind != k {
			return nil, fmt.Errorf("kvcache: the %s tier is a %s tier", k, t.kind)
		}
	}
	for from := range kv.Tier(tiers) {
		for to := range kv.Tier(tiers) {
			if e := (Edge{from, to}); r.allows(e) {
				r.addWay(e)
			}
		}
	}
	for e := range cfg.Ways {
		if r.way(e) == nil {
			return nil, fmt.Errorf("kvcache: blocks do not go from the %s to the %s tier here", e.From, e.To)
		}
	}
	return r, nil
}

// allows says which ways there are: down by one step, past a host tier that does
// not exist, and to the shared tier from the next above it; up from anywhere to
// the device, and to the host.
func (r *Registry) allows(e Edge) bool {
	if e.From == e.To || r.Tier(e.From) == nil || r.Tier(e.To) == nil {
		return false
	}
	if !e.down() {
		return e.To <= kv.TierHost
	}
	switch e {
	case Edge{kv.TierDevice, kv.TierHost}, Edge{kv.TierHost, kv.TierDisk}, Edge{kv.TierHost, kv.TierShared}:
		return true
	case Edge{kv.TierDevice, kv.TierDisk}, Edge{kv.TierDisk, kv.TierShared}:
		return r.cfg.Host == nil
	}
	return false
}

func (r *Registry) addWay(e Edge) {
	w := &way{Edge: e, cfg: r.cfg.Ways[e], from: r.Tier(e.From), to: r.Tier(e.To), queued: map[kv.SeqHash]bool{}}
	w.stats.Edge = e
	w.index = len(r.ways)
	if w.gate = &r.gates[e.From]; e.down() {
		w.gate = &gate{}
	}
	if w.cfg.Transfers <= 0 {
		if w.cfg.Transfers = defaultTransfers; e == (Edge{kv.TierHost, kv.TierDisk}) {
			w.cfg.Transfers = 1
		}
	}
	if w.cfg.Batch <= 0 {
		w.cfg.Batch = defaultBatch
	}
	if w.cfg.Queue <= 0 {
		w.cfg.Queue = defaultQueue
	}
	if e.down() {
		switch e.To {
		case kv.TierDisk:
			w.filter = r.cfg.DiskFilter
		case kv.TierShared:
			w.filter = r.cfg.SharedFilter
		}
	}
	r.ways = append(r.ways, w)
}

// Tier returns a tier of the registry, or nil.
func (r *Registry) Tier(k kv.Tier) *Tier {
	return [...]*Tier{r.cfg.Device, r.cfg.Host, r.cfg.Disk, r.cfg.Shared}[k]
}

func (r *Registry) way(e Edge) *way {
	for _, w := range r.ways {
		if w.Edge == e {
			return w
		}
	}
	return nil
}

// Present says on which tiers a block lies: bit 1<<t for tier t.
func (r *Registry) Present(h kv.SeqHash) (tierBits uint8) {
	for k := range kv.Tier(tiers) {
		if t := r.Tier(k); t != nil && t.Has(h) {
			tierBits |= 1 << k
		}
	}
	return tierBits
}

// Ways counts what was moved, in the order of the edges.
func (r *Registry) Ways() []WayStats {
	out := make([]WayStats, len(r.ways))
	for i, w := range r.ways {
		out[i] = w.stats
		out[i].Waiting = len(w.writes) + len(w.reads[front]) + len(w.reads[background])
	}
	return out
}

// Start appends the transfers that are to begin now. Reads go before writes, and
// both before what is done in advance.
func (r *Registry) Start(dst []*Transfer, now time.Duration) []*Transfer {
	r.tick(now)
	r.promoteWrites()
	for _, w := range r.ways {
		for w.busy < w.cfg.Transfers && w.gate.until <= r.now {
			moves := w.nextReads()
			if w.down() {
				moves = r.nextWrites(w)
			}
			if len(moves) == 0 {
				break
			}
			dst = append(dst, r.start(w, moves))
		}
	}
	return dst
}

func (r *Registry) start(w *way, moves []*move) *Transfer {
	r.nextID++
	x := &Transfer{
		ID: r.nextID, Edge: w.Edge, Background: moves[0].background, Began: r.now,
		Bytes: int64(len(moves)) * r.cfg.BlockBytes, moves: moves,
	}
	for _, m := range moves {
		m.state, m.transfer = moveOngoing, x
		x.Copies = append(x.Copies, Copy{m.block, m.from, m.to})
	}
	w.busy++
	w.stats.Moving += len(moves)
	r.underway[x.ID] = x
	return x
}

// nextReads takes the moves of the next transfer upwards out of their queue.
func (w *way) nextReads() []*move {
	for lane := range w.reads {
		if q := w.reads[lane]; len(q) > 0 {
			n := min(len(q), w.cfg.Batch)
			w.reads[lane] = q[n:]
			return slices.Clone(q[:n])
		}
	}
	return nil
}

// Promoted returns the transfers that began in the background and that someone
// waits for since the last call. The slice is valid until the next call.
func (r *Registry) Promoted() []uint64 {
	ids := r.promoted
	r.promoted = r.promoted[len(r.promoted):]
	return ids
}

// Finish says how a transfer went: faults has one entry for each copy, or is nil
// if all have arrived. After an error of the way itself nothing starts on it for
// a while, which grows from 100 ms to 30 s.
func (r *Registry) Finish(now time.Duration, id uint64, faults []Fault) {
	r.tick(now)
	x := r.underway[id]
	if x == nil || faults != nil && len(faults) != len(x.moves) {
		panic(fmt.Sprintf("kvcache: transfer %d is not under way, or not with %d blocks", id, len(faults)))
	}
	delete(r.underway, id)
	w := x.way()
	w.busy--
	w.stats.Transfers++
	w.stats.Time += r.now - x.Began
	w.stats.Moving -= len(x.moves)
	w.gate.judge(r.now, faults)
	for i, m := range x.moves {
		fault := Arrived
		if faults != nil {
			fault = faults[i]
		}
		if fault == Arrived {
			w.stats.Blocks++
			w.stats.Bytes += r.cfg.BlockBytes
		} else {
			w.stats.Failed++
		}
		switch {
		case w.down():
			r.written(m, fault)
		case w.To == kv.TierHost:
			r.lifted(m, fault)
		default:
			r.arrived(m, fault)
		}
	}
	r.progress()
}

const (
	shortestPause = 100 * time.Millisecond
	longestPause  = 30 * time.Second
)

// gate closes a way for a while after an error. The ways up from one tier have
// one together.
type gate struct {
	until time.Duration
	pause time.Duration // the last one; 0 = all is well
}

func (g *gate) judge(now time.Duration, faults []Fault) {
	switch {
	case slices.Contains(faults, Unreachable):
		g.pause = min(max(2*g.pause, shortestPause), longestPause)
		g.until = now + g.pause
	case !slices.Contains(faults, Lost):
		g.pause = 0
	}
}

// publish puts a block that has arrived into its tier and lets go of its slot,
// so that it lies there for whoever wants it.
func (r *Registry) publish(m *move) {
	w := m.way
	ref, outcome := w.to.Register(m.to, m.block, Root)
	if outcome == Added {
		w.to.pool.Inherit(ref, m.record, r.cfg.Zero)
		r.fulfil(w.to, ref)
		if m.early {
			w.to.prefetched(ref)
			r.prefetchStats.Blocks[w.To]++
		}
	}
	w.to.Release([]Ref{ref})
}

// Next returns when something is to be done that no transfer brings about: a way
// opens again, or a prefetch is due.
func (r *Registry) Next() (at time.Duration, ok bool) {
	sooner := func(t time.Duration) {
		if !ok || t < at {
			at, ok = t, true
		}
	}
	for _, w := range r.ways {
		if w.gate.until > r.now && len(w.writes)+len(w.reads[front])+len(w.reads[background]) > 0 {
			sooner(w.gate.until)
		}
	}
	for _, p := range r.early {
		if t := p.next(); t < never {
			sooner(t)
		}
	}
	return at, ok
}

// Advance does what is due until now.
func (r *Registry) Advance(now time.Duration) {
	r.tick(now)
	r.progress()
}

// tick tells the time to everyone.
func (r *Registry) tick(now time.Duration) {
	r.now = max(r.now, now)
	for k := range kv.Tier(tiers) {
		if t := r.Tier(k); t != nil {
			t.pool.Advance(r.now)
		}
	}
}

// progress draws the consequences of whatever has changed.
func (r *Registry) progress() {
	r.settle()
	r.advancePrefetches()
	r.settle()
}

// carry returns the move of a block that the caller holds in slot from.
func (r *Registry) carry(w *way, from, to Ref) *move {
	return &move{way: w, block: w.from.Block(from), record: w.from.pool.Record(from, r.cfg.Zero), from: from, to: to}
}
