package sim_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
	"github.com/dynago/dynago/sim"
	"github.com/dynago/dynago/sim/trace"
)

const ms = time.Millisecond

// text is n tokens that no other stream has.
func text(stream uint64, n int) trace.Text { return trace.Text{{Stream: stream, Len: uint32(n)}} }

// ask is a request of its own, with a prompt and an answer of so many tokens.
func ask(n int, at time.Duration, prompt, answer int) trace.Request {
	return trace.Request{
		ID: fmt.Sprintf("r%d", n), At: at,
		Prompt: text(uint64(n), prompt), Answer: text(1<<40+uint64(n), answer),
	}
}

// steps is an engine whose passes take 10 ms for prefills and 5 ms for decodes.
func steps() mock.Args {
	a := mock.DefaultArgs()
	a.BlockSize = 16
	a.TimingModel, a.PrefillMS, a.DecodeMS = "constant", 10, 5
	return a
}

// run replays a workload and returns the records of all requests by id.
func run(t testing.TB, c sim.Config, w []trace.Request) (*sim.Report, map[string]*sim.Record) {
	t.Helper()
	records := make(map[string]*sim.Record)
	c.Record = func(r *sim.Record) {
		if records[r.ID] != nil {
			t.Errorf("request %s has ended twice", r.ID)
		}
		records[r.ID] = r
	}
	report, err := sim.Run(c, w)
	if err != nil {
		t.Fatal(err)
	}
	return report, records
}

// One worker, and a schedule that was worked out by hand.
func TestSchedule(t *testing.T) {
	for _, tt := range []struct {
		name string
		seqs int
		want []string // id: admitted, first, second, last token, in ms
	}{
		{"one at a time", 1, []string{"r0: 0 10 15 20", "r1: 20 30 35 40", "r2: 40 50 55 60"}},
		// The second and the third join at the end of the pass in which they came,
		// or as soon as there is room.
		{"two at a time", 2, []string{"r0: 0 10 25 30", "r1: 10 25 30 45", "r2: 30 45 50 55"}},
		{"all at a time", 9, []string{"r0: 0 10 25 30", "r1: 10 25 30 35", "r2: 10 25 30 35"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			args := steps()
			args.MaxNumSeqs = tt.seqs
			report, records := run(t, sim.Config{Engine: args}, []trace.Request{
				ask(0, 0, 100, 3), ask(1, 1*ms, 100, 3), ask(2, 2*ms, 100, 3),
			})
			var got []string
			for _, r := range records {
				got = append(got, fmt.Sprintf("%s: %d %d %d %d", r.ID, r.Admitted/ms, r.First/ms, r.Second/ms, r.Last/ms))
			}
			slices.Sort(got)
			if !slices.Equal(got, tt.want) {
				t.Errorf("got %q, want %q", got, tt.want)
			}
			if last := records["r2"].Last; report.Duration != last || report.Completed != 3 || report.OutputTokens != 9 {
				t.Errorf("report of %v, %d requests, %d tokens", report.Duration, report.Completed, report.OutputTokens)
			}
		})
	}
}

// What waits for others comes its delay after the last of them.
func TestDependencies(t *testing.T) {
	a, b, c := ask(0, 3*ms, 50, 1), ask(1, 0, 50, 3), ask(2, 999*time.Hour, 50, 1)
	c.After, c.Delay = []string{"r0", "r1", "r0"}, 100*ms
	d := ask(3, 0, 50, 1)
	d.After = []string{"r2"}
	// Those that wait may stand before what they wait for.
	_, records := run(t, sim.Config{Workers: 2, Engine: steps()}, []trace.Request{d, c, b, a})
	for id, want := range map[string]time.Duration{"r0": 3 * ms, "r1": 0, "r2": 120 * ms, "r3": 130 * ms} {
		if got := records[id].Arrived; got != want {
			t.Errorf("%s comes at %v, want %v", id, got, want)
		}
	}
}

// Where the number of requests is bounded, it is never exceeded and always
// reached, and a conversation that has begun goes on before another begins.
func TestClosedLoop(t *testing.T) {
	const limit = 4
	var w []trace.Request
	for s := range 20 {
		for turn := range 3 {
			r := ask(10*s+turn, time.Hour*time.Duration(s), 100, 1+s%5)
			if r.Session = fmt.Sprint(s); turn > 0 {
				r.After, r.Delay = []string{fmt.Sprintf("r%d", 10*s+turn-1)}, time.Duration(turn)*ms
			}
			w = append(w, r)
		}
	}
	_, records := run(t, sim.Config{Workers: 2, Engine: steps(), Concurrency: limit}, w)
	type edge struct {
		at    time.Duration
		delta int
	}
	var edges []edge
	for _, r := range records {
		edges = append(edges, edge{r.Arrived, 1}, edge{r.Ended, -1})
	}
	slices.SortFunc(edges, func(a, b edge) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.delta - b.delta
	})
	running, most := 0, 0
	for _, e := range edges {
		running += e.delta
		most = max(most, running)
	}
	if most != limit {
		t.Errorf("%d requests at a time, want %d", most, limit)
	}
	if len(records) != len(w) {
		t.Fatalf("%d of %d requests have ended", len(records), len(w))
	}
	// The last turn of the first conversation ends before the tenth one begins.
	if first, tenth := records["r2"], records["r90"]; first.Ended > tenth.Arrived {
		t.Errorf("the first conversation ends at %v, after the tenth has begun at %v", first.Ended, tenth.Arrived)
	}
}

// Whatever happens: every request ends once, nothing is left in the books, and
// the index knows exactly what the caches hold.
func TestConservation(t *testing.T) {
	args := mock.DefaultArgs()
	args.BlockSize, args.NumGPUBlocks, args.DPSize = 64, 2500, 2 // small: much is evicted
	w := conversation(t, 150)
	trace.Speed(w, 4)
	for _, mode := range router.Modes {
		if mode == router.Direct {
			continue // wants every request to name a worker
		}
		t.Run(string(mode), func(t *testing.T) {
			ended := make(map[string]int)
			s, err := sim.New(sim.Config{
				Workers: 3, Engine: args, Migrations: 3,
				Router: router.Config{Mode: mode},
				Record: func(r *sim.Record) { ended[r.ID]++ },
				Changes: []sim.Change{
					{At: 2 * time.Second, Do: func(s *sim.Simulation) error { return s.RestartWorker(1) }},
					{At: 3 * time.Second, Do: func(s *sim.Simulation) error { s.Resync(2); return nil }},
					{At: 4 * time.Second, Do: func(s *sim.Simulation) error { _, err := s.AddWorker(args); return err }},
					{At: 5 * time.Second, Do: func(s *sim.Simulation) error { return s.RemoveWorker(0) }},
					{At: 6 * time.Second, Do: func(s *sim.Simulation) error { return s.SetSpeed(2, 0.5) }},
				},
			})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			report, err := s.Run(w)
			if err != nil {
				t.Fatal(err)
			}
			want := 0
			for _, r := range w {
				want += r.Answer.Len()
				if ended[r.ID] != 1 {
					t.Errorf("request %s has ended %d times", r.ID, ended[r.ID])
				}
			}
			if report.Completed != len(w) || report.OutputTokens != want || len(report.Failed) > 0 {
				t.Errorf("%d of %d requests completed with %d of %d tokens, failed: %v", report.Completed, len(w), report.OutputTokens, want, report.Failed)
			}
			checkBooks(t, s)
			sameInIndex(t, s, w, args.BlockSize)
		})
	}
}

// checkBooks makes sure that nothing is left in the books.
func checkBooks(t rapid.TB, s *sim.Simulation) {
	t.Helper()
	if n := s.Running(); n != 0 {
		t.Errorf("%d requests still run", n)
	}
	for _, l := range s.Router().Loads() {
		if l.Requests != 0 || l.ActiveBlocks != 0 || l.PrefillTokens != 0 {
			t.Errorf("%v: left in the books: %+v", l.Target, l)
		}
	}
}

// sameInIndex compares what the router knows of caches, and of each prompt in
// them, with what they hold. A store may have a block whose parent is nowhere, of
// which nobody knows what prompt it is: those are all that the index lacks.
func sameInIndex(t rapid.TB, s *sim.Simulation, w []trace.Request, blockSize int) {
	t.Helper()
	caches := s.Caches()
	exact := s.Router().IndexStats().ParentNotFound == 0
	targets := 0
	for _, l := range s.Router().Loads() {
		targets++
		held := make(map[kv.EngineHash]bool)
		for _, tier := range caches[l.Target] {
			maps.Copy(held, tier)
		}
		if len(held) < l.CachedBlocks || exact && len(held) != l.CachedBlocks {
			t.Errorf("%v holds %d blocks, and the index knows %d", l.Target, len(held), l.CachedBlocks)
		}
	}
	if targets != len(caches) {
		t.Errorf("the router knows %d of %d caches", targets, len(caches))
	}
	for _, r := range w {
		tokens := r.Prompt.Append(nil)
		rows, err := s.Router().Explain(context.Background(), &router.Query{Model: "sim", Tokens: tokens})
		if err != nil {
			t.Fatal(err)
		}
		seq := kv.AppendSeqHashes(nil, kv.AppendLocalHashes(nil, tokens, blockSize, kv.HashSeed))
		for _, row := range rows {
			var held [3]int // the router counts what is shared as if it lay on the disk
			at := 0
			for tier, blocks := range caches[row.Target] {
				for at < len(seq) && blocks[kv.EngineHash(seq[at])] {
					held[min(tier, 2)]++
					at++
				}
			}
			got := [3]int{row.Device, row.Host, row.Disk}
			if got != held {
				t.Fatalf("%v holds %d blocks of request %s, by tier, and the index knows %d", row.Target, held, r.ID, got)
			}
		}
	}
}

// The same inputs give the same report, to the last byte, whatever the mode, and
// whatever is lost with a worker.
func TestDeterminism(t *testing.T) {
	w := conversation(t, 100)
	trace.Speed(w, 20)
	for _, mode := range []router.Mode{router.KV, router.Random, router.PowerOfTwo} {
		var first []byte
		for i := range 2 {
			var records bytes.Buffer
			report, err := sim.Run(sim.Config{
				Workers: 4, Router: router.Config{Mode: mode},
				Migrations: 3,
				Changes: []sim.Change{
					{At: 400 * ms, Do: func(s *sim.Simulation) error { return s.RestartWorker(1) }},
					{At: 2 * time.Second, Do: func(s *sim.Simulation) error { return s.RemoveWorker(2) }},
				},
				Record: func(r *sim.Record) { fmt.Fprintf(&records, "%+v\n", *r) },
			}, w)
			if err != nil {
				t.Fatal(err)
			}
			text, err := report.JSON()
			if err != nil {
				t.Fatal(err)
			}
			text = append(text, records.Bytes()...)
			if i == 0 {
				first = text
			} else if !bytes.Equal(text, first) {
				t.Errorf("mode %s: run %d differs from the first", mode, i)
			}
		}
	}
}

// A request whose worker is lost goes on elsewhere with what it has, and no
// token comes twice; beyond the limit it fails.
func TestMigration(t *testing.T) {
	lose := func(n int, at time.Duration) sim.Change {
		return sim.Change{At: at, Do: func(s *sim.Simulation) error { return s.RemoveWorker(n) }}
	}
	c := sim.Config{
		Workers: 3, Engine: steps(), Migrations: 1, Router: router.Config{Mode: router.RoundRobin},
		Changes: []sim.Change{lose(0, 31*ms)},
	}
	report, records := run(t, c, []trace.Request{ask(0, 0, 100, 10)})
	r := records["r0"]
	// Five tokens by 30 ms; then prefill again, and four more.
	if r.First != 10*ms || r.Last != 31*ms+10*ms+4*5*ms || r.Migrations != 1 || report.OutputTokens != 10 {
		t.Errorf("got %+v", *r)
	}
	// One that comes back is not asked again.
	restart := c
	restart.Workers, restart.Changes = 2, []sim.Change{{At: 31 * ms, Do: func(s *sim.Simulation) error { return s.RestartWorker(0) }}}
	if _, records := run(t, restart, []trace.Request{ask(0, 0, 100, 10)}); records["r0"].Last != r.Last || records["r0"].Err != nil {
		t.Errorf("got %+v", *records["r0"])
	}
	c.Changes = append(c.Changes, lose(1, 45*ms))
	report, records = run(t, c, []trace.Request{ask(0, 0, 100, 10)})
	if report.Failed[engine.KindOf(engine.ErrWorkerLost)] != 1 || records["r0"].Err == nil {
		t.Errorf("lost twice, and %+v", *records["r0"])
	}
}

// A request in two legs: its prompt is computed by one worker, its blocks take
// their time, and another one decodes.
func TestTwoLegs(t *testing.T) {
	c := sim.Config{
		Workers: 1, Prefills: 1, Engine: steps(),
		Transfer: sim.Transfer{BytesPerToken: 1e6, Bandwidth: 1e9},
	}
	second := ask(1, 0, 40, 2)
	second.Prompt = slices.Concat(trace.Text{{Stream: 0, Len: 128}}, second.Prompt)
	second.After = []string{"r0"}
	report, records := run(t, c, []trace.Request{ask(0, 0, 128, 3), second})
	// 10 ms of prefill, 128 of transfer, 5 for each token.
	r := records["r0"]
	if r.Admitted != 0 || r.First != 143*ms || r.Second != 148*ms || r.Last != 153*ms || r.Worker != "worker-0" || r.Decoder != "worker-1" {
		t.Errorf("got %+v", *r)
	}
	// What is cached is what the prefill worker has of it.
	if r := records["r1"]; r.Cached != 128 || r.Predicted != 128 || r.First != r.Arrived+10*ms+168*ms+5*ms {
		t.Errorf("got %+v", *r)
	}
	if report.OutputTokens != 5 || report.Completed != 2 {
		t.Errorf("%d tokens of %d requests", report.OutputTokens, report.Completed)
	}
}

// Engines that know priorities let those who are in a hurry go first, and plain
// ones do not, though the router does.
func TestPlainEngines(t *testing.T) {
	args := steps()
	args.MaxNumSeqs = 1
	low, high := ask(1, ms, 100, 3), ask(2, 2*ms, 100, 3)
	high.Priority = 5
	w := []trace.Request{ask(0, 0, 100, 3), low, high}
	zero := 0.0
	for _, tt := range []struct {
		plain     bool
		threshold *float64
		first     string
	}{
		{false, nil, "r2"},
		{true, nil, "r1"},
		{true, &zero, "r2"},
	} {
		_, records := run(t, sim.Config{
			Engine: args, PlainEngines: tt.plain, Router: router.Config{QueueThreshold: tt.threshold},
		}, w)
		first := "r1"
		if records["r2"].First < records["r1"].First {
			first = "r2"
		}
		if first != tt.first {
			t.Errorf("plain engines %v, queue %v: %s is first, want %s", tt.plain, tt.threshold != nil, first, tt.first)
		}
	}
}

// Who is parked for too long is refused, at its time and not when somebody
// happens to look.
func TestQueueTimeout(t *testing.T) {
	threshold := 0.0
	args := steps()
	args.MaxNumBatchedTokens = 100 // the first prompt takes 200 passes of 10 ms
	report, records := run(t, sim.Config{Engine: args, Router: router.Config{
		QueueThreshold: &threshold, QueueTimeout: 1500 * ms,
	}}, []trace.Request{ask(0, 0, 20_000, 2), ask(1, 100*ms, 50, 2), ask(2, 900*ms, 50, 2)})
	if r := records["r1"]; r.Ended != 1600*ms || !errors.Is(r.Err, engine.ErrQueueTimeout) {
		t.Errorf("got %+v, want the end of its patience at 1.6 s", *r)
	}
	if r := records["r2"]; r.Parked != 1100*ms || r.Class != "default" || r.Err != nil {
		t.Errorf("got %+v, want it parked until 2 s, in the class default", *r)
	}
	if c := report.Classes; len(c) != 1 || c[0].Class != "default" || c[0].Requests != 2 || c[0].Parked != 1 || c[0].Wait.Max != 1100 {
		t.Errorf("classes %+v", c)
	}
}

// Requests are told apart by the class that a policy file puts them into, whether
// they had to wait there or not.
func TestClassesOfAPolicyFile(t *testing.T) {
	file, err := router.ParsePolicyFile([]byte(`
default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: short}, {min_tokens: 1000, bucket: long}]
policy_classes:
  - {name: chat-short, policy_family: chat, cache_bucket: short, quantum: 1000, prefill_busy_threshold: 0}
  - {name: chat-long, policy_family: chat, cache_bucket: long, quantum: 1000, prefill_busy_threshold: 0}
  - {name: nightly, quantum: 1000, prefill_busy_threshold: 0}
`))
	if err != nil {
		t.Fatal(err)
	}
	night := ask(4, 0, 100, 2)
	night.Class = "nightly"
	// The first finds an idle worker, and all others wait for it.
	report, records := run(t, sim.Config{Engine: steps(), Router: router.Config{PolicyFile: file}}, []trace.Request{
		ask(0, 0, 100, 2), ask(1, 0, 100, 2), ask(2, 0, 2000, 2), ask(3, 0, 3000, 2), night,
	})
	var got []string
	for _, c := range report.Classes {
		got = append(got, fmt.Sprintf("%s: %d of %d parked", c.Class, c.Parked, c.Requests))
	}
	if want := []string{"chat-long: 2 of 2 parked", "chat-short: 1 of 2 parked", "nightly: 1 of 1 parked"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if r := records["r0"]; r.Class != "chat-short" || r.Parked != 0 {
		t.Errorf("got %+v, want the class of a request that did not wait", *r)
	}
}

// A worker that joins, or begins another life, is there when it has started up.
func TestStartup(t *testing.T) {
	args := steps()
	args.StartupTime = 2
	var w []trace.Request
	for i := range 100 {
		w = append(w, ask(i, time.Duration(i)*100*ms, 50, 1))
	}
	_, records := run(t, sim.Config{
		Engine: args, Router: router.Config{Mode: router.RoundRobin},
		Changes: []sim.Change{
			{At: 1 * time.Second, Do: func(s *sim.Simulation) error { _, err := s.AddWorker(args); return err }},
			{At: 5 * time.Second, Do: func(s *sim.Simulation) error { return s.RestartWorker(0) }},
		},
	}, w)
	var first, during, after time.Duration
	for i, r := range w {
		at := time.Duration(i) * 100 * ms
		switch where := records[r.ID].Worker; {
		case where == "worker-1" && first == 0:
			first = at
		case where == "worker-0" && at >= 5*time.Second && at < 7*time.Second:
			during = at
		case where == "worker-0" && at >= 7*time.Second && after == 0:
			after = at
		}
	}
	if first < 3*time.Second || first > 3200*ms {
		t.Errorf("the second worker has its first request at %v, want it ready at 3s", first)
	}
	if during != 0 || after == 0 || after > 7200*ms {
		t.Errorf("the first worker has requests at %v and again at %v, want none while it starts up from 5s to 7s", during, after)
	}
}

// notes is a policy that remembers what it was asked, and takes the first worker.
type notes struct {
	queries  []router.Query
	outcomes []router.Outcome
	loads    []engine.Load // of the first worker, when it was asked
	read     []time.Time   // and when that was read
}

func (n *notes) Quick() bool { return true }

func (n *notes) Pick(_ context.Context, q *router.Query, c []router.Candidate) (int, error) {
	n.queries = append(n.queries, *q)
	load, at := c[0].Worker.Load()
	n.loads, n.read = append(n.loads, load), append(n.read, at)
	return 0, nil
}

func (n *notes) Learn(o router.Outcome) { n.outcomes = append(n.outcomes, o) }

// A policy is asked, and told what became of it, as with live requests.
func TestWhatPoliciesSee(t *testing.T) {
	first, second := ask(0, 0, 128, 4), ask(1, 500*ms, 10, 3)
	first.Session, first.Parent, first.Class, first.Priority, first.StrictPriority = "s", "p", "c", 2.5, 3
	second.Session, second.Tool, second.Final = "s", true, true
	second.Prompt = slices.Concat(first.Prompt, second.Prompt)
	policy := new(notes)
	clock := new(sim.Clock)
	run(t, sim.Config{
		Engine: steps(), Clock: clock, Forecast: true, Migrations: 1, Router: router.Config{Policy: policy},
		Changes: []sim.Change{
			{Do: func(s *sim.Simulation) error { _, err := s.AddWorker(steps()); return err }},
			{At: 513 * ms, Do: func(s *sim.Simulation) error { return s.RemoveWorker(0) }},
		},
	}, []trace.Request{first, second})

	user := router.Session{ID: "s", Parent: "p", Input: router.UserInput}
	tool := router.Session{ID: "s", Final: true, Input: router.ToolInput}
	want := []router.Query{
		{ID: "r0", Model: "sim", Choices: 1, Expected: 4, Session: user, Class: "c", Priority: 2.5, StrictPriority: 3},
		{ID: "r1", Model: "sim", Choices: 1, Expected: 3, Session: tool},
		// One token was there when its worker was lost.
		{ID: "r1", Model: "sim", Choices: 1, Expected: 2, Session: tool, Exclude: []uint64{1}},
	}
	want[0].Tokens = first.Prompt.Append(nil)
	want[1].Tokens = second.Prompt.Append(nil)
	want[2].Tokens = append(second.Prompt.Append(nil), second.Answer.Cut(1).Append(nil)...)
	if diff := cmp.Diff(want, policy.queries, cmpopts.EquateEmpty(), cmpopts.IgnoreUnexported(router.Query{})); diff != "" {
		t.Error(diff)
	}
	outcomes := []router.Outcome{
		{ID: "r0", Target: kv.Target{Worker: 1}, PromptTokens: 128, OutputTokens: 4, First: 10 * ms, Total: 25 * ms, End: router.Completed},
		{ID: "r1", Target: kv.Target{Worker: 1}, PromptTokens: 138, CachedTokens: -1, OutputTokens: 1, First: 10 * ms, Total: 13 * ms, End: router.Failed},
		{ID: "r1", Target: kv.Target{Worker: 2}, PromptTokens: 139, OutputTokens: 2, First: 10 * ms, Total: 15 * ms, End: router.Completed},
	}
	if diff := cmp.Diff(outcomes, policy.outcomes); diff != "" {
		t.Error(diff)
	}
	// What the first worker told of its load when the first request had ended.
	load, at := policy.loads[1], policy.read[1]
	if len(load.Ranks) != 1 || load.Ranks[0].TotalBlocks != int64(steps().NumGPUBlocks) || at.After(clock.Now()) || clock.Now().Sub(at) > time.Second {
		t.Errorf("load %+v of %v", load, at)
	}
}

// Where nothing moves any more it is not waited for ever.
func TestStarve(t *testing.T) {
	s, err := sim.New(sim.Config{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Starve(); err == nil || !strings.Contains(err.Error(), "will never be answered") {
		t.Errorf("got %v", err)
	}
}

// However far apart requests are, and however slow workers and the ways between
// them, time neither stands still nor overflows.
func TestFarApart(t *testing.T) {
	const year = 365 * 24 * time.Hour
	snail := steps()
	snail.SpeedupRatio = 1e-300
	for _, c := range []struct {
		name string
		cfg  sim.Config
		w    []trace.Request
		want string // the error
	}{
		{"years between", sim.Config{Engine: steps()}, []trace.Request{ask(1, 0, 10, 1), ask(2, 29*year, 10, 1)}, ""},
		{"a century between", sim.Config{Engine: steps()}, []trace.Request{ask(1, 0, 10, 1), ask(2, 100*year, 10, 1)}, "a simulation lasts"},
		{"a slow engine", sim.Config{Engine: snail}, []trace.Request{ask(1, 0, 10, 1)}, "a simulation lasts"},
		{"a slow way", sim.Config{
			Engine: steps(), Prefills: 1, Transfer: sim.Transfer{BytesPerToken: 1 << 40, Bandwidth: 1e-300},
		}, []trace.Request{ask(1, 0, 10, 2)}, "a simulation lasts"},
	} {
		began := time.Now()
		_, err := sim.Run(c.cfg, c.w)
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.want)
		}
		if took := time.Since(began); took > 5*time.Second {
			t.Errorf("%s took %v", c.name, took)
		}
	}
}

// A worker that was full and has become idle is known to be idle, however soon after
// its last reading of load that was.
func TestIdleWorkersAreNotBusy(t *testing.T) {
	args := steps()
	args.NumGPUBlocks = 64
	var w []trace.Request
	for i := range 10 {
		w = append(w, ask(i, time.Duration(i)*time.Second, 16*args.BlockSize, 5))
	}
	c := sim.Config{Engine: args}
	c.Router.Thresholds = router.Thresholds{ActiveDecodeBlocks: new(0.2)}
	if report, _ := run(t, c, w); report.Completed != len(w) {
		t.Errorf("%d of %d requests completed, one after the other", report.Completed, len(w))
	}
}

// What lies beyond the horizon is not simulated; what has come by then counts.
func TestHorizon(t *testing.T) {
	report, records := run(t, sim.Config{Engine: steps(), Horizon: 22 * ms}, []trace.Request{
		ask(0, 0, 50, 2), ask(1, 12*ms, 50, 20), ask(2, time.Hour, 50, 2),
	})
	// The second has one token by 25 ms, and none by 22.
	if report.Requests != 3 || report.Completed != 1 || records["r1"] != nil || records["r2"] != nil {
		t.Errorf("%d of %d requests completed, records %v", report.Completed, report.Requests, records)
	}
}

// Requests that cannot be replayed are told of before anything begins.
func TestBadWorkloads(t *testing.T) {
	orphan := ask(1, 0, 5, 1)
	orphan.After = []string{"nobody"}
	early := ask(1, 0, 5, 1)
	early.Delay = -ms
	for _, tt := range []struct {
		name string
		w    []trace.Request
		want string
	}{
		{"empty", nil, "the workload is empty"},
		{"no prompt", []trace.Request{ask(1, 0, 0, 1)}, `request "r1" has 0 tokens of prompt and 1 of output`},
		{"no answer", []trace.Request{ask(1, 0, 1, 0)}, `request "r1" has 1 tokens of prompt and 0 of output`},
		{"orphan", []trace.Request{orphan}, `request "r1" waits for "nobody", which is not there`},
		{"too early", []trace.Request{early}, `request "r1" comes 1ms before what it waits for`},
	} {
		_, err := sim.Run(sim.Config{}, tt.w)
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
}

// A request that no engine could ever hold ends with its error, and the others
// with their answers.
func TestTooLong(t *testing.T) {
	args := steps()
	args.NumGPUBlocks = 10
	after := ask(2, 0, 100, 2)
	after.After = []string{"r1"}
	report, records := run(t, sim.Config{Engine: args, Concurrency: 1}, []trace.Request{ask(1, 0, 500, 2), after, ask(3, 0, 100, 2)})
	if report.Completed != 2 || report.Failed[engine.InvalidArgument] != 1 || records["r1"].Err == nil {
		t.Errorf("%d completed, failed: %v", report.Completed, report.Failed)
	}
}
