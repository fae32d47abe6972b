//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// What an operator lets workers forget is not cached there any more, and the router
// expects nothing else: as the answers tell, before and after, and whatever tells the
// router of it.
func TestFlush(t *testing.T) {
	t.Parallel()
	const question = "Which of the rivers of the valley has its own time, and who wrote of it first? Name the stones that remember the water."
	// What was flushed there is another life, once it is looked at.
	const newLife = "SGLang's, told by events"
	dev := append([]string{"--mocker-config", `{"quirks":{"dev":true}}`}, eventful...)
	for name, house := range map[string]func(t *testing.T) *program{
		"in this process": func(t *testing.T) *program {
			return serve(t, "--workers", "2", "--speedup-ratio", "0", "--model-name", "m")
		},
		"without events": func(t *testing.T) *program {
			return serve(t, "--workers", "2", "--speedup-ratio", "0", "--model-name", "m", "--no-router-kv-events")
		},
		"in another process": func(t *testing.T) *program {
			_, spec := attachable(t, "worker", "--engine", "mock", "--listen", "127.0.0.1:0", "--speedup-ratio", "0", "--model-name", "m")
			return serve(t, "--engine", spec)
		},
		"vLLM's, told by events": func(t *testing.T) *program {
			m, engine := mocker(t, "vllm", dev...)
			return attachTo(t, []*program{m}, engine).program
		},
		newLife: func(t *testing.T) *program {
			m, engine := mocker(t, "sglang", eventful...)
			return attachTo(t, []*program{m}, engine).program
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			a := &attachment{program: house(t)}
			a.ready("m")
			known := func() (blocks int) {
				var stats struct {
					Ranks []struct {
						Blocks int `json:"cached_blocks"`
					}
				}
				if _, text := a.get(a.url + "/v1/kv/stats"); json.Unmarshal([]byte(text), &stats) != nil || len(stats.Ranks) == 0 {
					t.Fatal(text)
				}
				for _, r := range stats.Ranks {
					blocks += r.Blocks
				}
				return blocks
			}
			turns := func(when string, want []bool) {
				t.Helper()
				for i, hit := range want {
					before := known()
					predicted, cached := a.turn(question, 16)
					if predicted != max(cached, 0) || (cached > 0) != hit {
						t.Errorf("%s, turn %d: %d tokens were expected to be cached, %d were, want some: %v", when, i, predicted, cached, hit)
					}
					if !hit {
						until(t, "the router knows of more blocks", func() bool { return known() > before })
					}
				}
			}
			until(t, "it tells what was cached", func() bool { // some do so once they have been seen to
				_, cached := a.turn("Once upon a time.", 16)
				return cached >= 0
			})
			turns("at first", []bool{false, true})
			for n := range 2 {
				var done struct {
					Flushed, Failed []struct{ Worker, Error string }
				}
				until(t, "all that was asked has ended", func() bool {
					done.Flushed, done.Failed = nil, nil
					a.post("/v1/kv/flush?model=m", "", &done)
					return len(done.Failed) == 0
				})
				if len(done.Flushed) == 0 {
					t.Fatalf("%+v", done)
				}
				if blocks := known(); blocks != 0 {
					t.Errorf("%d blocks count as cached after all was forgotten", blocks)
				}
				if name == newLife {
					until(t, "another life has begun", func() bool {
						_, text := a.get(a.url + "/admin/workers")
						return strings.Contains(text, fmt.Sprintf(`"restarts":%d`, n+1))
					})
				}
				turns(fmt.Sprintf("after flush %d", n+1), []bool{false, true})
			}
		})
	}
}
