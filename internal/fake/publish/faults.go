package publish

// Faults are mishaps of a publisher that runs. Each number says how often: 0 for
// never, n for every n-th message, 1 for all. They are counted from the first
// message of a life on.
type Faults struct {
	// Lose is how often a message reaches nobody; it is kept for replay.
	Lose int `json:"lose"`
	// Repeat is how often one is sent twice, and Swap how often one changes places
	// with the next.
	Repeat int `json:"repeat"`
	Swap   int `json:"swap"`
	// Garble is how often one cannot be read, in replays neither.
	Garble int `json:"garble"`
	// Invent is how often one tells of a block besides that nobody asked for and
	// that is not there.
	Invent int `json:"invent"`
	// BlockSize, if not 0, is what events say of the size of blocks, whatever it
	// is.
	BlockSize int `json:"block_size"`
	// Mute answers no request for replay.
	Mute bool `json:"mute"`
	// Quiet lets connections stand when the engine is started anew, as a proxy
	// between would: only the numbers tell.
	Quiet bool `json:"quiet"`
}

// hits says whether a mishap that happens every n-th time happens to message seq.
func hits(n int, seq uint64) bool { return n > 0 && seq%uint64(n) == uint64(n)-1 }
