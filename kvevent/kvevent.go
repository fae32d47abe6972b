// Package kvevent turns what engines tell of their KV caches into the events
// of package kv: it decodes every engine's dialect, names each block by the
// hash that requests are looked up by, puts messages in order, notices what is
// missing, and passes events on between our own processes.
//
// The one idea: an engine's word is taken only as far as it can be checked.
// Blocks of another size, another adapter, another tenant, another kind of
// attention or another machine are left out and counted by reason, so that the
// index may know less than the truth and never more.
package kvevent

import (
	"log/slog"

	"github.com/dynago/dynago/kv"
)

// Config is what a [Decoder] must know of the worker whose events it reads.
type Config struct {
	// Rank is the data-parallel rank of messages that name none: the one that
	// the port of their socket stands for.
	Rank uint32
	// BlockSize is the number of tokens in one block of the index. An engine
	// whose own blocks are a whole fraction of it has runs of them grouped. 0
	// takes the size of the first block stored.
	BlockSize int
	// Eagle says that requests for this worker are hashed by windows of one
	// token more than a block, so that its blocks must be as well.
	Eagle bool
	// ImageToken, if not nil, is the id that stands for an image in the engine's
	// tokens. Media are then hashed by the pad ids that take its place, instead
	// of by a suffix.
	ImageToken *uint32
	// InFlight, if not nil, finds the namespaces that the engine's events do not
	// tell.
	InFlight InFlight
	// MaxBlocks bounds what is remembered of all ranks together, in the engine's
	// own blocks; stores beyond it are left out. 0 = [DefaultMaxBlocks].
	MaxBlocks int
	// Log, if not nil, hears of the first blocks of a wrong size.
	Log *slog.Logger
}

// DefaultMaxBlocks is how many blocks of an engine are remembered unless
// told otherwise.
const DefaultMaxBlocks = 1 << 24

// InFlight knows the prompts in flight on one worker that have a namespace.
// Some engines keep the caches of tenants or adapters apart and yet publish the
// same events for all of them; only who sent the prompt can tell whose blocks
// appear.
type InFlight interface {
	// Namespace returns that of a prompt in flight on rank whose chain, hashed as
	// if it had none, holds prefix. It is false if there is no such prompt.
	Namespace(rank uint32, prefix kv.SeqHash) (ns kv.Namespace, ok bool)
}
