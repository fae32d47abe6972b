//go:build e2e

package kvevent_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvindex"
)

// libzmqEngine is a process that has a cache and publishes on libzmq.
type libzmqEngine struct {
	t      *testing.T
	stdin  io.Writer
	lines  *bufio.Reader
	events string
	replay string
}

// engineAnswer is one line of it.
type engineAnswer struct {
	Endpoint, Replay string
	Next             uint64
	Blocks           int
	State            []struct {
		Hash   uint64
		Parent *uint64
		Tokens []uint32
	}
}

func startLibzmqEngine(t *testing.T, flags ...string) *libzmqEngine {
	t.Helper()
	python, scripts := os.Getenv("E2E_PYTHON"), os.Getenv("E2E_ZMQ")
	if python == "" || scripts == "" {
		t.Fatal("E2E_PYTHON or E2E_ZMQ is not set; start the suites with e2e/zmq/run")
	}
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	cmd := exec.CommandContext(ctx, python, append([]string{filepath.Join(scripts, "engine.py")}, flags...)...)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
	})
	e := &libzmqEngine{t: t, stdin: stdin, lines: bufio.NewReader(stdout)}
	a := e.answer()
	e.events, e.replay = a.Endpoint, a.Replay
	return e
}

func (e *libzmqEngine) do(format string, args ...any) engineAnswer {
	e.t.Helper()
	if _, err := fmt.Fprintf(e.stdin, format+"\n", args...); err != nil {
		e.t.Fatal(err)
	}
	return e.answer()
}

func (e *libzmqEngine) answer() (a engineAnswer) {
	e.t.Helper()
	line, err := e.lines.ReadBytes('\n')
	if err != nil {
		e.t.Fatalf("the engine has ended: %v", err)
	}
	if err := json.Unmarshal(line, &a); err != nil {
		e.t.Fatal(err)
	}
	return a
}

// listener hears of one libzmq engine and keeps an index.
type listener struct {
	t      *testing.T
	engine *libzmqEngine
	source *kvevent.Source

	mu    sync.Mutex
	heard chan struct{} // has something when a batch has come
	receiver
	index *kvindex.Index
}

func listenTo(t *testing.T, e *libzmqEngine) *listener {
	t.Helper()
	s, err := kvevent.NewSource(kvevent.SourceConfig{
		Endpoints: []kvevent.Endpoint{{Events: e.events, Replay: e.replay}}, Decoder: kvevent.Config{BlockSize: 16},
	})
	if err != nil {
		t.Fatal(err)
	}
	l := &listener{t: t, engine: e, source: s, heard: make(chan struct{}, 1), index: kvindex.New()}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		for b, err := range s.Events(ctx, nil) {
			if err == nil {
				err = l.hear(b)
			}
			if err != nil {
				t.Error(err)
			}
		}
	}()
	t.Cleanup(func() { cancel(); <-done })
	return l
}

func (l *listener) hear(b kv.Batch) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	target := kv.Target{Rank: b.Rank}
	if b.Gap != "" {
		l.index.RemoveTarget(target)
	}
	for _, e := range b.Events {
		_ = l.index.Apply(target, e)
	}
	select {
	case l.heard <- struct{}{}:
	default:
	}
	return l.take(b)
}

// wait waits until what was heard is the engine's state, as far as state says,
// which is exact or partial.
func (l *listener) wait(state string) {
	l.t.Helper()
	want := l.engine.do(`{"do": "state"}`).State
	limit := time.After(time.Minute)
	for {
		problem := l.compare(state, want)
		if problem == nil {
			return
		}
		select {
		case <-l.heard:
		case <-limit:
			l.t.Fatalf("%v; %+v", problem, l.source.Stats())
		}
	}
}

func (l *listener) compare(state string, want []struct {
	Hash   uint64
	Parent *uint64
	Tokens []uint32
},
) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	h := l.ranks[0]
	if h == nil || h.state != state && (h.state != "" || state != "partial") {
		return fmt.Errorf("heard %v, want %s", h, state)
	}
	there := make(map[kv.EngineHash][]kv.LocalHash, len(want)) // with all before it
	for _, b := range want {
		var chain []kv.LocalHash
		if b.Parent != nil {
			chain = there[kv.EngineHash(*b.Parent)]
		}
		there[kv.EngineHash(b.Hash)] = append(slices.Clip(chain), kv.HashBlock(b.Tokens, kv.HashSeed))
	}
	for key, local := range h.holds {
		if chain := there[key]; len(chain) == 0 || chain[len(chain)-1] != local {
			return fmt.Errorf("heard of %d, which is not there, or is another block", key)
		}
	}
	if state == "partial" {
		return nil
	}
	if got := l.index.Blocks(kv.Target{}); len(h.holds) != len(want) || got != len(want) {
		return fmt.Errorf("heard of %d blocks, %d in the index, and there are %d", len(h.holds), got, len(want))
	}
	for key, chain := range there {
		var m kvindex.Matches
		l.index.Match(chain, &m)
		if len(m.Found) != 1 || m.Found[0].Blocks[kv.TierDevice] != int32(len(chain)) {
			return fmt.Errorf("the index finds %v of the %d blocks up to %d", m.Found, len(chain), key)
		}
	}
	return nil
}

func TestLibzmqSource(t *testing.T) {
	for _, flags := range [][]string{
		{},
		{"--replay-topic", "--hashes", "signed"},
		{"--encoding", "positional", "--hashes", "bytes", "--topic", "kv"},
	} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			e := startLibzmqEngine(t, append(flags, "--replay", "tcp://127.0.0.1:*")...)
			e.do(`{"do": "run", "batches": 100}`) // before anybody listens
			l := listenTo(t, e)
			l.wait("exact")
			for range 5 {
				e.do(`{"do": "run", "batches": 200}`)
				e.do(`{"do": "drop", "batches": 20}`)
				e.do(`{"do": "run", "batches": 1}`)
				l.wait("exact") // before the next loss, which could be the same gap
			}
			if s := l.source.Stats()[0].Order; s.Gaps < 5 || s.Cleared != 0 {
				t.Errorf("counted %+v", s)
			}
			e.do(`{"do": "clear"}`)
			l.wait("exact")
			e.do(`{"do": "restart"}`)
			e.do(`{"do": "run", "batches": 2000}`) // further than the life before
			l.wait("exact")
			if err := l.wantGaps(kv.GapRestart); err != nil {
				t.Error(err)
			}
		})
	}
}

// An engine that keeps too little for what was lost, and one that replays
// nothing: what is heard is partial, and never wrong.
func TestLibzmqPartial(t *testing.T) {
	for _, flags := range [][]string{{"--replay", "tcp://127.0.0.1:*", "--buffer-steps", "10"}, {}} {
		t.Run(fmt.Sprint(flags), func(t *testing.T) {
			t.Parallel()
			e := startLibzmqEngine(t, flags...)
			e.do(`{"do": "run", "batches": 100}`)
			l := listenTo(t, e)
			for !l.source.Stats()[0].Connected {
				e.do(`{"do": "run", "batches": 1}`)
			}
			e.do(`{"do": "run", "batches": 5}`)
			l.wait("partial")
			e.do(`{"do": "drop", "batches": 50}`)
			e.do(`{"do": "run", "batches": 50}`)
			l.wait("partial")
			e.do(`{"do": "clear"}`) // now everything is known again
			e.do(`{"do": "run", "batches": 5}`)
			l.wait("exact")
		})
	}
}

// An engine that does not answer is left alone, and what was missed is made up
// for when it does.
func TestLibzmqSilentReplay(t *testing.T) {
	t.Parallel()
	e := startLibzmqEngine(t, "--replay", "tcp://127.0.0.1:*")
	e.do(`{"do": "run", "batches": 50}`)
	l := listenTo(t, e)
	l.wait("exact")
	e.do(`{"do": "silence", "on": true}`)
	e.do(`{"do": "drop", "batches": 5}`)
	e.do(`{"do": "run", "batches": 5}`)
	l.wait("partial")
	e.do(`{"do": "silence", "on": false}`)
	l.wait("exact")
}

// A hundred thousand events, through losses, with a cache that turns over many
// times.
func TestLibzmqLong(t *testing.T) {
	t.Parallel()
	e := startLibzmqEngine(t, "--replay", "tcp://127.0.0.1:*", "--capacity", "4096", "--buffer-steps", "100000")
	l := listenTo(t, e)
	for range 20 {
		e.do(`{"do": "run", "batches": 1200}`)
		e.do(`{"do": "drop", "batches": 10}`)
	}
	e.do(`{"do": "run", "batches": 1}`)
	l.wait("exact")
	s := l.source.Stats()[0]
	if n := s.Decoder.Accepted[kvevent.TypeStored] + s.Decoder.Accepted[kvevent.TypeRemoved]; n < 100_000 || s.Order.Cleared != 0 {
		t.Errorf("%d events, counted %+v", n, s.Order)
	}
	t.Logf("%+v", s.Order)
}
