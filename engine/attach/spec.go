package attach

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/trtllm"
)

// Kinds of servers.
const (
	Auto     = "auto" // to be found out
	VLLM     = "vllm"
	SGLang   = "sglang"
	TRTLLM   = "trtllm"
	LlamaCPP = "llamacpp"
	Ollama   = "ollama"
	OpenAI   = "openai" // any server of chat completions
	Remote   = "remote" // a worker of dynago, at grpc://HOST:PORT
)

// Kinds are all of them.
var Kinds = []string{VLLM, SGLang, TRTLLM, LlamaCPP, Ollama, OpenAI, Remote, Auto}

// Spec is what an operator says of one server. Numbers that are 0 and texts that
// are empty are for the server to tell.
type Spec struct {
	Kind, URL string
	// Pod, if not empty, is what the worker's id is made of, in place of the URL.
	Pod       string
	Drain     bool     // it is to get no requests
	Model     string   // the served name that is wanted
	Aliases   []string // further names of the model here
	ModelPath string   // where the model's files are on this machine
	Key       string   // bearer token
	Header    http.Header
	TLS       *tls.Config
	Role      engine.Role

	ContextLength, BlockSize uint32
	TotalBlocks              uint64 // per rank
	DPStart, DPSize          uint32
	OwnRanks                 bool // the server chooses the rank
	// Events is where KV events are published, "poll" where they are asked for, or
	// "none". Bind says that the server connects to it; nil: as its form shows.
	Events, Replay, Topic string
	Bind                  *bool
	Priority              *bool  // nil: as found out
	BootstrapHost         string // where other servers reach this one for blocks
	BootstrapPort         uint16
	DisaggStyle           string         // how blocks are handed over, "": as found out
	Insecure              bool           // the key may go over the network in plain text
	Connections           int            // to a worker of dynago; 0: one
	Folders               []string       // where a worker of dynago may say that files lie
	NoLoad                bool           // its own readings of its load are left out
	Every                 time.Duration  // from one look to the next; 0: the adapter's own
	MaxSeqs               uint32         // at once, of a server that does not tell; 0: unknown
	KeepAlive             *time.Duration // how long a model stays loaded; below 0: for ever; nil: as the server does it
	PinSessions           bool           // to slots
	ExtraBody             json.RawMessage
	// Adapters are those that the server loads on demand, by name, with their paths.
	Adapters map[string]string

	mode                        string // of events
	certificate, certificateKey string // files
	given                       map[string][]string
}

// Parse reads "kind=url" or "url", and after commas key=value pairs. A value that
// begins with a brace is a JSON object, one that begins with a quote a JSON
// string; all others end at the next comma. Kind and address may be such pairs,
// too. The error names the key, the value and what would be right, and no secret.
func Parse(text string) (*Spec, error) {
	s := &Spec{Kind: Auto, given: map[string][]string{}}
	rest := strings.TrimSpace(text)
	if begins(rest, schemes...) {
		s.URL, rest = upTo(rest)
	}
	for first := true; rest != ""; first = false {
		name, after, ok := strings.Cut(rest, "=")
		if name = strings.TrimSpace(name); !ok {
			return nil, fmt.Errorf("%q: want key=value%s", name, near(name))
		}
		value, left, err := cutValue(after)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		rest = left
		if first && s.URL == "" && begins(value, schemes...) && name != "url" {
			s.Kind, s.URL = name, value
			continue
		}
		plain := name
		if other, ok := spellings[name]; ok {
			plain = other
		}
		if len(s.given[plain]) > 0 && !slices.Contains(repeatable, plain) {
			return nil, fmt.Errorf("%s: is given twice", name)
		}
		s.given[plain] = append(s.given[plain], value)
		if err := s.set(name, value); err != nil {
			return nil, err
		}
	}
	return s, s.check()
}

// check finds what single keys do not show.
func (s *Spec) check() error {
	if !slices.Contains(Kinds, s.Kind) {
		return fmt.Errorf("kind: %q: want one of %s", s.Kind, strings.Join(Kinds, ", "))
	}
	if s.URL == "" {
		return fmt.Errorf("url: want the server's address, as in %s=http://HOST:PORT", s.Kind)
	}
	s.URL = strings.TrimRight(s.URL, "/")
	if u, err := url.Parse(s.URL); err == nil && u.User != nil {
		return errors.New("url: want no user and password in it, but api_key or headers.Authorization: the address is the worker's name")
	}
	if err := s.reachable(); err != nil {
		return err
	}
	if len(s.given["api_key"])+len(s.given["api_key_file"]) > 1 {
		return errors.New("api_key and api_key_file: want one of them")
	}
	if err := s.listen(); err != nil {
		return err
	}
	if err := s.identify(); err != nil {
		return err
	}
	return s.fits(s.Kind)
}

// listen makes one of the mode of events and of their address.
func (s *Spec) listen() error {
	switch s.mode {
	case poll, none:
		if s.Events != "" && s.Events != s.mode {
			return fmt.Errorf("events.mode: %q: want no address with it", s.mode)
		}
		s.Events = s.mode
	case "zmq":
		if !begins(s.Events, "tcp://", "ipc://") {
			return errors.New("events.mode: \"zmq\": want events with it, the address where they are published, such as tcp://*:5557")
		}
	}
	switch published := begins(s.Events, "tcp://", "ipc://"); {
	case s.Replay != "" && !published:
		return errors.New("replay: want events with it, the address where they are published")
	case s.Bind != nil && !published:
		return errors.New("events.bind: want events with it, the address where they are published")
	}
	return nil
}

// Text writes the spec in one way, whichever way it was written in, secrets
// included: what [Parse] makes of it is the same again. Whether it is drained is no
// part of it.
func (s *Spec) Text() string {
	parts := []string{"kind=" + s.Kind, "url=" + s.URL}
	for _, name := range slices.Sorted(maps.Keys(s.given)) {
		if name == "kind" || name == "url" || name == "drain" {
			continue
		}
		for _, value := range s.given[name] {
			if strings.ContainsAny(value, ",\"") && !strings.HasPrefix(value, "{") || strings.TrimSpace(value) != value {
				quoted, _ := json.Marshal(value) //nolint:errcheck // a string has a form in JSON
				value = string(quoted)
			}
			parts = append(parts, name+"="+value)
		}
	}
	return strings.Join(parts, ",")
}

// fits says whether a kind of server has all the keys that were given.
func (s *Spec) fits(kind string) error {
	if kind == Auto {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(s.given)) {
		if k, ok := find(name); ok && !k.has(kind) {
			return fmt.Errorf("%s: is no key of %s, but of %s", name, kind, strings.Join(k.kinds, ", "))
		}
	}
	if s.DisaggStyle != "" && slices.Contains(trtllm.Styles, s.DisaggStyle) != (kind == TRTLLM) {
		return fmt.Errorf("disagg.style: %q: is none of %s", s.DisaggStyle, kind)
	}
	switch {
	case s.Events == "", s.Events == none:
	case kind == TRTLLM && s.Events != poll:
		return fmt.Errorf("events: %q: want %s: this kind keeps its events until it is asked", s.Events, poll)
	case kind != TRTLLM && s.Events == poll:
		return fmt.Errorf("events: %q: want an address such as tcp://HOST:5557", s.Events)
	}
	return nil
}

// http is how the server is reached.
func (s *Spec) http() httpapi.Config {
	return httpapi.Config{URL: s.URL, Key: s.Key, Header: s.Header, TLS: s.TLS}
}

func begins(s string, prefixes ...string) bool {
	return slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(s, p) })
}

// upTo cuts a text at its first comma.
func upTo(s string) (before, after string) {
	before, after, _ = strings.Cut(s, ",")
	return strings.TrimSpace(before), strings.TrimSpace(after)
}

// cutValue cuts a value off, and returns what stands behind the comma after it.
func cutValue(s string) (value, after string, err error) {
	if !begins(s, "{", `"`) {
		value, after = upTo(s)
		return value, after, nil
	}
	d := json.NewDecoder(strings.NewReader(s))
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return "", "", fmt.Errorf("want JSON behind %c: %w", s[0], err)
	}
	value, after = string(raw), strings.TrimSpace(s[d.InputOffset():])
	if s[0] == '"' {
		if err := json.Unmarshal(raw, &value); err != nil {
			return "", "", fmt.Errorf("want a JSON string: %w", err)
		}
	}
	after, ok := strings.CutPrefix(after, ",")
	if !ok && after != "" {
		return "", "", fmt.Errorf("want a comma before %s", strconv.Quote(after))
	}
	return value, strings.TrimSpace(after), nil
}
