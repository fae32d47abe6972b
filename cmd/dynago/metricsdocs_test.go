package main

import (
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/internal/config"
	"github.com/dynago/dynago/internal/scrape"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvstore"
	"github.com/dynago/dynago/kvstore/admin"
)

// metricsPage is where all metrics are told of.
const metricsPage = "../../docs/metrics.md"

// metricLine is a row of a table there, for one of the commands that it names.
type metricLine struct {
	rowOf
	kind   string
	labels []string // sorted
}

// rowOf is what a row is about. A metric has one for all commands, or several that differ
// in labels.
type rowOf struct{ name, command string }

var metricRow = regexp.MustCompile("^\\| `([a-zA-Z0-9_:]+)` \\| ([a-z]+) \\| (.*?) \\| (.*?) \\| (.*?) \\|$")

// readMetricsPage returns the rows.
func readMetricsPage(t *testing.T) map[rowOf]metricLine {
	t.Helper()
	text, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	lines := map[rowOf]metricLine{}
	for line := range strings.Lines(string(text)) {
		row := metricRow.FindStringSubmatch(strings.TrimSuffix(line, "\n"))
		if row == nil {
			if strings.HasPrefix(line, "| `dyn") || strings.HasPrefix(line, "| `kvbm") {
				t.Errorf("%s: not a row of a metric: %s", metricsPage, line)
			}
			continue
		}
		if len(row[5]) < 10 {
			t.Errorf("%s: %s means %q", metricsPage, row[1], row[5])
		}
		for command := range strings.SplitSeq(row[4], ", ") {
			l := metricLine{rowOf: rowOf{row[1], command}, kind: row[2]}
			for label := range strings.SplitSeq(row[3], ", ") {
				if name := strings.Trim(label, "`"); name != "–" {
					l.labels = append(l.labels, name)
				}
			}
			slices.Sort(l.labels)
			if _, twice := lines[l.rowOf]; twice {
				t.Errorf("%s: %s has two rows for %s", metricsPage, row[1], command)
			}
			lines[l.rowOf] = l
		}
	}
	return lines
}

// commandLine parses a command line and runs nothing.
func commandLine(t *testing.T, args ...string) (*commands, *config.Parsed) {
	t.Helper()
	cli := &commands{}
	parser, err := config.New(cli, kong.Name("dynago"), kong.Writers(io.Discard, io.Discard))
	if err != nil {
		t.Fatal(err)
	}
	parsed, err := parser.Parse(args)
	if err != nil {
		t.Fatal(err)
	}
	return cli, parsed
}

// policyArgs choose a policy of each kind that has metrics.
var policyArgs = []string{"--router-policy", "thompson", "--router-prefill-policy", "http://127.0.0.1:1/pick", "--router-session-affinity-ttl-secs", "60"}

// registries returns what each command that has a page of metrics may show on it, with
// all that adds to it switched on.
func registries(t *testing.T) map[string]*prometheus.Registry {
	t.Helper()
	quiet, err := newLogs(observabilitySettings{loggingSettings: loggingSettings{LogLevel: "off"}}, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	cli, parsed := commandLine(t, append([]string{
		"serve", "--http-port", "0", "--g2-blocks", "10", "--kserve-grpc-server",
		"--request-trace", "--request-trace-sinks", "stderr", "--learn-osl", "--learn-tool-time",
	}, policyArgs...)...)
	tracing, err := cli.Serve.Trace.open(parsed, &cli.Serve.Observe.Telemetry, slog.New(slog.DiscardHandler), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(tracing.close)
	sys, err := newSystem(&cli.Serve.settings, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sys.fleet.Close(); sys.Pipeline.Close(); sys.policies.close() })
	front, _, err := cli.Serve.server(sys, tracing, nil, quiet, quiet.target("frontend"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { front.Close() })

	cli, _ = commandLine(t, append([]string{"router"}, policyArgs...)...)
	conf, err := cli.Router.Router.config(quiet.target("router"))
	if err != nil {
		t.Fatal(err)
	}
	chosen, err := cli.Router.Router.Policy.apply(&conf, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(chosen.close)
	service, err := cli.Router.build(conf, chosen, quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { service.Fleet.Close() })

	cli, _ = commandLine(t, "kvstore", "--events-listen", "127.0.0.1:0", "--events-replay-listen", "127.0.0.1:0")
	options, capacity, err := cli.KVStore.Store.options()
	if err != nil {
		t.Fatal(err)
	}
	if options.Driver, err = memory.New(memory.Options{Capacity: min(capacity, 1<<24)}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { options.Driver.Close() })
	store, err := kvstore.New(options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Shutdown(t.Context()) })
	events, err := cli.KVStore.Events.open(t.Context(), quiet.target("kvstore"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(events.close)
	side, err := admin.New(admin.Options{Store: store, Collectors: events.collectors()})
	if err != nil {
		t.Fatal(err)
	}
	worker, err := scrape.Registry((&workers{}).collectors(&quiet.telemetry)...)
	if err != nil {
		t.Fatal(err)
	}
	return map[string]*prometheus.Registry{"serve": front.Metrics(), "router": service.Metrics(), "kvstore": side.Metrics(), "worker": worker}
}

// described is what a registry says of a metric before there is a value of it.
var described = regexp.MustCompile(`^Desc\{fqName: "([^"]*)", help: "(.*?)", unit: ".*?", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)

// describe returns the labels of each metric that a registry may show, sorted.
func describe(t *testing.T, from *prometheus.Registry) map[string][]string {
	t.Helper()
	ch := make(chan *prometheus.Desc)
	go func() {
		defer close(ch)
		from.Describe(ch)
	}()
	all := map[string][]string{}
	for d := range ch {
		parts := described.FindStringSubmatch(d.String())
		if parts == nil {
			t.Errorf("not understood: %s", d)
			continue
		}
		var labels []string
		for constant := range strings.SplitSeq(parts[3], ",") {
			if name, _, ok := strings.Cut(constant, "="); ok {
				labels = append(labels, name)
			}
		}
		for name := range strings.SplitSeq(parts[4], ",") {
			if name != "" {
				labels = append(labels, name)
			}
		}
		slices.Sort(labels)
		if strings.Trim(parts[2], " ") == "" {
			t.Errorf("%s has no help", parts[1])
		}
		all[parts[1]] = labels
	}
	return all
}

// Each metric that a command may show has a row for the command, with its labels and its
// type, and each row has a metric.
func TestMetricsPage(t *testing.T) {
	rows, pages := readMetricsPage(t), registries(t)
	for _, row := range rows {
		if pages[row.command] == nil {
			t.Errorf("%s: %s has a row for the command %q, which has no page", metricsPage, row.name, row.command)
		}
	}
	for command, page := range pages {
		shown := describe(t, page)
		if len(shown) < 20 {
			t.Errorf("%s describes %d metrics", command, len(shown))
		}
		for name, labels := range shown {
			if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
				continue
			}
			row, ok := rows[rowOf{name, command}]
			if !ok {
				t.Errorf("%s has no row for %s of dynago %s", metricsPage, name, command)
			} else if !slices.Equal(row.labels, labels) {
				t.Errorf("%s: %s of dynago %s has the labels %q, and the row %q", metricsPage, name, command, labels, row.labels)
			}
		}
		for _, row := range rows {
			if _, ok := shown[row.name]; row.command == command && !ok {
				t.Errorf("%s: dynago %s has no %s", metricsPage, command, row.name)
			}
		}
		families, err := page.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			kind := strings.ToLower(f.GetType().String())
			if row, ok := rows[rowOf{f.GetName(), command}]; ok && row.kind != kind {
				t.Errorf("%s: %s is a %s, and the row says %s", metricsPage, row.name, kind, row.kind)
			}
		}
	}
	for _, row := range rows {
		if counts := strings.HasSuffix(row.name, "_total"); counts && row.kind != "counter" {
			t.Errorf("%s: %s is called a %s", metricsPage, row.name, row.kind)
		}
	}
}
