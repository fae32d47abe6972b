package kvevent

import (
	"encoding/binary"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/kv"
)

// ObjectEvent tells that an object of a store that workers share has come to a
// medium, or has left it: RFC #1527's envelope, with the fields of Mooncake's
// master for what the RFC has no name for.
type ObjectEvent struct {
	ID     uint64 // counts the events of one store
	Kind   kv.EventKind
	Key    string
	Tenant string // "" = default
	Medium string // cpu, disk, external; "" = untold
	Group  string
	// Seq are the canonical hashes of what the object holds; none where only the
	// key tells.
	Seq []kv.SeqHash
}

// objectDepth is how deep what is skipped in an event may be.
const objectDepth = 4

// AppendObjectBatch appends the message that carries events of one moment: what is
// published as the third frame, behind an empty topic and the number.
func AppendObjectBatch(dst []byte, at time.Time, backend string, events []ObjectEvent) []byte {
	ms := uint64(max(at.UnixMilli(), 0))
	dst = appendUint(appendHead(dst, headArray, 3), ms)
	dst = appendHead(dst, headArray, len(events))
	for i := range events {
		dst = appendObject(dst, ms, backend, &events[i])
	}
	return appendUint(dst, 0) // the rank
}

// objectWords are a kind's names in the envelope, and in events as engines tell
// them.
var objectWords = map[kv.EventKind][2]string{
	kv.Stored: {"stored", "BlockStored"}, kv.Removed: {"removed", "BlockRemoved"}, kv.Cleared: {"cleared", "AllBlocksCleared"},
}

func appendObject(b []byte, ms uint64, backend string, e *ObjectEvent) []byte {
	fields := 17
	if e.Kind == kv.Stored {
		fields = 20
	}
	b = appendHead(b, headMap, fields)
	b = appendUint(appendText(b, "event_id"), e.ID)
	b = appendUint(appendText(b, "timestamp"), ms)
	words := objectWords[e.Kind]
	b = appendText(appendText(b, "event_type"), words[0])
	b = appendText(appendText(b, "type"), words[1])
	for _, none := range []string{"model_name", "block_size", "additional_salt", "lora_name", "dp_rank"} {
		b = append(appendText(b, none), 0xc0)
	}
	for _, f := range [...]struct{ name, value string }{
		{"tenant_id", orDefault(e.Tenant)}, {"backend_id", backend}, {"group_id", e.Group}, {"medium", e.Medium}, {"object_key", e.Key},
	} {
		b = appendText(b, f.name)
		if f.value == "" {
			b = append(b, 0xc0)
			continue
		}
		b = appendText(b, f.value)
	}
	for _, name := range []string{"seq_hashes", "block_hashes"} {
		b = appendHead(appendText(b, name), headArray, len(e.Seq))
		for _, h := range e.Seq {
			b = appendUint(b, uint64(h))
		}
	}
	b = appendText(b, "base_block_idx")
	if e.Kind != kv.Stored {
		return append(b, 0xc0)
	}
	b = append(b, 0)
	for _, none := range []string{"parent_hash", "token_ids", "parent_block_hash"} {
		b = append(appendText(b, none), 0xc0)
	}
	return b
}

// defaultTenant is the one of objects that name none.
const defaultTenant = "default"

func orDefault(tenant string) string {
	if tenant == "" {
		return defaultTenant
	}
	return tenant
}

// DecodeObjectBatch reads the message of a store. Events of a kind that is not
// known are left out. The error is [ErrMalformed], with what was wrong.
func DecodeObjectBatch(payload []byte) ([]ObjectEvent, error) {
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: %d bytes, where %d are the most", ErrMalformed, len(payload), maxPayload)
	}
	r := &reader{b: payload}
	if n, ok := r.array(); !ok || n < 2 || !r.skip(1) {
		return nil, fmt.Errorf("%w: no moment with a list of events", ErrMalformed)
	}
	n, ok := r.array()
	if !ok {
		return nil, fmt.Errorf("%w: no list of events", ErrMalformed)
	}
	var events []ObjectEvent
	for i := range n {
		e, known, ok := readObject(r)
		if !ok {
			return nil, fmt.Errorf("%w: event %d of %d", ErrMalformed, i+1, n)
		}
		if known {
			events = append(events, e)
		}
	}
	return events, nil
}

func readObject(r *reader) (e ObjectEvent, known, ok bool) {
	n, ok := r.pairs()
	for i := 0; ok && i < n; i++ {
		var name []byte
		if name, ok = r.text(); !ok {
			break
		}
		switch string(name) {
		case "event_id":
			e.ID, ok = r.natural()
		case "event_type", "type":
			var word []byte
			if word, ok = r.text(); ok {
				for kind, words := range objectWords {
					if string(word) == words[0] || string(word) == words[1] {
						e.Kind, known = kind, true
					}
				}
			}
		case "object_key":
			e.Key, ok = r.orNull()
		case "tenant_id":
			e.Tenant, ok = r.orNull()
		case "medium":
			e.Medium, ok = r.orNull()
		case "group_id":
			e.Group, ok = r.orNull()
		case "seq_hashes":
			e.Seq, ok = r.seqHashes()
		default:
			ok = r.skip(objectDepth)
		}
	}
	if e.Tenant == defaultTenant {
		e.Tenant = ""
	}
	return e, known, ok
}

// orNull reads a string of its own, which null makes empty.
func (r *reader) orNull() (string, bool) {
	if r.null() {
		return "", true
	}
	if shape := r.next(); shape != shapeText && shape != shapeBytes {
		return "", false
	}
	s, ok := r.run()
	return string(s), ok
}

func (r *reader) seqHashes() (hashes []kv.SeqHash, ok bool) {
	if r.null() {
		return nil, true
	}
	n, ok := r.array()
	for i := 0; ok && i < n; i++ {
		var h uint64
		if h, ok = r.hash(); ok {
			hashes = append(hashes, kv.SeqHash(h))
		}
	}
	return hashes, ok
}

// SeqOfKey returns the hash that a key is, if it is one: a number of 64 bits,
// decimal or behind 0x.
func SeqOfKey(key string) (h kv.SeqHash, ok bool) {
	digits, hex := strings.CutPrefix(key, "0x")
	base := 10
	if hex {
		base = 16
	}
	if len(digits) == 0 || len(digits) > len(strconv.FormatUint(math.MaxUint64, 10)) {
		return 0, false
	}
	n, err := strconv.ParseUint(digits, base, 64)
	return kv.SeqHash(n), err == nil
}

// ObjectFrames returns a message of a store as it is published, and as it is
// replayed behind an empty frame.
func ObjectFrames(m Message) [][]byte {
	return [][]byte{{}, binary.BigEndian.AppendUint64(nil, m.Seq), m.Payload}
}

// EndOfObjects is the message that ends a replay.
func EndOfObjects() Message { return Message{Seq: endOfReplay} }
