package kvevent

import (
	"errors"
	"fmt"

	"github.com/dynago/dynago/kv"
)

// ErrMalformed says that a message could not be read. What it told is lost, as
// if it had never come; the decoder is as it was before.
var ErrMalformed = errors.New("kvevent: malformed message")

// Decoder turns the messages of one worker's engine into events of package kv.
// It reads every dialect that vLLM and SGLang have spoken, told apart event by
// event; other engines publish in the same ones.
//
// It remembers which blocks the engine holds, and so passes a removal on only
// when the last copy of a block is gone, and files each block under the
// namespace of the chain it continues. Messages must come in order, and
// [Decoder.Forget] must be called when one was missed.
//
// A Decoder is not safe for concurrent use. In its steady state it allocates
// nothing.
type Decoder struct {
	rank      uint32
	blockSize int
	eagle     bool
	image     uint32
	hasImage  bool
	inFlight  InFlight
	adapted   map[uint64]uint64 // seeds of salts with an adapter → of the salts alone
	maxBlocks int
	warn      warnings

	ranks  map[uint32]*holding
	counts Counts

	// What one message needs, and the next one uses again.
	told   []told
	hashes []kv.EngineHash
	tokens []uint32
	events []kv.Event
	blocks []kv.Block
	padded []uint32
	extras extras
	unique unique
	// payload is the message at hand. What follows is of it as well: how many
	// blocks its rank may have, what the last events were, where the one being
	// read begins, and where in it the last key and the last parent end.
	payload                  []byte
	most                     int
	removal                  lastRemoval
	head                     lastHead
	behind                   lastTail
	from, keysEnd, parentEnd int
}

// maxRanks bounds how many ranks a decoder believes a worker to have.
const maxRanks = 4096

// NewDecoder returns a decoder that knows of no blocks.
func NewDecoder(c Config) *Decoder {
	d := &Decoder{
		rank: c.Rank, blockSize: max(0, c.BlockSize), eagle: c.Eagle, inFlight: c.InFlight,
		maxBlocks: c.MaxBlocks, warn: warnings{log: c.Log}, ranks: make(map[uint32]*holding),
	}
	if c.ImageToken != nil {
		d.image, d.hasImage = *c.ImageToken, true
	}
	if d.maxBlocks <= 0 {
		d.maxBlocks = DefaultMaxBlocks
	}
	return d
}

// BlockSize returns the number of tokens in a block of the events returned, or
// 0 as long as neither the configuration nor a store has told it.
func (d *Decoder) BlockSize() int { return d.blockSize }

// Counts returns what has been seen so far.
func (d *Decoder) Counts() Counts { return d.counts }

// Held returns how many of the engine's blocks of one rank are remembered.
func (d *Decoder) Held(rank uint32) int {
	if h := d.ranks[rank]; h != nil {
		return h.len()
	}
	return 0
}

// Forget forgets all of one rank, as after events that were missed or a restart
// of the engine. The receiver of the events has to clear the rank as well.
func (d *Decoder) Forget(rank uint32) { delete(d.ranks, rank) }

// Decode reads one message: the third frame of an engine's publication, or one
// of its replay. It returns the rank that the message speaks of and what
// happened there, in order. The events belong to the decoder and are good until
// its next call; there may be none.
//
// An event that is not as it should be is left out and counted, and with it as
// little else as possible. The error is [ErrMalformed], with what was wrong.
func (d *Decoder) Decode(payload []byte) (rank uint32, events []kv.Event, err error) {
	d.counts.Messages++
	d.release()
	rank, err = d.message(payload)
	if err != nil {
		d.counts.Malformed++
		return 0, nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	h := d.ranks[rank]
	if h == nil {
		if len(d.ranks) >= maxRanks {
			d.counts.Malformed++
			return 0, nil, fmt.Errorf("%w: rank %d is one more than the %d that a worker may have", ErrMalformed, rank, maxRanks)
		}
		h = newHolding(d.inFlight != nil)
		d.ranks[rank] = h
	}
	d.payload, d.most = payload, d.maxBlocks
	for _, other := range d.ranks {
		if other != h {
			d.most -= other.len()
		}
	}
	h.touch(d.hashes)
	for i := range d.told {
		d.convert(rank, h, &d.told[i])
	}
	d.payload, d.extras.salt = nil, nil
	return rank, d.events, nil
}

const (
	// maxTokens bounds the tokens of one message.
	maxTokens = 16 * maxItems
	// These bound what of a message's memory is kept for the next one.
	keepTokens = 1 << 20
	keepBlocks = 1 << 16
	keepEvents = 1 << 14
)

// release takes back the memory of the last message.
func (d *Decoder) release() {
	if cap(d.tokens) > keepTokens || cap(d.told) > keepEvents {
		d.told, d.hashes, d.tokens, d.events, d.blocks, d.unique = nil, nil, nil, nil, nil, unique{}
	}
	d.told, d.hashes, d.tokens = d.told[:0], d.hashes[:0], d.tokens[:0]
	d.events, d.blocks = d.events[:0], d.blocks[:0]
	d.removal.to, d.head.to, d.behind.to = 0, 0, 0
}

// message takes a payload apart. Nothing that is remembered changes yet.
func (d *Decoder) message(payload []byte) (rank uint32, err error) {
	if len(payload) > maxPayload {
		return 0, fmt.Errorf("%d bytes, where %d are the most", len(payload), maxPayload)
	}
	r := &reader{b: payload}
	switch r.next() {
	case shapeArray:
		return d.messageArray(r)
	case shapeMap:
		return d.messageMap(r)
	}
	return 0, errors.New("neither a list nor a map")
}

// messageArray reads [time, events, rank]. Old builds have no rank, and later
// ones may have more.
func (d *Decoder) messageArray(r *reader) (rank uint32, err error) {
	n, ok := r.array()
	if !ok || n < 2 {
		return 0, fmt.Errorf("a list of %d, where time, events and rank are expected", n)
	}
	if !r.skip(maxDepth - 1) {
		return 0, errors.New("no time at its begin")
	}
	if err := d.list(r); err != nil {
		return 0, err
	}
	rank = d.rank
	if n > 2 {
		if rank, ok = d.rankOr(r); !ok {
			return 0, errors.New("a rank that is no number from 0 to 4294967295")
		}
	}
	if n > 3 && !r.skipItems(n-3, maxDepth-1) {
		return 0, errors.New("cut off behind the rank")
	}
	return rank, nil
}

// messageMap reads the same by names.
func (d *Decoder) messageMap(r *reader) (rank uint32, err error) {
	n, ok := r.pairs()
	if !ok {
		return 0, errors.New("a map that is cut off")
	}
	rank = d.rank
	listed := false
	for range n {
		name, ok := r.text()
		if !ok {
			return 0, errors.New("a map whose keys are no strings")
		}
		switch string(name) {
		case "events":
			if listed {
				return 0, errors.New("two lists of events")
			}
			listed = true
			if err := d.list(r); err != nil {
				return 0, err
			}
		case "data_parallel_rank", "dp_rank", "attn_dp_rank":
			if rank, ok = d.rankOr(r); !ok {
				return 0, errors.New("a rank that is no number from 0 to 4294967295")
			}
		default:
			if !r.skip(maxDepth - 1) {
				return 0, fmt.Errorf("cut off in %.40q", name)
			}
		}
	}
	if !listed {
		return 0, errors.New("a map without events")
	}
	return rank, nil
}

// rankOr reads a rank, or takes the configured one for a nil.
func (d *Decoder) rankOr(r *reader) (uint32, bool) {
	if r.null() {
		return d.rank, true
	}
	return r.uint32()
}

// list takes the events of a message apart.
func (d *Decoder) list(r *reader) error {
	n, ok := r.array()
	if !ok {
		return errors.New("no list of events")
	}
	for i := range n {
		from, hashes, tokens := r.pos, len(d.hashes), len(d.tokens)
		d.told = append(d.told, told{})
		e := &d.told[len(d.told)-1]
		why := None
		if !d.event(r, e) {
			// Only this event is spoilt if its end can still be found.
			if r.pos = from; !r.skip(maxDepth - 2) {
				return fmt.Errorf("event %d of %d is cut off or nested too deep", i+1, n)
			}
			why = MalformedEvent
		} else if e.kind == TypeUnknown {
			why = IgnoredEvent
		}
		d.counts.Received[e.kind]++
		if why != None {
			d.counts.Dropped[e.kind][why]++
			d.told, d.hashes, d.tokens = d.told[:len(d.told)-1], d.hashes[:hashes], d.tokens[:tokens]
		}
		if len(d.hashes) > maxItems || len(d.tokens) > maxTokens {
			return fmt.Errorf("more than %d blocks or %d tokens", maxItems, maxTokens)
		}
	}
	return nil
}
