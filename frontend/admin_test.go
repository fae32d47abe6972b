package frontend_test

import (
	"net"
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/selection"
)

// selecting gives a server a router of its own, with worker 42.
func selecting(t *testing.T) func(*frontend.Config) {
	t.Helper()
	f := fleet.New(fleet.Config{})
	t.Cleanup(func() { f.Close() })
	r, err := router.New(router.Config{}, f)
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Report(fleet.Entry{Name: "mock-0", ID: 42})
	if err != nil {
		t.Fatal(err)
	}
	w.Status(engine.Status{Epoch: 1, State: engine.Ready, Card: &engine.Card{Model: "acme/demo", ContextLength: 4096, BlockSize: 16}})
	service, err := selection.New(selection.Config{Fleet: f, Router: r, OwnWorkers: true})
	if err != nil {
		t.Fatal(err)
	}
	return func(c *frontend.Config) { c.Selection = service }
}

const (
	placeable = `{"model_name":"acme/demo","selection_id":"a","token_ids":[1,2,3]}`
	freed     = "/admin/router/select/reservations/a"
)

// The router of a server can be asked itself, and booked from this machine.
func TestSelectionRoutes(t *testing.T) {
	s := start(t, newFake(), selecting(t))
	for _, c := range []struct {
		method, path, body string
		want               int
		says               string
	}{
		{"GET", "/admin/router/select/workers", "", 200, `"worker_id":42`},
		{"GET", "/admin/router/select/ready", "", 200, `"schedulable_workers":1`},
		{"GET", "/admin/router/select/health", "", 200, `"ok"`},
		{"GET", "/admin/router/select/loads", "", 200, `"worker_id":42`},
		{"POST", "/admin/router/select/select", placeable, 200, `"endpoint":"mock-0"`},
		{"POST", "/admin/router/select/overlap_scores", placeable, 200, `"num_blocks":0`},
		{"POST", "/admin/router/select/select_and_reserve", placeable, 200, `"worker_id":42`},
		{"POST", freed + "/prefill_complete", "", 200, "ok"},
		{"DELETE", freed, "", 200, "ok"},
		{"DELETE", freed, "", 404, `{"error":"no request a is booked"}`},
		{"POST", "/admin/router/select/workers", `{"worker_id":7}`, 409, "dynago router"},
		{"GET", "/admin/router/select/select", "", 405, ""},
		{"GET", "/admin/router/select/nothing", "", 404, "Route not found"},
	} {
		if got := s.do(c.method, c.path, c.body); got.status != c.want || !strings.Contains(got.body, c.says) {
			t.Errorf("%s %s: status %d, want %d and %q:\n%s", c.method, c.path, got.status, c.want, c.says, got.body)
		}
	}
}

// Where other machines can reach the server, only operators may change it, and
// everybody may ask.
func TestSelectionGate(t *testing.T) {
	keyed := withKeys(t, "secret\n")
	separate := func(c *frontend.Config) { c.SeparateAdmin = true }
	for name, tt := range map[string]struct {
		config           func(*frontend.Config)
		admin            bool // asks the listener of operators
		header           []string
		reading, changed int
	}{
		"open":           {func(*frontend.Config) {}, false, nil, 200, 403},
		"keyed":          {keyed, false, []string{"Authorization", "Bearer secret"}, 200, 200},
		"without key":    {keyed, false, nil, 401, 401},
		"separate":       {separate, true, nil, 200, 200},
		"not separate":   {separate, false, nil, 404, 404},
		"no admin":       {func(c *frontend.Config) { c.NoAdmin = true }, false, nil, 404, 404},
		"no admin alone": {func(c *frontend.Config) { c.NoAdmin, c.SeparateAdmin = true, true }, true, nil, 404, 404},
	} {
		t.Run(name, func(t *testing.T) {
			s := start(t, newFake(), selecting(t), tt.config)
			l, err := net.Listen("tcp", ":0") // all addresses
			if err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() {
				if tt.admin {
					done <- s.ServeAdmin(l)
				} else {
					done <- s.Serve(l)
				}
			}()
			t.Cleanup(func() {
				s.Close()
				if err := <-done; err != nil {
					t.Error(err)
				}
			})
			_, port, _ := net.SplitHostPort(l.Addr().String())
			s.url = "http://127.0.0.1:" + port
			if got := s.do("POST", "/admin/router/select/select", placeable, tt.header...); got.status != tt.reading {
				t.Errorf("select: status %d, want %d: %s", got.status, tt.reading, got.body)
			}
			if got := s.do("POST", "/admin/router/select/select_and_reserve", placeable, tt.header...); got.status != tt.changed {
				t.Errorf("reserve: status %d, want %d: %s", got.status, tt.changed, got.body)
			}
		})
	}
}
