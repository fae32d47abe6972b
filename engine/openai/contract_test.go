package openai_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/openai"
	"github.com/dynago/dynago/internal/fake/ollama"
)

// attached is an adapter of the door for chat completions that Ollama has.
type attached struct {
	*openai.Engine
	fake *ollama.Server
	http *httptest.Server
	down atomic.Int32 // for so many looks
}

func (a *attached) Close() error {
	err := errors.Join(a.Engine.Close(), a.fake.Close())
	a.http.Close()
	return err
}

// restart kills the server, which is there again when it was missed for a while.
func (a *attached) restart() {
	a.down.Store(10)
	a.fake.Restart()
}

func TestContract(t *testing.T) {
	fresh := func(slow bool) func(t *testing.T) engine.Engine {
		return func(t *testing.T) engine.Engine {
			args := mock.DefaultArgs()
			args.SpeedupRatio, args.MaxNumSeqs = 0, 16
			if slow {
				args.MaxNumSeqs, args.SpeedupRatio, args.TimingModel, args.PrefillMS, args.DecodeMS = 1, 1, "constant", 1, 5
			}
			f, err := ollama.New(ollama.Config{Mock: mock.Config{Model: "tiny", Args: args, Seed: 1}, Loaded: 2048})
			if err != nil {
				t.Fatal(err)
			}
			a := &attached{fake: f}
			a.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path == "/v1/models" && a.down.Add(-1) >= 0 {
					panic(http.ErrAbortHandler)
				}
				f.ServeHTTP(w, r)
			}))
			a.Engine, err = openai.New(openai.Config{Config: httpapi.Config{URL: a.http.URL}, Interval: 2 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { a.Close() })
			return a
		}
	}
	enginetest.RunChat(t, enginetest.Subject{
		New:     fresh(false),
		Slow:    fresh(true),
		Restart: func(e engine.Engine) { e.(*attached).restart() },
	})
}

// Silence is told from death.
func TestSilenceIsNotDeath(t *testing.T) {
	f, err := ollama.New(ollama.Config{Mock: mock.Config{Model: "tiny", Args: mock.DefaultArgs()}})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	enginetest.Silence(t, f, func(t *testing.T, url string) engine.Engine {
		e, err := openai.New(openai.Config{Config: httpapi.Config{URL: url}, Interval: 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
}
