package tiny_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny"
	"github.com/dynago/dynago/engine/tiny/llama"
	"github.com/dynago/dynago/engine/tiny/sample"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvcache/memory"
	"github.com/dynago/dynago/kvcache/store"
)

// TestReuseChangesNothing holds the one promise of this package: whatever engines have
// cached, evicted, moved to other tiers and back, lost, found again after a restart,
// pinned, fetched ahead, preempted, cut off, carried on elsewhere or pulled from each
// other, the tokens of an answer, however they are chosen, and how likely each token of
// the vocabulary was at every step are those of a plain loop with a cold cache, bit for
// bit.
//
// It has been seen to fail for each of these changes to the code, one at a time:
//
//	llama.Cache.Block leaves out the last layer
//	carry reads, or writes, the slot beside the one on the device
//	carry leaves the layout out of the names of values, on disks or in stores
//	carry forgets where on a disk the blocks were that it has restored
//	a disk gives values whose checksum is wrong
//	the registry publishes a load when it begins
//	the registry gives the slot of a load that was cancelled to others at once
//	the core publishes a block with the token that fills it, whose keys nobody has computed
//	the core writes blocks down before the pass that computes them is over
//	the core takes the last token of a prompt for found, too
//	blocks are pulled without a look at their checksum, their place in the prompt or the layout
//	a block that was pulled is put into the slot of the next one
//	penalties take what another engine has answered for prompt
//	draws are counted from where an attempt begins
//
// Time is made up, and passes only where that is drawn: whoever would wait for it to
// pass has been forgotten, or waits for what will not come.
func TestReuseChangesNothing(t *testing.T) {
	dirs := t.TempDir()
	n := 0
	var done tally
	rapid.Check(t, func(r *rapid.T) {
		n++
		inBubble(t, func() { history(r, filepath.Join(dirs, fmt.Sprint(n)), &done) })
	})
	t.Logf("%+v", done)
	if n < 100 {
		return // so few need not have tried everything
	}
	for what, n := range map[string]int64{
		"found on the device": done.hits[kv.TierDevice], "loaded from the host": done.hits[kv.TierHost],
		"from the disk": done.hits[kv.TierDisk], "from the store": done.hits[kv.TierShared],
		"restored from the disk": done.restored, "pulled": done.pulled, "computed again": done.again, "fetched ahead": done.ahead,
		"pinned": done.pinned, "lost or not as it was": done.lost,
	} {
		if n == 0 {
			t.Errorf("nothing was ever %s", what)
		}
	}
}

// inBubble lets a property run in made-up time. It ends by panics, which are not for the
// bubble.
func inBubble(t *testing.T, do func()) {
	var end any
	synctest.Test(t, func(*testing.T) {
		defer func() { end = recover() }()
		do()
	})
	if end != nil {
		panic(end)
	}
}

// history lets things happen in a world.
func history(t *rapid.T, dir string, done *tally) {
	w := newWorld(t, dir, done)
	defer w.close()
	turn, crowd := atOnce(func(t *rapid.T) { w.run(t, w.job(t)) }), atOnce(w.crowd)
	t.Repeat(map[string]func(*rapid.T){
		"turn": turn, "next turn": turn, "one more turn": turn, "crowd": crowd, "next crowd": crowd,
		"ask": atOnce(w.ask),
		"time passes": func(t *rapid.T) {
			time.Sleep(rapid.SampledFrom([]time.Duration{time.Millisecond, time.Second, 2 * time.Minute}).Draw(t, "how long"))
		},
		"mishap": func(t *rapid.T) {
			switch m := w.worker(t); rapid.IntRange(0, 4).Draw(t, "of what kind") {
			case 0:
				m.engine().Control(context.Background(), engine.ControlReset, nil) //nolint:errcheck // while it is idle
			case 1:
				m.engine().Restart()
			case 2:
				w.reopen(t, m)
			case 3:
				w.setFire(t, m)
			case 4:
				w.trouble.Store(int32(rapid.IntRange(0, 6).Draw(t, "trouble with one call in so many")))
			}
		},
	})
}

// atOnce wants something to be done before any time passes.
func atOnce(do func(t *rapid.T)) func(t *rapid.T) {
	return func(t *rapid.T) {
		begun := time.Now()
		do(t)
		if took := time.Since(begun); took > 0 {
			t.Fatalf("it takes %v", took)
		}
	}
}

// tally is what all engines have done, to see that it was tried at all.
type tally struct {
	hits                                         [4]int64
	restored, pulled, again, ahead, pinned, lost int64
}

func (n *tally) add(e *tiny.Engine) {
	for _, s := range e.CacheStats() {
		for k := range n.hits {
			n.hits[k] += s.Tiers[k].HitTokens
		}
		n.pulled += s.Pulled
		n.again += s.Recomputed
		n.ahead += s.Prefetch.Blocks[kv.TierDevice] + s.Prefetch.Blocks[kv.TierHost]
		n.pinned += s.PinsGranted + s.PinsPartial
		n.lost += s.Carried.Corrupt + s.Carried.Missing
	}
}

const (
	reuseVocab   = 20 // so that the alternatives that are told are all there are
	reuseContext = 96
)

// reuseModels are two sets of weights of one shape, so that bytes of the one could be
// taken for those of the other.
var reuseModels = sync.OnceValue(func() (m [2]*llama.Model) {
	for i := range m {
		m[i] = llama.Random(llama.Config{
			Vocab: reuseVocab, Width: 16, Layers: 2, Heads: 2, KVHeads: 1, HeadSize: 8, Hidden: 24,
			Context: reuseContext, RopeBase: 10000, NormEps: 1e-5, Tied: true,
		}, uint64(i+1))
	}
	return m
})

// step is a token, and how likely it and all others were.
type step = engine.Logprob

// cold computes n tokens after a prompt with nothing cached, the prompt at once, and
// whatever they are, they are chosen by one sampler.
func cold(m *llama.Model, prompt []uint32, n int, by *engine.Sampling) []step {
	const size = 8
	blocks := make([]int32, reuseContext/size)
	for i := range blocks {
		blocks[i] = int32(i)
	}
	cache := m.NewCache(len(blocks), size)
	logits := make([]float32, reuseVocab)
	params, err := sample.Default().With(by, reuseVocab)
	if err != nil {
		panic(err)
	}
	sampler := sample.New(params, prompt, reuseVocab)
	next, at := prompt, 0
	var steps []step
	for range n {
		if err := m.Forward(cache, []llama.Span{{Tokens: next, Start: at, Blocks: blocks, Logits: logits}}); err != nil {
			panic(err)
		}
		at += len(next)
		id, err := sampler.Next(sample.Step{Logits: logits, Position: at})
		if err != nil {
			panic(err)
		}
		sampler.Accept(id)
		steps = append(steps, sample.Logprob(logits, id, reuseVocab))
		next = []uint32{id}
	}
	return steps
}

// world is some engines, what lies between them, and the conversations with them.
type world struct {
	done    *tally
	dir     string
	store   store.Driver
	shared  *unreliable
	trouble atomic.Int32 // one call to the store, and one pull, in so many fails; 0: none
	random  *chance
	workers []*member
	known   map[string][]step // answers of a cold cache

	mu    sync.Mutex
	talks [][]uint32 // conversations, whoever has answered
}

// member is one engine, which may be exchanged for another one with the same disk.
type member struct {
	w     *world
	name  string
	role  string
	args  mock.Args
	mu    sync.Mutex
	model int
	e     *tiny.Engine
}

func (m *member) engine() *tiny.Engine {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.e
}

// answers returns with whose weights a request is answered that begins here.
func (m *member) answers() int {
	if m.role == "prefill" {
		return m.w.workers[3].model
	}
	return m.model
}

func newWorld(t *rapid.T, dir string, done *tally) *world {
	luck := &chance{r: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "chance"), 0))}
	w := &world{dir: dir, done: done, random: luck, known: map[string][]step{}}
	var err error
	if w.store, err = memory.New(memory.Options{Capacity: 8 << 20}); err != nil {
		t.Fatal(err)
	}
	w.shared = &unreliable{w.store, w}
	for i, role := range []string{"aggregated", "aggregated", "prefill", "decode"} {
		a := tiny.DefaultArgs(reuseModels()[0])
		a.WorkerType = role
		a.BlockSize = 4
		a.NumGPUBlocks = rapid.IntRange(14, 26).Draw(t, "device")
		a.HostBlocks = rapid.SampledFrom([]int{0, 3, 10, 60}).Draw(t, "host")
		a.DiskBlocks = rapid.SampledFrom([]int{0, 5, 40}).Draw(t, "disk")
		a.MaxNumBatchedTokens = rapid.SampledFrom([]int{3, 7, 64}).Draw(t, "tokens of a pass")
		a.MaxNumSeqs = rapid.SampledFrom([]int{2, 8}).Draw(t, "requests at a time")
		a.ReadThrough = rapid.Bool().Draw(t, "keep in the host what comes from below")
		a.PreemptOnPriority = rapid.Bool().Draw(t, "priorities preempt")
		a.PinBudgetG1, a.AllowHardPins = 0.3, true
		a.Transfers, a.TransferBatch = rapid.IntRange(0, 3).Draw(t, "transfers"), rapid.IntRange(0, 3).Draw(t, "blocks of each")
		m := &member{w: w, name: fmt.Sprintf("%d-%s", i, role), role: role, args: a}
		w.workers = append(w.workers, m)
		if err := m.open(rapid.Bool().Draw(t, "with a store")); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

func (m *member) open(shares bool) (err error) {
	o := tiny.Options{
		Name: "tiny", Model: reuseModels()[m.model], Args: m.args, ID: m.name,
		Lower: tiny.Lower{Dir: filepath.Join(m.w.dir, m.name)},
		Pull:  mock.Pull{Address: func() string { return m.name }, Dial: m.w.dial},
	}
	if shares {
		o.Lower.Store = m.w.shared
	}
	if m.e, err = tiny.New(o); err == nil {
		m.w.done.restored += int64(m.e.CacheStats()[0].Tiers[kv.TierDisk].Stored)
	}
	return err
}

func (m *member) close() {
	m.w.done.add(m.e)
	m.e.Close()
}

func (w *world) close() {
	for _, m := range w.workers {
		m.close()
	}
	w.store.Close()
	os.RemoveAll(w.dir)
}

func (w *world) worker(t *rapid.T) *member {
	return w.workers[rapid.IntRange(0, len(w.workers)-1).Draw(t, "worker")]
}

// unreliable is a store that is away from time to time, or has lost something.
type unreliable struct {
	store.Driver
	w *world
}

// chance is there for goroutines that run at once.
type chance struct {
	mu sync.Mutex
	r  *rand.Rand
}

func (c *chance) IntN(n int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.r.IntN(n)
}

// misfortune says which of four kinds of trouble there is with a call, or 0.
func (w *world) misfortune() int {
	if n := int(w.trouble.Load()); n > 0 && w.random.IntN(n) == 0 {
		return 1 + w.random.IntN(4)
	}
	return 0
}

func (u *unreliable) Put(ctx context.Context, key string, value, tag []byte) error {
	switch u.w.misfortune() {
	case 1:
		return store.ErrUnavailable
	case 2:
		return store.ErrFull
	}
	return u.Driver.Put(ctx, key, value, tag)
}

func (u *unreliable) Get(ctx context.Context, key string) (*store.Value, error) {
	switch u.w.misfortune() {
	case 1:
		return nil, store.ErrUnavailable
	case 2:
		return nil, store.ErrCorrupt
	case 3:
		u.Driver.Delete(ctx, key) //nolint:errcheck // in memory
	}
	return u.Driver.Get(ctx, key)
}

// dial finds an engine by its name. On the way from it bytes flip and streams break.
func (w *world) dial(_ context.Context, address string) (engine.Puller, func(), error) {
	for _, m := range w.workers {
		if m.name == address {
			return &wire{m.engine(), w}, func() {}, nil
		}
	}
	return nil, nil, fmt.Errorf("there is no %s", address)
}

type wire struct {
	engine.Puller
	w *world
}

func (p *wire) Pull(ctx context.Context, q engine.PullRequest) iter.Seq2[engine.PulledBlock, error] {
	return func(yield func(engine.PulledBlock, error) bool) {
		skip := false
		for b, err := range p.Puller.Pull(ctx, q) {
			if err == nil && !skip {
				switch p.w.misfortune() {
				case 1:
					b.Data[p.w.random.IntN(len(b.Data))] ^= 1 << p.w.random.IntN(8)
				case 2:
					yield(engine.PulledBlock{}, engine.Errorf(engine.Disconnected, "the line is cut"))
					return
				case 3: // one too few, and from then on all in the wrong place
					skip = true
					continue
				case 4: // one too many
					if !yield(b, nil) {
						return
					}
				}
			}
			if !yield(b, err) {
				return
			}
		}
	}
}

// job is one request.
type job struct {
	at      *member // where it begins
	model   int
	prompt  []uint32
	n       int
	leave   int     // after so many tokens whoever asks goes away; n: never
	then    *member // and somebody else gets the rest from there, or nil
	request engine.Request
}

// job draws a request: the next turn of a conversation, or a branch of one, or a new
// one that may begin like another.
func (w *world) job(t *rapid.T) *job {
	j := &job{at: w.worker(t)}
	j.model = j.at.answers()
	w.mu.Lock()
	talks := w.talks
	w.mu.Unlock()
	if len(talks) > 0 && rapid.IntRange(0, 5).Draw(t, "of an earlier one") > 0 {
		j.prompt = rapid.SampledFrom(talks).Draw(t, "conversation")
		if rapid.Bool().Draw(t, "cut") {
			j.prompt = j.prompt[:rapid.IntRange(0, len(j.prompt)).Draw(t, "at")]
		}
	}
	j.n = rapid.IntRange(1, 12).Draw(t, "tokens")
	least := 1
	if len(j.prompt) > 0 {
		least = 0 // the very same again
	}
	more := rapid.SliceOfN(rapid.Uint32Range(0, reuseVocab-1), least, 14).Draw(t, "says")
	if most := 44 - j.n - len(more); len(j.prompt) > most {
		j.prompt = j.prompt[:most]
	}
	j.prompt = slices.Concat(j.prompt, more)
	j.leave = j.n
	if rapid.IntRange(0, 3).Draw(t, "leaves") == 0 {
		j.leave = rapid.IntRange(0, j.n).Draw(t, "after")
	}
	if rapid.Bool().Draw(t, "goes on elsewhere") {
		j.then = w.worker(t)
	}
	all := reuseVocab
	j.request = engine.Request{ID: "u-1", Sampling: reuseSampling(t), Logprobs: &all}
	if rapid.Bool().Draw(t, "of a priority") {
		p := int32(rapid.IntRange(-2, 2).Draw(t, "priority"))
		j.request.Priority = &p
	}
	d := &j.request.KV
	if rapid.IntRange(0, 2).Draw(t, "of a session") == 0 {
		d.Session = kv.Session{ID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "session"), Ephemeral: rapid.Bool().Draw(t, "ephemeral")}
		d.EvictSession = rapid.Bool().Draw(t, "ends the session")
	}
	if rapid.IntRange(0, 2).Draw(t, "pins") == 0 {
		d.Pins = []kv.Pin{{UpTo: kv.WholeSequence, TTL: time.Minute, Hard: rapid.Bool().Draw(t, "hard")}}
		if rapid.Bool().Draw(t, "for a moment") {
			d.Pins[0].TTL = time.Millisecond
		}
	}
	if rapid.IntRange(0, 3).Draw(t, "retains") == 0 {
		d.Ranges = []kv.Range{{Priority: uint8(rapid.IntRange(0, 100).Draw(t, "retention"))}}
	}
	d.SkipWrite = rapid.IntRange(0, 4).Draw(t, "stays here") == 0
	if rapid.IntRange(0, 4).Draw(t, "goes first") == 0 {
		d.Class = kv.ClassEphemeral
	}
	return j
}

// reuseSampling draws how the tokens of an answer are chosen: of few ways, so that
// answers come again. Seed and penalties tell them apart.
func reuseSampling(t *rapid.T) engine.Sampling {
	zero, one, seed := 0.0, 1.0, int64(7)
	return rapid.SampledFrom([]engine.Sampling{
		{Temperature: &zero},
		{Temperature: &zero, FrequencyPenalty: new(0.7), PresencePenalty: new(0.9), RepetitionPenalty: new(1.2)},
		{Temperature: &one, Seed: &seed},
		{Temperature: &one, Seed: &seed, FrequencyPenalty: new(-0.5), PresencePenalty: new(1.5), TopP: new(0.9), BadWords: [][]uint32{{3, 4}, {5}}},
	}).Draw(t, "chosen by")
}

// want returns what a cold cache gives for a job.
func (w *world) want(model int, prompt []uint32, n int, by *engine.Sampling) []step {
	key := fmt.Sprint(model, n, prompt, by.Seed != nil, by.FrequencyPenalty != nil)
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.known[key] == nil {
		w.known[key] = cold(reuseModels()[model], prompt, n, by)
	}
	return w.known[key]
}

func (w *world) run(t *rapid.T, j *job) {
	if err := w.carryOut(j); err != nil {
		t.Fatal(err)
	}
}

// crowd lets several requests run at once, and perhaps something happen among them.
func (w *world) crowd(t *rapid.T) {
	jobs := make([]*job, rapid.IntRange(2, 6).Draw(t, "requests"))
	for i := range jobs {
		jobs[i] = w.job(t)
	}
	errs := make([]error, len(jobs))
	restart := rapid.IntRange(0, 2*len(w.workers)).Draw(t, "restarts")
	var all sync.WaitGroup
	for i, j := range jobs {
		all.Go(func() { errs[i] = w.carryOut(j) })
	}
	if restart < len(w.workers) {
		all.Go(w.workers[restart].engine().Restart)
	}
	all.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}

// carryOut gets an answer, piece by piece where its worker fails or is left, and
// compares it.
func (w *world) carryOut(j *job) error {
	want := w.want(j.model, j.prompt, j.n, &j.request.Sampling)
	var got []step
	at, until := j.at, j.leave
	for attempt := 0; ; attempt++ {
		more, err := w.attempt(at, j, got, until)
		got = append(got, more...)
		for i := range got {
			if !reflect.DeepEqual(got[i], want[i]) {
				return fmt.Errorf("worker %s, prompt %v: step %d was %+v, want %+v", at.name, j.prompt, i, got[i], want[i])
			}
		}
		if err != nil && attempt > 20 {
			return fmt.Errorf("worker %s: %w", at.name, err)
		}
		switch {
		case err == nil && len(got) == j.n:
			w.mu.Lock()
			w.talks = append(w.talks, slices.Concat(j.prompt, ids(got)))
			w.mu.Unlock()
			return nil
		case err == nil && until < j.n && (j.then == nil || j.then.answers() != j.model):
			return nil // nobody wants the rest
		case err == nil:
			at, until = j.then, j.n
		case engine.KindOf(err) == engine.WorkerOverloaded:
			return nil // pins for good have filled the device
		case engine.KindOf(err) != engine.EngineShutdown:
			return fmt.Errorf("worker %s, prompt %v: %w", at.name, j.prompt, err)
		}
	}
}

func ids(steps []step) []uint32 {
	out := make([]uint32, len(steps))
	for i := range steps {
		out[i] = steps[i].ID
	}
	return out
}

// attempt gets tokens of an answer that has some already, until there are so many.
func (w *world) attempt(at *member, j *job, have []step, until int) (got []step, err error) {
	r := j.request
	r.TokenIDs, r.Answered = slices.Concat(j.prompt, ids(have)), len(have)
	r.Stop.MaxTokens = j.n - len(have)
	e := engine.Engine(at.engine())
	if at.role == "prefill" || at.role == "decode" {
		var done func()
		if e, done, err = w.legs(&r); err != nil {
			return nil, err
		}
		defer done()
	}
	if len(have) >= until {
		return nil, nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	for d, err := range e.Generate(ctx, &r) {
		if err != nil {
			return got, err
		}
		if len(d.TokenIDs) != len(d.Logprobs) {
			return got, fmt.Errorf("%d tokens with %d likelihoods", len(d.TokenIDs), len(d.Logprobs))
		}
		for i, id := range d.TokenIDs {
			if d.Logprobs[i].ID != id {
				return got, fmt.Errorf("token %d with the likelihood of %d", id, d.Logprobs[i].ID)
			}
		}
		got = append(got, d.Logprobs...)
		if len(have)+len(got) >= until && until < j.n {
			return got[:until-len(have)], nil
		}
	}
	return got, nil
}

// legs computes the prompt of a request on the prefill worker, and returns the one that
// decodes it. That may have other weights, and no use for what was computed.
func (w *world) legs(r *engine.Request) (engine.Engine, func(), error) {
	prefill, decode := w.workers[2], w.workers[3]
	p := prefill.engine()
	h, err := p.Prepare(context.Background(), engine.HandoffQuery{Request: r.ID})
	if err != nil {
		return nil, nil, err
	}
	first := *r
	first.Stop.MaxTokens, first.Logprobs = 1, nil
	first.Disagg = engine.Disagg{Phase: engine.PhasePrefill, Handoff: h.Prefill}
	var last engine.Delta
	for d, err := range p.Generate(context.Background(), &first) {
		if err != nil {
			return nil, nil, err
		}
		last = d
	}
	r.Disagg = engine.Disagg{Phase: engine.PhaseDecode, Handoff: last.Handoff}
	done := func() { p.Release(context.Background(), h.ID) } //nolint:errcheck // never fails
	if w.random.IntN(4) == 0 {
		done() // too early: what is not there any more is computed
	}
	return decode.engine(), done, nil
}

// ask asks something of the cache of a worker besides requests.
func (w *world) ask(t *rapid.T) {
	m := w.worker(t)
	w.mu.Lock()
	talks := w.talks
	w.mu.Unlock()
	if len(talks) == 0 {
		return // nobody has said anything yet
	}
	ids := rapid.SampledFrom(talks).Draw(t, "conversation")
	e, ctx := m.engine(), context.Background()
	var err error
	switch rapid.IntRange(-3, 3).Draw(t, "what") {
	default:
		_, err = e.Prefetch(ctx, engine.PrefetchRequest{TokenIDs: ids, Target: kv.Tier(rapid.IntRange(0, 1).Draw(t, "target"))})
	case 1:
		_, err = e.Pin(ctx, engine.PinRequest{TokenIDs: ids, TTL: time.Duration(rapid.IntRange(0, 1).Draw(t, "ttl")) * time.Minute, Hard: rapid.Bool().Draw(t, "hard")})
	case 2:
		_, err = e.CloseSession(ctx, kv.SessionKey{Model: "tiny", ID: rapid.SampledFrom([]string{"a", "b"}).Draw(t, "session")})
	case 3:
		_, err = e.OpenSession(ctx, kv.SessionKey{Model: "tiny", ID: "a"}, engine.SessionOptions{Timeout: time.Minute, Ephemeral: rapid.Bool().Draw(t, "ephemeral")})
	}
	if err != nil {
		t.Fatal(err)
	}
}

// reopen ends a worker, and begins it again with what its disk has, and perhaps with
// other weights.
func (w *world) reopen(t *rapid.T, m *member) {
	m.close()
	if rapid.Bool().Draw(t, "other weights") {
		m.model = 1 - m.model
	}
	if err := m.open(rapid.Bool().Draw(t, "with a store")); err != nil {
		t.Fatal(err)
	}
}

// setFire ends a worker, spoils a part of its disk, and begins it again.
func (w *world) setFire(t *rapid.T, m *member) {
	m.close()
	defer func() {
		if err := m.open(rapid.Bool().Draw(t, "with a store")); err != nil {
			t.Fatal(err)
		}
	}()
	at := filepath.Join(w.dir, m.name, "rank-0", "values.v1")
	f, err := os.OpenFile(at, os.O_RDWR, 0)
	if err != nil {
		return // it has no disk
	}
	defer f.Close()
	noise := make([]byte, 64)
	for i := range noise {
		noise[i] = byte(w.random.IntN(256))
	}
	for range 20 {
		// Values begin at pages.
		if _, err := f.WriteAt(noise, int64(w.random.IntN(40)*4096+w.random.IntN(1024))); err != nil {
			t.Fatal(err)
		}
	}
}

// An answer's likelihoods say everything about the logits but what they have in common.
func TestLikelihoodsTellLogits(t *testing.T) {
	logits := make([]float32, reuseVocab)
	for i := range logits {
		logits[i] = float32(i) / 7
	}
	before := sample.Logprob(logits, 3, reuseVocab)
	logits[5] = math.Nextafter32(logits[5], 9)
	if reflect.DeepEqual(before, sample.Logprob(logits, 3, reuseVocab)) {
		t.Error("the last bit of one logit is not seen")
	}
}
