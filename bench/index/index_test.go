package main

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/dynago/dynago/bench/data"
	"github.com/dynago/dynago/bench/workload"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// The measurement of frames starts its own program as the engines' process.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == "publish" {
		main()
		return
	}
	os.Exit(m.Run())
}

// history is a small one with several turnovers of the caches.
func history(t *testing.T) *workload.Corpus {
	t.Helper()
	h, err := workload.Replay{Requests: data.Conversation()[:300], Factor: 1, Duplication: 2, Workers: 3, Capacity: 512}.Corpus()
	if err != nil {
		t.Fatal(err)
	}
	return h
}

func file(t *testing.T, h *workload.Corpus) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "history.bin")
	if err := h.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	return path
}

// measured runs one measurement as the command does.
func measured(t *testing.T, result any, args ...string) {
	t.Helper()
	var out bytes.Buffer
	if err := run(args, &out); err != nil {
		t.Fatalf("%v: %v", args, err)
	}
	if err := json.Unmarshal(out.Bytes(), result); err != nil {
		t.Fatalf("%v: %s: %v", args, out.String(), err)
	}
}

// Every index finds the same in the same history, and what it must find is known
// from a model that knows nothing of trees and tables.
func TestMixedFindsWhatThereIs(t *testing.T) {
	h := history(t)
	path := file(t, h)
	held := make([]map[kv.SeqHash]bool, h.Workers)
	keys := map[kv.EngineHash]kv.SeqHash{}
	for i := range held {
		held[i] = map[kv.SeqHash]bool{}
	}
	want := 0
	for _, op := range h.Ops {
		if op.Kind == workload.Query {
			for _, w := range held {
				for _, s := range kv.AppendSeqHashes(nil, h.Prompt(op)) {
					if !w[s] {
						break
					}
					want++
				}
			}
			continue
		}
		e := h.Event(op)
		parent := keys[e.Parent]
		for i, b := range e.Blocks {
			if op.Kind == workload.Remove {
				delete(held[op.Worker], keys[b.Engine])
				continue
			}
			if s := kv.SeqHash(b.Local); i == 0 && !e.HasParent {
				parent = s
			} else {
				parent = parent.Next(b.Local)
			}
			keys[b.Engine] = parent
			held[op.Worker][parent] = true
		}
	}
	if want < 1000 {
		t.Fatalf("only %d blocks are there to be found", want)
	}
	all := workload.CountsOf(h.Ops)
	for _, index := range []string{"kvindex", "positional"} {
		var m mixture
		measured(t, &m, "mixed", "-index", index, "-corpus", path)
		if m.Found != want || m.Failed != 0 || m.Blocks != all.All() || m.Held != all.Held() || m.Ops != len(h.Ops) {
			t.Errorf("%s: %+v; want %d found in %+v", index, m, want, all)
		}
		if len(m.Tenths) != 10 || slices.Min(m.Tenths) <= 0 || m.Thread <= 0 || m.Heap < 8*m.Held {
			t.Errorf("%s: %+v: want times, and memory for what is held", index, m)
		}
	}
}

func TestEventsThatAreRefusedAreCounted(t *testing.T) {
	h := history(t)
	for i := range h.Ops {
		if h.Ops[i].Kind == workload.Store {
			h.Ops[i].Kind = workload.Extend // of a block that is not there
			break
		}
	}
	var m mixture
	measured(t, &m, "mixed", "-corpus", file(t, h))
	if m.Failed == 0 {
		t.Error("an event was refused, and none is counted")
	}
}

func TestPairAnswersEveryQuery(t *testing.T) {
	h := history(t)
	var p paired
	measured(t, &p, "pair", "-corpus", file(t, h))
	if p.Latency.Count != 600 || p.Failed != 0 || p.Blocks != workload.CountsOf(h.Ops).All() || p.Writer <= 0 || p.Reader <= 0 {
		t.Errorf("%+v: want 600 queries, and the time of both", p)
	}
}

func TestSplitAndSubmit(t *testing.T) {
	path := file(t, history(t))
	var k kinds
	measured(t, &k, "split", "-corpus", path)
	if k.Query <= 0 || k.Store <= 0 || k.Remove <= 0 {
		t.Errorf("%+v: want a time for each kind", k)
	}
	var s submitted
	measured(t, &s, "submit", "-corpus", path)
	if s.Failed != 0 || s.Drained < s.Submitted || s.Blocks <= 0 {
		t.Errorf("%+v: want all events applied, and the queue drained last", s)
	}
}

func TestAgentsAreAskedForAtTheEnd(t *testing.T) {
	path := file(t, workload.Agents{Sessions: 100, Turns: 20, Workers: 4}.Corpus())
	for _, index := range []string{"kvindex", "positional"} {
		var a agentic
		measured(t, &a, "agents", "-index", index, "-corpus", path)
		if a.Late.Wrong != 0 || a.Failed != 0 || a.Late.Disturbed == 0 && a.Late.Count != 100 {
			t.Errorf("%s: %+v; want 100 right answers", index, a)
		}
	}
	var a agentic
	measured(t, &a, "agents", "-index", "none", "-corpus", path)
	if a.Late.Wrong != 100 {
		t.Errorf("%d answers of none are wrong, want all 100", a.Late.Wrong)
	}
}

func TestDepthChecksItsAnswers(t *testing.T) {
	for index, wrong := range map[string]bool{"kvindex": false, "positional": false, "none": true} {
		var d deep
		measured(t, &d, "depth", "-index", index, "-blocks", "100000")
		if (d.Half.Wrong > 0) != wrong || (d.Full.Wrong > 0) != wrong || d.Failed != 0 {
			t.Errorf("%s: %+v", index, d)
		}
		if d.Full.Disturbed < 1 && d.Full.P99 <= 0 {
			t.Errorf("%s: no latencies", index)
		}
	}
}

func TestMemoryIsCountedAndGivenBack(t *testing.T) {
	var f footprint
	measured(t, &f, "memory", "-blocks", "100000")
	if f.One < 16 || f.Further < 8 || f.Left > 0.5 || f.Failed != 0 || f.CollectEmpty <= 0 || f.CollectFull <= 0 {
		t.Errorf("%+v", f)
	}
}

func TestLines(t *testing.T) {
	var l lines
	measured(t, &l, "lines")
	if l.Touched <= 0 || l.Chased <= l.Touched {
		t.Errorf("%+v: want a line that is waited for to take longer than one that is not", l)
	}
}

// What an engine sends decodes to the history that it was made of, but for the
// hashes of blocks, which are those of the tokens.
func TestEnginesTellTheHistory(t *testing.T) {
	h := history(t)
	const blockTokens = 4
	for w := range h.Workers {
		var want []kv.Event
		for _, op := range h.Ops {
			if int(op.Worker) != w || op.Kind == workload.Query {
				continue
			}
			e := h.Event(op)
			blocks := slices.Clone(e.Blocks)
			for i := range blocks {
				tokens := workload.Engine{BlockTokens: blockTokens}.Tokens(nil, blocks[i].Local)
				blocks[i].Local = kv.HashBlock(tokens, kv.HashSeed)
				if op.Kind == workload.Remove {
					blocks[i].Local = 0
				}
			}
			e.Blocks = blocks
			want = append(want, e)
		}
		decoder := kvevent.NewDecoder(kvevent.Config{BlockSize: blockTokens})
		var got []kv.Event
		number := uint64(0)
		for m := range (workload.Engine{Corpus: h, Worker: w, BlockTokens: blockTokens}).Messages() {
			if string(m[0]) != "kv" || binary.BigEndian.Uint64(m[1]) != number {
				t.Fatalf("message %d has the topic %q and the number %x", number, m[0], m[1])
			}
			number++
			_, events, err := decoder.Decode(m[2])
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range events {
				got = append(got, kv.Event{Kind: e.Kind, Parent: e.Parent, HasParent: e.HasParent, Blocks: slices.Clone(e.Blocks)})
			}
		}
		if got, want := joined(got), joined(want); !slices.Equal(got, want) {
			t.Fatalf("worker %d: decoded to %d changes, want %d equal ones", w, len(got), len(want))
		}
	}
}

// change is one block that came or went.
type change struct {
	kind   kv.EventKind
	parent kv.EngineHash
	block  kv.Block
}

// joined tells events block by block: how many of them share an event does not
// matter.
func joined(events []kv.Event) []change {
	var all []change
	for _, e := range events {
		parent := e.Parent
		for _, b := range e.Blocks {
			all = append(all, change{e.Kind, parent, b})
			if e.Kind == kv.Stored {
				parent = b.Engine
			}
		}
	}
	return all
}

func TestFramesAreReadToTheLast(t *testing.T) {
	h := history(t)
	var n ingested
	measured(t, &n, "frames", "-corpus", file(t, h), "-tokens", "4")
	if n.Failed != 0 || n.Lost != 0 || n.Messages != messagesOf(h)-messagesOf(h)/2 {
		t.Errorf("%+v: want the second half of %d messages", n, messagesOf(h))
	}
	if all := workload.CountsOf(h.Ops); n.Blocks < all.Stored/2 || n.Blocks > all.Stored+all.Removed || n.Stored >= n.Blocks {
		t.Errorf("%+v: want about half of %+v", n, all)
	}
}

func TestUsage(t *testing.T) {
	path := file(t, history(t))
	for _, tt := range []struct{ args, err string }{
		{"", "want mixed"},
		{"sorted", "unknown measurement"},
		{"mixed -index b-tree", "-index b-tree: want one of kvindex, positional, none"},
		{"mixed -corpus /none", "no such file"},
		{"depth -blocks 5", "-blocks 5"},
		{"publish -corpus /none", "no such file"},
	} {
		if err := run(strings.Fields(tt.args), &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), tt.err) {
			t.Errorf("%q: error %v, want one with %q", tt.args, err, tt.err)
		}
	}
	profile := filepath.Join(t.TempDir(), "cpu")
	var m mixture
	measured(t, &m, "mixed", "-corpus", path, "-cpuprofile", profile)
	if info, err := os.Stat(profile); err != nil || info.Size() == 0 {
		t.Errorf("profile: %v, %v", info, err)
	}
}
