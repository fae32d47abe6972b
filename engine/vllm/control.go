package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strings"

	"github.com/dynago/dynago/engine"
)

// controls are the routes of what a server can be told to do, by name.
var controls = map[string]struct {
	path string
	// query and body make what is sent of the arguments.
	query func(args map[string]any) url.Values
	body  bool
}{
	engine.ControlReset:      {path: "/reset_prefix_cache"},
	engine.ControlSleep:      {path: "/sleep", query: sleepQuery},
	engine.ControlWake:       {path: "/wake_up"},
	engine.ControlLoadLoRA:   {path: "/v1/load_lora_adapter", body: true},
	engine.ControlUnloadLoRA: {path: "/v1/unload_lora_adapter", body: true},
}

// controlNames are in the order in which cards list them.
var controlNames = []string{
	engine.ControlReset, engine.ControlSleep, engine.ControlWake, engine.ControlLoadLoRA, engine.ControlUnloadLoRA,
}

// sleepQuery reads {"level": 1 or 2}: at 2 the weights are thrown away.
func sleepQuery(args map[string]any) url.Values {
	if level, ok := args["level"].(float64); ok && level == 2 {
		return url.Values{"level": {"2"}}
	}
	return url.Values{"level": {"1"}}
}

// Control tells the server to do what its card lists: forget the cache, sleep with
// {"level": 1 or 2}, wake, load an adapter with {"lora_name", "lora_path"} or
// unload one with {"lora_name"}. An adapter that is there already, or is gone
// already, is no error.
func (e *Engine) Control(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	c, ok := controls[name]
	card := e.now.Load().status.Card
	if !ok || card == nil || !slices.Contains(card.Controls, name) {
		return nil, engine.Errorf(engine.Unsupported, "vLLM: this server has no control %q", name)
	}
	var given map[string]any
	if len(args) > 0 {
		if err := json.Unmarshal(args, &given); err != nil {
			return nil, engine.Errorf(engine.InvalidArgument, "vLLM: the arguments of %s are no JSON object", name)
		}
	}
	path, body := c.path, []byte(nil)
	if c.query != nil {
		path += "?" + c.query(given).Encode()
	}
	if c.body {
		if lora, ok := given["lora_name"].(string); !ok || lora == "" {
			return nil, engine.Errorf(engine.InvalidArgument, "vLLM: %s wants the lora_name of an adapter", name)
		}
		body = args
	}
	_, err := e.client.Post(ctx, path, nil, body)
	if isSo(name, err) {
		return nil, nil
	}
	return nil, err
}

// isSo says whether an adapter could not be loaded or unloaded because it is so
// already.
func isSo(name string, err error) bool {
	e, ok := errors.AsType[*engine.Error](err)
	switch {
	case !ok:
		return false
	case name == engine.ControlLoadLoRA:
		return e.Kind == engine.InvalidArgument && strings.Contains(e.Message, "already been loaded")
	}
	return name == engine.ControlUnloadLoRA && e.Kind == engine.NotFound
}
