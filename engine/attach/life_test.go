package attach_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/internal/fake/sglang"
	"github.com/dynago/dynago/internal/fake/vllm"
)

// street is an address at which now one server answers, now another.
type street struct {
	at      atomic.Pointer[http.Handler] // nil: nobody
	asked   atomic.Int64
	next    atomic.Pointer[http.Handler]
	free    atomic.Int64 // until so many requests
	another func()       // before each request
}

func (s *street) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.asked.Add(1)
	if s.another != nil {
		s.another()
	}
	h := s.at.Load()
	if h == nil {
		if s.asked.Load() > s.free.Load() {
			s.at.Store(s.next.Load())
		}
		panic(http.ErrAbortHandler)
	}
	(*h).ServeHTTP(w, r)
}

func (s *street) move(h http.Handler) { s.at.Store(&h) }

// vacate leaves the address to nobody for some looks, and then to another server.
func (s *street) vacate(next http.Handler) {
	s.at.Store(nil)
	s.free.Store(s.asked.Load() + 40)
	s.next.Store(&next)
}

func newVLLM(t *testing.T) http.Handler {
	t.Helper()
	s, err := vllm.New(vllm.Config{Mock: mock.Config{Model: "m", Args: args(), ContextLength: 8192}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func newSGLang(t *testing.T) http.Handler {
	t.Helper()
	s, err := sglang.New(sglang.Config{Mock: mock.Config{Model: "m", Args: args()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// Where one kind of engine is stopped and another started at its address, the
// adapter is another one, too.
func TestAnotherKindInPlace(t *testing.T) {
	var s street
	s.move(newVLLM(t))
	h := httptest.NewServer(&s)
	t.Cleanup(h.Close)
	e := open(t, h.URL+",load.interval=10ms,context_length=4096", attach.Config{})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	want := []string{"vllm", "sglang", "vllm"}
	var epochs []uint64
	for st, err := range e.Card(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		n := len(epochs)
		if st.State != engine.Ready || n > 0 && st.Epoch == epochs[n-1] {
			continue
		}
		if !strings.HasPrefix(st.Card.Engine, want[n]) || slices.Contains(epochs, st.Epoch) {
			t.Fatalf("%s in life %d, want %s in a new one", st.Card.Engine, st.Epoch, want[n])
		}
		if epochs = append(epochs, st.Epoch); n+1 == len(want) {
			return
		}
		next := newSGLang
		if n == 1 {
			next = newVLLM
		}
		s.vacate(next(t))
	}
	t.Fatalf("%d of %d kinds were found", len(epochs), len(want))
}

// What was said to be a kind is not asked whether it is another.
func TestKindIsBelieved(t *testing.T) {
	var s street
	s.move(newVLLM(t))
	h := httptest.NewServer(&s)
	t.Cleanup(h.Close)
	e := open(t, "vllm="+h.URL+",load.interval=10ms", attach.Config{})
	await(t, e, engine.Ready)
	s.vacate(newSGLang(t))
	if st := await(t, e, engine.Loading); st.Reason == "" {
		t.Errorf("%+v", st)
	}
}

// Several servers behind one address serve nobody, since what one of them caches the
// others do not; and they are left alone for a while.
func TestLoadBalancer(t *testing.T) {
	a, b := newVLLM(t), newVLLM(t)
	var s street
	s.move(a)
	turn := atomic.Int64{}
	s.another = func() {
		if turn.Add(1)%7 < 3 {
			s.move(a)
		} else {
			s.move(b)
		}
	}
	h := httptest.NewServer(&s)
	t.Cleanup(h.Close)
	e := open(t, "vllm="+h.URL+",load.interval=10ms", attach.Config{})
	st := await(t, e, engine.Failed)
	if !strings.Contains(st.Reason, "several servers stand behind a load balancer: want an --engine for each of them") {
		t.Errorf("%+v", st)
	}
}

// A server that is away is asked once in a while, for as long as it takes.
func TestNoStorm(t *testing.T) {
	for name, answer := range map[string]http.HandlerFunc{
		"500":   func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "{}", 500) },
		"hangs": func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() },
		"cuts":  func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
	} {
		for _, kind := range []string{"auto", "vllm", "sglang", "llamacpp", "openai", "ollama", "trtllm"} {
			t.Run(kind+", "+name, func(t *testing.T) {
				t.Parallel()
				var asked atomic.Int64
				h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
					asked.Add(1)
					answer(w, r)
				}))
				defer h.Close()
				defer h.CloseClientConnections()
				e := open(t, kind+"="+h.URL+",load.interval=100ms", attach.Config{})
				const while = 400 * time.Millisecond
				ctx, cancel := context.WithTimeout(t.Context(), while)
				defer cancel()
				for st, err := range e.Card(ctx) {
					if err != nil || st.State == engine.Ready {
						t.Errorf("%+v %v", st, err)
					}
				}
				// Each look asks a handful of questions at the most, and one that was
				// broken off may be asked once more.
				if n := asked.Load(); n < 1 || n > 2*6*int64(while/(90*time.Millisecond)) {
					t.Errorf("asked %d times in %s", n, while)
				}
			})
		}
	}
}

// What an operator says is believed before what the server tells.
func TestAmended(t *testing.T) {
	s := serve(t, "m", args(), ",aliases=fast,alias=m,total_blocks=99,role=decode,dp.select=none,load.source=none", attach.Config{})
	c := await(t, s, engine.Ready).Card
	if !slices.Equal(c.Aliases, []string{"fast"}) || c.TotalBlocks != 99 || c.Role != engine.Decode || c.Features.Has(engine.FeatureDPRank) {
		t.Errorf("%+v", c)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		for l := range s.Load(ctx) {
			t.Errorf("%+v was read", l)
		}
	})
}

// A model's place in the cache of Hugging Face has a name of its own.
func TestLocate(t *testing.T) {
	t.Setenv("HF_HUB_CACHE", t.TempDir())
	if at, err := attach.Locate("hf://org/m"); err == nil || !strings.Contains(err.Error(), "hf://org/m: is not in the cache") {
		t.Errorf("%q %v", at, err)
	}
	if at, err := attach.Locate("/some/where"); at != "/some/where" || err != nil {
		t.Errorf("%q %v", at, err)
	}
}
