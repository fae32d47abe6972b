package router_test

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// A rank that serves prompts for a minute and tells of nothing raises an alarm, once,
// until it tells again; what it need not tell of raises none.
func TestQuirk22SilentRank(t *testing.T) {
	const pause = 10 * time.Second
	for name, tt := range map[string]struct {
		change func(*engine.Card)
		query  func(*router.Query)
		tells  func(i int) bool // behind prompt i
		end    func(*router.Booking)
		times  int
		silent bool
	}{
		"silent":        {times: 8, silent: true},
		"not yet":       {times: 6},
		"it tells":      {times: 20, tells: func(int) bool { return true }},
		"it did once":   {times: 12, silent: true, tells: func(i int) bool { return i == 3 }},
		"told late":     {times: 20, tells: func(i int) bool { return i%5 == 4 }},
		"nothing to do": {times: 20, query: func(q *router.Query) { q.Tokens = q.Tokens[:3] }},
		"failed":        {times: 20, end: (*router.Booking).Failed},
		"no events":     {times: 20, change: func(c *engine.Card) { c.Features = nil }},
		"who decodes":   {times: 20, change: func(c *engine.Card) { c.Role = engine.Decode }, query: func(q *router.Query) { q.Role = engine.Decode }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var log strings.Builder
				h := newHouse(t, router.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				defer h.fleet.Close()
				h.join(1, card(func(c *engine.Card) {
					if tt.change != nil {
						tt.change(c)
					}
				}))
				told := uint64(0)
				tell := func(i int) {
					told++
					h.caches(1, told, kv.TierDevice, count(uint32(100*i), 16))
				}
				for i := range tt.times {
					q := router.Query{Model: "m", Tokens: count(uint32(100*i), 16)}
					if tt.query != nil {
						tt.query(&q)
					}
					b := h.route(q)
					b.Prefilled()
					if tt.end != nil {
						tt.end(b)
					}
					b.Release()
					if tt.tells != nil && tt.tells(i) {
						tell(i)
					}
					time.Sleep(pause)
				}
				silent := func() bool {
					list := h.router.CacheViews()
					return len(list) > 0 && list[0].Silent
				}
				want := 0
				if tt.silent {
					want = 1
				}
				if n := strings.Count(log.String(), "tells of no KV event"); silent() != tt.silent || n != want {
					t.Errorf("silent %v, %d warnings, want %v:\n%s", silent(), n, tt.silent, log.String())
				}
				if !tt.silent {
					return
				}
				tell(tt.times)
				if silent() || !strings.Contains(log.String(), "tells of KV events again") {
					t.Errorf("it has told, and counts as silent:\n%s", log.String())
				}
			})
		})
	}
}
