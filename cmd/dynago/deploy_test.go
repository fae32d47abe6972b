package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/go-json-experiment/json"
	"go.yaml.in/yaml/v4"
)

// expression is one that Prometheus is to be asked, and where it stands.
type expression struct{ where, text string }

// ruleFile is a file of rules of Prometheus.
type ruleFile struct {
	Groups []struct {
		Name  string `yaml:"name"`
		Rules []struct {
			Record      string            `yaml:"record"`
			Alert       string            `yaml:"alert"`
			Expr        string            `yaml:"expr"`
			For         string            `yaml:"for"`
			Labels      map[string]string `yaml:"labels"`
			Annotations map[string]string `yaml:"annotations"`
		} `yaml:"rules"`
	} `yaml:"groups"`
}

// rules reads a file of rules and returns their expressions and the names that they
// record.
func rules(t *testing.T, path string) (all []expression, records []string) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var file ruleFile
	decoder := yaml.NewDecoder(strings.NewReader(string(text)))
	decoder.KnownFields(true)
	if err := decoder.Decode(&file); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, group := range file.Groups {
		for _, rule := range group.Rules {
			name := rule.Record + rule.Alert
			all = append(all, expression{path + ": " + name, rule.Expr})
			if rule.Record != "" {
				records = append(records, rule.Record)
				continue
			}
			if s := rule.Labels["severity"]; s != "page" && s != "ticket" {
				t.Errorf("%s: %s is of severity %q", path, name, s)
			}
			for _, annotation := range []string{"summary", "action"} {
				if rule.Annotations[annotation] == "" {
					t.Errorf("%s: %s has no %s", path, name, annotation)
				}
			}
		}
	}
	return all, records
}

// board is what matters of one of Grafana.
type board struct {
	UID        string `json:"uid"`
	Title      string `json:"title"`
	Templating struct {
		List []struct {
			Name       string `json:"name"`
			Definition string `json:"definition"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID    int    `json:"id"`
		Type  string `json:"type"`
		Title string `json:"title"`
		Grid  struct {
			X, Y, W, H int
		} `json:"gridPos"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

// panels reads a board and returns the expressions of its panels, which must neither
// share a number nor lie upon each other.
func panels(t *testing.T, path string) (all []expression) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var b board
	if err := json.Unmarshal(text, &b, json.MatchCaseInsensitiveNames(true)); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	if b.UID == "" || b.Title == "" {
		t.Errorf("%s has no uid or no title", path)
	}
	known := []string{"$__rate_interval"}
	for _, v := range b.Templating.List {
		known = append(known, "$"+v.Name)
		if metric := regexp.MustCompile(`^label_values\((\w+), `).FindStringSubmatch(v.Definition); metric != nil {
			all = append(all, expression{path + ": " + v.Name, metric[1]})
		}
	}
	ids, taken := map[int]bool{}, map[[2]int]string{}
	for _, p := range b.Panels {
		where := path + ": " + p.Title
		if ids[p.ID] {
			t.Errorf("%s shares its number %d", where, p.ID)
		}
		ids[p.ID] = true
		for x := p.Grid.X; x < p.Grid.X+p.Grid.W; x++ {
			for y := p.Grid.Y; y < p.Grid.Y+p.Grid.H; y++ {
				if other := taken[[2]int{x, y}]; other != "" && other != p.Title {
					t.Errorf("%s lies upon %s", where, other)
				}
				taken[[2]int{x, y}] = p.Title
			}
		}
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("%s asks nothing", where)
		}
		for _, target := range p.Targets {
			all = append(all, expression{where, target.Expr})
			for _, v := range regexp.MustCompile(`\$\w+`).FindAllString(target.Expr, -1) {
				if !slices.Contains(known, v) {
					t.Errorf("%s: the board has no %s", where, v)
				}
			}
		}
	}
	return all
}

var (
	// notNames are the parts of an expression that have other names than those of
	// metrics in them: texts, matchers, lists of labels, ranges, functions.
	notNames = []*regexp.Regexp{
		regexp.MustCompile(`"[^"]*"`),
		regexp.MustCompile(`\{[^}]*\}`),
		regexp.MustCompile(`\[[^\]]*\]`),
		regexp.MustCompile(`\b(by|without|on|ignoring|group_left|group_right)\s*\([^)]*\)`),
		regexp.MustCompile(`\b\w+\s*\(`),
		regexp.MustCompile(`\b(and|or|unless|bool|offset)\b`),
		regexp.MustCompile(`\b[0-9][0-9.e]*`),
	}
	anyName = regexp.MustCompile(`[a-zA-Z_:][a-zA-Z0-9_:]*`)
)

// metricsOf returns the names of the metrics that an expression asks for.
func metricsOf(text string) []string {
	for _, part := range notNames {
		text = part.ReplaceAllString(text, " ")
	}
	return anyName.FindAllString(text, -1)
}

// Boards and rules can be read, and ask for nothing that there is not.
func TestDeploy(t *testing.T) {
	known := map[string]bool{"up": true}
	for row, line := range readMetricsPage(t) {
		if line.kind == "histogram" {
			for _, part := range []string{"_bucket", "_sum", "_count"} {
				known[row.name+part] = true
			}
			continue
		}
		known[row.name] = true
	}
	for _, name := range []string{"go_goroutines", "process_resident_memory_bytes", "process_cpu_seconds_total", "process_open_fds", "process_max_fds"} {
		known[name] = true
	}
	var asked []expression
	for _, path := range []string{"../../deploy/prometheus/rules.yaml", "../../deploy/prometheus/alerts.yaml"} {
		all, records := rules(t, path)
		for _, name := range records {
			known[name] = true
		}
		asked = append(asked, all...)
	}
	boards, err := filepath.Glob("../../deploy/grafana/*.json")
	if err != nil || len(boards) != 2 {
		t.Fatalf("%d boards, %v", len(boards), err)
	}
	for _, path := range boards {
		asked = append(asked, panels(t, path)...)
	}
	if len(asked) < 100 {
		t.Errorf("%d expressions, want those of two boards and their rules", len(asked))
	}
	for _, e := range asked {
		names := metricsOf(e.text)
		if len(names) == 0 {
			t.Errorf("%s asks for no metric: %s", e.where, e.text)
		}
		for _, name := range names {
			if !known[name] {
				t.Errorf("%s: there is no metric %s", e.where, name)
			}
		}
	}
}

// What is said above of names is so.
func TestMetricsOf(t *testing.T) {
	got := metricsOf(`histogram_quantile(0.9, sum by (le, a) (rate(x_bucket{a="y", b=~"z|$w"}[5m]))) / on (c) group_left (d) (e:f:rate5m > 1e3) unless g`)
	if want := []string{"x_bucket", "e:f:rate5m", "g"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
