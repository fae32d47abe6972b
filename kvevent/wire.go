package kvevent

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/dynago/dynago/kv"
)

// RouterEvent is one event as processes of ours, and those of the reference,
// pass it on, with the number that its publisher gave it.
type RouterEvent struct {
	Worker uint64
	Rank   uint32
	ID     uint64 // without holes per (worker, rank)
	Event  kv.Event
	// Residency says who owns the blocks. The event of an owner other than the
	// worker speaks of that owner's blocks alone.
	Residency Residency
}

// Residency is who owns blocks.
type Residency uint8

// The owners, as far as events tell.
const (
	ResidencyUntold Residency = iota // the worker, and a clear means everything
	ResidencyWorker
	ResidencyCacheOwner
)

var residencyNames = [...]string{"", "worker", "cache_owner"}

// Form is how structs are written in msgpack. Readers take both.
type Form uint8

// The forms.
const (
	Maps   Form = iota // by field name
	Arrays             // in the order of the fields
)

// AppendRouterEvents appends the message that carries events to dst: what is
// published under the topic kv-events.
func AppendRouterEvents(dst []byte, form Form, events []RouterEvent) []byte {
	dst = appendHead(dst, headArray, len(events))
	for i := range events {
		dst = appendRouterEvent(dst, form, &events[i])
	}
	return dst
}

func appendRouterEvent(b []byte, form Form, e *RouterEvent) []byte {
	n := 3
	if e.Residency != ResidencyUntold {
		n++
	}
	b = form.open(b, n)
	b = appendUint(form.name(b, "worker_id"), e.Worker)
	b = appendText(form.name(b, "storage_tier"), e.Event.Tier.String())
	if e.Residency != ResidencyUntold {
		b = appendText(form.name(b, "residency_domain"), residencyNames[e.Residency])
	}
	b = form.open(form.name(b, "event"), 3)
	b = appendUint(form.name(b, "event_id"), e.ID)
	b = appendEventData(form.name(b, "data"), form, &e.Event)
	return appendUint(form.name(b, "dp_rank"), uint64(e.Rank))
}

func appendEventData(b []byte, form Form, e *kv.Event) []byte {
	if e.Kind == kv.Cleared {
		return appendText(b, "cleared")
	}
	b = appendText(appendHead(b, headMap, 1), e.Kind.String())
	if e.Kind == kv.Removed {
		b = appendHead(form.name(form.open(b, 1), "block_hashes"), headArray, len(e.Blocks))
		for i := range e.Blocks {
			b = appendUint(b, uint64(e.Blocks[i].Engine))
		}
		return b
	}
	b = form.name(form.open(b, 3), "parent_hash")
	if e.HasParent {
		b = appendUint(b, uint64(e.Parent))
	} else {
		b = append(b, 0xc0)
	}
	b = append(form.name(b, "start_position"), 0xc0)
	b = appendHead(form.name(b, "blocks"), headArray, len(e.Blocks))
	for i := range e.Blocks {
		b = form.open(b, 3)
		b = appendUint(form.name(b, "block_hash"), uint64(e.Blocks[i].Engine))
		b = appendUint(form.name(b, "tokens_hash"), uint64(e.Blocks[i].Local))
		b = append(form.name(b, "mm_extra_info"), 0xc0)
	}
	return b
}

// open begins a struct of n fields, name a field of it.
func (f Form) open(b []byte, n int) []byte {
	if f == Maps {
		return appendHead(b, headMap, n)
	}
	return appendHead(b, headArray, n)
}

func (f Form) name(b []byte, name string) []byte {
	if f == Maps {
		return appendText(b, name)
	}
	return b
}

// RouterDecoder reads the messages that [AppendRouterEvents] writes, in either
// form. The zero value is ready. It is not safe for concurrent use.
type RouterDecoder struct {
	// Rejected counts events that keep their number and have lost their effect:
	// those of an unknown owner, and stores that contradict themselves.
	Rejected map[Rejection]uint64

	events []RouterEvent
	blocks []kv.Block
	unique unique
	keys   []kv.EngineHash
}

// Rejection says what was wrong with an event, as metrics name it.
type Rejection string

// The rejections.
const (
	RejectedResidency Rejection = "unsupported_residency_domain"
	RejectedTier      Rejection = "device_store_of_cache_owner"
	RejectedRepeat    Rejection = "repeated_hash"
)

// Decode reads one message. The events belong to the decoder and are good until
// its next call. An event that is rejected comes as a removal of nothing, so
// that the numbers stay without holes. The error is [ErrMalformed], with what
// was wrong.
func (d *RouterDecoder) Decode(payload []byte) ([]RouterEvent, error) {
	d.release()
	if len(payload) > maxPayload {
		return nil, fmt.Errorf("%w: %d bytes, where %d are the most", ErrMalformed, len(payload), maxPayload)
	}
	r := &reader{b: payload}
	n, ok := r.array()
	if !ok {
		return nil, fmt.Errorf("%w: no list of events", ErrMalformed)
	}
	for i := range n {
		e, err := d.event(r)
		if err != nil {
			return nil, fmt.Errorf("%w: event %d of %d: %w", ErrMalformed, i+1, n, err)
		}
		d.events = append(d.events, e)
	}
	return d.events, nil
}

// release takes back the memory of the last message, and keeps some of it.
func (d *RouterDecoder) release() {
	if cap(d.events) > keepEvents || cap(d.blocks) > keepBlocks {
		d.events, d.blocks, d.unique, d.keys = nil, nil, unique{}, nil
	}
	d.events, d.blocks = d.events[:0], d.blocks[:0]
}

// items reads the head of an array of blocks. A message has no more than
// maxItems of them in all.
func (d *RouterDecoder) items(r *reader) (n int, ok bool) {
	n, ok = r.array()
	return n, ok && n <= maxItems-len(d.blocks)
}

// routerEvent is an event of which not all may be known yet.
type routerEvent struct {
	RouterEvent
	hasData, bad bool
}

func (d *RouterDecoder) event(r *reader) (RouterEvent, error) {
	var e routerEvent
	if !r.structure(func(name []byte, place int) bool { return d.routerField(r, &e, name, place) }) {
		return RouterEvent{}, errors.New("not worker_id, storage_tier and event")
	}
	if !e.hasData {
		return RouterEvent{}, errors.New("it lacks its data")
	}
	d.judge(&e)
	return e.RouterEvent, nil
}

// routerField reads a field of an event. Arrays are told apart by the shapes of
// their items, since some of the fields may be missing.
func (d *RouterDecoder) routerField(r *reader, e *routerEvent, name []byte, place int) (ok bool) {
	switch {
	case string(name) == "worker_id" || place == 0:
		e.Worker, ok = r.natural()
		return ok
	case string(name) == "storage_tier" || place == 1 && r.next() == shapeText:
		return r.tier(&e.Event.Tier)
	case string(name) == "residency_domain" || place == 2 && r.next() != shapeArray && r.next() != shapeMap:
		e.Residency, e.bad = residencyOf(r)
		return r.skip(1)
	case string(name) == "event" || place > 0 && !e.hasData:
		return r.structure(func(name []byte, place int) bool { return d.eventField(r, e, name, place) })
	}
	return r.skip(eventDepth)
}

func (r *reader) natural() (uint64, bool) {
	v, negative, ok := r.integer()
	return v, ok && !negative
}

func (r *reader) tier(t *kv.Tier) bool {
	s, ok := r.text()
	if !ok {
		return false
	}
	for *t = range kv.TierShared + 1 {
		if t.String() == string(s) {
			return true
		}
	}
	return false
}

// residencyOf looks at who owns the blocks, without going on.
func residencyOf(r *reader) (of Residency, bad bool) {
	at := *r
	s, ok := at.text()
	switch {
	case ok && string(s) == residencyNames[ResidencyWorker]:
		return ResidencyWorker, false
	case ok && string(s) == residencyNames[ResidencyCacheOwner]:
		return ResidencyCacheOwner, false
	}
	return ResidencyUntold, true
}

func (d *RouterDecoder) eventField(r *reader, e *routerEvent, name []byte, place int) (ok bool) {
	switch {
	case string(name) == "event_id" || place == 0:
		e.ID, ok = r.natural()
		return ok
	case string(name) == "data" || place == 1:
		e.hasData = true
		return d.data(r, &e.Event)
	case string(name) == "dp_rank" || place == 2:
		e.Rank, ok = r.uint32()
		return ok
	}
	return r.skip(eventDepth)
}

// data reads what happened: the word cleared, or a map of one kind to its
// fields.
func (d *RouterDecoder) data(r *reader, e *kv.Event) bool {
	if r.next() == shapeText {
		s, ok := r.text()
		e.Kind = kv.Cleared
		return ok && string(s) == "cleared"
	}
	n, ok := r.pairs()
	if !ok || n != 1 {
		return false
	}
	kind, ok := r.text()
	if !ok {
		return false
	}
	from := len(d.blocks)
	switch string(kind) {
	case "stored":
		e.Kind = kv.Stored
		ok = r.structure(func(name []byte, place int) bool { return d.storedField(r, e, name, place) })
	case "removed":
		e.Kind = kv.Removed
		ok = r.structure(func(name []byte, place int) bool {
			if string(name) == "block_hashes" || place == 0 {
				return d.removedKeys(r)
			}
			return r.skip(eventDepth)
		})
	case "cleared":
		e.Kind = kv.Cleared
		return r.skip(eventDepth)
	default:
		return false
	}
	e.Blocks = d.blocks[from:len(d.blocks):len(d.blocks)]
	return ok
}

func (d *RouterDecoder) storedField(r *reader, e *kv.Event, name []byte, place int) bool {
	switch {
	case string(name) == "parent_hash" || place == 0:
		if r.null() {
			e.HasParent = false
			return true
		}
		h, ok := r.hash()
		e.Parent, e.HasParent = kv.EngineHash(h), true
		return ok
	case string(name) == "blocks" || place > 0 && r.next() == shapeArray:
		return d.storedBlocks(r)
	}
	return r.skip(eventDepth)
}

func (d *RouterDecoder) storedBlocks(r *reader) bool {
	n, ok := d.items(r)
	if !ok {
		return false
	}
	for range n {
		b, size := usualBlock(r.b[r.pos:])
		if r.pos += size; size == 0 && !r.block(&b) {
			return false
		}
		d.blocks = append(d.blocks, b)
	}
	return true
}

// What stands between the hashes of a block as nearly all are written: without
// media, and with numbers of 64 bits.
const (
	blockInMap  = "\x83\xaablock_hash\xcf"
	secondInMap = "\xabtokens_hash\xcf"
	lastInMap   = "\xadmm_extra_info\xc0"
	sizeInMap   = len(blockInMap) + 8 + len(secondInMap) + 8 + len(lastInMap)
	sizeInArray = 20
)

// usualBlock reads a block at the begin of p that is written in the usual way,
// and returns how long it is; 0 if it is written in another.
func usualBlock(p []byte) (b kv.Block, size int) {
	if len(p) >= sizeInArray && p[0] == 0x93 && p[1] == 0xcf && p[10] == 0xcf && p[19] == 0xc0 {
		return kv.Block{
			Engine: kv.EngineHash(binary.BigEndian.Uint64(p[2:])), Local: kv.LocalHash(binary.BigEndian.Uint64(p[11:])),
		}, sizeInArray
	}
	if len(p) < sizeInMap {
		return b, 0
	}
	const second = len(blockInMap) + 8
	const last = second + len(secondInMap) + 8
	if string(p[:len(blockInMap)]) != blockInMap || string(p[second:][:len(secondInMap)]) != secondInMap || string(p[last:sizeInMap]) != lastInMap {
		return b, 0
	}
	return kv.Block{
		Engine: kv.EngineHash(binary.BigEndian.Uint64(p[len(blockInMap):])), Local: kv.LocalHash(binary.BigEndian.Uint64(p[last-8:])),
	}, sizeInMap
}

// block reads a block's two hashes, and steps over its media: they are part of
// the second one.
func (r *reader) block(b *kv.Block) bool {
	var have int
	ok := r.structure(func(name []byte, place int) bool {
		h, ok := uint64(0), true
		switch {
		case string(name) == "block_hash" || place == 0:
			h, ok = r.hash()
			b.Engine, have = kv.EngineHash(h), have|1
		case string(name) == "tokens_hash" || place == 1:
			h, ok = r.hash()
			b.Local, have = kv.LocalHash(h), have|2
		default:
			ok = r.skip(eventDepth)
		}
		return ok
	})
	return ok && have == 3
}

func (d *RouterDecoder) removedKeys(r *reader) bool {
	n, ok := d.items(r)
	if !ok {
		return false
	}
	for range n {
		h, ok := r.hash()
		if !ok {
			return false
		}
		d.blocks = append(d.blocks, kv.Block{Engine: kv.EngineHash(h)})
	}
	return true
}

// judge takes the effect of an event away that must not have any.
func (d *RouterDecoder) judge(e *routerEvent) {
	why := Rejection("")
	switch {
	case e.bad:
		why = RejectedResidency
	case e.Event.Kind != kv.Stored:
		return
	case e.Residency == ResidencyCacheOwner && e.Event.Tier == kv.TierDevice:
		why = RejectedTier
	case !d.distinct(&e.Event):
		why = RejectedRepeat
	default:
		return
	}
	if d.Rejected == nil {
		d.Rejected = make(map[Rejection]uint64)
	}
	d.Rejected[why]++
	e.Event = kv.Event{Kind: kv.Removed, Tier: e.Event.Tier}
}

// distinct says whether all blocks of a store differ, also from their parent.
func (d *RouterDecoder) distinct(e *kv.Event) bool {
	d.keys = d.keys[:0]
	for i := range e.Blocks {
		d.keys = append(d.keys, e.Blocks[i].Engine)
	}
	return d.unique.all(d.keys, e.Parent, e.HasParent)
}
