package mock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache"
)

// TierArgs say what lies below the device of each rank (G1): host memory (G2), a
// disk (G3) and a store that engines share (G4), how fast blocks get there and
// back, and what is kept of them. A size of 0 is no such tier.
//
// Bandwidths are in GB/s, 10^9 bytes a second; 0 of one takes no time. Like all
// modelled times, those of transfers are divided by the engine's speed.
type TierArgs struct {
	HostBlocks int `json:"g2_blocks"`
	// DiskBlocks is the size of the disk in blocks; else DiskBytes says it.
	DiskBlocks int   `json:"g3_blocks"`
	DiskBytes  int64 `json:"g3_bytes"`
	// DiskShared makes the disk one that all engines of a [Shared] have together.
	DiskShared bool `json:"g3_shared"`
	// DiskFilter writes a block to the disk at its second sighting, not the first.
	DiskFilter bool `json:"g3_filter"`
	// SharedBlocks is the size of the store in blocks; else SharedBytes says it.
	SharedBlocks int   `json:"g4_blocks"`
	SharedBytes  int64 `json:"g4_bytes"`

	BandwidthG1G2 float64 `json:"bw_g1_g2"`
	BandwidthG2G1 float64 `json:"bw_g2_g1"`
	BandwidthG2G3 float64 `json:"bw_g2_g3"`
	BandwidthG3G2 float64 `json:"bw_g3_g2"`
	BandwidthG4   float64 `json:"bw_g4"` // either way
	// Before the first byte of each transfer, in milliseconds.
	LatencyG1G2MS float64 `json:"lat_g1_g2_ms"`
	LatencyG2G1MS float64 `json:"lat_g2_g1_ms"`
	LatencyG2G3MS float64 `json:"lat_g2_g3_ms"`
	LatencyG3G2MS float64 `json:"lat_g3_g2_ms"`
	LatencyG4MS   float64 `json:"lat_g4_ms"`
	// Transfers is how many are under way at a time on each way, and TransferBatch
	// the most blocks of one; 0 = what package kvcache does.
	Transfers     int `json:"max_concurrent_transfers"`
	TransferBatch int `json:"offload_batch_size"`

	// WritePolicy is "write_through", blocks go down when they are complete, or
	// "none", lower tiers are only read.
	WritePolicy string `json:"write_policy"`
	// ReadThrough keeps blocks that come from disk or store in host memory too.
	ReadThrough bool `json:"read_through"`
	// OffloadMinPriority keeps blocks of lower retention priority, and what follows
	// them in a request, from leaving the device; 0 = none.
	OffloadMinPriority int `json:"offload_min_priority"`
	// LoadBackThreshold is the fewest blocks that are worth a load, and LoadBias how
	// long that may take against computing them: 1 is as long, 0 not at all.
	LoadBackThreshold int     `json:"load_back_threshold"`
	LoadBias          float64 `json:"load_bias"`

	// Evictor is the order in which blocks go, on each tier: "retention", "lru",
	// "fifo", "multi-lru" or "priorities".
	Evictor string `json:"evictor"`
	// What part of a tier's blocks may be pinned. AllowHardPins lets a pin hold
	// against everything; else each is a soft one.
	PinBudgetG1   float64 `json:"pin_budget_g1"`
	PinBudgetG2   float64 `json:"pin_budget_g2"`
	PinBudgetG3   float64 `json:"pin_budget_g3"`
	PinBudgetG4   float64 `json:"pin_budget_g4"`
	AllowHardPins bool    `json:"allow_hard_pins"`
	// SessionTimeout is after how many idle seconds a session ends that names no
	// time of its own.
	SessionTimeout float64 `json:"session_timeout"`
	// SubagentEphemeral makes each session ephemeral that has a parent.
	SubagentEphemeral bool `json:"subagent_ephemeral"`
	// ThinkEphemeral is "auto", reasoning goes first if the request says that the
	// next prompt leaves it out, or "off".
	ThinkEphemeral string `json:"think_ephemeral"`
}

func defaultTierArgs() TierArgs {
	return TierArgs{
		BandwidthG1G2: 14, BandwidthG2G1: 14, BandwidthG2G3: 7, BandwidthG3G2: 7, BandwidthG4: 2,
		WritePolicy: "write_through", ReadThrough: true, LoadBackThreshold: 1, LoadBias: 1,
		Evictor: "retention", PinBudgetG2: 0.25, PinBudgetG3: 0.5, PinBudgetG4: 0.5,
		SessionTimeout: kvcache.DefaultSessionTimeout.Seconds(), ThinkEphemeral: "auto",
	}
}

// tierAliases are other engines' names for the same.
var tierAliases = map[string]string{
	"num_g2_blocks": "g2_blocks", "num_g3_blocks": "g3_blocks",
	"bandwidth_g1_to_g2_gbps": "bw_g1_g2", "bandwidth_g2_to_g1_gbps": "bw_g2_g1",
	"bandwidth_g2_to_g3_gbps": "bw_g2_g3", "bandwidth_g3_to_g2_gbps": "bw_g3_g2",
}

// evictors are other names of orders.
var evictors = map[string]string{"lfu": "multi-lru", "priority": "priorities", "trtllm": "priorities", "lineage": "fifo"}

func (a *TierArgs) eviction() (kvcache.Eviction, error) {
	return kvcache.ParseEviction(cmp.Or(evictors[a.Evictor], a.Evictor, kvcache.EvictRetention.String()))
}

// defaultBytesPerToken is what a token takes in a model of eight billion weights,
// for which the times of passes are made: 32 layers of 8 heads, 128 wide, keys and
// values, two bytes each.
const defaultBytesPerToken = 32 * 8 * 128 * 2 * 2

// BlockBytes returns how long a block is, for tiers and transfers between them.
func (a *Args) BlockBytes() int64 {
	return int64(cmp.Or(a.KVBytesPerToken, defaultBytesPerToken)) * int64(a.BlockSize)
}

// Tiers returns the size of each tier in blocks; what has 0 is not there.
func (a *Args) Tiers() [kv.TierShared + 1]int {
	sized := func(blocks int, bytes int64) int {
		if blocks > 0 {
			return blocks
		}
		return int(min(bytes/a.BlockBytes(), math.MaxInt32))
	}
	return [...]int{a.NumGPUBlocks, a.HostBlocks, sized(a.DiskBlocks, a.DiskBytes), sized(a.SharedBlocks, a.SharedBytes)}
}

// tiered says whether there is anything below the device.
func (a *Args) tiered() bool {
	return a.HostBlocks > 0 || a.DiskBlocks > 0 || a.DiskBytes > 0 || a.SharedBlocks > 0 || a.SharedBytes > 0
}

// untiered returns the arguments of the same engine with a device alone.
func (a Args) untiered() Args {
	a.HostBlocks, a.DiskBlocks, a.DiskBytes, a.DiskShared = 0, 0, 0, false
	a.SharedBlocks, a.SharedBytes = 0, 0
	return a
}

func (a *Args) validateTiers() error {
	fault := func(key string, value any, want string) error {
		return fmt.Errorf("engine arguments: %s is %v, want %s", key, value, want)
	}
	for _, c := range []struct {
		key   string
		value int64
		high  int64
	}{
		{"g2_blocks", int64(a.HostBlocks), math.MaxInt32},
		{"g3_blocks", int64(a.DiskBlocks), math.MaxInt32},
		{"g3_bytes", a.DiskBytes, math.MaxInt64},
		{"g4_blocks", int64(a.SharedBlocks), math.MaxInt32},
		{"g4_bytes", a.SharedBytes, math.MaxInt64},
		{"max_concurrent_transfers", int64(a.Transfers), math.MaxInt32},
		{"offload_batch_size", int64(a.TransferBatch), math.MaxInt32},
		{"offload_min_priority", int64(a.OffloadMinPriority), kvcache.MaxPriority},
		{"load_back_threshold", int64(a.LoadBackThreshold), math.MaxInt32},
	} {
		if c.value < 0 || c.value > c.high {
			return fault(c.key, c.value, fmt.Sprintf("0 to %d", c.high))
		}
	}
	for _, c := range []struct {
		key         string
		value, high float64
	}{
		{"bw_g1_g2", a.BandwidthG1G2, 1e9},
		{"bw_g2_g1", a.BandwidthG2G1, 1e9},
		{"bw_g2_g3", a.BandwidthG2G3, 1e9},
		{"bw_g3_g2", a.BandwidthG3G2, 1e9},
		{"bw_g4", a.BandwidthG4, 1e9},
		{"lat_g1_g2_ms", a.LatencyG1G2MS, 1e9},
		{"lat_g2_g1_ms", a.LatencyG2G1MS, 1e9},
		{"lat_g2_g3_ms", a.LatencyG2G3MS, 1e9},
		{"lat_g3_g2_ms", a.LatencyG3G2MS, 1e9},
		{"lat_g4_ms", a.LatencyG4MS, 1e9},
		{"load_bias", a.LoadBias, 1e9},
		{"session_timeout", a.SessionTimeout, 1e9},
		{"pin_budget_g1", a.PinBudgetG1, 1},
		{"pin_budget_g2", a.PinBudgetG2, 1},
		{"pin_budget_g3", a.PinBudgetG3, 1},
		{"pin_budget_g4", a.PinBudgetG4, 1},
	} {
		if !(c.value >= 0) || c.value > c.high {
			return fault(c.key, c.value, fmt.Sprintf("0 to %g", c.high))
		}
	}
	if p := cmp.Or(a.WritePolicy, "none"); p != "none" && p != "write_through" {
		return fault("write_policy", fmt.Sprintf("%q", p), "write_through or none")
	}
	if p := cmp.Or(a.ThinkEphemeral, "off"); p != "off" && p != "auto" {
		return fault("think_ephemeral", fmt.Sprintf("%q", p), "auto or off")
	}
	if _, err := a.eviction(); err != nil {
		return fault("evictor", fmt.Sprintf("%q", a.Evictor), "retention, lru, fifo, multi-lru or priorities")
	}
	return a.validateSizes()
}

// validateSizes looks at tiers together.
func (a *Args) validateSizes() error {
	sizes := a.Tiers()
	switch {
	case a.DiskBytes > 0 && sizes[kv.TierDisk] == 0:
		return fmt.Errorf("engine arguments: g3_bytes is %d, want at least one block of %d bytes", a.DiskBytes, a.BlockBytes())
	case a.SharedBytes > 0 && sizes[kv.TierShared] == 0:
		return fmt.Errorf("engine arguments: g4_bytes is %d, want at least one block of %d bytes", a.SharedBytes, a.BlockBytes())
	case a.tiered() && !a.EnablePrefixCaching:
		return errors.New("engine arguments: lower tiers hold what requests share, want enable_prefix_caching true or no g2_blocks, g3_blocks, g3_bytes, g4_blocks and g4_bytes")
	case sizes[kv.TierShared] > 0 && sizes[kv.TierHost] == 0 && sizes[kv.TierDisk] == 0:
		return errors.New("engine arguments: a shared store (g4_blocks, g4_bytes) needs a tier above it, want g2_blocks or g3_blocks too")
	case a.DiskShared && sizes[kv.TierDisk] == 0:
		return errors.New("engine arguments: g3_shared is true, but there is no disk, want g3_blocks or g3_bytes too")
	}
	return nil
}

// pool returns what the pool of a tier is to be.
func (a *Args) pool(t kv.Tier) kvcache.PoolConfig {
	evict, _ := a.eviction()
	blocks := a.Tiers()[t]
	share := [...]float64{a.PinBudgetG1, a.PinBudgetG2, a.PinBudgetG3, a.PinBudgetG4}[t]
	return kvcache.PoolConfig{
		Blocks: blocks, Eviction: evict, Reject: t != kv.TierDevice,
		PinBudget: int64(share * float64(blocks)), HardPins: a.AllowHardPins,
		SessionTimeout: time.Duration(a.SessionTimeout * float64(time.Second)),
	}
}

// ways returns how fast the ways between the tiers are.
func (a *Args) ways() map[kvcache.Edge]kvcache.WayConfig {
	sizes := a.Tiers()
	ways := map[kvcache.Edge]kvcache.WayConfig{}
	way := func(from, to kv.Tier, gbps, latencyMS float64) {
		if sizes[from] == 0 || sizes[to] == 0 {
			return
		}
		var link kvcache.LinkConfig
		if a.SpeedupRatio > 0 {
			link.Bandwidth = gbps * 1e9 * a.SpeedupRatio
			link.Latency = time.Duration(latencyMS / a.SpeedupRatio * float64(time.Millisecond))
		}
		ways[kvcache.Edge{From: from, To: to}] = kvcache.WayConfig{Link: link, Transfers: a.Transfers, Batch: a.TransferBatch}
	}
	upper := kv.TierHost // what writes to the lower ones
	if sizes[kv.TierHost] == 0 {
		upper = kv.TierDisk
		way(kv.TierDevice, kv.TierDisk, a.BandwidthG2G3, a.LatencyG2G3MS)
	}
	way(kv.TierDevice, kv.TierHost, a.BandwidthG1G2, a.LatencyG1G2MS)
	way(kv.TierHost, kv.TierDevice, a.BandwidthG2G1, a.LatencyG2G1MS)
	way(kv.TierHost, kv.TierDisk, a.BandwidthG2G3, a.LatencyG2G3MS)
	way(upper, kv.TierShared, a.BandwidthG4, a.LatencyG4MS)
	for _, to := range []kv.Tier{kv.TierDevice, kv.TierHost} {
		way(kv.TierDisk, to, a.BandwidthG3G2, a.LatencyG3G2MS)
		way(kv.TierShared, to, a.BandwidthG4, a.LatencyG4MS)
	}
	return ways
}

// Environment puts over a what the environment says about tiers, under the names
// that users of KVBM know (DYN_KVBM_*). Sizes in GB are made to blocks of a.
// Lookup is os.LookupEnv or stands for it.
func (a *Args) Environment(lookup func(string) (string, bool)) error {
	s, err := kvcache.ParseEnvironment(lookup, a.BlockBytes())
	if err != nil {
		return err
	}
	set := func(field *int, n int) {
		if n > 0 {
			*field = n
		}
	}
	set(&a.HostBlocks, s.Host)
	set(&a.DiskBlocks, s.Disk)
	set(&a.SharedBlocks, s.Shared)
	set(&a.OffloadMinPriority, int(s.MinPriority))
	set(&a.Transfers, s.Transfers)
	set(&a.TransferBatch, s.Batch)
	if s.Disk > 0 {
		a.DiskFilter = s.DiskFilter
	}
	return nil
}

// cacheFeatures are what the cache of an engine can do.
func (a *Args) cacheFeatures() engine.Features {
	if !a.EnablePrefixCaching {
		return nil
	}
	f := engine.Features{engine.FeatureRetention, engine.FeatureSessions, engine.FeaturePins}
	if a.tiered() {
		f = append(f, engine.FeaturePrefetch)
	}
	return f
}
