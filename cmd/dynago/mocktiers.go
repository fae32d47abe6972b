package main

import "github.com/dynago/dynago/engine/mock"

// mockTierSettings say what lies below the device of a mock engine.
type mockTierSettings struct {
	HostBlocks        *int     `name:"g2-blocks" env:"DYN_G2_BLOCKS" range:"0..2147483647" placeholder:"BLOCKS" help:"KV blocks of host memory below the device of each rank; otherwise none."`
	DiskBlocks        *int     `name:"g3-blocks" env:"DYN_G3_BLOCKS" range:"0..2147483647" placeholder:"BLOCKS" help:"KV blocks of a disk below that; otherwise none."`
	DiskBytes         *int64   `name:"g3-bytes" env:"DYN_G3_BYTES" range:"0.." placeholder:"BYTES" help:"Size of the disk in bytes, where no blocks are given."`
	DiskShared        *bool    `name:"g3-shared" env:"DYN_G3_SHARED" negatable:"" help:"Let all workers of this process have one disk together."`
	SharedBlocks      *int     `name:"g4-blocks" env:"DYN_G4_BLOCKS" range:"0..2147483647" placeholder:"BLOCKS" help:"KV blocks of a store that all workers of this process share; otherwise none."`
	SharedBytes       *int64   `name:"g4-bytes" env:"DYN_G4_BYTES" range:"0.." placeholder:"BYTES" help:"Size of the store in bytes, where no blocks are given."`
	BandwidthG1G2     *float64 `name:"bw-g1-g2" env:"DYN_BW_G1_G2" range:"0..1000000000" placeholder:"GB/S" help:"How fast blocks get from the device to the host; otherwise 14, and 0 takes no time."`
	BandwidthG2G1     *float64 `name:"bw-g2-g1" env:"DYN_BW_G2_G1" range:"0..1000000000" placeholder:"GB/S" help:"How fast they come back; otherwise 14."`
	BandwidthG2G3     *float64 `name:"bw-g2-g3" env:"DYN_BW_G2_G3" range:"0..1000000000" placeholder:"GB/S" help:"How fast blocks get to the disk; otherwise 7."`
	BandwidthG3G2     *float64 `name:"bw-g3-g2" env:"DYN_BW_G3_G2" range:"0..1000000000" placeholder:"GB/S" help:"How fast they come back; otherwise 7."`
	BandwidthG4       *float64 `name:"bw-g4" env:"DYN_BW_G4" range:"0..1000000000" placeholder:"GB/S" help:"How fast the shared store is, either way; otherwise 2."`
	WritePolicy       *string  `name:"write-policy" env:"DYN_WRITE_POLICY" choice:"write_through,none" placeholder:"POLICY" help:"When blocks go to lower tiers: as soon as they are complete, or never. Otherwise write_through."`
	ReadThrough       *bool    `name:"read-through" env:"DYN_READ_THROUGH" negatable:"" help:"Keep what comes from disk or store in host memory too; otherwise true."`
	LoadBackThreshold *int     `name:"load-back-threshold" env:"DYN_LOAD_BACK_THRESHOLD" range:"0..2147483647" placeholder:"BLOCKS" help:"Fewest blocks that are worth a load; otherwise 1."`
	Evictor           *string  `name:"evictor" aliases:"kv-eviction" env:"DYN_EVICTOR" choice:"retention,lru,fifo,multi-lru,priorities" also:"lfu=multi-lru,priority=priorities,trtllm=priorities,lineage=fifo" placeholder:"ORDER" help:"Order in which blocks go, on each tier; otherwise retention."`
	PinBudgetG1       *float64 `name:"pin-budget-g1" env:"DYN_PIN_BUDGET_G1" range:"0..1" placeholder:"PART" help:"Part of the device's blocks that may be pinned; otherwise 0."`
	PinBudgetG2       *float64 `name:"pin-budget-g2" env:"DYN_PIN_BUDGET_G2" range:"0..1" placeholder:"PART" help:"The same of the host's; otherwise 0.25."`
	PinBudgetG3       *float64 `name:"pin-budget-g3" env:"DYN_PIN_BUDGET_G3" range:"0..1" placeholder:"PART" help:"The same of the disk's; otherwise 0.5."`
	PinBudgetG4       *float64 `name:"pin-budget-g4" env:"DYN_PIN_BUDGET_G4" range:"0..1" placeholder:"PART" help:"The same of the store's; otherwise 0.5."`
	AllowHardPins     *bool    `name:"allow-hard-pins" env:"DYN_ALLOW_HARD_PINS" negatable:"" help:"Let pins that ask for it hold against everything; otherwise each may be broken where nothing else is left."`
	SubagentEphemeral *bool    `name:"subagent-ephemeral" env:"DYN_SUBAGENT_EPHEMERAL" negatable:"" help:"Let the blocks of sessions that have a parent go first; otherwise false."`
}

// over puts the flags over arguments.
func (s *mockTierSettings) over(a *mock.TierArgs) {
	override(&a.HostBlocks, s.HostBlocks)
	override(&a.DiskBlocks, s.DiskBlocks)
	override(&a.DiskBytes, s.DiskBytes)
	override(&a.DiskShared, s.DiskShared)
	override(&a.SharedBlocks, s.SharedBlocks)
	override(&a.SharedBytes, s.SharedBytes)
	override(&a.BandwidthG1G2, s.BandwidthG1G2)
	override(&a.BandwidthG2G1, s.BandwidthG2G1)
	override(&a.BandwidthG2G3, s.BandwidthG2G3)
	override(&a.BandwidthG3G2, s.BandwidthG3G2)
	override(&a.BandwidthG4, s.BandwidthG4)
	override(&a.WritePolicy, s.WritePolicy)
	override(&a.ReadThrough, s.ReadThrough)
	override(&a.LoadBackThreshold, s.LoadBackThreshold)
	override(&a.Evictor, s.Evictor)
	override(&a.PinBudgetG1, s.PinBudgetG1)
	override(&a.PinBudgetG2, s.PinBudgetG2)
	override(&a.PinBudgetG3, s.PinBudgetG3)
	override(&a.PinBudgetG4, s.PinBudgetG4)
	override(&a.AllowHardPins, s.AllowHardPins)
	override(&a.SubagentEphemeral, s.SubagentEphemeral)
}
