package main

import (
	"context"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
)

// listen reads the engine's KV events until ctx ends.
func (p *patient) listen(ctx context.Context) <-chan kv.Batch {
	heard := make(chan kv.Batch, 256)
	if !p.card.Features.Has(engine.FeatureEvents) {
		close(heard)
		return heard
	}
	go func() {
		defer close(heard)
		for ctx.Err() == nil {
			for b, err := range p.engine.Events(ctx, nil) {
				if err != nil {
					break
				}
				select {
				case heard <- b:
				case <-ctx.Done():
					return
				}
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return heard
}

// soon is how long an event may take that belongs to an answer which has ended.
const soon = 2 * time.Second

// events looks whether the blocks of a prompt were told. A subscription takes a
// moment to be there, and what is published before that is lost: a second prompt is
// sent to who is silent.
func (p *patient) events(ctx context.Context, ids []uint32, heard <-chan kv.Batch) {
	if !p.card.Features.Has(engine.FeatureEvents) {
		p.find(degraded, "events", p.brand.cure("events"), "It tells no KV events, so what was sent there counts as cached there until it is old.")
		return
	}
	seen, other := p.stored(ctx, ids, heard)
	if seen == 0 {
		ids = p.prompt(3)
		if _, ok := p.generate(ctx, ids); !ok {
			return
		}
		var more int
		seen, more = p.stored(ctx, ids, heard)
		other += more
	}
	blocks := len(ids) / max(1, int(p.card.BlockSize))
	switch {
	case seen >= blocks-1 && seen > 0:
		p.find(fine, "events", "", "KV events come: %d blocks of %d tokens were told for a prompt of %d, and they are the right ones.", seen, p.card.BlockSize, len(ids))
		p.find(fine, "hashes", "", "Blocks are named here by their tokens, so the seed and the algorithm of the engine's hashes do not matter.")
	case other > 0:
		p.find(degraded, "block size", "Look whether the address of events is this engine's.\n"+p.brand.cure("block size"),
			"KV events come, but none for what was sent: they are another engine's, or their blocks have not %d tokens.", p.card.BlockSize)
	default:
		p.silent()
	}
	if p.spec.Replay == "" && len(p.brand.cure("replay")) > 0 && p.spec.Events != "" {
		p.find(degraded, "replay", p.brand.cure("replay"), "Events that are lost cannot be asked for again, so a lost one empties what is known of this engine's cache.")
	}
}

// stored counts the blocks of a prompt that are told of soon, and all others.
func (p *patient) stored(ctx context.Context, ids []uint32, heard <-chan kv.Batch) (seen, other int) {
	want := kv.AppendLocalHashes(nil, ids, int(p.card.BlockSize), kv.Namespace{}.Seed())
	timer := time.NewTimer(soon)
	defer timer.Stop()
	for seen < len(want) {
		select {
		case b, ok := <-heard:
			if !ok {
				return seen, other
			}
			for _, e := range b.Events {
				for _, block := range e.Blocks {
					switch {
					case e.Kind != kv.Stored:
					case slices.Contains(want, block.Local):
						seen++
					default:
						other++
					}
				}
			}
		case <-timer.C:
			return seen, other
		case <-ctx.Done():
			return seen, other
		}
	}
	return seen, other
}

// silent says why no event came, as far as that can be seen from here.
func (p *patient) silent() {
	cure := p.brand.cure("events")
	u, err := url.Parse(p.spec.URL)
	at, isTCP := strings.CutPrefix(p.spec.Events, "tcp://")
	host, port, split := net.SplitHostPort(at)
	if err == nil && host == "*" {
		host = u.Hostname()
	}
	if listens := host != "" && (strings.HasPrefix(at, "*") || p.spec.Bind != nil && !*p.spec.Bind); isTCP && split == nil && listens {
		address := net.JoinHostPort(host, port)
		conn, err := net.DialTimeout("tcp", address, time.Second)
		if err != nil {
			p.find(degraded, "events", "An engine whose endpoint is not tcp://*:PORT connects out instead of listening: write it with the star.\n"+cure,
				"No KV event came for an answer: nobody listens at %s, where they should be published.", address)
			return
		}
		conn.Close() //nolint:errcheck // it was only to be there
		p.find(degraded, "events", "Look whether that port is the engine's, and whether prefix caching is on.\n"+cure, "No KV event came for an answer, although somebody listens at %s.", address)
		return
	}
	p.find(degraded, "events", cure, "No KV event came for an answer.")
}
