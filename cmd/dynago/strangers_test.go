//go:build unix

package main

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
)

// invent sends requests that are nothing but invented names: of models that do not
// exist, of sessions and agents that nobody else is in, of tenants, classes, endpoints
// and methods.
func (p *program) invent(t *testing.T, from, n int) {
	t.Helper()
	var group sync.WaitGroup
	client := &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 8}}
	defer client.CloseIdleConnections()
	failed := make(chan error, 8)
	for part := range 8 {
		group.Go(func() {
			for i := from + part; i < from+n; i += 8 {
				name := "invented-" + strconv.Itoa(i)
				model, path := name, "/v1/chat/completions"
				switch i % 10 {
				case 0:
					model = "dynago/demo" // answered, in a session of its own
				case 1:
					path = "/v1/messages"
				case 2:
					path = "/v1/responses"
				case 3:
					path = "/v1/" + name
				case 4:
					path = "/v2/models/" + name + "/infer"
				}
				body := fmt.Sprintf(`{"model":%q,"max_tokens":1,"max_output_tokens":16,"messages":[{"role":"user","content":"x"}],"input":"x","tools":[{"type":"%s"}],`+
					`"nvext":{"agent_context":{"session_id":%q,"session_type_id":%q,"trajectory_id":%q}}}`, model, name, name, name, name)
				if path != "/v1/chat/completions" {
					body = strings.Replace(body, `"tools":[{"type":"`+name+`"}],`, "", 1)
				}
				if i%10 == 0 {
					body = strings.Replace(body, `"tools":[{"type":"`+name+`"}],`, "", 1)
				}
				req, err := http.NewRequest("POST", p.url+path, strings.NewReader(body))
				if err != nil {
					failed <- err
					return
				}
				for _, h := range []string{"x-dynamo-session-id", "X-Request-Id", "x-dynamo-worker-instance-id", "x-tenant", "User-Agent", "x-dynamo-meta-policy-class"} {
					req.Header.Set(h, name)
				}
				resp, err := client.Do(req)
				if err != nil {
					failed <- err
					return
				}
				io.Copy(io.Discard, resp.Body)
				resp.Body.Close()
			}
		})
	}
	group.Wait()
	select {
	case err := <-failed:
		t.Fatal(err)
	default:
	}
}

// value64 returns a metric without labels.
func value64(t *testing.T, page, name string) float64 {
	t.Helper()
	for line := range strings.Lines(page) {
		if rest, ok := strings.CutPrefix(line, name+" "); ok {
			v, err := strconv.ParseFloat(strings.TrimSpace(rest), 64)
			if err != nil {
				t.Fatal(err)
			}
			return v
		}
	}
	t.Fatalf("no %s", name)
	return 0
}

// However many names clients make up, the page has none of them, and neither it nor the
// memory behind it grows with them.
func TestInventedNames(t *testing.T) {
	t.Parallel()
	const names = 100_000
	p := serve(t, "--speedup-ratio", "0", "--router-session-affinity-ttl-secs", "60", "--log-level", "off", "--admin-port", "0")
	measure := func() (page string, series int, live float64) {
		// A profile of what is in use is taken after a collection.
		if status, _ := p.get(p.admin + "/debug/pprof/heap?gc=1"); status != http.StatusOK {
			t.Fatalf("no profile: %d", status)
		}
		_, page = p.get(p.admin + "/metrics")
		for line := range strings.Lines(page) {
			if !strings.HasPrefix(line, "#") {
				series++
			}
		}
		return page, series, value64(t, page, "go_memstats_heap_alloc_bytes")
	}
	p.invent(t, 0, names/10) // tables with a bound are filled
	before, series, held := measure()
	p.invent(t, names/10, names)
	after, more, live := measure()
	if strings.Contains(after, "invented") {
		t.Error("an invented name is on the page")
	}
	if more > series+5 || len(after) > len(before)+5000 {
		t.Errorf("the page grew from %d series and %d bytes to %d and %d", series, len(before), more, len(after))
	}
	if live > held+32e6 {
		t.Errorf("%.1f MB are in use, and were %.1f after a tenth of the names", live/1e6, held/1e6)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	if _, err := parser.TextToMetricFamilies(bytes.NewReader([]byte(after))); err != nil {
		t.Error(err)
	}
	t.Logf("%d names: %d series, %d bytes of page, %.1f MB in use, %.1f after a tenth of them", names+names/10, more, len(after), live/1e6, held/1e6)
}
