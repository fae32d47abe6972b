//go:build unix

package main

import (
	"context"
	"fmt"
	"regexp"
	"sync"
	"syscall"
	"testing"
)

// A worker tells of what runs, waits and is refused, of the tiers of its engine, and whether
// it takes requests.
func TestWorkerPage(t *testing.T) {
	t.Parallel()
	w := start(t, "/metrics", "worker", "--engine", "mock", "--listen", "127.0.0.1:0", "--system-port", "0",
		"--engine-request-limit", "1", "--dynamo-request-queue-limit", "1", "--g2-blocks", "10", "--speedup-ratio", "1")
	pages := regexp.MustCompile(`metrics +(http://\S+)/metrics`).FindStringSubmatch(w.banner)
	address := regexp.MustCompile(`--engine (grpc://\S+)`).FindStringSubmatch(w.banner)
	if pages == nil || address == nil {
		t.Fatalf("says %s", w.banner)
	}
	side := &program{t: t, url: pages[1]}
	until(t, "it is not ready", func() bool { status, _ := side.get(side.url + "/health"); return status == 200 })
	p := serve(t, "--engine", address[1], "--migration-limit", "0")
	says(t, p, "/admin/workers", `"ready"`)

	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	defer group.Wait()
	defer stop()
	ask := func() {
		group.Go(func() {
			await(p.request(ctx, "POST", p.url+"/v1/chat/completions", `{"model":"dynago/demo","max_tokens":1000,"ignore_eos":true,"messages":[{"role":"user","content":"on and on"}]}`))
		})
	}
	shows := func(running, waiting, begun, refused float64) {
		t.Helper()
		said := ""
		until(t, "the page tells of others", func() bool {
			page := scraped(t, side.page("/metrics"))
			said = fmt.Sprint(
				shownValue(page, "dynamo_engine_request"), shownValue(page, "dynamo_request_queue"),
				shownValue(page, "dynago_worker_requests_begun_total"), shownValue(page, "dynamo_rejection_request_total"),
			)
			return said == fmt.Sprint(running, waiting, begun, refused)
		})
	}
	shows(0, 0, 0, 0)
	ask()
	shows(1, 0, 1, 0)
	ask()
	shows(1, 1, 1, 0)
	ask()
	shows(1, 1, 1, 1)
	if page := scraped(t, side.page("/metrics")); len(page["dynago_kv_blocks"].GetMetric()) != 6 {
		t.Errorf("of its tiers: %v", page["dynago_kv_blocks"])
	}
	stop()
	group.Wait()
	if status, _ := side.get(side.url + "/live"); status != 200 {
		t.Errorf("/live is %d", status)
	}
	w.signal(syscall.SIGTERM)
	if code := w.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
