package vllm

import (
	"context"
	"fmt"
	"iter"
	"log/slog"
	"net/url"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/live"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// Events says where a server publishes what its caches do: the addresses of its
// --kv-events-config, in its words. Rank r has ports that are r higher.
type Events struct {
	Endpoint string // such as tcp://*:5557; empty: as found out, or nowhere
	Replay   string // empty: it replays nothing
	Topic    string // a prefix; empty for all
	// Bind says that the server connects to Endpoint, and we listen there; nil: as its
	// form shows.
	Bind *bool
	Log  *slog.Logger

	told []rankSource // where each rank publishes, in place of Endpoint
}

// endpoints returns where the ranks publish, as seen from here.
func (v *Events) endpoints(server string, first, size uint32) ([]kvevent.Endpoint, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	if v.told != nil {
		return endpointsOf(v.told, u.Hostname(), first, size)
	}
	at := live.Published{Endpoint: v.Endpoint, Replay: v.Replay, Bind: v.Bind}
	return at.Endpoints(server, first, size)
}

// eventsOf returns where events are published, as configured or as the server
// tells.
func (e *Engine) eventsOf(b *build) Events {
	v := e.config.Events
	if v.Endpoint == "" && len(b.sources) > 0 {
		v.told, v.Endpoint, v.Topic = b.sources, b.sources[0].Endpoint, b.sources[0].Topic
		return v
	}
	if told := b.server.Config.Events; v.Endpoint == "" && told.Enabled && told.Publisher == "zmq" {
		v.Endpoint, v.Topic = told.Endpoint, told.Topic
		if told.Replay != nil {
			v.Replay = *told.Replay
		}
	}
	return v
}

// open makes the source for caches of a shape. It runs within a look.
func (e *Engine) open(s live.Shape) (live.Source, error) {
	v := e.eventsOf(e.seen.build)
	endpoints, err := v.endpoints(e.client.URL(), s.First, s.Size)
	if err != nil {
		return nil, fmt.Errorf("vllm: KV events: %w", err)
	}
	return kvevent.NewSource(kvevent.SourceConfig{
		Endpoints: endpoints, Topic: v.Topic, Log: v.Log,
		Decoder: kvevent.Config{BlockSize: int(s.BlockSize), Eagle: s.Eagle, Log: v.Log},
	})
}

// learn listens for the size of blocks in the background, once for each life. What
// is published is how the engine hashes, and more than what its configuration says:
// layers of several kinds have sizes of their own.
func (e *Engine) learn(b *build, c *engine.Card) {
	v := e.eventsOf(b)
	if b.learning || v.Endpoint == "" || e.config.BlockSize > 0 {
		return
	}
	endpoints, err := v.endpoints(e.client.URL(), c.DPStart, c.Ranks())
	if err != nil || c.BlockSize > 0 && endpoints[0].Bind {
		return // it is said when the source is opened, or there is room for one alone
	}
	b.learning = true
	e.later(func() {
		if n, err := live.BlockSize(e.closed, endpoints[0], v.Topic, zmtp.Options{}); err == nil {
			b.blockSize.Store(n)
		}
	})
}

// Events yields what the caches of the ranks do. After an error of the
// configuration it yields that.
func (e *Engine) Events(ctx context.Context, from []kv.Cursor) iter.Seq2[kv.Batch, error] {
	return func(yield func(kv.Batch, error) bool) {
		ctx, cancel := e.until(ctx)
		defer cancel()
		for b, err := range e.feed.Events(ctx, from) {
			if !yield(b, err) {
				return
			}
		}
	}
}
