package main

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"text/template"
)

// What points a harness at a server: the very lines that the suites of e2e start
// it with.
//
//go:embed harness
var harnessFiles embed.FS

// harnesses are the files by the name of the harness.
var harnesses = map[string]string{"claude": "claude.sh", "codex": "codex.toml", "opencode": "opencode.json"}

// pointed is what the lines for a harness say.
type pointed struct{ URL, Model, Key string }

// printHarness prints what points the harness at the server that "serve" would
// start with these settings.
func (c *envCommand) printHarness(out io.Writer) error {
	if harnesses[c.Harness] == "" {
		return fmt.Errorf("env: no lines for %q: want claude, codex or opencode", c.Harness)
	}
	name, err := c.modelName()
	if err != nil {
		return err
	}
	p := pointed{URL: c.HTTP.url(), Model: name}
	if c.HTTP.APIKeysFile != nil {
		p.Key = "KEY"
	}
	return writeHarness(out, c.Harness, p)
}

// modelName returns the name of the model that would be served. That of an engine
// is its server's to tell, which need not run yet.
func (c *envCommand) modelName() (string, error) {
	specs, err := c.Attach.specs(&c.settings)
	switch {
	case err != nil:
		return "", err
	case len(specs) > 0 && specs[0].Model == "":
		return "", fmt.Errorf("--engine: %s: want model=NAME with it here, the name that its server gives the model", specs[0].URL)
	case len(specs) > 0:
		return specs[0].Model, nil
	}
	files, err := newModelFiles(c.Model, slog.New(slog.DiscardHandler))
	if err != nil {
		return "", err
	}
	return files.name, nil
}

func writeHarness(out io.Writer, harness string, p pointed) error {
	name := harnesses[harness]
	funcs := template.FuncMap{"json": jsonText}
	if strings.HasSuffix(name, ".sh") {
		p.Model = shellWord(p.Model)
	}
	t, err := template.New(name).Funcs(funcs).ParseFS(harnessFiles, "harness/"+name)
	if err != nil {
		return fmt.Errorf("lines for %s: %w", harness, err)
	}
	return t.Execute(out, p)
}

// jsonText writes a string as JSON and TOML alike have it.
func jsonText(s string) (string, error) {
	text, err := json.Marshal(s)
	return string(text), err
}

// shellWord quotes a word for a shell where it needs that.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("-_./:@", r)
	}
	if strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
	}
	return s
}

// url returns the address at which a client on this machine finds the server.
func (s *httpSettings) url() string {
	host := s.Host
	if ip, err := netip.ParseAddr(host); err == nil && ip.IsUnspecified() {
		host = "127.0.0.1"
	}
	scheme := "http://"
	if s.Cert != "" {
		scheme = "https://"
	}
	return scheme + net.JoinHostPort(host, strconv.Itoa(s.Port))
}
