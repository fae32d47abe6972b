package llamacpp_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/llamacpp"
	"github.com/dynago/dynago/internal/fake/llama"
)

func TestCard(t *testing.T) {
	e := attach(t, serve(t, 4, func(c *llama.Config) { c.Adapters = []string{`C:\loras\sql.gguf`} }), func(c *llamacpp.Config) {
		c.Aliases = []string{"small"}
	})
	st := ready(t, e)
	want := &engine.Card{
		Model: "tiny", Aliases: []string{"small"}, Engine: "llama.cpp " + llama.Build,
		Accepts: []engine.Input{engine.InputTokens}, ContextLength: 2048, BlockSize: 64, DPSize: 1, MaxSeqs: 4,
		TotalBlocks: 4 * 2048 / 64, MaxLogprobs: 20, EOS: []uint32{eos}, Adapters: []string{"sql"}, Features: st.Card.Features,
	}
	if !reflect.DeepEqual(st.Card, want) || st.Revision != 1 || st.Epoch == 0 {
		t.Errorf("%+v, %+v\nwant %+v", st, st.Card, want)
	}
	for f, has := range map[engine.Feature]bool{
		engine.FeatureLoRA: true, engine.FeatureStopIDs: true, engine.FeatureGuidedRegex: true,
		engine.FeatureEvents: false, engine.FeatureCacheSalt: false, engine.FeatureStructuralTag: false, engine.FeaturePriority: false,
	} {
		if st.Card.Features.Has(f) != has {
			t.Errorf("%s is %v in the card", f, !has)
		}
	}
	for range e.Events(t.Context(), nil) {
		break
	}
	named := attach(t, serve(t, 1, nil), func(c *llamacpp.Config) { c.Model, c.ContextLength, c.BlockSize = "mine", 1000, 16 })
	if c := ready(t, named).Card; c.Model != "mine" || c.ContextLength != 1000 || c.BlockSize != 16 || c.Adapters != nil || c.Features.Has(engine.FeatureLoRA) {
		t.Errorf("%+v", c)
	}
}

// A server that is loading, or not there, is told of, and has another life when
// it comes back.
func TestComingAndGoing(t *testing.T) {
	fake := serve(t, 1, nil)
	fake.SetLoading(true)
	e := attach(t, fake, nil)
	if st := await(t, e, func(engine.Status) bool { return true }); st.State != engine.Loading || !strings.Contains(st.Reason, "Loading model") || st.Card != nil || st.Epoch == 0 {
		t.Errorf("loading: %+v", st)
	}
	fake.SetLoading(false)
	before := ready(t, e)
	fake.SetLoading(true)
	gone := await(t, e, func(st engine.Status) bool { return st.State == engine.Loading })
	fake.SetLoading(false)
	if after := ready(t, e); after.Epoch == before.Epoch || gone.Epoch != before.Epoch {
		t.Errorf("epochs %d, %d, %d, want another one for the new life alone", before.Epoch, gone.Epoch, after.Epoch)
	}
	e.Close()
	if st := await(t, e, func(st engine.Status) bool { return st.State == engine.Failed }); st.Reason == "" {
		t.Errorf("closed: %+v", st)
	}

	nobody := httptest.NewServer(http.NotFoundHandler())
	nobody.Close()
	absent, err := llamacpp.New(llamacpp.Config{Config: httpapi.Config{URL: nobody.URL}})
	if err != nil {
		t.Fatal(err)
	}
	if st := await(t, absent, func(engine.Status) bool { return true }); st.State != engine.Loading || st.Reason == "" {
		t.Errorf("nobody there: %+v", st)
	}
}

// A server that sleeps is ready, is not woken by being looked at, and has forgotten
// what it had cached.
func TestQuirk37SleepingServersAreLeftAsleep(t *testing.T) {
	fake := serve(t, 1, nil)
	e := attach(t, fake, nil)
	before := ready(t, e)
	fake.Sleep()
	st := await(t, e, func(st engine.Status) bool { return st.Reason != "" })
	if st.State != engine.Ready || st.Epoch == before.Epoch || !strings.Contains(st.Reason, "sleeps") {
		t.Errorf("asleep: %+v", st)
	}
	looks := 0
	for l, err := range e.Load(t.Context()) {
		if err != nil || l.Ranks[0].Running != 0 || l.Ranks[0].Waiting != 0 {
			t.Errorf("load %+v, %v", l, err)
		}
		if looks++; looks == 5 {
			break
		}
	}
	await(t, e, func(s engine.Status) bool { return s.Epoch == st.Epoch })
	if !fake.Asleep() {
		t.Error("it was woken")
	}
	if _, _, err := run(t, e, ask(3, 1)); err != nil || fake.Asleep() {
		t.Errorf("asked for something: %v", err)
	}
	if st := await(t, e, func(s engine.Status) bool { return s.Reason == "" }); st.State != engine.Ready {
		t.Errorf("awake: %+v", st)
	}
}

// A new start that nobody missed is seen by the mark that it makes.
func TestMarkers(t *testing.T) {
	fake := serve(t, 1, func(c *llama.Config) { c.Markers, c.NoMetrics = true, true })
	e := attach(t, fake, nil)
	before := ready(t, e)
	fake.Restart()
	after := await(t, e, func(st engine.Status) bool { return st.State == engine.Ready && st.Epoch != before.Epoch })
	if !reflect.DeepEqual(after.Card, before.Card) {
		t.Errorf("%+v, was %+v", after.Card, before.Card)
	}
}

// A server that starts others is no engine.
func TestRouter(t *testing.T) {
	e := attach(t, serve(t, 1, func(c *llama.Config) { c.Router = true }), nil)
	if st := await(t, e, func(engine.Status) bool { return true }); st.State != engine.Loading || !strings.Contains(st.Reason, "other servers") {
		t.Errorf("%+v", st)
	}
}

// Old builds tell how full their cache is.
func TestOldUsage(t *testing.T) {
	e := attach(t, serve(t, 2, func(c *llama.Config) { c.OldUsage = true }), nil)
	ready(t, e)
	prompt := make([]uint32, 1023)
	if _, _, err := run(t, e, ask(1, prompt...)); err != nil {
		t.Fatal(err)
	}
	for l, err := range e.Load(t.Context()) {
		if err != nil || l.Ranks[0].TotalBlocks != 2*2048/64 || l.Ranks[0].UsedBlocks != 1024/64 {
			t.Errorf("%+v, %v", l, err)
		}
		break
	}
}

// While nothing changes, nothing is told, and no more is asked than has to be.
func TestSilence(t *testing.T) {
	fake := serve(t, 1, nil)
	defer fake.Close()
	var looks, models atomic.Int32
	e := plain(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/health":
			looks.Add(1)
		case "/v1/models":
			models.Add(1)
		}
		fake.ServeHTTP(w, r)
	}), nil)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	n := 0
	for range e.Card(ctx) {
		n++
	}
	if n != 1 {
		t.Errorf("%d statuses of a server that stayed as it was", n)
	}
	if looks.Load() < 3 || models.Load() != 1 {
		t.Errorf("%d looks, and the models asked for %d times", looks.Load(), models.Load())
	}
}

// What a server does not tell is unknown.
func TestLoad(t *testing.T) {
	for name, c := range map[string]struct {
		change           func(*llama.Config)
		running, waiting int64
	}{
		"metrics": {nil, 0, 0},
		"slots":   {func(c *llama.Config) { c.NoMetrics = true }, 0, engine.Unknown},
		"nothing": {func(c *llama.Config) { c.NoMetrics, c.NoSlots = true, true }, engine.Unknown, engine.Unknown},
	} {
		e := attach(t, serve(t, 2, c.change), nil)
		ready(t, e)
		for l, err := range e.Load(t.Context()) {
			if err != nil || len(l.Ranks) != 1 || l.Ranks[0].Running != c.running || l.Ranks[0].Waiting != c.waiting || l.Ranks[0].UsedBlocks != engine.Unknown {
				t.Errorf("%s: %+v, %v", name, l, err)
			}
			break
		}
	}
	fake := serve(t, 1, nil)
	fake.SetLoading(true)
	for l, err := range attach(t, fake, nil).Load(t.Context()) {
		if engine.KindOf(err) != engine.Unavailable || l.Ranks != nil {
			t.Errorf("loading: %+v, %v", l, err)
		}
		break
	}
}

func TestMetricsThatAreNone(t *testing.T) {
	for text, want := range map[string]int64{
		"llamacpp:requests_processing 3\n":              3,
		"llamacpp:requests_processing 3 1700000000\r\n": 3,
		"llamacpp:requests_processing NaN\n":            engine.Unknown,
		"llamacpp:requests_processing +Inf\n":           engine.Unknown,
		"llamacpp:requests_processing -1\n":             engine.Unknown,
		"# llamacpp:requests_processing 3\n\n":          engine.Unknown,
	} {
		mux := http.NewServeMux()
		mux.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(text)) })
		for l, err := range plain(t, mux, nil).Load(t.Context()) {
			if err != nil || l.Ranks[0].Running != want {
				t.Errorf("%q: %+v, %v; want %d", text, l, err, want)
			}
			break
		}
	}
}

// An old server has fewer routes.
func TestFewRoutes(t *testing.T) {
	mux := http.NewServeMux()
	for path, body := range map[string]string{
		"GET /health": `{"status":"ok"}`,
		"GET /props":  `{"total_slots":2,"model_path":"/m/some-model.Q4_K_M.gguf","default_generation_settings":{"n_ctx":512},"new":{"x":[1]}}`,
	} {
		mux.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) { w.Write([]byte(body)) })
	}
	c := ready(t, plain(t, mux, nil)).Card
	if c.Model != "some-model.Q4_K_M" || c.ContextLength != 512 || c.MaxSeqs != 2 || c.Engine != "llama.cpp" || c.EOS != nil || slices.Contains(c.Controls, engine.ControlReset) {
		t.Errorf("%+v", c)
	}
}

// Silence is told from death.
func TestSilenceIsNotDeath(t *testing.T) {
	fake := serve(t, 1, nil)
	defer fake.Close()
	enginetest.Silence(t, fake, func(t *testing.T, url string) engine.Engine {
		e, err := llamacpp.New(llamacpp.Config{Config: httpapi.Config{URL: url}, Interval: 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
}
