package mock_test

import (
	"strings"
	"testing"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/enginetest"
	"github.com/dynago/dynago/engine/mock"
)

// eos ends a sequence for the tokenizer of these tests, which gives one id to
// each byte.
const eos = 300

func encodeBytes(dst []uint32, text string) []uint32 {
	for {
		before, after, found := strings.Cut(text, "<eos>")
		for _, b := range []byte(before) {
			dst = append(dst, uint32(b))
		}
		if !found {
			return dst
		}
		dst = append(dst, eos)
		text = after
	}
}

func decodeBytes(ids []uint32) string {
	var s strings.Builder
	for _, id := range ids {
		if id < 256 {
			s.WriteByte(byte(id))
		} else {
			s.WriteString("<eos>")
		}
	}
	return s.String()
}

// open returns a running engine that is closed with the test.
func open(t testing.TB, cfg mock.Config, change ...func(*mock.Args)) *mock.Engine {
	t.Helper()
	cfg.Model = "demo"
	if cfg.Args == (mock.Args{}) {
		cfg.Args = mock.DefaultArgs()
		cfg.Args.BlockSize, cfg.Args.NumGPUBlocks, cfg.Args.SpeedupRatio = 16, 4096, 0
	}
	for _, f := range change {
		f(&cfg.Args)
	}
	e, err := mock.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	})
	return e
}

func slow(a *mock.Args) {
	a.SpeedupRatio, a.TimingModel, a.PrefillMS, a.DecodeMS, a.MaxNumSeqs = 1, "constant", 3, 3, 1
}

func TestContract(t *testing.T) {
	for name, cfg := range map[string]mock.Config{
		"random": {},
		"text":   {Encode: encodeBytes, EOS: []uint32{eos}, VocabSize: 1000, Seed: 7},
		"ranks":  {Encode: encodeBytes, EOS: []uint32{eos}},
	} {
		ranks := func(a *mock.Args) {
			if name == "ranks" {
				a.DPSize = 3
			}
		}
		subject := enginetest.Subject{
			New:     func(t *testing.T) engine.Engine { return open(t, cfg, ranks) },
			Slow:    func(t *testing.T) engine.Engine { return open(t, cfg, slow) },
			Restart: func(e engine.Engine) { e.(*mock.Engine).Restart() },
			Drain:   func(e engine.Engine) { e.(*mock.Engine).Drain() },
			Legs: func(t *testing.T) (prefill, decode engine.Engine) {
				role := func(r string) func(*mock.Args) { return func(a *mock.Args) { a.WorkerType = r } }
				return open(t, cfg, role("prefill")), open(t, cfg, role("decode"))
			},
			Skips: []string{"26-loss"}, // there is no way on which they could be lost
		}
		if name == "text" {
			t.Run("text-real-time", func(t *testing.T) { enginetest.Run(t, subject) })
		}
		subject.Virtual = true
		t.Run(name, func(t *testing.T) { enginetest.Run(t, subject) })
	}
}
