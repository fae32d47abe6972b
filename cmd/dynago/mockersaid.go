package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"go.yaml.in/yaml/v4"

	"github.com/dynago/dynago/internal/fake/publish"
)

// documents returns what is said of the i-th of some servers: of all, and then of it
// alone, as an item of servers.
func documents(text string, i, count int) ([]jsontext.Value, error) {
	all, err := document(text)
	if err != nil {
		return nil, err
	}
	var members map[string]jsontext.Value
	if err := json.Unmarshal(all, &members); err != nil {
		return nil, err
	}
	own, ok := members["servers"]
	if !ok {
		return []jsontext.Value{all}, nil
	}
	var list []jsontext.Value
	if err := json.Unmarshal(own, &list); err != nil || len(list) != count {
		return nil, fmt.Errorf("servers: want a list of %d documents, one for each of --workers", count)
	}
	delete(members, "servers")
	if all, err = json.Marshal(members); err != nil {
		return nil, err
	}
	return []jsontext.Value{all, list[i]}, nil
}

// document reads a YAML document, or the file that holds one, as JSON.
func document(text string) (jsontext.Value, error) {
	if text == "" {
		return jsontext.Value("{}"), nil
	}
	if !strings.ContainsAny(text, "{:") {
		b, err := os.ReadFile(text)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	return parse([]byte(text))
}

// parse reads YAML, which JSON is as well.
func parse(text []byte) (jsontext.Value, error) {
	said := map[string]any{}
	if err := yaml.Unmarshal(text, &said); err != nil {
		return nil, err
	}
	return json.Marshal(said, json.Deterministic(true))
}

// eventsConfig reads the flag of an engine, with ports that are raised by some.
func eventsConfig(text string, raise int) (publish.Config, error) {
	if text == "" {
		return publish.Config{}, nil
	}
	said := struct {
		Enable    *bool  `json:"enable_kv_cache_events"`
		Publisher string `json:"publisher"`
		Endpoint  string `json:"endpoint"`
		Replay    string `json:"replay_endpoint"`
		Topic     string `json:"topic"`
		Steps     int    `json:"buffer_steps"`
		HighWater int    `json:"hwm"`
		Queue     int    `json:"max_queue_size"`
	}{Publisher: "zmq", Endpoint: "tcp://*:5557"}
	if err := json.Unmarshal([]byte(text), &said, json.RejectUnknownMembers(true)); err != nil {
		return publish.Config{}, err
	}
	if said.Publisher == "null" || said.Enable != nil && !*said.Enable {
		return publish.Config{}, nil
	}
	c := publish.Config{Topic: said.Topic, Window: said.Steps, HighWater: said.HighWater}
	var err error
	if c.Endpoint, err = publish.Raise(said.Endpoint, raise); err == nil && said.Replay != "" {
		c.Replay, err = publish.Raise(said.Replay, raise)
	}
	return c, err
}

// errUnknown is the error of a document that says what nobody knows.
var errUnknown = errors.New("there is no such key")

// strictly reads a document, in which everything has to be known.
func strictly(text jsontext.Value, into any) error {
	err := json.Unmarshal(text, into, json.RejectUnknownMembers(true), json.MatchCaseInsensitiveNames(true))
	if e, ok := errors.AsType[*json.SemanticError](err); ok {
		path := strings.ReplaceAll(strings.TrimPrefix(string(e.JSONPointer), "/"), "/", ".")
		if errors.Is(err, json.ErrUnknownName) {
			return fmt.Errorf("%s: %w", path, errUnknown)
		}
		return fmt.Errorf("%s: want %s", path, e.GoType)
	}
	return err
}

// names of members that are not quirks: they are given otherwise.
var given = []string{"mock", "engine", "model", "transceiver", "bootstrap", "vocabulary"}

// quirks puts what was said over a configuration.
func quirks[C any](said map[string]jsontext.Value, config *C) error {
	for name := range said {
		if slices.Contains(given, strings.ToLower(name)) {
			return fmt.Errorf("quirks: %s: it is said by a flag", name)
		}
	}
	text, err := json.Marshal(said)
	if err != nil {
		return err
	}
	switch err := strictly(text, config); {
	case errors.Is(err, errUnknown):
		return fmt.Errorf("quirks: %w; there are %s", err, strings.Join(members(reflect.TypeFor[C]()), ", "))
	case err != nil:
		return fmt.Errorf("quirks: %w", err)
	}
	return nil
}

// members returns how a struct's members are written.
func members(t reflect.Type) []string {
	var names []string
	for f := range t.Fields() {
		name := snake(f.Name)
		if f.IsExported() && !slices.Contains(given, name) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// snake writes NoTokenIDs as no_token_ids.
func snake(name string) string {
	var b bytes.Buffer
	upper := func(i int) bool { return i < len(name) && name[i] >= 'A' && name[i] <= 'Z' }
	for i := range len(name) {
		if upper(i) && i > 0 && (!upper(i-1) || i+1 < len(name) && !upper(i+1) && name[i+1] != 's') {
			b.WriteByte('_')
		}
		b.WriteByte(name[i])
	}
	return strings.ReplaceAll(strings.ToLower(b.String()), "lo_ra", "lora")
}
