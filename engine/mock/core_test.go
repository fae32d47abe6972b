package mock_test

import (
	"fmt"
	"math"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// counter gives n, n+1, n+2 …, so that a lost or repeated token shows.
type counter struct{ n uint32 }

func (c *counter) Next() uint32 { c.n++; return c.n - 1 }

func ids(from uint32, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = from + uint32(i)
	}
	return out
}

// cacheView folds events and fails where they contradict each other.
type cacheView map[kv.EngineHash]bool

func (v cacheView) apply(events []kv.Event) error {
	for _, e := range events {
		switch e.Kind {
		case kv.Stored:
			parent, inside := kv.SeqHash(e.Parent), e.HasParent
			if inside && !v[e.Parent] {
				return fmt.Errorf("stored below %x, which is not there", e.Parent)
			}
			for _, b := range e.Blocks {
				want := kv.SeqHash(b.Local)
				if inside {
					want = parent.Next(b.Local)
				}
				if kv.SeqHash(b.Engine) != want {
					return fmt.Errorf("block %x has content %x below %x: want %x", b.Engine, b.Local, parent, want)
				}
				if v[b.Engine] {
					return fmt.Errorf("block %x stored twice", b.Engine)
				}
				v[b.Engine] = true
				parent, inside = want, true
			}
		case kv.Removed:
			for _, b := range e.Blocks {
				if !v[b.Engine] {
					return fmt.Errorf("block %x removed and not there", b.Engine)
				}
				delete(v, b.Engine)
			}
		case kv.Cleared:
			clear(v)
		}
	}
	return nil
}

// job is what a test knows of a request.
type job struct {
	id       mock.ID
	prompt   []uint32
	max      int
	priority int32
	given    []uint32
	arrived  int
	last     time.Duration
}

// world runs one core and checks it after every step.
type world struct {
	t       *rapid.T
	args    mock.Args
	core    *mock.Core
	now     time.Duration
	jobs    map[mock.ID]*job
	cache   cacheView
	arrived int
	passes  int
	naive   *naive
}

func newWorld(t *rapid.T, a mock.Args) *world {
	w := &world{t: t, args: a, core: mock.NewCore(a), jobs: make(map[mock.ID]*job), cache: make(cacheView)}
	if !a.EnablePrefixCaching {
		w.naive = &naive{args: a}
	}
	return w
}

func drawArgs(t *rapid.T) mock.Args {
	a := mock.DefaultArgs()
	a.BlockSize = rapid.IntRange(2, 5).Draw(t, "block_size")
	a.NumGPUBlocks = rapid.IntRange(4, 16).Draw(t, "num_gpu_blocks")
	a.MaxNumSeqs = rapid.IntRange(1, 5).Draw(t, "max_num_seqs")
	a.MaxNumBatchedTokens = rapid.IntRange(3, 24).Draw(t, "max_num_batched_tokens")
	a.EnablePrefixCaching = rapid.Bool().Draw(t, "enable_prefix_caching")
	a.EnableChunkedPrefill = rapid.Bool().Draw(t, "enable_chunked_prefill")
	a.PreemptionMode = rapid.SampledFrom([]string{"lifo", "fifo"}).Draw(t, "preemption_mode")
	a.TimingModel = rapid.SampledFrom([]string{"roofline", "polynomial"}).Draw(t, "timing_model")
	return a
}

// room is what one request may have, prompt and output together.
func room(a mock.Args) int {
	n := a.NumGPUBlocks * a.BlockSize
	if !a.EnableChunkedPrefill {
		n = min(n, a.MaxNumBatchedTokens)
	}
	return n
}

func (w *world) submit() {
	t := w.t
	j := &job{
		// Prompts of one start share what they have in common.
		prompt:   ids(uint32(rapid.IntRange(0, 2).Draw(t, "start"))*1000, rapid.IntRange(1, 30).Draw(t, "prompt")),
		max:      rapid.IntRange(1, 12).Draw(t, "max"),
		priority: int32(rapid.IntRange(0, 2).Draw(t, "priority")) / 2,
		arrived:  w.arrived,
	}
	w.arrived++
	id, err := w.core.Submit(w.now, mock.Request{Prompt: j.prompt, MaxTokens: j.max, Priority: j.priority, Generator: &counter{5000}, Owner: j})
	if fits := len(j.prompt)+j.max <= room(w.args); (err == nil) != fits {
		t.Fatalf("submit of %d+%d tokens with room for %d: %v", len(j.prompt), j.max, room(w.args), err)
	}
	if err != nil {
		if engine.KindOf(err) != engine.InvalidArgument {
			t.Fatalf("refused with %v", err)
		}
		return
	}
	j.id = id
	w.jobs[id] = j
	if w.naive != nil {
		w.naive.submit(j)
	}
}

func (w *world) cancel() {
	var live []*job
	for _, j := range w.jobs {
		live = append(live, j)
	}
	if len(live) == 0 {
		w.core.Cancel(mock.ID(12345))
		return
	}
	slices.SortFunc(live, func(a, b *job) int { return a.arrived - b.arrived })
	j := live[rapid.IntRange(0, len(live)-1).Draw(w.t, "which")]
	w.core.Cancel(j.id)
	w.core.Cancel(j.id)
	delete(w.jobs, j.id)
	if w.naive != nil {
		w.naive.cancel(j.id)
	}
}

func (w *world) step() {
	t := w.t
	before := make(cacheView)
	for k := range w.cache {
		before[k] = true
	}
	res := w.core.Step(w.now)
	if res.Idle {
		if len(w.jobs) > 0 {
			t.Fatalf("idle with %d requests left: %s", len(w.jobs), w.core)
		}
		return
	}
	w.passes++
	if res.End < w.now {
		t.Fatalf("a pass of %v ends at %v", w.now, res.End)
	}
	w.now = res.End
	if n := res.Work.Tokens + res.Work.Decodes; n > w.args.MaxNumBatchedTokens {
		t.Fatalf("%d tokens in a pass of at most %d", n, w.args.MaxNumBatchedTokens)
	}
	if !w.args.EnablePrefixCaching && len(res.Events) > 0 {
		t.Fatalf("events without prefix caching: %v", res.Events)
	}
	if err := w.cache.apply(res.Events); err != nil {
		t.Fatal(err)
	}
	for _, o := range res.Outputs {
		w.output(&o, before)
	}
	if w.naive != nil {
		w.naive.compare(t, res, w.core)
	}
}

func (w *world) output(o *mock.Output, before cacheView) {
	t, j := w.t, o.Owner.(*job)
	if w.jobs[o.ID] != j {
		t.Fatalf("output for request %d, which is not there", o.ID)
	}
	for _, id := range o.Tokens {
		if want := 5000 + uint32(len(j.given)); id != want {
			t.Fatalf("token %d of request %d is %d, want %d", len(j.given), o.ID, id, want)
		}
		j.given = append(j.given, id)
	}
	if len(o.Tokens) != 1 || o.Generated != len(j.given) || w.now <= j.last {
		t.Fatalf("output %+v at %v after %v", o, w.now, j.last)
	}
	j.last = w.now
	if o.Cached >= len(j.prompt) || o.Cached%w.args.BlockSize != 0 {
		t.Fatalf("%d of %d prompt tokens cached, in blocks of %d", o.Cached, len(j.prompt), w.args.BlockSize)
	}
	if done := len(j.given) == j.max; done != (o.Finish == engine.FinishLength) {
		t.Fatalf("%d of %d tokens given, finish %q", len(j.given), j.max, o.Finish)
	}
	if o.Finish != engine.Running {
		delete(w.jobs, o.ID)
	}
}

// check compares what can be seen with what must hold.
func (w *world) check() {
	t := w.t
	if err := w.core.Check(); err != nil {
		t.Fatal(err)
	}
	truth := make(cacheView)
	if err := truth.apply(w.core.Stored()); err != nil {
		t.Fatalf("snapshot: %v", err)
	}
	if !reflect.DeepEqual(truth, w.cache) {
		t.Fatalf("events fold to %v, the cache holds %v", w.cache, truth)
	}
	running, waiting := w.core.Queues()
	if len(running)+len(waiting) != len(w.jobs) {
		t.Fatalf("%d running and %d waiting of %d", len(running), len(waiting), len(w.jobs))
	}
	l := w.core.Load()
	if int(l.Running) != len(running) || int(l.Waiting) != len(waiting) || len(w.jobs) == 0 && l.UsedBlocks != 0 {
		t.Fatalf("load %+v with %d running, %d waiting", l, len(running), len(waiting))
	}
}

// TestCoreProperties runs random programs over the core and checks after every
// step: blocks and references against the requests that have them, the bounds
// of a pass, the order of the queue, outputs without loss or repetition, events
// against the true cache; and, where no block is shared, every decision against
// a scheduler that does without any cleverness.
func TestCoreProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld(t, drawArgs(t))
		t.Repeat(map[string]func(*rapid.T){
			"submit":  func(*rapid.T) { w.submit() },
			"submit2": func(*rapid.T) { w.submit(); w.submit() },
			"cancel":  func(*rapid.T) { w.cancel() },
			"step":    func(*rapid.T) { w.step() },
			"step5": func(*rapid.T) {
				for range 5 {
					w.step()
					w.check()
				}
			},
			"wait": func(*rapid.T) { w.now += time.Second },
			"":     func(*rapid.T) { w.check() },
		})
		// Whatever was left ends: nothing waits for ever.
		for range 10_000 {
			if len(w.jobs) == 0 {
				break
			}
			w.step()
			w.check()
		}
		if len(w.jobs) > 0 {
			t.Fatalf("%d requests never end: %s", len(w.jobs), w.core)
		}
	})
}

// naive is the scheduler of an engine whose requests share nothing, so that
// blocks need only be counted.
type naive struct {
	args             mock.Args
	running, waiting []*naiveJob
}

type naiveJob struct {
	*job
	length, computed, blocks, used, out int
	preempted                           bool
}

func (n *naive) submit(j *job) {
	i := len(n.waiting)
	for i > 0 && n.waiting[i-1].priority < j.priority {
		i--
	}
	n.waiting = slices.Insert(n.waiting, i, &naiveJob{job: j, length: len(j.prompt)})
}

func (n *naive) cancel(id mock.ID) {
	gone := func(j *naiveJob) bool { return j.id == id }
	n.running = slices.DeleteFunc(n.running, gone)
	n.waiting = slices.DeleteFunc(n.waiting, gone)
}

func (n *naive) free() int {
	free := n.args.NumGPUBlocks
	for _, j := range n.running {
		free -= j.blocks
	}
	return free
}

func (n *naive) need(j *naiveJob, tokens int) int {
	return int(math.Ceil(float64(tokens)/float64(n.args.BlockSize))) - j.blocks
}

func (n *naive) budget() int {
	b := n.args.MaxNumBatchedTokens
	for _, j := range n.running {
		b -= j.used
	}
	return b
}

// pass returns who was preempted and who gives a token.
func (n *naive) pass() (preempted, emitting []mock.ID) {
	for _, j := range n.running {
		j.used = 0
	}
running:
	for _, j := range slices.Clone(n.running) {
		if !slices.Contains(n.running, j) {
			continue
		}
		left := j.length - j.computed
		if n.budget() == 0 || left > n.budget() && !n.args.EnableChunkedPrefill {
			break
		}
		want := min(left, n.budget())
		for n.need(j, j.computed+want) > n.free() {
			v := n.running[0]
			for _, c := range n.running[1:] {
				if c.priority < v.priority || c.priority == v.priority && n.args.PreemptionMode == "lifo" {
					v = c
				}
			}
			preempted = append(preempted, v.id)
			n.running = slices.DeleteFunc(n.running, func(c *naiveJob) bool { return c == v })
			v.computed, v.blocks, v.used, v.preempted = 0, 0, 0, true
			i := 0
			for i < len(n.waiting) && n.waiting[i].priority > v.priority {
				i++
			}
			n.waiting = slices.Insert(n.waiting, i, v)
			if v == j {
				continue running
			}
		}
		n.take(j, want)
	}
	for len(preempted) == 0 && len(n.waiting) > 0 && len(n.running) < n.args.MaxNumSeqs && n.budget() > 0 {
		j := n.waiting[0]
		want := min(j.length, n.budget())
		if want < j.length && !n.args.EnableChunkedPrefill || n.need(j, want) > n.free() {
			break
		}
		n.waiting = n.waiting[1:]
		n.running = append(n.running, j)
		n.take(j, want)
	}
	for _, j := range slices.Clone(n.running) {
		if j.computed < j.length {
			continue
		}
		emitting = append(emitting, j.id)
		j.length++
		if j.out++; j.out == j.max {
			n.running = slices.DeleteFunc(n.running, func(c *naiveJob) bool { return c == j })
		}
	}
	return preempted, emitting
}

func (n *naive) take(j *naiveJob, want int) {
	j.blocks += max(0, n.need(j, j.computed+want))
	j.computed += want
	j.used = want
}

func (n *naive) compare(t *rapid.T, res *mock.Result, core *mock.Core) {
	preempted, emitting := n.pass()
	var outputs []mock.ID
	for _, o := range res.Outputs {
		outputs = append(outputs, o.ID)
	}
	running, waiting := core.Queues()
	of := func(jobs []*naiveJob) (ids []mock.ID) {
		for _, j := range jobs {
			ids = append(ids, j.id)
		}
		return ids
	}
	if !slices.Equal(res.Preempted, preempted) || !slices.Equal(outputs, emitting) || !slices.Equal(running, of(n.running)) || !slices.Equal(waiting, of(n.waiting)) {
		t.Fatalf("preempted %v, outputs %v, running %v, waiting %v;\nwant      %v,         %v,         %v,         %v",
			res.Preempted, outputs, running, waiting, preempted, emitting, of(n.running), of(n.waiting))
	}
	if used := n.args.NumGPUBlocks - n.free(); int(core.Load().UsedBlocks) != used {
		t.Fatalf("%s, want %d blocks used", core, used)
	}
}

// TestCoreIsDeterministic gives two cores the same program.
func TestCoreIsDeterministic(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		a := drawArgs(t)
		one, two := mock.NewCore(a), mock.NewCore(a)
		var now time.Duration
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if rapid.Bool().Draw(t, "submit") {
				n, most := rapid.IntRange(1, 20).Draw(t, "prompt"), rapid.IntRange(1, 8).Draw(t, "max")
				for _, c := range []*mock.Core{one, two} {
					c.Submit(now, mock.Request{Prompt: ids(0, n), MaxTokens: most, Generator: &counter{5000}})
				}
			}
			r1, r2 := one.Step(now), two.Step(now)
			if !reflect.DeepEqual(r1, r2) {
				t.Fatalf("%+v\nis not\n%+v", r1, r2)
			}
			now = max(now, r1.End)
		}
	})
}

// A block is cached as soon as it is full, also when the request ends with it.
func TestSealsWhenFull(t *testing.T) {
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks = 4, 16
	c := mock.NewCore(a)
	c.Submit(0, mock.Request{Prompt: ids(1, 4), MaxTokens: 4, Generator: &counter{100}})
	cache := make(cacheView)
	var now time.Duration
	for res := c.Step(now); !res.Idle; res = c.Step(now) {
		if err := cache.apply(res.Events); err != nil {
			t.Fatal(err)
		}
		now = res.End
	}
	if len(cache) != 2 {
		t.Fatalf("%d blocks cached after 4 + 4 tokens in blocks of 4, want 2", len(cache))
	}
	// Its continuation finds both; a prompt that is exactly cached computes
	// its last block again.
	next := append(ids(1, 4), ids(100, 4)...)
	for _, tc := range []struct {
		prompt []uint32
		cached int
	}{{append(next[:8:8], 7), 8}, {next, 4}} {
		c.Submit(now, mock.Request{Prompt: tc.prompt, MaxTokens: 1, Generator: &counter{}})
		res := c.Step(now)
		now = res.End
		if got := res.Outputs[0].Cached; got != tc.cached {
			t.Errorf("%d of %d tokens cached, want %d", got, len(tc.prompt), tc.cached)
		}
		if res.Work.Tokens != len(tc.prompt)-tc.cached {
			t.Errorf("%d tokens computed", res.Work.Tokens)
		}
	}
}

// A run of new blocks is told below the block that stands before it, also where
// known blocks stand behind it.
func TestStoredBelowTheRightParent(t *testing.T) {
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks, a.MaxNumBatchedTokens = 2, 6, 100
	c := mock.NewCore(a)
	step := func(p []uint32) *mock.Result {
		c.Submit(0, mock.Request{Prompt: p, MaxTokens: 1, Generator: &counter{90}})
		return c.Step(0)
	}
	cache := make(cacheView)
	for _, p := range [][]uint32{{1, 2, 3, 4, 9}, {5, 6, 7, 8, 9}, {1, 2, 3, 4, 5, 6, 9}} {
		if err := cache.apply(step(p).Events); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPriorityAndPace(t *testing.T) {
	a := mock.DefaultArgs()
	a.MaxNumSeqs = 1
	a.SpeedupRatio = 0
	c := mock.NewCore(a)
	submit := func(name string, priority int32, pace ...mock.Pace) {
		if _, err := c.Submit(0, mock.Request{Prompt: ids(1, 3), MaxTokens: 4, Priority: priority, Generator: &counter{}, Pace: pace, Owner: name}); err != nil {
			t.Fatal(err)
		}
	}
	submit("low", 0)
	submit("high", 1, mock.Pace{First: 100, Each: 10, Burst: 1}, mock.Pace{From: 1, First: 50, Each: 20, Burst: 2})
	type at struct {
		owner string
		time  time.Duration
		n     int
	}
	var got []at
	var now time.Duration
	for {
		res := c.Step(now)
		for _, o := range res.Outputs {
			got = append(got, at{o.Owner.(string), res.End, len(o.Tokens)})
		}
		if !res.Idle {
			continue
		}
		next, ok := c.NextWake()
		if !ok {
			break
		}
		now = next
	}
	want := []at{{"high", 100, 1}, {"high", 150, 2}, {"high", 170, 1}, {"low", 170, 1}, {"low", 170, 1}, {"low", 170, 1}, {"low", 170, 1}}
	if !slices.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

// A request that a script holds for ever makes room before others do.
func TestHeldRequestsGoFirst(t *testing.T) {
	a := mock.DefaultArgs()
	a.BlockSize, a.NumGPUBlocks, a.SpeedupRatio = 4, 4, 0
	c := mock.NewCore(a)
	c.Submit(0, mock.Request{Prompt: ids(1, 8), MaxTokens: 8, Generator: &counter{}, Cut: &mock.Cut{Hold: true}})
	c.Submit(0, mock.Request{Prompt: ids(50, 7), MaxTokens: 9, Generator: &counter{}, Owner: "other"})
	given := 0
	for range 20 {
		for _, o := range c.Step(0).Outputs {
			given += len(o.Tokens)
			if o.Owner != "other" {
				t.Errorf("the held one gave %v", o.Tokens)
			}
		}
	}
	if given != 9 {
		t.Errorf("the other gave %d of 9 tokens: %s", given, c)
	}
	if res := c.Step(0); !res.Idle {
		t.Errorf("not idle with one request held: %+v", res)
	}
}

func TestTimingCheckValues(t *testing.T) {
	near := func(name string, got, want float64) {
		t.Helper()
		if math.Abs(got-want) > 1e-4 {
			t.Errorf("%s = %.4f, want %.4f", name, got, want)
		}
	}
	for n, want := range map[float64]float64{0: 16.5014, 1: 16.5166, 512: 24.3857, 1024: 32.4907, 8192: 169.1369} {
		near(fmt.Sprintf("prefill(%v)", n), mock.PolynomialPrefill(n), want)
	}
	for u, want := range map[float64]float64{0: 5.74, 0.25: 17.6337, 0.5: 26.31, 0.9: 33.4996, 1: 34.01} {
		near(fmt.Sprintf("decode(%v)", u), mock.PolynomialDecode(u), want)
	}

	ms := func(d time.Duration) float64 { return float64(d) / 1e6 }
	a := mock.DefaultArgs()
	a.TimingModel = "polynomial"
	// Two prompts of 300 and 212 new tokens behind 100 and 50 cached ones: the
	// means are taken first, in whole numbers.
	w := &mock.Work{Prefills: 2, PromptEnds: 662, PromptStarts: 150, Tokens: 512, Emitting: 2, ActiveTokens: 25, TotalTokens: 100}
	near("polynomial", ms(mock.Predict(&a, w)), 24.3857+17.6337)
	a.SpeedupRatio, a.DecodeSpeedupRatio = 2, 4
	near("sped up", ms(mock.Predict(&a, w)), 24.3857/2+17.6337/8)
	near("a floor", ms(mock.Predict(&a, &mock.Work{Emitting: 1, TotalTokens: 1})), 5.74/8)
	a.SpeedupRatio = 0
	near("no delay", ms(mock.Predict(&a, w)), 0)

	a = mock.DefaultArgs()
	near("roofline decode", ms(mock.Predict(&a, &mock.Work{Decodes: 10, DecodeContext: 100_000, Emitting: 10})), 6+0.2+0.2)
	near("roofline prefill", ms(mock.Predict(&a, &mock.Work{Tokens: 1000, Attention: 1e6, Emitting: 1})), 6+30+0.02)
	near("roofline mixed", ms(mock.Predict(&a, &mock.Work{Tokens: 1000, Attention: 1e6, Decodes: 10, DecodeContext: 100_000})), 6+30.3+0.02+0.2)
	a.TimingModel, a.PrefillMS, a.DecodeMS = "constant", 50, 7
	near("constant", ms(mock.Predict(&a, &mock.Work{Tokens: 9, Decodes: 1})), 57)
}

func TestVariance(t *testing.T) {
	a := mock.DefaultArgs()
	a.MaxNumSeqs = 1
	c := mock.NewCore(a)
	for _, n := range []int{1, 2, 4, 4, 4, 5, 5, 7, 9} {
		c.Submit(0, mock.Request{Prompt: ids(1, n), MaxTokens: 100, Generator: &counter{}})
	}
	q := c.Step(0).Snapshot.QueuedPrefill // all but the first
	if q.N != 8 || q.Sum != 40 || q.Variance() != 4 {
		t.Errorf("queued: %d prompts of %d tokens, variance %v, want 8, 40, 4", q.N, q.Sum, q.Variance())
	}
}

func ExampleCore() {
	args := mock.DefaultArgs()
	args.TimingModel = "polynomial"
	core := mock.NewCore(args)
	core.Submit(0, mock.Request{Prompt: ids(1, 512), MaxTokens: 3, Generator: &counter{100}})
	for now := time.Duration(0); ; {
		res := core.Step(now)
		if res.Idle {
			break
		}
		now = res.End
		fmt.Println(now.Round(time.Millisecond), res.Outputs[0].Tokens)
	}
	// Output:
	// 30ms [100]
	// 36ms [101]
	// 42ms [102]
}

// A request that was preempted is admitted again, and what it left behind counts.
func TestAdmissions(t *testing.T) {
	args := mock.DefaultArgs()
	args.BlockSize, args.NumGPUBlocks = 4, 6
	args.TimingModel, args.PrefillMS, args.DecodeMS = "constant", 1, 1
	c := mock.NewCore(args)
	for i := range uint32(2) {
		// Each takes 2 blocks, and 5 at its end: the first leaves the second one.
		if _, err := c.Submit(0, mock.Request{Prompt: ids(100*i, 8), Generator: &counter{1000}, MaxTokens: 12, Owner: i}); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for now := time.Duration(0); ; {
		r := c.Step(now)
		if r.Idle {
			break
		}
		for _, a := range r.Admitted {
			got = append(got, fmt.Sprintf("%v with %d at %v", a.Owner, a.Cached, now))
		}
		now = r.End
	}
	want := []string{"0 with 0 at 0s", "1 with 0 at 0s", "1 with 4 at 12ms"}
	if !slices.Equal(got, want) {
		t.Errorf("admitted %q, want %q", got, want)
	}
}

// A change of speed holds from the next pass on.
func TestSetSpeed(t *testing.T) {
	args := mock.DefaultArgs()
	args.TimingModel, args.PrefillMS, args.DecodeMS = "constant", 6, 6
	c := mock.NewCore(args)
	if _, err := c.Submit(0, mock.Request{Prompt: ids(0, 8), Generator: &counter{1000}, MaxTokens: 4}); err != nil {
		t.Fatal(err)
	}
	now := time.Duration(0)
	for i, step := range []struct {
		speed float64
		takes time.Duration
	}{{1, 6 * time.Millisecond}, {0.5, 12 * time.Millisecond}, {3, 2 * time.Millisecond}, {0, 0}} {
		c.SetSpeed(step.speed)
		end := c.Step(now).End
		if end-now != step.takes {
			t.Errorf("pass %d at speed %v takes %v, want %v", i, step.speed, end-now, step.takes)
		}
		now = end
	}
}

// What another engine has computed takes room here and no time, is there for
// others, and is lost with the first preemption.
func TestReceived(t *testing.T) {
	args := mock.DefaultArgs()
	args.BlockSize, args.NumGPUBlocks, args.MaxNumBatchedTokens = 4, 8, 8
	c := mock.NewCore(args)
	prompt := ids(0, 14)
	submit := func(r mock.Request) {
		t.Helper()
		r.Generator = &counter{1000}
		if _, err := c.Submit(0, r); err != nil {
			t.Fatal(err)
		}
	}
	submit(mock.Request{Prompt: prompt, MaxTokens: 3, Received: 14})
	r := c.Step(0)
	if r.Work.Tokens != 0 || r.Work.Decodes != 1 || len(r.Outputs) != 1 || r.Admitted[0].Cached != 0 {
		t.Errorf("work %+v, given %v, admitted %+v; want one step of decoding", r.Work, r.Outputs, r.Admitted)
	}
	view := cacheView{}
	if err := view.apply(r.Events); err != nil || len(view) != 3 {
		t.Errorf("%d blocks are there, want the 3 that are full: %v", len(view), err)
	}
	if l := c.Load(); l.UsedBlocks != 4 {
		t.Errorf("%d blocks in use, want 4", l.UsedBlocks)
	}
	// The same prompt finds them; more than its budget is computed of no other.
	submit(mock.Request{Prompt: prompt, MaxTokens: 1})
	submit(mock.Request{Prompt: ids(500, 14), MaxTokens: 1, Received: 6})
	r = c.Step(r.End)
	if len(r.Admitted) != 2 || r.Admitted[0].Cached != 12 || r.Admitted[1].Cached != 0 {
		t.Errorf("admitted %+v", r.Admitted)
	}
	// 14-12 of the second, and what the budget leaves of 14-6 of the third.
	if r.Work.Tokens != 2+5 {
		t.Errorf("%d tokens computed, want 7", r.Work.Tokens)
	}

	// Too little room for both: the younger is preempted and has to compute all.
	c = mock.NewCore(args)
	submit(mock.Request{Prompt: ids(0, 14), MaxTokens: 8, Received: 14})
	submit(mock.Request{Prompt: ids(500, 14), MaxTokens: 8, Received: 14})
	computed := 0
	for now := time.Duration(0); ; {
		r := c.Step(now)
		if r.Idle {
			break
		}
		if err := c.Check(); err != nil {
			t.Fatal(err)
		}
		computed += r.Snapshot.PrefillTokens
		now = r.End
	}
	if l := c.Load(); l.Preemptions != 1 || computed < 2 || computed > 14 {
		t.Errorf("%d preemptions, %d prompt tokens computed", l.Preemptions, computed)
	}
}
