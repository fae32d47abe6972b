package sglang

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/live"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// eventsInfo is what a server tells of its events: newer builds their parts, which
// leave out where they are told again.
type eventsInfo struct {
	Publisher string `json:"publisher"`
	Host      string `json:"endpoint_host"`
	Port      uint16 `json:"endpoint_port_base"`
	Topic     string `json:"topic"`
	BlockSize uint32 `json:"block_size"`
}

// published returns where the server publishes, as configured or as it tells: by
// the flag that it was started with, as JSON in a string, and else by its parts.
func (e *Engine) published(info *serverInfo) live.Published {
	p := e.cfg.Events
	if p.Endpoint != "" {
		return p
	}
	var flag struct {
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
		Topic     string `json:"topic"`
		Steps     uint64 `json:"buffer_steps"`
	}
	text := []byte(info.EventsConfig)
	var quoted string
	if json.Unmarshal(text, &quoted) == nil {
		text = []byte(quoted)
	}
	parts := info.Events
	switch {
	case json.Unmarshal(text, &flag, lenient) == nil && flag.Publisher == "zmq":
		if p.Endpoint = flag.Endpoint; p.Endpoint == "" {
			p.Endpoint = defaultEndpoint
		}
		p.Topic, p.Window = first(p.Topic, flag.Topic), flag.Steps
		p.Replay = first(p.Replay, flag.Replay)
	case parts != nil && parts.Publisher == "zmq" && parts.Port != 0:
		p.Endpoint = "tcp://" + net.JoinHostPort(first(parts.Host, "*"), strconv.Itoa(int(parts.Port)))
		p.Topic = first(p.Topic, parts.Topic)
	}
	return p
}

// defaultEndpoint is where servers publish that are told to, and not where.
const defaultEndpoint = "tcp://*:5557"

// open makes the source for caches of a shape.
func (e *Engine) open(s live.Shape) (live.Source, error) {
	p := e.facts.Load().events
	endpoints, err := p.Endpoints(e.http.URL(), s.First, s.Size)
	if err != nil {
		return nil, fmt.Errorf("sglang: KV events: %w", err)
	}
	e.inFlight.resize(s.BlockSize)
	return kvevent.NewSource(kvevent.SourceConfig{
		Endpoints: endpoints, Topic: p.Topic, Window: p.Window, Log: e.cfg.Log,
		Decoder: kvevent.Config{BlockSize: int(s.BlockSize), InFlight: &e.inFlight, Log: e.cfg.Log},
	})
}

// follow tells the events what the server is now.
func (e *Engine) follow(s engine.Status) {
	if err := e.feed.Become(s); err != nil {
		e.log.Warn("KV events cannot be read", "error", err)
	}
}

// Events yields what the caches of the ranks do. Without a replay endpoint what
// happened before it is read is not known, nor what is lost on the way.
func (e *Engine) Events(ctx context.Context, from []kv.Cursor) events {
	return func(yield func(kv.Batch, error) bool) {
		ctx, done := e.within(ctx)
		defer done()
		for b, err := range e.feed.Events(ctx, from) {
			if !yield(b, err) {
				return
			}
		}
	}
}

// inFlight knows the prompts in flight that have a namespace. The server keeps
// their caches apart, and publishes the same events for all of them: the keys of
// its blocks follow from tokens alone.
type inFlight struct {
	mu        sync.Mutex
	blockSize int
	prompts   map[*flight]struct{}
}

// flight is one prompt, by the hashes that it would have without a namespace.
type flight struct {
	ns     kv.Namespace
	rank   uint32
	ranked bool // it was sent to that rank, else to any
	chain  map[kv.SeqHash]struct{}
	landed time.Time // when its answer ended; zero: it has not
}

// late is how long after its answer a prompt may still be told of.
const late = 5 * time.Second

func (f *inFlight) resize(blockSize uint32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blockSize = int(blockSize)
}

// begin notes a request, until the function returned is called and a while longer.
// Only those with a namespace are of interest, and only where events are read.
func (f *inFlight) begin(r *engine.Request) (land func()) {
	ns := r.KV.Namespace
	f.mu.Lock()
	defer f.mu.Unlock()
	if ns == (kv.Namespace{}) || f.blockSize == 0 {
		return func() {}
	}
	g := &flight{ns: ns, chain: map[kv.SeqHash]struct{}{}}
	if r.DPRank != nil {
		g.rank, g.ranked = *r.DPRank, true
	}
	locals := kv.AppendLocalHashes(nil, r.TokenIDs, f.blockSize, kv.Namespace{}.Seed())
	for _, h := range kv.AppendSeqHashes(nil, locals) {
		g.chain[h] = struct{}{}
	}
	if f.prompts == nil {
		f.prompts = map[*flight]struct{}{}
	}
	f.prompts[g] = struct{}{}
	return func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		g.landed = time.Now()
		for h := range f.prompts {
			if !h.landed.IsZero() && g.landed.Sub(h.landed) > late {
				delete(f.prompts, h)
			}
		}
	}
}

// Namespace implements [kvevent.InFlight]. A prompt whose answer is under way comes
// before one whose answer has ended, and of those the one that ended last.
func (f *inFlight) Namespace(rank uint32, prefix kv.SeqHash) (ns kv.Namespace, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var best *flight
	now := time.Now()
	for g := range f.prompts {
		_, has := g.chain[prefix]
		switch {
		case !has, g.ranked && g.rank != rank:
		case !g.landed.IsZero() && now.Sub(g.landed) > late:
		case best == nil, g.landed.IsZero(), !best.landed.IsZero() && g.landed.After(best.landed):
			best = g
		}
	}
	if best == nil {
		return kv.Namespace{}, false
	}
	return best.ns, true
}
