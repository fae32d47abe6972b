package scrape_test

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/internal/scrape"
)

// read returns the page as who accepts a form sees it.
func read(t *testing.T, accept string, all ...prometheus.Collector) string {
	t.Helper()
	registry, err := scrape.Registry(all...)
	if err != nil {
		t.Fatal(err)
	}
	r, w := httptest.NewRequest("GET", "/metrics", nil), httptest.NewRecorder()
	r.Header.Set("Accept", accept)
	scrape.Page(registry).ServeHTTP(w, r)
	if w.Code != 200 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	return w.Body.String()
}

// A metric has one name, whichever form is asked for.
func TestNames(t *testing.T) {
	bare := prometheus.NewCounter(prometheus.CounterOpts{Name: "kvbm_matched_tokens", Help: "Of old."})
	bare.Add(3)
	ours := prometheus.NewCounter(prometheus.CounterOpts{Name: "dynago_things_total", Help: "Of ours."})
	for accept, want := range map[string][]string{
		"text/plain": {
			"# TYPE kvbm_matched_tokens counter\nkvbm_matched_tokens 3\n",
			"# TYPE dynago_things_total counter\ndynago_things_total 0\n",
			"\ngo_goroutines ", "\ndynamo_component_uptime_seconds ",
		},
		"application/openmetrics-text;version=1.0.0": {
			"# TYPE kvbm_matched_tokens unknown\nkvbm_matched_tokens 3.0\n",
			"# TYPE dynago_things counter\ndynago_things_total 0.0\n",
			"# TYPE go_memstats_alloc_bytes gauge\n", "# TYPE go_memstats_alloc_bytes_total unknown\ngo_memstats_alloc_bytes_total ",
			"\n# EOF\n",
		},
	} {
		page := read(t, accept, bare, ours)
		for _, part := range want {
			if !strings.Contains(page, part) {
				t.Errorf("%s: no %q in\n%s", accept, part, page)
			}
		}
	}
}

// Two of one name are refused at the start, and not at every scrape.
func TestTwice(t *testing.T) {
	one := func() prometheus.Collector {
		return prometheus.NewGauge(prometheus.GaugeOpts{Name: "dynago_things", Help: "Of ours."})
	}
	if _, err := scrape.Registry(one(), one()); err == nil {
		t.Error("two metrics of one name are taken")
	}
}

// A timer that is on time is late by nothing, and each is counted.
func TestDelay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := scrape.NewDelay()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+time.Millisecond)
		defer cancel()
		d.Run(ctx)
		page := read(t, "text/plain", d)
		for _, line := range []string{
			`dynamo_frontend_event_loop_delay_seconds_bucket{le="0"} 100`,
			`dynamo_frontend_event_loop_delay_seconds_count 100`,
			`dynamo_frontend_event_loop_stall_total 0`,
		} {
			if !strings.Contains(page, line+"\n") {
				t.Errorf("no %q in\n%s", line, page)
			}
		}
	})
}

// More than 5 ms is a stall.
func TestStall(t *testing.T) {
	d := scrape.NewDelay()
	for _, late := range []time.Duration{-1, 5 * time.Millisecond, 6 * time.Millisecond} {
		d.Woke(late)
	}
	if page := read(t, "text/plain", d); !strings.Contains(page, "\ndynamo_frontend_event_loop_stall_total 1\n") {
		t.Error(page)
	}
}

func ExamplePage() {
	requests := prometheus.NewCounter(prometheus.CounterOpts{Name: "dynago_things_total", Help: "Things."})
	registry, err := scrape.Registry(requests)
	if err != nil {
		fmt.Println(err)
		return
	}
	w := httptest.NewRecorder()
	scrape.Page(registry).ServeHTTP(w, httptest.NewRequest("GET", "/metrics", nil))
	fmt.Println(strings.Contains(w.Body.String(), "dynago_things_total 0"))
	// Output: true
}
