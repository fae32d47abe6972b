package ollama_test

import (
	"errors"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/httpapi"
	"github.com/dynago/dynago/engine/ollama"
	fake "github.com/dynago/dynago/internal/fake/ollama"
)

// attached is an adapter with the server behind it.
type attached struct {
	*ollama.Engine
	fake *fake.Server
	http *httptest.Server
}

func (a *attached) Close() error {
	err := errors.Join(a.Engine.Close(), a.fake.Close())
	a.http.Close()
	return err
}

func TestContract(t *testing.T) {
	fresh := func(change func(*fake.Config)) func(t *testing.T) engine.Engine {
		return func(t *testing.T) engine.Engine {
			f := serve(t, func(c *fake.Config) {
				c.Mock.Args.MaxNumSeqs = 16
				if change != nil {
					change(c)
				}
			})
			s := httptest.NewServer(f)
			e, err := ollama.New(ollama.Config{Config: httpapi.Config{URL: s.URL}, Interval: 2 * time.Millisecond})
			if err != nil {
				t.Fatal(err)
			}
			a := &attached{e, f, s}
			t.Cleanup(func() { a.Close() })
			return a
		}
	}
	enginetest.RunChat(t, enginetest.Subject{
		New: fresh(nil),
		Slow: fresh(func(c *fake.Config) {
			a := &c.Mock.Args
			a.MaxNumSeqs, a.SpeedupRatio, a.TimingModel, a.PrefillMS, a.DecodeMS = 1, 1, "constant", 1, 5
		}),
		Restart: func(e engine.Engine) { e.(*attached).fake.Restart() },
	})
}

// Silence is told from death.
func TestSilenceIsNotDeath(t *testing.T) {
	enginetest.Silence(t, serve(t, nil), func(t *testing.T, url string) engine.Engine {
		e, err := ollama.New(ollama.Config{Config: httpapi.Config{URL: url}, Interval: 2 * time.Millisecond})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { e.Close() })
		return e
	})
}
