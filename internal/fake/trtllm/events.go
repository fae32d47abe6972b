package trtllm

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
)

// buffer holds what happened in the caches until somebody asks. What does not fit
// pushes the oldest out without a word; only the numbers tell.
type buffer struct {
	size, most, blocks int

	mu     sync.Mutex
	losing bool
	next   map[uint32]uint64 // number of the next event, by rank
	events []event
}

// event is one of a rank, as it is told.
type event struct {
	rank uint32
	text []byte
}

// hear is for [mock.Engine.Hear].
func (b *buffer) hear(r mock.Report) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if r.Fresh {
		b.begin(r.Rank)
	}
	for i := range r.Events {
		switch e := &r.Events[i]; e.Kind {
		case kv.Stored:
			b.add(r.Rank, b.stored(e, &r.Stores[i]))
		case kv.Removed:
			b.add(r.Rank, removed(e.Blocks))
		}
	}
}

// begin is the first event of a life. It tells of the caches' sizes.
func (b *buffer) begin(rank uint32) {
	if b.next == nil {
		b.next = map[uint32]uint64{}
	}
	b.next[rank] = 0
	b.events = slices.DeleteFunc(b.events, func(e event) bool { return e.rank == rank })
	b.add(rank, fmt.Sprintf(`{"type":"created","num_blocks_per_cache_level":[%d,0]}`, b.blocks))
}

func (b *buffer) add(rank uint32, data string) {
	b.events = append(b.events, event{rank, fmt.Appendf(nil, `{"event_id":%d,"attention_dp_rank":%d,"window_size":32768,"data":%s}`, b.next[rank], rank, data)})
	b.next[rank]++
	n := len(b.events) - b.most
	if b.losing {
		n = len(b.events)
	}
	if n > 0 {
		b.events = b.events[n:]
	}
}

// LoseEvents makes the buffer as small as can be, or as large as it was: what does
// not fit is lost.
func (s *Server) LoseEvents(on bool) {
	s.events.mu.Lock()
	defer s.events.mu.Unlock()
	s.events.losing = on
}

// drain tells what has happened since it was asked last.
func (s *Server) drain(w http.ResponseWriter, r *http.Request) {
	out := []byte{'['}
	for more := true; more; {
		events := s.events.take()
		for _, e := range events {
			if len(out) > 1 {
				out = append(out, ',')
			}
			out = append(out, e.text...)
		}
		s.wait(r)
		more = len(events) > 0 && s.config.Quiet > 0 && r.Context().Err() == nil
	}
	write(w, jsontext.Value(append(out, ']')))
}

// take empties the buffer.
func (b *buffer) take() []event {
	b.mu.Lock()
	defer b.mu.Unlock()
	events := b.events
	b.events = nil
	return events
}

func (b *buffer) stored(e *kv.Event, what *mock.Store) string {
	parent := uint64(0)
	if e.HasParent {
		parent = uint64(e.Parent)
	}
	out := fmt.Appendf(nil, `{"type":"stored","parent_hash":%d,`, parent)
	if what.Namespace.LoRA != "" {
		out = fmt.Appendf(out, `"lora_name":%q,`, what.Namespace.LoRA)
	}
	out = append(out, `"blocks":[`...)
	for i, block := range e.Blocks {
		if i > 0 {
			out = append(out, ',')
		}
		out = fmt.Appendf(out, `{"type":"stored_block","block_hash":%d,"cache_level":0,"priority":35,"mm_keys":[],`, uint64(block.Engine))
		if what.Namespace.Salt != "" {
			out = fmt.Appendf(out, `"cache_salt":%q,`, what.Namespace.Salt)
		}
		out = append(out, `"tokens":[`...)
		for j, t := range what.Tokens[i*b.size : (i+1)*b.size] {
			if j > 0 {
				out = append(out, ',')
			}
			out = fmt.Appendf(out, `{"type":"unique_token","token_id":%d,"token_extra_id":0}`, t)
		}
		out = append(out, "]}"...)
	}
	return string(append(out, "]}"...))
}

func removed(blocks []kv.Block) string {
	out := []byte(`{"type":"removed","block_hashes":[`)
	for i, block := range blocks {
		if i > 0 {
			out = append(out, ',')
		}
		out = strconv.AppendUint(out, uint64(block.Engine), 10)
	}
	return string(append(out, "]}"...))
}
