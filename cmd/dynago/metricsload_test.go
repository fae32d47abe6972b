//go:build unix

package main

import (
	"context"
	"fmt"
	"maps"
	"math"
	"net/http"
	"strings"
	"sync"
	"testing"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// scraped reads a page as Prometheus' own library does, and returns its families. Each
// must be told of once.
func scraped(t *testing.T, page string) map[string]*dto.MetricFamily {
	t.Helper()
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(page))
	if err != nil {
		t.Fatalf("%v in\n%s", err, page)
	}
	for name, f := range families {
		for _, head := range []string{"# TYPE ", "# HELP "} {
			if n := strings.Count("\n"+page, "\n"+head+name+" "); n != 1 {
				t.Errorf("%d lines %s%s, want one", n, head, name)
			}
		}
		if f.GetHelp() == "" {
			t.Errorf("%s has no help", name)
		}
	}
	return families
}

// counts returns what only grows on a page, by name and labels.
func counts(families map[string]*dto.MetricFamily) map[string]float64 {
	all := map[string]float64{}
	for name, f := range families {
		for _, m := range f.Metric {
			of := fmt.Sprint(name, m.Label)
			switch {
			case m.Counter != nil:
				all[of] = m.Counter.GetValue()
			case m.Histogram != nil:
				all[of] = float64(m.Histogram.GetSampleCount())
				all[of+" sum"] = m.Histogram.GetSampleSum()
				for _, b := range m.Histogram.Bucket {
					all[fmt.Sprint(of, b.GetUpperBound())] = float64(b.GetCumulativeCount())
				}
			}
		}
	}
	return all
}

// Under load, and while workers come and go, each page can be read, and no counter on it
// falls. A worker that has left has no series of its own any more.
func TestMetricsUnderLoad(t *testing.T) {
	p := serve(t, "--workers", "3", "--g2-blocks", "100", "--num-gpu-blocks-override", "60", "--speedup-ratio", "20",
		"--mock-churn", "300ms", "--migration-limit", "3", "--router-queue-threshold", "2", "--log-level", "off")
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	for client := range 4 {
		group.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				body := fmt.Sprintf(`{"model":"dynago/demo","stream":%v,"max_tokens":12,"ignore_eos":true,"messages":[{"role":"user","content":%q}]}`, i%2 == 0, prose(fmt.Sprint(client, i%5), 60))
				await(p.request(ctx, "POST", p.url+"/v1/chat/completions", body))
			}
		})
	}
	last, seen := map[string]float64{}, map[string]bool{}
	ids := map[string]bool{}
	for range 60 {
		families := scraped(t, p.page("/metrics"))
		now := counts(families)
		for of, v := range now {
			// Sums of seconds are told to the last bit, and added in any order.
			if before, ok := last[of]; ok && v < before-1e-9*math.Abs(before) {
				t.Errorf("%s fell from %v to %v", of, before, v)
			}
			seen[of] = true
		}
		last = now
		for _, m := range families["dynago_worker_active_requests"].GetMetric() {
			for _, l := range m.Label {
				if l.GetName() == "worker_id" {
					ids[l.GetValue()] = true
				}
			}
		}
	}
	if len(ids) < 4 {
		t.Errorf("%d workers were there, want some that came", len(ids))
	}
	stop()
	group.Wait()
	// A page that is read while one leaves may tell of him in one place and not in another.
	until(t, "no page without all that have left", func() bool {
		page, gone := p.page("/metrics"), maps.Clone(ids)
		for _, m := range scraped(t, page)["dynamo_component_router_worker_registered"].GetMetric() {
			for _, l := range m.Label {
				delete(gone, l.GetValue())
			}
		}
		for id := range gone {
			if strings.Contains(page, `worker_id="`+id+`"`) {
				return false
			}
		}
		return len(gone) > 0
	})
	req := p.request(t.Context(), "GET", p.url+"/metrics", "", "Accept", "application/openmetrics-text;version=1.0.0")
	open := p.answered(req)
	if open.status != http.StatusOK || !strings.HasPrefix(open.header.Get("Content-Type"), "application/openmetrics-text") || !strings.HasSuffix(open.body, "\n# EOF\n") {
		t.Errorf("%d %s", open.status, open.header.Get("Content-Type"))
	}
}
