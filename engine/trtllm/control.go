package trtllm

import (
	"context"
	"encoding/json"

	"github.com/dynago/dynago/engine"
)

// routes are what can be told, if the server has them.
var routes = map[string]string{
	engine.ControlSleep: "/release_memory",
	engine.ControlWake:  "/resume_memory",
}

// Control implements [engine.Controller]: sleep and wake, with the server's own
// arguments, or nil for all of its memory. A server that sleeps takes requests
// and lets them hang, so that it takes none here, and what it had cached is gone.
func (e *Engine) Control(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	route, ok := routes[name]
	if !ok {
		return nil, engine.Errorf(engine.Unsupported, "control %q is not available on TensorRT-LLM (want sleep or wake)", name)
	}
	sleep := name == engine.ControlSleep
	if e.asleep.Load() == sleep {
		return nil, nil
	}
	if len(args) == 0 {
		args = json.RawMessage(`{}`)
	}
	if sleep {
		e.asleep.Store(true) // before the server sleeps, so that nothing hangs
	}
	answer, err := e.client.Post(ctx, route, nil, args)
	if err != nil {
		e.asleep.Store(!sleep)
		return nil, err
	}
	e.asleep.Store(sleep)
	if sleep {
		e.mu.Lock()
		e.life.renew()
		e.mu.Unlock()
	}
	if !json.Valid(answer) {
		return nil, nil
	}
	return answer, nil
}
