package vllm

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/engine"
)

// control is one thing that a server can be told to do.
type control struct {
	name, path string
	// args are what may be said with it, in the query; adapters are named in the body.
	args    []string
	adapter bool
	// rests says that the server may take no requests behind it, or takes them again.
	rests bool
}

// controls are in the order in which cards list them.
var controls = []control{
	{name: engine.ControlReset, path: "/reset_prefix_cache", args: []string{"reset_running_requests", "reset_external"}},
	{name: "reset_mm", path: "/reset_mm_cache"},
	{name: "reset_encoder", path: "/reset_encoder_cache"},
	{name: engine.ControlSleep, path: "/sleep", args: []string{"level", "mode"}, rests: true},
	{name: engine.ControlWake, path: "/wake_up", args: []string{"tags"}, rests: true},
	{name: engine.ControlPause, path: "/pause", args: []string{"mode", "clear_cache"}, rests: true},
	{name: engine.ControlResume, path: "/resume", rests: true},
	{name: engine.ControlLoadLoRA, path: "/v1/load_lora_adapter", adapter: true},
	{name: engine.ControlUnloadLoRA, path: "/v1/unload_lora_adapter", adapter: true},
}

// Control tells the server to do what its card lists. Arguments are those of the
// server's own routes: for reset {"reset_running_requests", "reset_external"}, for
// sleep {"level", "mode"}, for wake {"tags"}, for pause {"mode", "clear_cache"}, for
// an adapter to be loaded {"lora_name", "lora_path"} and to be unloaded
// {"lora_name"}. An adapter that is there already, or is gone already, is no error.
func (e *Engine) Control(ctx context.Context, name string, args json.RawMessage) (json.RawMessage, error) {
	i := slices.IndexFunc(controls, func(c control) bool { return c.name == name })
	card := e.now.Load().status.Card
	if i < 0 || card == nil || !slices.Contains(card.Controls, name) {
		return nil, engine.Errorf(engine.Unsupported, "vLLM: this server has no control %q", name)
	}
	c := &controls[i]
	var given map[string]any
	if len(args) > 0 {
		if err := json.Unmarshal(args, &given); err != nil {
			return nil, engine.Errorf(engine.InvalidArgument, "vLLM: the arguments of %s are no JSON object", name)
		}
	}
	path, body := c.path, []byte(nil)
	if c.adapter {
		if lora, ok := given["lora_name"].(string); !ok || lora == "" {
			return nil, engine.Errorf(engine.InvalidArgument, "vLLM: %s wants the lora_name of an adapter", name)
		}
		body = args
	} else {
		query, err := c.query(given)
		if err != nil {
			return nil, err
		}
		if len(query) > 0 {
			path += "?" + query.Encode()
		}
	}
	answer, err := e.client.Post(ctx, path, nil, body)
	if err != nil && !isSo(name, err) {
		return nil, err
	}
	var told struct {
		Success *bool `json:"success"`
	}
	if json.Unmarshal(answer, &told) == nil && told.Success != nil && !*told.Success {
		return nil, engine.Errorf(engine.Unavailable, "vLLM: %s has not succeeded, as when blocks are in use: try again", name)
	}
	if c.rests {
		// A server that rests takes requests and lets them hang: none may come any more.
		_, err := e.observe(ctx)
		return nil, err
	}
	return nil, nil
}

// query returns the arguments of a control as its route takes them.
func (c *control) query(given map[string]any) (url.Values, error) {
	q := url.Values{}
	if c.name == engine.ControlSleep {
		q.Set("level", "1")
	}
	for name, value := range given {
		if !slices.Contains(c.args, name) {
			return nil, engine.Errorf(engine.InvalidArgument, "vLLM: %s has no argument %q; it has [%s]", c.name, name, strings.Join(c.args, " "))
		}
		var texts []string
		switch v := value.(type) {
		case bool:
			texts = []string{strconv.FormatBool(v)}
		case float64:
			texts = []string{strconv.FormatFloat(v, 'f', -1, 64)}
		case string:
			texts = []string{v}
		case []any:
			for _, one := range v {
				text, ok := one.(string)
				if !ok {
					return nil, engine.Errorf(engine.InvalidArgument, "vLLM: %s of %s: want texts", name, c.name)
				}
				texts = append(texts, text)
			}
		default:
			return nil, engine.Errorf(engine.InvalidArgument, "vLLM: %s of %s: want a text, a number, true or false", name, c.name)
		}
		q[name] = texts
	}
	return q, nil
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
