package kvstore

import (
	"context"
	"errors"
	"io"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/dynago/dynago/kvcache/store"
)

// Values of which length are read to where they will lie. Shorter ones are not
// worth the trouble; of longer ones nothing is reserved that has not come.
const (
	leastPlaced = 64 << 10
	mostPlaced  = 8 << 20
	// piece is how much is read before it is summed up, while the processor has it
	// at hand.
	piece = 256 << 10
)

// placed is a value that has been read to where it lies in memory, under a key of
// its own until it is stored.
type placed struct {
	key   string
	value *store.Value
}

// placing returns how the values of a client are read to where they will lie, or
// nil if memory cannot do that.
func (c *conn) placing() func(size int, fill func([]byte) (uint64, error)) (*placed, error) {
	memory := c.s.opts.Driver
	if _, moves := memory.(store.Mover); !moves {
		return nil
	}
	filler, fills := memory.(store.Filler)
	if !fills {
		return nil
	}
	key := " received by " + strconv.FormatInt(c.id, 10) // names of namespaces have no blanks
	return func(size int, fill func([]byte) (uint64, error)) (*placed, error) {
		if c.sp == nil {
			return nil, nil
		}
		v, err := c.s.cache.receive(context.Background(), c.sp, filler, key, int64(size), fill)
		if v == nil {
			return nil, err
		}
		return &placed{key, v}, nil
	}
}

// forget gives up what was placed, unless it is stored by now.
func (c *conn) forget(p *placed) {
	p.value.Release()
	c.s.opts.Driver.Delete(context.Background(), p.key) //nolint:errcheck // it is memory, which forgets
}

// receive lets fill write a value where it will lie. With neither a value nor an
// error nothing was written, since there is no room.
func (c *cache) receive(ctx context.Context, sp *space, memory store.Filler, key string, size int64, fill func([]byte) (uint64, error)) (*store.Value, error) {
	c.mu.Lock()
	beyond := sp.Quota > 0 && sp.used+size > sp.Quota
	c.mu.Unlock()
	for !beyond {
		var failure error
		v, err := memory.Fill(ctx, key, size, nil, func(b []byte) (sum uint64, err error) {
			sum, failure = fill(b)
			return sum, failure
		})
		switch {
		case err == nil:
			return v, nil
		case failure != nil:
			return nil, failure
		case !errors.Is(err, store.ErrFull):
			return nil, nil
		}
		c.mu.Lock()
		beyond = !c.makeRoom(0, c.lastSync > 0)
		c.mu.Unlock()
	}
	return nil, nil
}

// move stores what was placed under its key in memory.
func (c *cache) move(ctx context.Context, from, to string, tag []byte) (*store.Value, error) {
	c.mu.Unlock()
	defer c.mu.Lock()
	return c.tiers[0].Driver.(store.Mover).Move(ctx, from, to, tag)
}

// place reads size bytes to where they will lie, and reports whether it has.
func (d *decoder) place(size int) (done bool, err error) {
	if d.placing == nil || size < leastPlaced || size > mostPlaced || !d.reserve(int64(size)) {
		return false, nil
	}
	if d.placed, err = d.placing(size, d.fill); d.placed == nil {
		d.reserve(-int64(size))
	}
	return d.placed != nil, err
}

// fill reads a value into b, and returns its checksum.
func (d *decoder) fill(b []byte) (sum uint64, err error) {
	h := xxh3.New()
	for at := 0; at < len(b); {
		if at%step == 0 {
			d.progress()
		}
		n, err := io.ReadFull(d.r, b[at:min(len(b), at+piece)])
		if err != nil {
			return 0, err
		}
		h.Write(b[at : at+n]) //nolint:errcheck // it cannot fail
		at += n
	}
	return h.Sum64(), nil
}

// unplace gives up what was placed for the last request.
func (d *decoder) unplace() {
	if p := d.placed; p != nil {
		d.placed = nil
		d.reserve(-p.value.Size)
		d.forget(p)
	}
}
