package engine

import (
	"context"
	"iter"

	"github.com/dynago/dynago/kv"
)

// StylePull is the [Transfer.Style] of engines whose blocks are pulled by the worker
// that decodes.
const StylePull = "pull"

// Puller is an engine that has computed prompts for others, who come for the blocks.
type Puller interface {
	// Pull yields the blocks of a hand-off in their order, and ends after the last one.
	// What is not computed yet is waited for, 30 s for each block. An error is the last
	// item: of kind not_found if there is no such hand-off any more, stale if the epoch
	// or the layout is another one.
	Pull(ctx context.Context, q PullRequest) iter.Seq2[PulledBlock, error]
}

// PullRequest says what is wanted.
type PullRequest struct {
	Handoff   string
	Epoch     uint64 // of the engine that has computed; 0: any
	Layout    string // how the bytes of a block lie, for whoever wants them
	FromBlock int    // what comes before it is there already
	// BlockBytes is how long a block is, for whoever wants them: more is not taken.
	BlockBytes int
}

// PulledBlock is one block of a prompt. It is the consumer's.
type PulledBlock struct {
	Number   int
	Total    int        // tokens of the whole prompt
	Tokens   int        // that it holds; fewer than a block has in the last one
	Hash     kv.SeqHash // of the prompt up to its end; 0 if it is not full
	Data     []byte
	Checksum uint64 // XXH3-64 of Data, taken where that was computed
}
