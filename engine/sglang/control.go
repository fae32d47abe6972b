package sglang

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/dynago/dynago/engine"
)

// Controls of a server with a hierarchical cache: what lies below its own memory
// can be told of, attached and detached while it runs.
const (
	ControlStore       = "store"
	ControlAttachStore = "store_attach"
	ControlDetachStore = "store_detach"
)

// controls are the methods and routes of what can be told.
var controls = map[string][2]string{
	engine.ControlReset:      {http.MethodPost, "/flush_cache"},
	engine.ControlPause:      {http.MethodPost, "/pause_generation"},
	engine.ControlResume:     {http.MethodPost, "/continue_generation"},
	engine.ControlSleep:      {http.MethodPost, "/release_memory_occupation"},
	engine.ControlWake:       {http.MethodPost, "/resume_memory_occupation"},
	engine.ControlLoadLoRA:   {http.MethodPost, "/load_lora_adapter"},
	engine.ControlUnloadLoRA: {http.MethodPost, "/unload_lora_adapter"},
	ControlStore:             {http.MethodGet, "/hicache/storage-backend"},
	ControlAttachStore:       {http.MethodPut, "/hicache/storage-backend"},
	ControlDetachStore:       {http.MethodDelete, "/hicache/storage-backend"},
}

// asleep is why a server gets no requests that was told to sleep.
const asleep = "the server was told to " + engine.ControlSleep

// Control tells the server to do something; args is the body of its route, or
// nil. A server that was paused or put to sleep would take requests and not
// answer them: until it is told to go on, it gets none, and its card says
// draining. One that was reset or slept has another epoch: its cache is gone.
func (e *Engine) Control(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	call, ok := controls[name]
	if !ok {
		return nil, engine.Errorf(engine.Unsupported, "sglang: no control %q", name)
	}
	if f := e.facts.Load(); f != nil && !f.has(name) {
		return nil, engine.Errorf(engine.Unsupported, "sglang: the server was started without what control %q needs", name)
	}
	before := e.parked.Load()
	slept := before != nil && *before == asleep
	if name == engine.ControlSleep && slept || name == engine.ControlWake && !slept {
		return nil, nil // twice would be an error of the server's
	}
	if name == engine.ControlPause || name == engine.ControlSleep {
		reason := "the server was told to " + name
		e.parked.Store(&reason) // before it is, so that nothing hangs
	}
	ctx, done := e.within(ctx)
	defer done()
	answer, err := e.call(ctx, call[0], call[1], args)
	if name == engine.ControlReset && statusOf(err) == http.StatusMethodNotAllowed {
		answer, err = e.call(ctx, http.MethodGet, call[1], nil) // older builds
	}
	if err != nil {
		e.parked.Store(before)
		return nil, err
	}
	switch name {
	case engine.ControlReset, engine.ControlSleep:
		e.wiped()
	case engine.ControlResume, engine.ControlWake:
		e.parked.Store(nil)
	}
	if !json.Valid(answer) {
		return json.Marshal(string(answer)) // a sentence
	}
	return answer, nil
}

func (e *Engine) call(ctx context.Context, method, path string, args json.RawMessage) ([]byte, error) {
	if len(args) == 0 && method != http.MethodGet {
		args = json.RawMessage(`{}`)
	}
	return e.http.Call(ctx, method, path, nil, args)
}

func statusOf(err error) int {
	if told, ok := err.(*engine.Error); ok {
		return told.Status
	}
	return 0
}
