package kvevent

import (
	"cmp"
	"log/slog"
	"math"
	"slices"
	"strings"
	"unsafe"

	"github.com/dynago/dynago/kv"
)

// stored files the blocks of a store under their namespace and passes them on.
// What cannot be named ends the store; the blocks before it are kept.
func (d *Decoder) stored(rank uint32, h *holding, e *told) Reason {
	keys := part(d.hashes, e.hashes)
	switch {
	case len(keys) == 0:
		return EmptyStore
	case e.adapter && e.lora.len() == 0:
		return UnknownAdapter
	case !d.unique.all(keys, e.parent, e.hasParent):
		return RepeatedHash
	}
	size, why := d.size(h, e)
	if why != None {
		d.warn.size(why, int(min(e.blockSize, math.MaxInt)), cmp.Or(h.size, d.blockSize))
		return why
	}
	if why := d.extras.read(d.payload, e, len(keys)); why != None {
		return why
	}
	s := store{rank: rank, told: e}
	if why := d.lineage(h, &s); why != None {
		return why
	}
	filed := 0
	if size == d.blockSize {
		filed, why = d.file(h, &s)
	} else {
		filed, why = d.filePages(h, &s, size)
	}
	if filed > 0 {
		h.size = size
	}
	if filed > 0 && why != None {
		d.counts.Dropped[TypeStored][why]++
		return None
	}
	return why
}

// store is a store on its way: what it told, and where its blocks belong.
type store struct {
	rank      uint32
	told      *told
	parent    kv.EngineHash
	hasParent bool
	origin
}

// origin is what blocks take over from the one before them.
type origin struct {
	seed uint64 // of the namespace
	// settled says that the namespace is known for sure.
	settled bool
	chain   kv.SeqHash // as if there were no namespace
}

// maxBlockSize bounds what an engine may call a block, in tokens.
const maxBlockSize = 1 << 16

// size returns the tokens of one of the engine's blocks, of which ours must be a
// multiple, and which all have the same.
func (d *Decoder) size(h *holding, e *told) (size int, why Reason) {
	if e.blockSize == 0 || e.blockSize > maxBlockSize {
		return 0, WrongBlockSize
	}
	size = int(e.blockSize)
	if d.blockSize == 0 {
		if e.tokens.len() < size {
			return 0, ShortTokens
		}
		d.blockSize = size
	}
	if d.blockSize%size != 0 || h.size != 0 && h.size != size {
		return 0, WrongBlockSize
	}
	return size, None
}

// warnings tells of blocks of a wrong size, the first few times.
type warnings struct {
	log  *slog.Logger
	said int
}

func (w *warnings) size(why Reason, size, want int) {
	const most = 3
	if w.log == nil || w.said == most {
		return
	}
	w.said++
	w.log.Warn("KV blocks left out", "reason", why, "block_size", size, "want", want)
}

// lineage says where the blocks of a store belong. A chain has one namespace,
// told with its first block; what continues the chain inherits it.
func (d *Decoder) lineage(h *holding, s *store) Reason {
	e := s.told
	salt := part(d.payload, e.salt)
	if len(salt) == 0 {
		salt = d.extras.salt
	}
	s.seed = seedOf(part(d.payload, e.lora), salt)
	s.settled = len(salt) > 0 || d.inFlight == nil
	if !e.hasParent {
		return None
	}
	before, known := h.origin(e.parent)
	switch {
	case !known && e.parent == 0:
		return None // some engines call the root so
	case !known:
		return UnknownParent
	case before.seed == severalSpaces, len(salt) > 0 && before.seed != s.seed && d.adapted[before.seed] != s.seed:
		return AmbiguousNamespace
	}
	s.parent, s.hasParent, s.origin = e.parent, true, before
	return None
}

// saltPrefix marks the salts that our adapters send, on every engine.
const saltPrefix = "dynamo-cache-salt:"

// seedOf returns the seed of a namespace's hashes.
func seedOf(lora, salt []byte) uint64 {
	if len(lora) == 0 && len(salt) == 0 {
		return kv.HashSeed
	}
	return kv.Namespace{LoRA: view(lora), Salt: strings.TrimPrefix(view(salt), saltPrefix)}.Seed()
}

// view is b as a string, for as long as b does not change.
func view(b []byte) string { return unsafe.String(unsafe.SliceData(b), len(b)) }

// file names the blocks of a store, counts their copies and passes them on. It
// says how many it took, and why not all.
func (d *Decoder) file(h *holding, s *store) (filed int, why Reason) {
	keys, tokens, span := part(d.hashes, s.told.hashes), d.window(s.told), d.span()
	h.reserve(min(len(keys), max(0, d.most-h.len())))
	from, clash := len(d.blocks), -1
	for i, key := range keys {
		if len(tokens) < span {
			why = ShortTokens
			break
		}
		if i == d.extras.end {
			why = d.extras.why
			break
		}
		block, media := tokens[:span], d.extras.mediaOf(i)
		tokens = tokens[d.blockSize:]
		if d.hasImage && len(media) > 0 {
			block, media = d.pad(block, media), nil
		}
		if h.chains != nil {
			d.extend(s, i, kv.HashMediaBlock(block, media, kv.HashSeed))
		}
		slot, known := h.find(key)
		if !known {
			if h.len() >= d.most {
				why = TooManyBlocks
				break
			}
			h.put(slot, key, s.origin)
		}
		b := &h.entries[slot]
		b.copies = b.copies.add(s.told.tier)
		if known && h.seed(slot) != s.seed {
			clash, why = slot, AmbiguousNamespace
			break
		}
		d.blocks = append(d.blocks, kv.Block{Engine: key, Local: kv.HashMediaBlock(block, media, s.seed)})
	}
	filed = len(d.blocks) - from
	if filed > 0 {
		d.counts.Blocks += uint64(filed)
		d.events = append(d.events, kv.Event{
			Kind: kv.Stored, Tier: s.told.tier, Parent: s.parent, HasParent: s.hasParent, Blocks: slices.Clip(d.blocks[from:]),
		})
	}
	if clash >= 0 {
		d.clash(h, clash)
	}
	return filed, why
}

// span returns how many tokens the hash of a block covers.
func (d *Decoder) span() int {
	if d.eagle {
		return d.blockSize + 1
	}
	return d.blockSize
}

// window returns the tokens that the blocks of a store are hashed from.
func (d *Decoder) window(e *told) []uint32 {
	at := e.tokens
	if d.eagle && e.paired {
		at.to++ // the first token of the block to come is told, too
	}
	return part(d.tokens, at)
}

// extend continues the chain by the i-th block of a store, and asks for the
// namespace of a new chain.
func (d *Decoder) extend(s *store, i int, plain kv.LocalHash) {
	if i == 0 && !s.hasParent {
		s.chain = kv.SeqHash(plain)
	} else {
		s.chain = s.chain.Next(plain)
	}
	if i == 0 && !(s.hasParent && s.settled) {
		s.seed = d.spaceOf(s.rank, s.chain, s.seed)
	}
}

// maxAdapted bounds the namespaces of adapters and salts that are remembered.
const maxAdapted = 4096

// spaceOf returns the seed of a chain whose events have told as much of its
// namespace as another seed stands for: its salt, or nothing.
func (d *Decoder) spaceOf(rank uint32, chain kv.SeqHash, told uint64) uint64 {
	ns, ok := d.inFlight.Namespace(rank, chain)
	salted := kv.Namespace{Salt: ns.Salt}.Seed()
	if !ok || told != kv.HashSeed && told != salted {
		return told
	}
	seed := ns.Seed()
	if told != kv.HashSeed && ns.LoRA != "" {
		// What continues the chain tells its salt again, and no adapter.
		if d.adapted == nil || len(d.adapted) >= maxAdapted {
			d.adapted = make(map[uint64]uint64)
		}
		d.adapted[seed] = salted
	}
	return seed
}

// pad returns a block with a pad id for each of its media in the place of the
// engine's one placeholder.
func (d *Decoder) pad(block []uint32, media []uint64) []uint32 {
	d.padded = append(d.padded[:0], block...)
	kv.ReplaceMedia(d.padded, d.image, media)
	return d.padded
}

// clash notes that one key stands for blocks of two namespaces. No request can
// be told which of them is there, so that neither is passed on any longer.
func (d *Decoder) clash(h *holding, slot int) {
	if h.seed(slot) == severalSpaces {
		return
	}
	h.file(slot, severalSpaces)
	b := h.entries[slot]
	for tier := range kv.TierShared + 1 {
		if b.copies.on(tier) > 0 {
			d.emitRemoved(tier, b.key)
		}
	}
}
