package trtllm

import (
	"fmt"
	"iter"
	"net/http"
	"slices"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/kv"
)

// buffer holds what happened in the caches until somebody asks. What does not fit
// pushes the oldest out without a word; only the numbers tell.
type buffer struct {
	size, most int

	mu     sync.Mutex
	next   map[uint32]uint64 // number of the next event, by rank
	events []event
	// tokens are those of blocks by their local hashes: the mock engine tells of
	// blocks by hash alone.
	tokens map[kv.LocalHash][]uint32
}

// event is one of them, told once its tokens are known.
type event struct {
	id   uint64
	rank uint32
	kv.Event
}

// learn notes the blocks of a sequence that end behind a position.
func (b *buffer) learn(tokens []uint32, after int) {
	if b.most == 0 {
		return
	}
	from := after / b.size * b.size
	hashes := kv.AppendLocalHashes(nil, tokens[from:], b.size, kv.Namespace{}.Seed())
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.tokens == nil {
		b.tokens = map[kv.LocalHash][]uint32{}
	}
	for i, h := range hashes {
		at := from + i*b.size
		b.tokens[h] = append([]uint32(nil), tokens[at:at+b.size]...)
	}
}

// follow keeps events until they end.
func (b *buffer) follow(batches iter.Seq2[kv.Batch, error]) {
	for batch, err := range batches {
		if err != nil {
			return
		}
		b.mu.Lock()
		if _, begun := b.next[batch.Rank]; !begun || batch.Gap != "" {
			b.begin(batch.Rank)
		}
		for _, e := range batch.Events {
			b.add(batch.Rank, e)
		}
		b.mu.Unlock()
	}
}

// begin is the first event of a life.
func (b *buffer) begin(rank uint32) {
	if b.next == nil {
		b.next = map[uint32]uint64{}
	}
	b.next[rank] = 0
	b.events = slices.DeleteFunc(b.events, func(e event) bool { return e.rank == rank })
	b.add(rank, kv.Event{Kind: created})
}

// created is the kind of the event that tells of the caches' sizes.
const created kv.EventKind = 255

func (b *buffer) add(rank uint32, e kv.Event) {
	b.events = append(b.events, event{b.next[rank], rank, e})
	b.next[rank]++
	if n := len(b.events) - b.most; n > 0 {
		b.events = b.events[n:]
	}
}

// drain tells what has happened since it was asked last.
func (s *Server) drain(w http.ResponseWriter, _ *http.Request) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	out := []byte{'['}
	for len(s.events.events) > 0 {
		text, known := s.events.write(&s.events.events[0])
		if !known {
			break // its tokens are on their way to the client
		}
		if len(out) > 1 {
			out = append(out, ',')
		}
		out = append(out, text...)
		s.events.events = s.events.events[1:]
	}
	write(w, jsontext.Value(append(out, ']')))
}

// write spells an event; known is false as long as a token of it is not.
func (b *buffer) write(e *event) (text []byte, known bool) {
	out := fmt.Appendf(nil, `{"event_id":%d,"attention_dp_rank":%d,"window_size":32768,"data":`, e.id, e.rank)
	switch e.Kind {
	case kv.Stored:
		parent := uint64(0)
		if e.HasParent {
			parent = uint64(e.Parent)
		}
		out = fmt.Appendf(out, `{"type":"stored","parent_hash":%d,"blocks":[`, parent)
		for i, block := range e.Blocks {
			tokens, ok := b.tokens[block.Local]
			if !ok {
				return nil, false
			}
			if i > 0 {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, `{"type":"stored_block","block_hash":%d,"cache_level":0,"priority":35,"mm_keys":[],"tokens":[`, uint64(block.Engine))
			for j, t := range tokens {
				if j > 0 {
					out = append(out, ',')
				}
				out = fmt.Appendf(out, `{"type":"unique_token","token_id":%d,"token_extra_id":0}`, t)
			}
			out = append(out, "]}"...)
		}
		out = append(out, "]}"...)
	case kv.Removed:
		out = append(out, `{"type":"removed","block_hashes":[`...)
		for i, block := range e.Blocks {
			if i > 0 {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, "%d", uint64(block.Engine))
		}
		out = append(out, "]}"...)
	case created:
		out = append(out, `{"type":"created","num_blocks_per_cache_level":[4096,0]}`...)
	default:
		out = append(out, `{"type":"other"}`...)
	}
	return append(out, '}'), true
}
