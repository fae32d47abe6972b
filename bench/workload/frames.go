package workload

import (
	"encoding/binary"
	"fmt"
	"iter"
	"math"

	"github.com/dynago/dynago/kv"
)

// Engine publishes the history of one worker as its engine would: in the
// messages of vLLM 0.31, three frames each, of which the third is a batch of
// events in msgpack.
type Engine struct {
	Corpus *Corpus
	Worker int
	// BlockTokens is the number of tokens of a block, made up from its local
	// hash. The blocks that they decode to have hashes of their own therefore.
	BlockTokens int
}

// Messages yields the frames of one message after another: topic, sequence
// number, payload. They are good until the next one. What the worker evicts and
// what it stores for one request is one message, as it happens in one step.
func (e Engine) Messages() iter.Seq[[3][]byte] {
	return func(yield func([3][]byte) bool) {
		var payload, events []byte
		var number uint64
		batch := 0
		send := func(now uint32) bool {
			payload = append(payload[:0], 0x93, 0xcb)
			payload = binary.BigEndian.AppendUint64(payload, math.Float64bits(float64(now)/1e3))
			payload = append(appendArray(payload, batch), events...)
			payload = append(payload, 0) // the rank
			sequence := binary.BigEndian.AppendUint64(nil, number)
			number++
			events, batch = events[:0], 0
			return yield([3][]byte{[]byte("kv"), sequence, payload})
		}
		for _, op := range e.Corpus.Ops {
			if int(op.Worker) != e.Worker || op.Kind == Query {
				continue
			}
			if op.Kind == Remove {
				for _, b := range e.Corpus.Event(op).Blocks {
					events = appendRemoved(events, b.Engine)
					batch++
				}
				continue // what made room follows
			}
			events = e.appendStored(events, e.Corpus.Event(op))
			if batch++; !send(op.Time) {
				return
			}
		}
	}
}

// Tokens appends the tokens of a block. Three of four are below 2^16, as in
// text: a vocabulary has its frequent tokens first.
func (e Engine) Tokens(dst []uint32, l kv.LocalHash) []uint32 {
	const vocabulary = 151_669
	for i := range e.BlockTokens {
		u := float64(mix(uint64(l)+uint64(i))>>11) / (1 << 53)
		dst = append(dst, uint32(vocabulary*u*u*u))
	}
	return dst
}

// appendStored appends what vLLM tells of blocks stored.
func (e Engine) appendStored(b []byte, event kv.Event) []byte {
	blocks := event.Blocks
	b = append(b, 0x8b)
	b = appendText(appendText(b, "type"), "BlockStored")
	b = appendArray(appendText(b, "block_hashes"), len(blocks))
	for _, block := range blocks {
		b = appendNumber(b, uint64(block.Engine))
	}
	b = appendText(b, "parent_block_hash")
	if event.HasParent {
		b = appendNumber(b, uint64(event.Parent))
	} else {
		b = append(b, null)
	}
	b = appendArray(appendText(b, "token_ids"), len(blocks)*e.BlockTokens)
	var tokens []uint32
	for _, block := range blocks {
		tokens = e.Tokens(tokens[:0], block.Local)
		for _, t := range tokens {
			b = appendNumber(b, uint64(t))
		}
	}
	b = appendNumber(appendText(b, "block_size"), uint64(e.BlockTokens))
	b = append(appendText(b, "lora_id"), null)
	b = appendText(appendText(b, "medium"), "GPU")
	b = append(appendText(b, "lora_name"), null)
	b = appendArray(appendText(b, "extra_keys"), len(blocks))
	for range blocks {
		b = append(b, null)
	}
	b = appendNumber(appendText(b, "group_idx"), 0)
	return appendText(appendText(b, "kv_cache_spec_kind"), "full_attention")
}

// appendRemoved appends what vLLM tells of one block evicted.
func appendRemoved(b []byte, key kv.EngineHash) []byte {
	b = append(b, 0x84)
	b = appendText(appendText(b, "type"), "BlockRemoved")
	b = appendNumber(appendArray(appendText(b, "block_hashes"), 1), uint64(key))
	b = appendText(appendText(b, "medium"), "GPU")
	return appendNumber(appendText(b, "group_idx"), 0)
}

// null is msgpack's nil.
const null = 0xc0

func appendText(b []byte, s string) []byte {
	if len(s) > 31 {
		panic(fmt.Sprintf("workload: %q is too long for a short string", s))
	}
	return append(append(b, 0xa0|byte(len(s))), s...)
}

func appendArray(b []byte, n int) []byte {
	switch {
	case n < 16:
		return append(b, 0x90|byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xdc), uint16(n))
	}
	return binary.BigEndian.AppendUint32(append(b, 0xdd), uint32(n))
}

func appendNumber(b []byte, v uint64) []byte {
	switch {
	case v < 1<<7:
		return append(b, byte(v))
	case v < 1<<8:
		return append(b, 0xcc, byte(v))
	case v < 1<<16:
		return binary.BigEndian.AppendUint16(append(b, 0xcd), uint16(v))
	case v < 1<<32:
		return binary.BigEndian.AppendUint32(append(b, 0xce), uint32(v))
	}
	return binary.BigEndian.AppendUint64(append(b, 0xcf), v)
}
