// Package prometheus asks Prometheus itself about what dynago tells it: whether both forms
// of the page are as it wants them, and whether boards and rules ask for what there is.
package prometheus_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/model/textparse"
	"github.com/prometheus/prometheus/promql/parser"
)

// serve starts the binary on a free port and returns its address.
func serve(t *testing.T) string {
	t.Helper()
	cmd := exec.Command("../../bin/dynago", "serve", "--demo", "mock", "--http-port", "0", "--workers", "2", "--g2-blocks", "100",
		"--num-gpu-blocks-override", "60", "--speedup-ratio", "0", "--log-level", "off")
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if url := regexp.MustCompile(`curl -N (http://[0-9.]+:\d+)`).FindStringSubmatch(lines.Text()); url != nil {
			return url[1]
		}
	}
	t.Fatal("it says no address")
	return ""
}

// page returns the page in a form, after some requests.
func page(t *testing.T, url, accept string) (string, string) {
	t.Helper()
	for i := range 5 {
		body := fmt.Sprintf(`{"model":"dynago/demo","max_tokens":4,"messages":[{"role":"user","content":"%s"}]}`, strings.Repeat(fmt.Sprintf("word%d ", i%2), 300))
		resp, err := http.Post(url+"/v1/chat/completions", "application/json", strings.NewReader(body))
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatal(resp, err)
		}
		resp.Body.Close()
	}
	req, _ := http.NewRequest("GET", url+"/metrics", nil)
	req.Header.Set("Accept", accept)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return string(text), resp.Header.Get("Content-Type")
}

// metric is what the documentation says of one.
type metric struct {
	kind   string
	labels []string
}

// documented reads docs/metrics.md.
func documented(t *testing.T) map[string]metric {
	t.Helper()
	text, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]metric{}
	for _, row := range regexp.MustCompile("(?m)^\\| `([a-z0-9_]+)` \\| (counter|gauge|histogram) \\| (.*?) \\|").FindAllStringSubmatch(string(text), -1) {
		m := all[row[1]]
		m.kind = row[2]
		for _, l := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(row[3], -1) {
			m.labels = append(m.labels, l[1])
		}
		all[row[1]] = m
	}
	if len(all) < 200 {
		t.Fatalf("%d metrics are documented", len(all))
	}
	return all
}

// Prometheus reads both forms, and finds the same series in them under the same names.
func TestPages(t *testing.T) {
	url := serve(t)
	var names [2][]string
	for i, accept := range []string{"text/plain;version=0.0.4", "application/openmetrics-text;version=1.0.0"} {
		text, kind := page(t, url, accept)
		p, err := textparse.New([]byte(text), kind, labels.NewSymbolTable(), textparse.ParserOptions{})
		if err != nil {
			t.Fatal(err)
		}
		types, samples := map[string]bool{}, map[string]bool{}
		for {
			entry, err := p.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatalf("%s: %v", kind, err)
			}
			switch entry {
			case textparse.EntryType:
				name, _ := p.Type()
				if types[string(name)] {
					t.Errorf("%s: %s has two types", kind, name)
				}
				types[string(name)] = true
			case textparse.EntrySeries:
				var l labels.Labels
				p.Labels(&l)
				if samples[l.String()] {
					t.Errorf("%s: %s is told twice", kind, l)
				}
				samples[l.String()] = true
				if name := l.Get("__name__"); !slices.Contains(names[i], name) {
					names[i] = append(names[i], name)
				}
			}
		}
		if len(samples) < 300 {
			t.Errorf("%s: %d series", kind, len(samples))
		}
		slices.Sort(names[i])
	}
	if !slices.Equal(names[0], names[1]) {
		t.Errorf("the two forms differ:\n%q\n%q", names[0], names[1])
	}
}

// promtool runs Prometheus' own tool.
func promtool(t *testing.T, in string, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("go", append([]string{"tool", "promtool"}, args...)...)
	cmd.Stdin = strings.NewReader(in)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// What promtool dislikes about names is only what boards know them by.
func TestLint(t *testing.T) {
	text, _ := page(t, serve(t), "text/plain")
	out, _ := promtool(t, text, "check", "metrics")
	for line := range strings.Lines(out) {
		if strings.HasPrefix(line, "dynago_") || strings.Contains(line, "error") {
			t.Error(line)
		}
	}
}

func TestRules(t *testing.T) {
	for _, args := range [][]string{
		{"check", "rules", "../../deploy/prometheus/rules.yaml", "../../deploy/prometheus/alerts.yaml"},
		{"test", "rules", "../../deploy/prometheus/alerts_test.yaml"},
	} {
		if out, err := promtool(t, "", args...); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
}

// Every expression is one, and asks for metrics that there are, by labels that they have.
func TestExpressions(t *testing.T) {
	asked, recorded := map[string][]string{}, map[string]bool{}
	for _, path := range []string{"../../deploy/prometheus/rules.yaml", "../../deploy/prometheus/alerts.yaml"} {
		groups, errs := rulefmt.ParseFile(path, false, model.UTF8Validation, parser.NewParser(parser.Options{}), slog.New(slog.DiscardHandler))
		if len(errs) > 0 {
			t.Fatal(errs)
		}
		for _, g := range groups.Groups {
			for _, r := range g.Rules {
				asked[path] = append(asked[path], r.Expr)
				recorded[r.Record] = true
			}
		}
	}
	boards, _ := filepath.Glob("../../deploy/grafana/*.json")
	for _, path := range boards {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var b struct {
			Panels []struct{ Targets []struct{ Expr string } }
		}
		if err := json.Unmarshal(text, &b); err != nil {
			t.Fatal(err)
		}
		for _, p := range b.Panels {
			for _, target := range p.Targets {
				asked[path] = append(asked[path], strings.NewReplacer("$__rate_interval", "5m", "$model", ".*", "$instance", ".*").Replace(target.Expr))
			}
		}
	}
	known := documented(t)
	everywhere := []string{"__name__", "job", "instance", "le"}
	n := 0
	for path, list := range asked {
		for _, text := range list {
			n++
			e, err := parser.NewParser(parser.Options{}).ParseExpr(text)
			if err != nil {
				t.Errorf("%s: %v in %s", path, err, text)
				continue
			}
			parser.Inspect(e, func(node parser.Node, _ []parser.Node) error {
				v, ok := node.(*parser.VectorSelector)
				if !ok {
					return nil
				}
				name := v.Name
				if recorded[name] || name == "up" || strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
					return nil
				}
				m, ok := known[name]
				for _, part := range []string{"_bucket", "_sum", "_count"} {
					if of, cut := strings.CutSuffix(name, part); cut && known[of].kind == "histogram" {
						m, ok = known[of], true
					}
				}
				if !ok {
					t.Errorf("%s: there is no %s", path, name)
				}
				for _, l := range v.LabelMatchers {
					if !slices.Contains(m.labels, l.Name) && !slices.Contains(everywhere, l.Name) {
						t.Errorf("%s: %s has no label %s", path, name, l.Name)
					}
				}
				return nil
			})
		}
	}
	if n < 100 {
		t.Errorf("%d expressions", n)
	}
}
