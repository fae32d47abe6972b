package kvcache

import (
	"fmt"
	"maps"
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
	early         []*prefetch           // that have not ended, in the order they came
	past          []Prefetch            // the newest that have
	wishes        map[kv.SeqHash][]wish // one for each owner
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
	// Within counts transfers that took no longer than each of [TransferBounds], and longer
	// than the one before.
	Within  [len(transferBounds)]int64
	Failed  int64 // blocks lost on the way
	Skipped [Skips]int64
	Moving  int // blocks under way
	Waiting int // blocks that wait
}

// NewRegistry returns a registry over the given tiers, which may hold blocks.
func NewRegistry(cfg Config) (*Registry, error) {
	if cfg.Device == nil || cfg.BlockBytes < 0 {
		return nil, fmt.Errorf("kvcache: a registry needs a device tier and blocks of at least 0 bytes, has %d", cfg.BlockBytes)
	}
	if cfg.Shared != nil && cfg.Host == nil && cfg.Disk == nil {
		return nil, fmt.Errorf("kvcache: a shared tier needs a host or a disk tier above it")
	}
	if !(cfg.PrefetchShare >= 0 && cfg.PrefetchShare <= 1) {
		return nil, fmt.Errorf("kvcache: prefetches may hold %v of the device, want a share from 0 to 1", cfg.PrefetchShare)
	}
	if cfg.PrefetchShare == 0 {
		cfg.PrefetchShare = defaultPrefetch
	}
	if cfg.MinPriority > MaxPriority {
		return nil, fmt.Errorf("kvcache: blocks would need priority %d to leave the device, and there is none above %d", cfg.MinPriority, MaxPriority)
	}
	r := &Registry{
		cfg: cfg, device: cfg.Device,
		moves: map[moveKey]*move{}, underway: map[uint64]*Transfer{}, wishes: map[kv.SeqHash][]wish{},
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
	for e, w := range cfg.Ways {
		if r.way(e) == nil {
			return nil, fmt.Errorf("kvcache: blocks do not go from the %s to the %s tier here", e.From, e.To)
		}
		if err := w.Link.check(); err != nil {
			return nil, fmt.Errorf("kvcache: the way from the %s to the %s tier: %w", e.From, e.To, err)
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

// Close ends everything that is under way, as when the worker dies: nobody copies
// anything from then on. What it had begun on tiers that others share is undone,
// so that they lose neither slots nor what could be evicted. The registry is not
// to be used afterwards.
func (r *Registry) Close() {
	for _, p := range slices.Clone(r.early) {
		r.endPrefetch(p, PrefetchCancelled)
	}
	for len(r.loads) > 0 {
		r.abandon(r.loads[0])
	}
	for _, id := range slices.Sorted(maps.Keys(r.underway)) {
		for _, m := range r.underway[id].moves {
			m.way.to.Release([]Ref{m.to})
			r.letGo(m, Arrived)
		}
	}
	clear(r.underway)
	clear(r.moves)
	r.ways = nil
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
