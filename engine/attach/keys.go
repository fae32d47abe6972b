package attach

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/vllm"
)

// poll stands in place of an address of KV events that are asked for.
const poll = "poll"

// key is one thing that may be said of a server.
type key struct {
	name  string
	kinds []string // that have it; nil: all
	// set reads a value. Its error says what would be right.
	set func(s *Spec, value string) error
}

func (k *key) has(kind string) bool { return k.kinds == nil || slices.Contains(k.kinds, kind) }

// keys are all of them, but for headers.NAME.
var keys = []key{
	{"kind", nil, func(s *Spec, v string) error { s.Kind = v; return nil }},
	{"url", nil, func(s *Spec, v string) error { s.URL = v; return nil }},
	{"model", nil, text(func(s *Spec) *string { return &s.Model })},
	{"model_path", []string{VLLM, SGLang, TRTLLM, LlamaCPP}, text(func(s *Spec) *string { return &s.ModelPath })},
	{"api_key", nil, text(func(s *Spec) *string { return &s.Key })},
	{"tls.ca", nil, (*Spec).trust},
	{"tls.insecure", nil, func(s *Spec, v string) error {
		on, err := truth(v)
		s.tls().InsecureSkipVerify = on
		return err
	}},
	{"role", []string{VLLM, TRTLLM}, func(s *Spec, v string) error {
		s.Role = engine.Role(v)
		if v == "aggregated" {
			s.Role = engine.Aggregated
		} else if s.Role != engine.Prefill && s.Role != engine.Decode {
			return errors.New("want aggregated, prefill or decode")
		}
		return nil
	}},
	{"context_length", nil, number(1, 1<<31-1, func(s *Spec, n uint64) { s.ContextLength = uint32(n) })},
	{"block_size", []string{VLLM, SGLang, TRTLLM, LlamaCPP}, number(1, 1<<20, func(s *Spec, n uint64) { s.BlockSize = uint32(n) })},
	{"total_blocks", []string{VLLM}, number(1, 1<<53-1, func(s *Spec, n uint64) { s.TotalBlocks = n })},
	{"dp.start", []string{VLLM}, number(0, 1<<20, func(s *Spec, n uint64) { s.DPStart = uint32(n) })},
	{"dp.size", []string{VLLM, TRTLLM}, number(1, 4096, func(s *Spec, n uint64) { s.DPSize = uint32(n) })},
	{"events", []string{VLLM, TRTLLM}, func(s *Spec, v string) error {
		if s.Events = v; v != poll && !begins(v, "tcp://", "ipc://") {
			return errors.New("want an address such as tcp://HOST:5557, or of trtllm " + poll)
		}
		return nil
	}},
	{"replay", []string{VLLM}, func(s *Spec, v string) error {
		if s.Replay = v; !begins(v, "tcp://", "ipc://") {
			return errors.New("want an address such as tcp://HOST:5558")
		}
		return nil
	}},
	{"events.topic", []string{VLLM}, text(func(s *Spec) *string { return &s.Topic })},
	{"priority_enabled", []string{VLLM, SGLang, TRTLLM}, func(s *Spec, v string) error {
		on, err := truth(v)
		s.Priority = &on
		return err
	}},
	{"disagg.style", []string{VLLM}, func(s *Spec, v string) error {
		if s.DisaggStyle = v; !slices.Contains(vllm.Styles, v) {
			return errors.New("want one of " + strings.Join(vllm.Styles, ", "))
		}
		return nil
	}},
	{"disagg.bootstrap_host", []string{VLLM, SGLang}, text(func(s *Spec) *string { return &s.BootstrapHost })},
	{"disagg.bootstrap_port", []string{VLLM}, number(1, 65535, func(s *Spec, n uint64) { s.BootstrapPort = uint16(n) })},
	{"load.interval", nil, func(s *Spec, v string) (err error) {
		if s.Every, err = time.ParseDuration(v); err != nil || s.Every < 10*time.Millisecond || s.Every > time.Minute {
			return errors.New("want a time from 10ms to 1m")
		}
		return nil
	}},
	{"extra_body", []string{LlamaCPP, OpenAI}, func(s *Spec, v string) error {
		var members map[string]any
		if json.Unmarshal([]byte(v), &members) != nil || members == nil {
			return errors.New(`want a JSON object, such as {"top_n_sigma":1}`)
		}
		s.ExtraBody = json.RawMessage(v)
		return nil
	}},
}

// other spellings of keys, as they are nested in files.
var spellings = map[string]string{"events.endpoint": "events", "events.replay": "replay"}

const headers = "headers."

// secrets are keys whose values are not to be shown.
var secrets = []string{"api_key"}

// set reads the value of a key.
func (s *Spec) set(name, value string) error {
	if header, ok := strings.CutPrefix(name, headers); ok {
		return s.header(header, value)
	}
	k, ok := find(name)
	if !ok {
		return fmt.Errorf("%s: there is no such key%s", name, near(name))
	}
	err := k.set(s, value)
	switch {
	case err == nil:
		return nil
	case slices.Contains(secrets, name):
		return fmt.Errorf("%s: %w", name, err)
	}
	return fmt.Errorf("%s: %q: %w", name, value, err)
}

func (s *Spec) header(name, value string) error {
	if name == "" || strings.ContainsAny(name, " :\r\n") || strings.ContainsAny(value, "\r\n") {
		return fmt.Errorf("%s%s: want a header's name behind the dot, and one line as its value", headers, name)
	}
	if s.Header == nil {
		s.Header = http.Header{}
	}
	s.Header.Set(name, value)
	return nil
}

// find returns the key of a name.
func find(name string) (*key, bool) {
	if plain, ok := spellings[name]; ok {
		name = plain
	}
	i := slices.IndexFunc(keys, func(k key) bool { return k.name == name })
	if i < 0 {
		return nil, false
	}
	return &keys[i], true
}

// near lists the keys, those first that an operator may have meant.
func near(name string) string {
	plain := func(s string) string {
		return strings.NewReplacer("_", "", "-", "", ".", "").Replace(strings.ToLower(s))
	}
	var all []string
	for _, k := range keys {
		if plain(k.name) == plain(name) {
			return "; did you mean " + k.name + "?"
		}
		all = append(all, k.name)
	}
	return ": want one of " + strings.Join(all, ", ") + ", " + headers + "NAME"
}

func text(field func(*Spec) *string) func(*Spec, string) error {
	return func(s *Spec, v string) error {
		if v == "" {
			return errors.New("want a text that is not empty")
		}
		*field(s) = v
		return nil
	}
}

func number(least, most uint64, set func(*Spec, uint64)) func(*Spec, string) error {
	return func(s *Spec, v string) error {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil || n < least || n > most {
			return fmt.Errorf("want %d..%d", least, most)
		}
		set(s, n)
		return nil
	}
}

func truth(v string) (bool, error) {
	switch strings.ToLower(v) {
	case "true", "yes", "on", "1":
		return true, nil
	case "false", "no", "off", "0":
		return false, nil
	}
	return false, errors.New("want true or false")
}

func (s *Spec) tls() *tls.Config {
	if s.TLS == nil {
		s.TLS = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return s.TLS
}

// trust reads the certificates that the server's is signed with.
func (s *Spec) trust(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("want a file of certificates: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(text) {
		return errors.New("want a file of certificates in PEM")
	}
	s.tls().RootCAs = pool
	return nil
}
