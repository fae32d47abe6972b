package main

import (
	"context"
	"fmt"
	"log/slog"
	"strconv"
	"strings"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvindex/hicache"
	"github.com/dynago/dynago/router"
)

// sharedCacheSettings name a store from which workers load what others have
// computed.
type sharedCacheSettings struct {
	Type   string `name:"shared-cache-type" env:"DYN_SHARED_CACHE_TYPE" default:"none" choice:"none,hicache" help:"Count what lies in a store that workers share: pages of SGLang's hierarchical caches, in dynago kvstore or Mooncake."`
	Events string `name:"shared-cache-events" env:"DYN_SHARED_CACHE_EVENTS,DYN_MOONCAKE_KV_EVENTS_ENDPOINT" placeholder:"tcp://HOST:PORT" help:"Where the store tells of them, such as tcp://127.0.0.1:5558 of kvstore; without, nothing is known to be there."`
	Replay string `name:"shared-cache-replay" env:"DYN_SHARED_CACHE_REPLAY" placeholder:"tcp://HOST:PORT" help:"Where it tells what was missed, such as tcp://127.0.0.1:5658; without, what was stored before this start is not known."`
	Layout string `name:"shared-cache-layout" env:"DYN_SHARED_CACHE_LAYOUT" placeholder:"page_size=N[,KEY=VALUE]" help:"How workers name pages: page_size, which must be the router's block size; tp, pp, lcm, tag; mla, eagle, split_heads."`
}

// sharedCache is what is known of the store.
type sharedCache struct {
	index  *hicache.Index
	source *kvevent.ObjectSource
	log    *slog.Logger
}

// open lets a router ask what the store holds; nil is that there is none.
func (s *sharedCacheSettings) open(c *router.Config, log *slog.Logger) (*sharedCache, error) {
	switch {
	case s.Type == "none" && s.Events != "":
		return nil, fmt.Errorf("--shared-cache-events: %s: and --shared-cache-type none: want hicache, or no events", s.Events)
	case s.Type == "none":
		return nil, nil
	case s.Events == "":
		log.Warn("setting has no effect without --shared-cache-events", "setting", "--shared-cache-type")
		return nil, nil
	}
	layout, err := readLayout(s.Layout)
	if err != nil {
		return nil, fmt.Errorf("--shared-cache-layout: %w", err)
	}
	shared := &sharedCache{index: &hicache.Index{}, log: log}
	if err := shared.index.Join(0, layout); err != nil {
		return nil, fmt.Errorf("--shared-cache-layout: %w", err)
	}
	if shared.source, err = kvevent.NewObjectSource(kvevent.ObjectSourceConfig{Events: s.Events, Replay: s.Replay, Log: log}); err != nil {
		return nil, fmt.Errorf("--shared-cache-events: %w", err)
	}
	c.Shared = shared.index
	return shared, nil
}

// readLayout reads KEY=VALUE,…; a key that is a switch needs no value.
func readLayout(text string) (hicache.Layout, error) {
	l := hicache.Layout{Backend: "mooncake"} // whose names of objects kvstore's clients use
	numbers := map[string]*int{"page_size": &l.PageSize, "tp": &l.TP, "pp": &l.PP, "lcm": &l.LCM}
	switches := map[string]*bool{"mla": &l.MLA, "eagle": &l.Eagle, "split_heads": &l.SplitHeads}
	for part := range strings.SplitSeq(text, ",") {
		key, value, given := strings.Cut(part, "=")
		switch {
		case numbers[key] != nil:
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return l, fmt.Errorf("%s: %q: want a number of at least 1", key, value)
			}
			*numbers[key] = n
		case switches[key] != nil && !given:
			*switches[key] = true
		case key == "tag" && value != "":
			l.Tag = value
		default:
			return l, fmt.Errorf("%q: want page_size=N, and tp=N, pp=N, lcm=N, tag=TEXT, mla, eagle or split_heads, with commas", part)
		}
	}
	return l, nil
}

// run follows the store until ctx ends.
func (s *sharedCache) run(ctx context.Context) {
	if s == nil {
		return
	}
	number := uint64(0) // one for each batch: some tell of several messages at once
	for b, err := range s.source.Batches(ctx) {
		if err != nil {
			if ctx.Err() == nil {
				s.log.Error("what lies in the shared cache is not known any more", "error", err)
			}
			s.index.Restart()
			return
		}
		if b.Restart {
			s.index.Restart()
		}
		number++
		s.index.Apply(number, changesOf(b))
	}
}

func changesOf(b kvevent.ObjectBatch) []hicache.Event {
	events := make([]hicache.Event, len(b.Events))
	for i, e := range b.Events {
		events[i] = hicache.Event{Stored: e.Kind == kv.Stored, Key: e.Key, Tenant: e.Tenant}
	}
	return events
}
