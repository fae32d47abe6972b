package pipeline

// ModelInfo is what the edge may tell about one model.
type ModelInfo struct {
	ID            string // primary name
	Aliases       []string
	ContextLength int    // tokens; 0: unknown
	Ready         bool   // some worker can serve it now
	Reason        string // why not, for people; empty if ready
	Workers       int    // workers that are ready
	// Of the first worker that told them; 0: unknown.
	BlockSize, TotalBlocks, MaxSeqs, MaxBatchedTokens int
}

// WorkerInfo is what the edge may tell about one worker.
type WorkerInfo struct {
	ID    uint64
	Name  string // its address, or "mock-0"
	Model string
	State string // loading, ready, draining, failed, inhibited
	Ranks []RankInfo
}

// RankInfo is the router's own book-keeping of one rank.
type RankInfo struct {
	Rank              uint32
	Requests          int
	DecodeBlocks      int
	PrefillTokens     int
	LastTTFT, LastITL float64 // seconds; 0: none yet
	LastInputTokens   int
	CachedBlocks      int // blocks the index holds for it
}
