package attach

import (
	"cmp"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/trtllm"
	"github.com/dynago/dynago/engine/vllm"
)

// tokens are the kinds that take and give token ids.
var tokens = []string{VLLM, SGLang, TRTLLM, LlamaCPP}

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
	{"aliases", nil, func(s *Spec, v string) error {
		if v == "" {
			return errors.New("want a name")
		}
		s.Aliases = append(s.Aliases, v)
		return nil
	}},
	{"model_path", append([]string{Remote}, tokens...), text(func(s *Spec) *string { return &s.ModelPath })},
	{"api_key", nil, text(func(s *Spec) *string { return &s.Key })},
	{"api_key_file", nil, (*Spec).readKey},
	{"tls.ca", nil, (*Spec).trust},
	{"tls.cert", nil, text(func(s *Spec) *string { return &s.certificate })},
	{"tls.key", nil, text(func(s *Spec) *string { return &s.certificateKey })},
	{"tls.server_name", nil, func(s *Spec, v string) error {
		if v == "" {
			return errors.New("want the name in the server's certificate")
		}
		s.tls().ServerName = v
		return nil
	}},
	{"tls.insecure", nil, func(s *Spec, v string) error {
		on, err := truth(v)
		s.tls().InsecureSkipVerify = on
		return err
	}},
	{"role", tokens, func(s *Spec, v string) error {
		s.Role = engine.Role(v)
		if v == "aggregated" {
			s.Role = engine.Aggregated
		} else if s.Role != engine.Prefill && s.Role != engine.Decode {
			return errors.New("want aggregated, prefill or decode")
		}
		return nil
	}},
	{"context_length", nil, number(1, 1<<31-1, func(s *Spec, n uint64) { s.ContextLength = uint32(n) })},
	{"block_size", tokens, number(1, 1<<20, func(s *Spec, n uint64) { s.BlockSize = uint32(n) })},
	{"total_blocks", tokens, number(1, 1<<53-1, func(s *Spec, n uint64) { s.TotalBlocks = n })},
	{"dp.start", []string{VLLM}, number(0, 1<<20, func(s *Spec, n uint64) { s.DPStart = uint32(n) })},
	{"dp.size", []string{VLLM, TRTLLM}, number(1, 4096, func(s *Spec, n uint64) { s.DPSize = uint32(n) })},
	{"dp.select", tokens, func(s *Spec, v string) error {
		if s.OwnRanks = v == none; v != none && v != Auto {
			return errors.New("want auto, where the router chooses the rank, or none, where the server does")
		}
		return nil
	}},
	{"events", []string{VLLM, SGLang, TRTLLM}, func(s *Spec, v string) error {
		if s.Events = v; v != poll && v != none && !begins(v, "tcp://", "ipc://") {
			return errors.New("want an address such as tcp://*:5557, of trtllm " + poll + ", or " + none)
		}
		return nil
	}},
	{"events.mode", []string{VLLM, SGLang, TRTLLM}, func(s *Spec, v string) error {
		if s.mode = v; !slices.Contains([]string{Auto, "zmq", poll, none}, v) {
			return errors.New("want auto, zmq, " + poll + " or " + none)
		}
		return nil
	}},
	{"events.bind", []string{VLLM, SGLang}, func(s *Spec, v string) error {
		on, err := truth(v)
		s.Bind = &on
		return err
	}},
	{"replay", []string{VLLM, SGLang}, func(s *Spec, v string) error {
		if s.Replay = v; !begins(v, "tcp://", "ipc://") {
			return errors.New("want an address such as tcp://HOST:5558")
		}
		return nil
	}},
	{"events.topic", []string{VLLM, SGLang}, text(func(s *Spec) *string { return &s.Topic })},
	{"priority_enabled", []string{VLLM, SGLang, TRTLLM}, func(s *Spec, v string) error {
		on, err := truth(v)
		s.Priority = &on
		return err
	}},
	{"disagg.style", []string{VLLM, TRTLLM}, func(s *Spec, v string) error {
		if s.DisaggStyle = v; !slices.Contains(vllm.Styles, v) && !slices.Contains(trtllm.Styles, v) {
			return errors.New("want one of " + strings.Join(vllm.Styles, ", ") + ", or of trtllm " + strings.Join(trtllm.Styles, ", "))
		}
		return nil
	}},
	{"adapters", []string{TRTLLM}, (*Spec).loadable},
	{"disagg.bootstrap_host", []string{VLLM, SGLang}, text(func(s *Spec) *string { return &s.BootstrapHost })},
	{"disagg.bootstrap_port", []string{VLLM}, number(1, 65535, func(s *Spec, n uint64) { s.BootstrapPort = uint16(n) })},
	{"disagg.side_channel", []string{VLLM}, (*Spec).sideChannel},
	{"load.source", nil, func(s *Spec, v string) error {
		if s.NoLoad = v == none; v != none && v != Auto {
			return errors.New("want auto, or none, where only what was sent there counts")
		}
		return nil
	}},
	{"load.interval", nil, func(s *Spec, v string) (err error) {
		if s.Every, err = time.ParseDuration(v); err != nil || s.Every < 10*time.Millisecond || s.Every > time.Minute {
			return errors.New("want a time from 10ms to 1m")
		}
		return nil
	}},
	{"pod", nil, text(func(s *Spec) *string { return &s.Pod })},
	{"drain", nil, func(s *Spec, v string) (err error) {
		s.Drain, err = truth(v)
		return err
	}},
	{"max_seqs", []string{Ollama, OpenAI}, number(1, 1<<20, func(s *Spec, n uint64) { s.MaxSeqs = uint32(n) })},
	{"keep_alive", []string{Ollama}, func(s *Spec, v string) error {
		d, err := time.ParseDuration(v)
		if v == "-1" {
			d, err = -time.Second, nil
		}
		if err != nil {
			return errors.New("want a time such as 30m, 0s for none or -1 for ever")
		}
		s.KeepAlive = &d
		return nil
	}},
	{"pin_sessions", []string{LlamaCPP}, func(s *Spec, v string) (err error) {
		s.PinSessions, err = truth(v)
		return err
	}},
	{"insecure", []string{Remote}, func(s *Spec, v string) (err error) {
		s.Insecure, err = truth(v)
		return err
	}},
	{"connections", []string{Remote}, number(1, 64, func(s *Spec, n uint64) { s.Connections = int(n) })},
	{"folders", []string{Remote}, func(s *Spec, v string) error {
		if !filepath.IsAbs(v) {
			return errors.New("want the path of a folder on this machine in which the worker may say that files lie")
		}
		s.Folders = append(s.Folders, v)
		return nil
	}},
	{"extra_body", []string{SGLang, TRTLLM, LlamaCPP, Ollama, OpenAI}, func(s *Spec, v string) error {
		var members map[string]any
		if json.Unmarshal([]byte(v), &members) != nil || members == nil {
			return errors.New(`want a JSON object, such as {"top_n_sigma":1}`)
		}
		s.ExtraBody = json.RawMessage(v)
		return nil
	}},
}

// other spellings of keys, as they are nested in files.
var spellings = map[string]string{"events.endpoint": "events", "events.replay": "replay", "alias": "aliases"}

// repeatable are keys that may be given several times.
var repeatable = []string{"aliases", "folders"}

// none switches off.
const none = "none"

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

// readKey reads the bearer token from a file.
func (s *Spec) readKey(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("want a file with the key: %w", err)
	}
	if s.Key = strings.TrimSpace(string(text)); s.Key == "" || strings.ContainsAny(s.Key, " \r\n") {
		return errors.New("want a file with one line, the key")
	}
	return nil
}

// loadable reads the LoRA adapters that a server loads when a request asks for one:
// their names, and where it finds them.
func (s *Spec) loadable(v string) error {
	var paths map[string]string
	if json.Unmarshal([]byte(v), &paths) != nil || len(paths) == 0 {
		return errors.New(`want a JSON object of names and paths on the server, such as {"sql":"/adapters/sql"}`)
	}
	s.Adapters = paths
	return nil
}

// sideChannel reads where other servers of vLLM reach this one: HOST or HOST:PORT.
func (s *Spec) sideChannel(v string) error {
	host, port, ok := strings.Cut(v, ":")
	n, err := strconv.ParseUint(cmp.Or(port, "0"), 10, 16)
	if host == "" || err != nil || ok && n == 0 {
		return errors.New("want HOST or HOST:PORT, where other servers reach this one")
	}
	s.BootstrapHost, s.BootstrapPort = host, uint16(n)
	return nil
}

// identify reads the certificate that this side shows.
func (s *Spec) identify() error {
	switch {
	case s.certificate == "" && s.certificateKey == "":
		return nil
	case s.certificate == "" || s.certificateKey == "":
		return errors.New("tls.cert and tls.key: want both, or neither")
	}
	pair, err := tls.LoadX509KeyPair(s.certificate, s.certificateKey)
	if err != nil {
		return fmt.Errorf("tls.cert: %q: want a certificate in PEM, and its key in tls.key: %w", s.certificate, err)
	}
	s.tls().Certificates = []tls.Certificate{pair}
	return nil
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
