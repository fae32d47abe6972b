package kvevent_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// asked is an engine that is asked for its events.
type asked struct {
	mu      sync.Mutex
	next    int
	waiting []string
	holds   map[kv.EngineHash]kv.LocalHash
	times   []time.Time
	fails   bool
}

func newAsked() *asked { return &asked{holds: make(map[kv.EngineHash]kv.LocalHash)} }

// restart begins another life.
func (p *asked) restart() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.next, p.waiting = 0, nil
	clear(p.holds)
}

// lose loses what waits to be fetched.
func (p *asked) lose() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiting = nil
}

func (p *asked) fail(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fails = on
}

// asks are the times at which it was asked.
func (p *asked) asks() []time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.times)
}

func (p *asked) event(data string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.add(data)
}

func (p *asked) add(data string) {
	p.waiting = append(p.waiting, fmt.Sprintf(`{"event_id":%d,"attention_dp_rank":0,"window_size":64,"data":%s}`, p.next, data))
	p.next++
}

func (p *asked) store(hash uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.holds[kv.EngineHash(hash)] = kv.HashBlock([]uint32{hash, 2}, kv.HashSeed)
	p.add(fmt.Sprintf(`{"type":"stored","parent_hash":null,"blocks":[{"block_hash":%d,"cache_level":0,
		"tokens":[{"token_id":%d,"token_extra_id":0},{"token_id":2,"token_extra_id":0}]}]}`, hash, hash))
}

func (p *asked) remove(hash uint32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.holds, kv.EngineHash(hash))
	p.add(fmt.Sprintf(`{"type":"removed","block_hashes":[%d]}`, hash))
}

func (p *asked) fetch(context.Context) ([]byte, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.times = append(p.times, time.Now())
	if p.fails {
		return nil, errors.New("connection refused")
	}
	body := "[" + strings.Join(p.waiting, ",") + "]"
	p.waiting = nil
	return []byte(body), nil
}

func TestPollSource(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newAsked()
		var said bytes.Buffer
		source := kvevent.NewPollSource(kvevent.PollConfig{
			Fetch: engine.fetch, Decoder: kvevent.Config{BlockSize: 2}, Log: slog.New(slog.NewTextHandler(&said, nil)),
		})
		var r receiver
		listen := func(from ...kv.Cursor) (stop func()) {
			ctx, cancel := context.WithCancel(context.Background())
			done := make(chan struct{})
			go func() {
				defer close(done)
				for b, err := range source.Events(ctx, from) {
					if err == nil {
						err = r.take(b)
					}
					if err != nil {
						t.Error(err)
					}
				}
			}()
			return func() { cancel(); <-done }
		}
		expect := func(state string, gaps ...kv.GapReason) {
			t.Helper()
			time.Sleep(2 * time.Second)
			synctest.Wait()
			r.Lock()
			defer r.Unlock()
			h := r.ranks[0]
			if h == nil || h.state != state && (state != "partial" || h.state != "") {
				t.Fatalf("heard %+v, want %s", h, state)
			}
			if state == "exact" && !maps.Equal(h.holds, engine.holds) {
				t.Fatalf("heard of %v, and the cache is %v", h.holds, engine.holds)
			}
			for hash := range h.holds {
				if _, ok := engine.holds[hash]; !ok {
					t.Fatalf("heard of %d, which is not there", hash)
				}
			}
			r.Unlock()
			defer r.Lock()
			if err := r.wantGaps(gaps...); err != nil {
				t.Fatal(err)
			}
		}

		engine.event(`{"type":"created","num_blocks_per_cache_level":[8]}`)
		engine.store(1)
		stop := listen()
		expect("exact")
		engine.store(2)
		engine.remove(1)
		expect("exact")

		// A failure is no loss, and a hole is.
		engine.fail(true)
		time.Sleep(10 * time.Second)
		engine.fail(false)
		engine.store(3)
		expect("exact")
		if n := strings.Count(said.String(), "cannot be asked"); n != 1 {
			t.Errorf("said %d times in one outage:\n%s", n, &said)
		}
		engine.remove(3)
		engine.lose()
		engine.store(4)
		expect("partial", kv.GapLost)
		engine.store(5)
		expect("partial")

		// Another life, seen by its numbers, and then by its health, which is no news.
		engine.restart()
		engine.store(6)
		expect("exact", kv.GapLost)
		if source.Restarted() {
			t.Error("what numbers have shown is news")
		}
		engine.store(7)
		expect("exact")
		// Another one, seen by its health alone: the numbers go on by chance.
		if !source.Restarted() {
			t.Error("what numbers have not shown is no news")
		}
		engine.restart()
		for i := range uint32(3) {
			engine.store(20 + i)
		}
		expect("exact", kv.GapRestart)
		stop()

		// Where the last loop was left, and where it was not.
		engine.store(30)
		stop = listen(r.cursors()...)
		expect("exact")
		stop()
		c := r.cursors()
		c[0].Sequence--
		engine.store(31)
		stop = listen(c...)
		expect("partial", kv.GapRestart)
		stop()
		r.anew()
		engine.store(32)
		stop = listen()
		expect("partial")

		// Asked seldom while nothing happens, and soon again when something does.
		time.Sleep(time.Second)
		asks := engine.asks()
		n := len(asks)
		if d := asks[n-1].Sub(asks[n-2]); d != 100*time.Millisecond {
			t.Errorf("asked after %v when nothing happened", d)
		}
		engine.store(33)
		for len(asks) < n+2 {
			time.Sleep(time.Millisecond)
			asks = engine.asks()
		}
		if d := asks[n+1].Sub(asks[n]); d != 20*time.Millisecond {
			t.Errorf("asked %v after something happened", d)
		}
		stop()
		if s := source.Stats(); s.Failed == 0 || s.Lost != 2 || s.Polls < 50 || s.Decoder.Malformed != 0 {
			t.Errorf("counted %+v", s)
		}
	})
}

// An engine may gather what happens until nothing does for a while, and what it has
// gathered is lost with whoever does not wait for it.
func TestPollSourceWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newAsked()
		source := kvevent.NewPollSource(kvevent.PollConfig{
			Decoder: kvevent.Config{BlockSize: 2},
			Fetch: func(ctx context.Context) ([]byte, error) {
				body, err := engine.fetch(ctx)
				select {
				case <-time.After(30 * time.Second):
					return body, err
				case <-ctx.Done():
					return nil, ctx.Err()
				}
			},
		})
		engine.event(`{"type":"created","num_blocks_per_cache_level":[9]}`)
		engine.store(1)
		time.AfterFunc(40*time.Second, func() { engine.store(2) })
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		var r receiver
		for b, err := range source.Events(ctx, nil) {
			if err == nil {
				err = r.take(b)
			}
			if err != nil {
				t.Fatal(err)
			}
			if len(r.ranks[0].holds) == 2 {
				break
			}
		}
		if s := source.Stats(); len(r.gaps) > 0 || s.Lost+s.Failed > 0 || len(r.ranks) == 0 {
			t.Errorf("gaps %v, %+v", r.gaps, s)
		}
	})
}

// An answer that cannot be read is lost, and the next one says so.
func TestPollSourceMalformed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		engine := newAsked()
		engine.store(1)
		broken := false
		source := kvevent.NewPollSource(kvevent.PollConfig{
			Decoder: kvevent.Config{BlockSize: 2},
			Fetch: func(ctx context.Context) ([]byte, error) {
				body, err := engine.fetch(ctx)
				if broken {
					broken = false
					body = body[:len(body)-1]
				}
				return body, err
			},
		})
		var r receiver
		for b, err := range source.Events(t.Context(), nil) {
			if err == nil {
				err = r.take(b)
			}
			if err != nil {
				t.Fatal(err)
			}
			switch {
			case len(r.gaps) > 0 && len(b.Events) > 0:
				if len(r.ranks[0].holds) != 1 {
					t.Errorf("heard of %v", r.ranks[0].holds)
				}
				return
			case len(b.Events) > 0:
				broken = true
				engine.remove(1)
				time.AfterFunc(time.Second, func() { engine.store(2) })
			}
		}
	})
}
