package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"

	"github.com/klauspost/compress/zstd"
)

// Tape records the events of one stream as they were sent, so that they can be
// sent again from any of them on. Events are many times as long as the text that
// they carry, and much alike, so what is older than a moment is kept compressed.
// The zero value is empty. A tape has no lock.
type Tape struct {
	sealed []stretch
	first  int    // number of the first open event
	count  int    // of open events
	open   []byte // events that are not compressed yet
}

// stretch is some events, compressed.
type stretch struct {
	first, count int
	size         int // of the events
	packed       []byte
}

// Sizes of stretches.
const (
	stretchSize    = 16 << 10
	maxStretchSize = 64 << 20 // of one that is read; one event may be that large
	// packWindow is how far back a repetition may lie: the events at the beginning
	// show the same tools one after the other.
	packWindow = 512 << 10
)

// frameEnd ends an event: data of ours has no line ends.
var frameEnd = []byte("\n\n")

// ErrTape says that bytes are no tape.
var ErrTape = errors.New("store: not a recorded stream")

var (
	packer = sync.OnceValue(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	})
	unpacker = sync.OnceValue(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(0), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(maxStretchSize))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	})
)

// Append adds events, which are complete.
func (t *Tape) Append(events []byte) {
	if len(t.open) >= stretchSize {
		t.seal()
	}
	t.open = append(t.open, events...)
	t.count += bytes.Count(events, frameEnd)
}

// Len returns the number of events.
func (t *Tape) Len() int { return t.first + t.count }

// seal compresses what is open.
func (t *Tape) seal() {
	if t.count == 0 {
		return
	}
	packed := packer().EncodeAll(t.open, nil)
	t.sealed = append(t.sealed, stretch{t.first, t.count, len(t.open), packed})
	t.first += t.count
	t.count, t.open = 0, t.open[:0]
}

// From returns some events, the first of them number n, and the number of the
// event behind them. At the end of the tape it returns none. The bytes may be
// used until the next Append.
func (t *Tape) From(n int) (events []byte, next int, err error) {
	if n >= t.first {
		return skip(t.open, n-t.first), t.Len(), nil
	}
	for i := range t.sealed {
		s := &t.sealed[i]
		if n >= s.first+s.count {
			continue
		}
		events, err := s.unpack()
		return skip(events, n-s.first), s.first + s.count, err
	}
	return nil, n, ErrTape
}

func (s *stretch) unpack() ([]byte, error) {
	events, err := unpacker().DecodeAll(s.packed, nil)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTape, err)
	}
	if len(events) != s.size || bytes.Count(events, frameEnd) != s.count {
		return nil, ErrTape
	}
	return events, nil
}

// skip drops the first n events.
func skip(events []byte, n int) []byte {
	for ; n > 0; n-- {
		i := bytes.Index(events, frameEnd)
		if i < 0 {
			return nil
		}
		events = events[i+len(frameEnd):]
	}
	return events
}

// Bytes returns the whole tape, for [Record.Events] and [OpenTape].
func (t *Tape) Bytes() []byte {
	t.seal()
	var b []byte
	for i := range t.sealed {
		s := &t.sealed[i]
		for _, n := range [...]int{s.count, s.size, len(s.packed)} {
			b = binary.AppendUvarint(b, uint64(n))
		}
		b = append(b, s.packed...)
	}
	return b
}

// OpenTape reads what [Tape.Bytes] has made. The tape aliases b.
func OpenTape(b []byte) (*Tape, error) {
	t := &Tape{}
	r := reader{b: b}
	for len(r.b) > 0 {
		s := stretch{first: t.first, count: r.length(), size: r.length()}
		n := r.length()
		if r.failed || n > len(r.b) || s.count == 0 || s.size > maxStretchSize {
			return nil, ErrTape
		}
		s.packed = r.b[:n:n]
		r.b = r.b[n:]
		t.first += s.count
		t.sealed = append(t.sealed, s)
	}
	if r.failed {
		return nil, ErrTape
	}
	return t, nil
}
