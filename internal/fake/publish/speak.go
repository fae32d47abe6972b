package publish

import (
	"crypto/sha256"
	"encoding/binary"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// speaker turns reports into events of a dialect. It is plain data.
type speaker struct {
	config    *Config
	rank      uint32
	blockSize int
	claimed   int // as the size of blocks; 0 for the true one
	lives     int
	// pages are the keys by which a block of the engine is told of, from its first
	// page to its last.
	pages map[kv.EngineHash][]uint64
}

func newSpeaker(c *Config, rank uint32, blockSize int) speaker {
	return speaker{config: c, rank: rank, blockSize: blockSize}
}

func (s *speaker) begin() { s.pages = map[kv.EngineHash][]uint64{} }

// message puts events together: when, what, and of which rank.
func (s *speaker) message(events [][]byte) []byte {
	n := 3
	if s.config.Unranked {
		n = 2
	}
	b := appendArray(nil, n)
	b = appendFloat(b, float64(time.Now().UnixNano())/1e9)
	b = appendArray(b, len(events))
	for _, e := range events {
		b = append(b, e...)
	}
	if !s.config.Unranked {
		b = appendUint(b, uint64(s.rank))
	}
	return b
}

// events returns those of a report.
func (s *speaker) events(r *mock.Report) [][]byte {
	var out [][]byte
	for i := range r.Events {
		switch e := &r.Events[i]; e.Kind {
		case kv.Stored:
			out = s.stored(out, e, &r.Stores[i])
		case kv.Removed:
			for _, b := range e.Blocks {
				out = s.removed(out, b.Engine)
			}
		case kv.Cleared:
			clear(s.pages)
			out = append(out, s.cleared())
		}
	}
	return out
}

// longestNode is how many blocks SGLang tells of in one event.
const longestNode = 64

// stored tells of blocks that continue each other.
func (s *speaker) stored(out [][]byte, e *kv.Event, what *mock.Store) [][]byte {
	t := told{ns: what.Namespace, head: !e.HasParent, tokens: what.Tokens}
	if parent := s.pages[e.Parent]; e.HasParent && len(parent) > 0 {
		t.parent, t.hasParent = parent[len(parent)-1], true
	}
	last := t.parent
	for i, b := range e.Blocks {
		keys := s.keys(last, b.Engine, what.Tokens[i*s.blockSize:(i+1)*s.blockSize])
		s.pages[b.Engine] = keys
		t.keys = append(t.keys, keys...)
		last = keys[len(keys)-1]
	}
	if s.config.Dialect == SGLang {
		for len(t.keys) > longestNode {
			node := t
			node.keys, node.tokens = t.keys[:longestNode], t.tokens[:longestNode*s.config.Page]
			out = append(out, s.store(&node))
			t.keys, t.tokens = t.keys[longestNode:], t.tokens[longestNode*s.config.Page:]
			t.parent, t.hasParent, t.head = node.keys[longestNode-1], true, false
		}
	}
	out = append(out, s.store(&t))
	if s.config.Groups {
		t.group = 1
		out = append(out, s.store(&t))
		for _, key := range t.keys[:len(t.keys)-1] {
			out = append(out, s.remove([]uint64{key}, 1))
		}
	}
	return out
}

// keys are what the pages of a block are called. vLLM's names are as good as ours;
// those of SGLang follow from the tokens alone, whoever asked for them.
func (s *speaker) keys(parent uint64, engine kv.EngineHash, tokens []uint32) []uint64 {
	page := s.config.Page
	if s.config.Dialect == VLLM && page == s.blockSize {
		return []uint64{uint64(engine)}
	}
	var keys []uint64
	for ; len(tokens) > 0; tokens = tokens[page:] {
		h := sha256.New()
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], parent)
		h.Write(b[:])
		for _, t := range tokens[:page] {
			binary.LittleEndian.PutUint32(b[:4], t)
			h.Write(b[:4])
		}
		if s.config.Dialect == VLLM {
			binary.BigEndian.PutUint64(b[:], uint64(engine)) // who asked is in it
			h.Write(b[:])
		}
		parent = binary.BigEndian.Uint64(h.Sum(nil))
		keys = append(keys, parent)
	}
	return keys
}

// removed tells that a block is gone: vLLM in an event for each key, SGLang in one
// for all of a node.
func (s *speaker) removed(out [][]byte, block kv.EngineHash) [][]byte {
	keys := s.pages[block]
	delete(s.pages, block)
	if s.config.Dialect == SGLang {
		return append(out, s.remove(keys, 0))
	}
	for _, key := range keys {
		out = append(out, s.remove([]uint64{key}, 0))
	}
	return out
}

// invented is a store of tokens that nobody asked for.
func (s *speaker) invented(seed uint64) []byte {
	t := told{keys: []uint64{seed*0x9e3779b97f4a7c15 + 1}, head: true, tokens: make([]uint32, s.config.Page)}
	for i := range t.tokens {
		t.tokens[i] = uint32(seed)*31 + uint32(i) + 1
	}
	return s.store(&t)
}

// told is what one event stores.
type told struct {
	keys      []uint64
	parent    uint64
	hasParent bool
	head      bool // no block comes before
	tokens    []uint32
	ns        kv.Namespace
	group     int
}

// store writes BlockStored.
func (s *speaker) store(t *told) []byte {
	size := s.config.Page
	if s.claimed > 0 {
		size = s.claimed
	}
	w := s.event("BlockStored", t.width(s.config))
	w.field("block_hashes").keys(t.keys)
	if w.field("parent_block_hash"); t.hasParent {
		w.key(t.parent)
	} else {
		w.null()
	}
	w.field("token_ids").tokens(t.tokens)
	w.field("block_size").uint(uint64(size))
	w.field("lora_id").null()
	w.field("medium").text("GPU")
	if s.config.Dialect == SGLang {
		if t.salted(s.config) {
			w.field("metadata").pairs(1)
			w.text("cache_salt")
			w.text(t.ns.Salt)
		}
		return w.b
	}
	if w.field("lora_name"); t.ns.LoRA != "" {
		w.text(t.ns.LoRA)
	} else {
		w.null()
	}
	w.field("extra_keys").extras(t, len(t.keys))
	if s.config.Positional && !s.config.Groups {
		return w.b
	}
	w.field("group_idx").uint(uint64(t.group))
	kind := "full_attention"
	if t.group > 0 {
		kind = "sliding_window"
	}
	w.field("kv_cache_spec_kind").text(kind)
	return w.b
}

func (t *told) salted(c *Config) bool { return c.Metadata && t.ns.Salt != "" }

// width is how many fields the event has, its type aside.
func (t *told) width(c *Config) int {
	switch {
	case c.Dialect == SGLang && t.salted(c):
		return 7
	case c.Dialect == SGLang:
		return 6
	case c.Positional && !c.Groups:
		return 8
	}
	return 10
}

// remove writes BlockRemoved.
func (s *speaker) remove(keys []uint64, group int) []byte {
	n := 2
	grouped := s.config.Dialect == VLLM && (!s.config.Positional || s.config.Groups)
	if grouped {
		n = 3
	}
	w := s.event("BlockRemoved", n)
	w.field("block_hashes").keys(keys)
	w.field("medium").text("GPU")
	if grouped {
		w.field("group_idx").uint(uint64(group))
	}
	return w.b
}

// cleared writes AllBlocksCleared.
func (s *speaker) cleared() []byte { return s.event("AllBlocksCleared", 0).b }

// event begins one of a type with so many fields.
func (s *speaker) event(kind string, fields int) *writer {
	w := &writer{named: !s.config.Positional, signed: s.config.Dialect == SGLang, bytes: s.config.Bytes}
	if w.named {
		w.pairs(fields + 1)
	} else {
		w.b = appendArray(w.b, fields+1)
	}
	w.field("type").text(kind)
	return w
}
