package vllm

import (
	"context"
	"net"
	"strconv"
	"sync"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
)

// peers are the names under which the ranks of a server write to others. The
// server's bootstrap server tells them, once in each life.
type peers struct {
	mu    sync.Mutex
	epoch uint64
	names map[uint32]string
}

// find returns the name of a rank.
func (p *peers) find(ctx context.Context, e *Engine, t *engine.Transfer, rank uint32) (string, error) {
	epoch := e.now.Load().status.Epoch
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.epoch != epoch || p.names == nil {
		names, err := askBootstrap(ctx, e.config, t)
		if err != nil {
			return "", err
		}
		p.epoch, p.names = epoch, names
	}
	name, ok := p.names[rank]
	if !ok {
		p.names = nil // it may come later
		return "", engine.Errorf(engine.Unavailable, "vLLM: the bootstrap server knows no rank %d", rank)
	}
	return name, nil
}

func askBootstrap(ctx context.Context, c Config, t *engine.Transfer) (map[uint32]string, error) {
	client, err := httpapi.New(httpapi.Config{URL: "http://" + net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))), Header: c.Header})
	if err != nil {
		return nil, err
	}
	defer client.Close()
	text, err := client.Get(ctx, "/query")
	if err != nil {
		return nil, &engine.Error{Kind: engine.KindOf(err), Op: "ask the bootstrap server at " + client.URL(), Err: err}
	}
	var told map[string]struct {
		Engine string `json:"engine_id"`
	}
	if err := json.Unmarshal(text, &told, lenient); err != nil {
		return nil, &engine.Error{Kind: engine.Internal, Op: "ask the bootstrap server at " + client.URL(), Err: err}
	}
	names := map[uint32]string{}
	for key, one := range told {
		if rank, err := strconv.ParseUint(key, 10, 32); err == nil && one.Engine != "" {
			names[uint32(rank)] = one.Engine
		}
	}
	return names, nil
}
