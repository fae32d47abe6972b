package frontend_test

import (
	"net/http"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/frontend"
	"github.com/dynago/dynago/router"
)

// watching gives a server a router whose thresholds can be changed, with a worker
// of model m, which is also called alias.
func watching(t *testing.T) func(*frontend.Config) {
	t.Helper()
	f := fleet.New(fleet.Config{})
	t.Cleanup(func() { f.Close() })
	r, err := router.New(router.Config{}, f)
	if err != nil {
		t.Fatal(err)
	}
	w, err := f.Report(fleet.Entry{Name: "w", ID: 1})
	if err != nil {
		t.Fatal(err)
	}
	w.Status(engine.Status{Epoch: 1, State: engine.Ready, Card: &engine.Card{Model: "m", Aliases: []string{"alias"}, ContextLength: 4096}})
	return func(c *frontend.Config) { c.Thresholds = r }
}

func TestBusyThreshold(t *testing.T) {
	s := start(t, newFake(), watching(t))
	const (
		none   = `{"model":"m","active_decode_blocks_threshold":null,"active_prefill_tokens_threshold":null,"active_prefill_tokens_threshold_frac":null}`
		two    = `"active_decode_blocks_threshold":0.9,"active_prefill_tokens_threshold":5,"active_prefill_tokens_threshold_frac":null}`
		frac   = `{"model":"m","active_decode_blocks_threshold":null,"active_prefill_tokens_threshold":5,"active_prefill_tokens_threshold_frac":1.5}`
		nobody = `{"model":"x","active_decode_blocks_threshold":null,"active_prefill_tokens_threshold":null,"active_prefill_tokens_threshold_frac":null}`
	)
	for _, c := range []struct {
		body   string // empty: GET
		status int
		want   string
	}{
		{"", 200, `{"thresholds":[]}`},
		{`{"model":"m"}`, 200, none},
		{`{"model":"x"}`, 200, nobody},
		{`{"model":"m","active_decode_blocks_threshold":null}`, 200, none},
		{`{"model":"m","active_decode_blocks_threshold":0.9}`, 200, `{"model":"m","active_decode_blocks_threshold":0.9,"active_prefill_tokens_threshold":null,"active_prefill_tokens_threshold_frac":null}`},
		{`{"model":"alias","active_prefill_tokens_threshold":5,"more":1}`, 200, `{"model":"alias",` + two},
		{`{"model":"m"}`, 200, `{"model":"m",` + two},
		{"", 200, `{"thresholds":[{"model":"m",` + two + `]}`},
		{`{"model":"m","active_prefill_tokens_threshold_frac":1.5,"unset":["active_decode_blocks_threshold"]}`, 200, frac},
		{`{"model":"m","active_decode_blocks_threshold":1.5}`, 400, `{"error":"active_decode_blocks_threshold must be between 0.0 and 1.0, got 1.5"}`},
		{`{"model":"m","active_prefill_tokens_threshold_frac":-0.5}`, 400, `{"error":"active_prefill_tokens_threshold_frac must be a finite value greater than or equal to 0.0, got -0.5"}`},
		{`{"model":"m","unset":["decode"]}`, 400, `{"error":"there is no threshold \"decode\": want active_decode_blocks_threshold, active_prefill_tokens_threshold or active_prefill_tokens_threshold_frac"}`},
		{`{"model":"x","active_decode_blocks_threshold":0.5}`, 404, `{"error":"Model 'x' not found. Thresholds can only be set for discovered models."}`},
		{`{"model":"m","active_decode_blocks_threshold":"0.5"}`, 422, `{"error":"active_decode_blocks_threshold: expected a number"}`},
		{`{"model":"m","active_prefill_tokens_threshold":-1}`, 422, `{"error":"active_prefill_tokens_threshold: expected a whole number, 0 or more"}`},
		{`{"model":"m","active_prefill_tokens_threshold":1.5}`, 422, `{"error":"active_prefill_tokens_threshold: expected a whole number, 0 or more"}`},
		{`{"model":7}`, 422, `{"error":"model: expected a string"}`},
		{`{"model":"m","unset":"x"}`, 422, `{"error":"unset: expected an array of strings"}`},
		{`{"model":"m","unset":[1]}`, 422, `{"error":"unset: expected an array of strings"}`},
		{`{}`, 422, `{"error":"model: is required and must not be empty"}`},
		{`[]`, 422, `{"error":"expected an object"}`},
		{`{"model":"m"`, 422, `{"error":"malformed JSON"}`},
		{`{"model":"m"}`, 200, frac}, // nothing of that has changed it
	} {
		method := http.MethodPost
		if c.body == "" {
			method = http.MethodGet
		}
		a := s.do(method, "/busy_threshold", c.body)
		if a.status != c.status || a.body != c.want {
			t.Errorf("%s: %d %s, want %d %s", c.body, a.status, a.body, c.status, c.want)
		}
	}
	if a := s.do(http.MethodDelete, "/busy_threshold", ""); a.status != 405 || a.header.Get("Allow") != "GET, POST" {
		t.Errorf("DELETE: %d, %s", a.status, a.header.Get("Allow"))
	}
}

// Where the route is, and where it is not.
func TestBusyThresholdGate(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*frontend.Config)
		want   int
	}{
		"as it is":            {func(*frontend.Config) {}, 200},
		"an admin port":       {func(c *frontend.Config) { c.SeparateAdmin = true }, 404},
		"no admin":            {func(c *frontend.Config) { c.NoAdmin = true }, 404},
		"no router":           {func(c *frontend.Config) { c.Thresholds = nil }, 404},
		"without the one key": {withKeys(t, "k\n"), 401},
	} {
		s := start(t, newFake(), watching(t), c.change)
		if a := s.do("GET", "/busy_threshold", ""); a.status != c.want {
			t.Errorf("%s: %d, want %d", name, a.status, c.want)
		}
	}
	s := start(t, newFake(), watching(t), func(c *frontend.Config) { c.SeparateAdmin = true })
	w := &recorder{header: http.Header{}}
	r, _ := http.NewRequest("GET", "http://x/busy_threshold", http.NoBody)
	if s.AdminHandler().ServeHTTP(w, r); w.status != 200 {
		t.Errorf("on the admin port: %d", w.status)
	}
}
