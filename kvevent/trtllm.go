package kvevent

import (
	"fmt"
	"strings"

	"github.com/dynago/dynago/kv"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// TRTLLMDecoder turns what TensorRT-LLM answers when it is asked for its KV
// events into events of package kv. Each answer goes on where the last one
// ended, so that there must be one decoder per server and nobody else who asks.
//
// A TRTLLMDecoder is not safe for concurrent use.
type TRTLLMDecoder struct {
	config Config
	warn   warnings
	ranks  map[uint32]*polledRank
	counts Counts
	most   int // blocks that the rank at hand may have

	tokens []uint32
	media  []uint64
	keys   []kv.EngineHash
	unique unique
}

// Polled is a run of one rank's events.
type Polled struct {
	Rank uint32
	// First and Last are the numbers of the engine's events that the run comes
	// from.
	First, Last uint64
	// Lost says that events before First are missing or that the engine has begun
	// anew, so that the rank must be cleared first.
	Lost bool
	// Events may be fewer than the engine's, even none.
	Events []kv.Event
}

// polledRank is what is known of one rank.
type polledRank struct {
	last   uint64 // number of the last event
	window int64  // the largest attention window seen
	blocks map[kv.EngineHash]polledBlock
	// partial has the blocks that were never passed on since they are not full.
	partial map[kv.EngineHash]struct{}
}

func (r *polledRank) len() int { return len(r.blocks) + len(r.partial) }

// polledBlock is a block passed on, with what it takes to pass it on again when
// it moves to another tier.
type polledBlock struct {
	parent    kv.EngineHash
	hasParent bool
	local     kv.LocalHash
	seed      uint64
	tier      kv.Tier
}

// NewTRTLLMDecoder returns a decoder that knows of no blocks. The block size is
// best given: an engine's last block of a prompt may be short, so that it can
// only be learned from a store of several.
func NewTRTLLMDecoder(c Config) *TRTLLMDecoder {
	if c.MaxBlocks <= 0 {
		c.MaxBlocks = DefaultMaxBlocks
	}
	return &TRTLLMDecoder{config: c, warn: warnings{log: c.Log}, ranks: make(map[uint32]*polledRank)}
}

// BlockSize returns the number of tokens in a block, or 0 as long as it is not
// known.
func (d *TRTLLMDecoder) BlockSize() int { return d.config.BlockSize }

// Counts returns what has been seen so far. A message is an answer.
func (d *TRTLLMDecoder) Counts() Counts { return d.counts }

// Forget forgets all of one rank, as when the engine is known to have restarted.
func (d *TRTLLMDecoder) Forget(rank uint32) { delete(d.ranks, rank) }

// polledEvent is one element of an answer.
type polledEvent struct {
	ID     *uint64        `json:"event_id"`
	Rank   *uint32        `json:"attention_dp_rank"`
	Window int64          `json:"window_size"`
	Data   jsontext.Value `json:"data"`
}

// polledData is what happened. Keys of blocks are whole numbers of up to 64 bits
// and more, which no float holds, or hexadecimal strings.
type polledData struct {
	Type   string           `json:"type"`
	Parent jsontext.Value   `json:"parent_hash"`
	Blocks []polledStored   `json:"blocks"`
	LoRA   string           `json:"lora_name"`
	Keys   []jsontext.Value `json:"block_hashes"`
	Key    jsontext.Value   `json:"block_hash"`
	Level  *struct {
		Old int `json:"old_value"`
		New int `json:"new_value"`
	} `json:"cache_level"`
}

// polledStored is a block of a store.
type polledStored struct {
	Key    jsontext.Value `json:"block_hash"`
	Level  int            `json:"cache_level"`
	Salt   string         `json:"cache_salt"`
	Tokens []struct {
		ID    uint32 `json:"token_id"`
		Extra int64  `json:"token_extra_id"`
	} `json:"tokens"`
	Media []struct {
		Hash string `json:"hash"`
	} `json:"mm_keys"`
}

// Decode reads one answer: a JSON array, empty if nothing happened. It returns
// what happened, in order, cut where the rank changes and where events are
// missing. An event that is not as it should be is left out and counted. The
// error is [ErrMalformed], with what was wrong; what the answer told is lost
// then, and the next one will say so.
func (d *TRTLLMDecoder) Decode(body []byte) ([]Polled, error) {
	d.counts.Messages++
	var events []polledEvent
	if err := json.Unmarshal(body, &events); err != nil {
		d.counts.Malformed++
		return nil, fmt.Errorf("%w: %w", ErrMalformed, err)
	}
	var runs []Polled
	for i := range events {
		e := &events[i]
		rank := d.config.Rank
		if e.Rank != nil {
			rank = *e.Rank
		}
		if e.ID == nil || d.ranks[rank] == nil && len(d.ranks) >= maxRanks {
			d.drop(TypeUnknown, MalformedEvent)
			continue
		}
		r, lost := d.enter(rank, *e.ID, e.Window)
		if n := len(runs); n == 0 || lost || runs[n-1].Rank != rank {
			runs = append(runs, Polled{Rank: rank, First: *e.ID, Lost: lost})
			d.most = d.config.MaxBlocks
			for _, other := range d.ranks {
				if other != r {
					d.most -= other.len()
				}
			}
		}
		run := &runs[len(runs)-1]
		run.Last = *e.ID
		d.event(run, r, e)
	}
	return runs, nil
}

// enter returns the state of a rank in which event id is to be read, and says
// whether what went before is lost.
func (d *TRTLLMDecoder) enter(rank uint32, id uint64, window int64) (r *polledRank, lost bool) {
	r = d.ranks[rank]
	switch {
	case r == nil:
	case id != r.last+1:
		lost, r = true, nil
	case window > r.window && len(r.blocks) > 0:
		// What was taken for the whole attention was a window of it.
		lost, r = true, nil
	}
	if r == nil {
		r = &polledRank{blocks: make(map[kv.EngineHash]polledBlock), partial: make(map[kv.EngineHash]struct{})}
		d.ranks[rank] = r
	}
	r.last, r.window = id, max(r.window, window)
	return r, lost
}

func (d *TRTLLMDecoder) drop(t EventType, why Reason) {
	d.counts.Received[t]++
	d.counts.Dropped[t][why]++
}

// event reads one event.
func (d *TRTLLMDecoder) event(run *Polled, r *polledRank, e *polledEvent) {
	var data polledData
	if json.Unmarshal(e.Data, &data) != nil {
		d.drop(TypeUnknown, MalformedEvent)
		return
	}
	kind, why := TypeUnknown, None
	switch {
	case data.Type == "created":
		return // it has told its window
	case data.Type == "stored":
		kind = TypeStored
	case data.Type == "removed":
		kind = TypeRemoved
	case data.Type == "updated" && data.Level == nil:
		return // of the priority alone
	case data.Type == "updated":
		kind = TypeUpdated
	default:
		d.drop(TypeUnknown, IgnoredEvent)
		return
	}
	switch {
	case e.Window < r.window:
		why = OtherWindow
	case kind == TypeStored:
		why = d.stored(run, r, &data)
	case kind == TypeRemoved:
		why = d.removed(run, r, &data)
	case kind == TypeUpdated:
		why = d.updated(run, r, &data)
	}
	if why != None {
		d.drop(kind, why)
		return
	}
	d.counts.Received[kind]++
	d.counts.Accepted[kind]++
}

// stored files the blocks of a store, up to the first that cannot be named.
func (d *TRTLLMDecoder) stored(run *Polled, r *polledRank, data *polledData) Reason {
	parent, hasParent, ok := polledKey(data.Parent)
	d.keys = d.keys[:0]
	for _, b := range data.Blocks {
		key, given, fine := polledKey(b.Key)
		ok = ok && given && fine
		d.keys = append(d.keys, key)
	}
	switch {
	case !ok:
		return MalformedEvent
	case len(d.keys) == 0:
		return EmptyStore
	case !d.unique.all(d.keys, parent, hasParent):
		return RepeatedHash
	}
	next := polledBlock{parent: parent, hasParent: hasParent}
	before, known := r.blocks[parent]
	salt, why := polledSalt(data.Blocks[0].Salt)
	next.seed = kv.Namespace{LoRA: data.LoRA, Salt: salt}.Seed()
	switch {
	case why != None:
		return why
	case hasParent && known && salt != "" && before.seed != next.seed:
		return AmbiguousNamespace
	case hasParent && known:
		next.seed = before.seed
	case hasParent && parent != 0:
		return UnknownParent
	default:
		next.hasParent, next.parent = false, 0
	}
	for i := range data.Blocks {
		why := d.block(run, r, data, i, &next)
		if why != None && i > 0 {
			d.counts.Dropped[TypeStored][why]++
			return None
		}
		if why != None {
			return why
		}
	}
	return None
}

// block files the i-th block of a store behind what next says, and moves next
// on.
func (d *TRTLLMDecoder) block(run *Polled, r *polledRank, data *polledData, i int, next *polledBlock) Reason {
	b := &data.Blocks[i]
	if d.config.BlockSize == 0 && i+1 < len(data.Blocks) && len(b.Tokens) <= maxBlockSize {
		d.config.BlockSize = len(b.Tokens)
	}
	size := d.config.BlockSize
	switch {
	case i+1 == len(data.Blocks) && (len(b.Tokens) < size || size == 0):
		if r.len() < d.most {
			r.partial[d.keys[i]] = struct{}{}
		}
		return PartialBlock
	case size == 0, len(b.Tokens) != size:
		d.warn.size(WrongBlockSize, len(b.Tokens), size)
		return WrongBlockSize
	}
	next.tier = kv.Tier(b.Level)
	if b.Level < 0 || b.Level > int(kv.TierDisk) {
		return UnknownMedium
	}
	var why Reason
	if next.local, why = d.local(data, i, next.seed); why != None {
		return why
	}
	key := d.keys[i]
	was, known := r.blocks[key]
	switch {
	case known && was.seed != next.seed:
		emitPolled(run, kv.Removed, key, was)
		delete(r.blocks, key)
		return AmbiguousNamespace
	case !known && r.len() >= d.most:
		return TooManyBlocks
	}
	delete(r.partial, key)
	r.blocks[key] = *next
	emitPolled(run, kv.Stored, key, *next)
	if known && was.tier != next.tier {
		emitPolled(run, kv.Removed, key, was)
	}
	d.counts.Blocks++
	next.parent, next.hasParent = key, true
	return None
}

// local names the i-th block of a store.
func (d *TRTLLMDecoder) local(data *polledData, i int, seed uint64) (kv.LocalHash, Reason) {
	b := &data.Blocks[i]
	if salt, why := polledSalt(b.Salt); why != None || i > 0 && salt != "" && b.Salt != data.Blocks[0].Salt {
		return 0, ForeignNamespace
	}
	d.tokens, d.media = d.tokens[:0], d.media[:0]
	for _, m := range b.Media {
		hash, ok := mediaHash([]byte(m.Hash))
		if !ok {
			return 0, UnknownMedia
		}
		d.media = append(d.media, hash)
	}
	for _, t := range b.Tokens {
		if t.Extra != 0 && len(d.media) == 0 {
			return 0, ForeignNamespace // a token of a prompt table
		}
		d.tokens = append(d.tokens, t.ID)
	}
	if d.config.Eagle {
		if i+1 == len(data.Blocks) || len(data.Blocks[i+1].Tokens) == 0 {
			return 0, ShortTokens
		}
		d.tokens = append(d.tokens, data.Blocks[i+1].Tokens[0].ID)
	}
	if d.config.ImageToken != nil && len(d.media) > 0 {
		kv.ReplaceMedia(d.tokens, *d.config.ImageToken, d.media)
		d.media = d.media[:0]
	}
	return kv.HashMediaBlock(d.tokens, d.media, seed), None
}

// polledSalt returns the salt that a client of ours has given.
func polledSalt(s string) (string, Reason) {
	salt, ours := strings.CutPrefix(s, saltPrefix)
	if s != "" && !ours {
		return "", ForeignNamespace
	}
	return salt, None
}

// removed passes on which blocks are gone. Those never passed on are not; those
// never heard of are, they hurt nobody.
func (d *TRTLLMDecoder) removed(run *Polled, r *polledRank, data *polledData) Reason {
	for _, value := range data.Keys {
		key, given, ok := polledKey(value)
		if !ok || !given {
			return MalformedEvent
		}
		if _, partial := r.partial[key]; partial {
			delete(r.partial, key)
			continue
		}
		b := r.blocks[key]
		delete(r.blocks, key)
		emitPolled(run, kv.Removed, key, b)
	}
	return None
}

// updated passes on that a block has moved to another tier.
func (d *TRTLLMDecoder) updated(run *Polled, r *polledRank, data *polledData) Reason {
	key, given, ok := polledKey(data.Key)
	if !ok || !given {
		return MalformedEvent
	}
	b, known := r.blocks[key]
	if _, partial := r.partial[key]; partial {
		return PartialBlock
	}
	if !known {
		return UnknownBlock
	}
	was := b
	if to := data.Level.New; to < 0 || to > int(kv.TierDisk) {
		delete(r.blocks, key)
		emitPolled(run, kv.Removed, key, was)
		return UnknownMedium
	}
	if b.tier = kv.Tier(data.Level.New); b.tier == was.tier {
		return None
	}
	r.blocks[key] = b
	// First there, then no longer here: it was never gone.
	emitPolled(run, kv.Stored, key, b)
	emitPolled(run, kv.Removed, key, was)
	return None
}

// emitPolled passes on what happened to one block, together with the blocks
// before it that it goes with.
func emitPolled(run *Polled, kind kv.EventKind, key kv.EngineHash, b polledBlock) {
	block := kv.Block{Engine: key}
	if kind == kv.Stored {
		block.Local = b.local
	}
	if n := len(run.Events); n > 0 {
		last := &run.Events[n-1]
		follows := kind == kv.Removed || b.hasParent && last.Kind == kv.Stored && last.Blocks[len(last.Blocks)-1].Engine == b.parent
		if last.Kind == kind && last.Tier == b.tier && follows {
			last.Blocks = append(last.Blocks, block)
			return
		}
	}
	e := kv.Event{Kind: kind, Tier: b.tier, Blocks: []kv.Block{block}}
	if kind == kv.Stored {
		e.Parent, e.HasParent = b.parent, b.hasParent
	}
	run.Events = append(run.Events, e)
}

// polledKey reads a block's key: the low 64 bits of a whole number in decimal or
// of a string in hexadecimal. It is not given if it is null or missing.
func polledKey(v jsontext.Value) (key kv.EngineHash, given, ok bool) {
	var n uint64
	switch v.Kind() {
	case 0, 'n':
		return 0, false, len(v) == 0 || v.Kind() == 'n'
	case '0':
		digits, negative := strings.CutPrefix(string(v), "-")
		for _, c := range []byte(digits) {
			if c < '0' || c > '9' {
				return 0, false, false
			}
			n = n*10 + uint64(c-'0')
		}
		if negative {
			n = -n
		}
		return kv.EngineHash(n), true, true
	case '"':
		digits := v[1 : len(v)-1]
		for _, c := range digits {
			switch {
			case '0' <= c && c <= '9':
				n = n<<4 | uint64(c-'0')
			case 'a' <= c && c <= 'f':
				n = n<<4 | uint64(c-'a'+10)
			case 'A' <= c && c <= 'F':
				n = n<<4 | uint64(c-'A'+10)
			default:
				return 0, false, false
			}
		}
		return kv.EngineHash(n), len(digits) > 0, len(digits) > 0
	}
	return 0, false, false
}
