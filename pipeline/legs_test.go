package pipeline_test

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"net"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/router"
)

// shaky is a mock engine some of whose requests fail, each in its own way, in the
// order in which they come.
type shaky struct {
	*mock.Engine
	failing  func(call int, r *engine.Request) *failing // nil: it does not
	unready  error                                      // of Prepare
	mu       sync.Mutex
	requests []*engine.Request
	prepared map[string]int     // and not released
	causes   []engine.ErrorKind // that ended those who hung
}

// failing is how a request fails: with an error after so many deltas, or by saying
// nothing more.
type failing struct {
	after int
	kind  engine.ErrorKind // "": it hangs
	do    func()           // at that moment
}

func (s *shaky) Generate(ctx context.Context, r *engine.Request) iter.Seq2[engine.Delta, error] {
	return func(yield func(engine.Delta, error) bool) {
		s.mu.Lock()
		call := len(s.requests)
		s.requests = append(s.requests, r)
		s.mu.Unlock()
		var f *failing
		if s.failing != nil {
			f = s.failing(call, r)
		}
		n := 0
		fails := func() bool {
			if f == nil || n < f.after {
				return false
			}
			if f.do != nil {
				f.do()
			}
			if f.kind == "" {
				<-ctx.Done()
				s.mu.Lock()
				s.causes = append(s.causes, engine.KindOf(context.Cause(ctx)))
				s.mu.Unlock()
				yield(engine.Delta{}, engine.CauseOf(ctx, ctx.Err()))
			} else {
				yield(engine.Delta{}, engine.Errorf(f.kind, "injected"))
			}
			return true
		}
		if fails() {
			return
		}
		for d, err := range s.Engine.Generate(ctx, r) {
			n++
			if !yield(d, err) || err != nil || d.Finish != engine.Running || fails() {
				return
			}
		}
	}
}

func (s *shaky) Prepare(ctx context.Context, q engine.HandoffQuery) (engine.Handoff, error) {
	if s.unready != nil {
		return engine.Handoff{}, s.unready
	}
	h, err := s.Engine.Prepare(ctx, q)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		if s.prepared == nil {
			s.prepared = map[string]int{}
		}
		s.prepared[h.ID]++
	}
	return h, err
}

func (s *shaky) Release(ctx context.Context, id string) error {
	s.mu.Lock()
	if s.prepared[id]--; s.prepared[id] == 0 {
		delete(s.prepared, id)
	}
	s.mu.Unlock()
	return s.Engine.Release(ctx, id)
}

func (s *shaky) sent() []*engine.Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// open returns how many hand-offs were prepared and not released, or more than once.
func (s *shaky) open() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.prepared)
}

// callers makes mock engines that are offered tools think, speak and call two of them.
var callers = sync.OnceValues(func() (*mock.Script, error) {
	return mock.LoadScript(strings.NewReader(`
rules:
  - when: {has_tools: true}
    emit: "<think>Both, then.</think>I look at once.<tool_call>\n{\"name\": \"lookup\", \"arguments\": {\"q\": \"Seine\"}}\n</tool_call>\n<tool_call>\n{\"name\": \"stop\", \"arguments\": {}}\n</tool_call>"
`))
})

// newShaky makes an engine of a role; meets says that it has a place to meet.
func newShaky(t testing.TB, role string, meets bool) *shaky {
	t.Helper()
	model, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	script, err := callers()
	if err != nil {
		t.Fatal(err)
	}
	args := mock.DefaultArgs()
	args.WorkerType, args.BlockSize, args.NumGPUBlocks, args.SpeedupRatio = role, 16, 1024, 0
	c := mock.Config{
		Name: role, Model: "test/model", Args: args, Seed: 3, EOS: model.EOS, ContextLength: 4096, Script: script,
		Encode: func(dst []uint32, text string) []uint32 { return model.Tokenizer.Append(dst, text) },
	}
	if meets {
		if c.Bootstrap, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	e, err := mock.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return &shaky{Engine: e}
}

// pair is a house with workers for both legs.
type pair struct {
	*house
	prefill, decode []*shaky
}

func newPair(t testing.TB, c pipeline.Config, prefills, decodes int, meets bool) *pair {
	t.Helper()
	p := &pair{}
	var engines []engine.Engine
	for range prefills {
		e := newShaky(t, "prefill", meets)
		p.prefill, engines = append(p.prefill, e), append(engines, e)
	}
	for range decodes {
		e := newShaky(t, "decode", false)
		p.decode, engines = append(p.decode, e), append(engines, e)
	}
	p.house = newHouse(t, c, engines...)
	return p
}

// settled fails the test if anything is left of the requests.
func (p *pair) settled(t testing.TB) {
	t.Helper()
	if s := p.left(); s != "" {
		t.Error(s)
	}
}

// phases lists the legs that an engine was sent.
func (s *shaky) phases() (list []engine.Phase) {
	for _, r := range s.sent() {
		list = append(list, r.Disagg.Phase)
	}
	return list
}

// undisturbed is what one worker answers alone.
func undisturbed(t testing.TB, r *pipeline.Request) []chat.Answer {
	t.Helper()
	h := newHouse(t, pipeline.Config{}, newShaky(t, "aggregated", false))
	c := *r
	c.Notes = nil
	answers, err := chat.Fold(h.Run(t.Context(), &c))
	if err != nil {
		t.Fatal(err)
	}
	return answers
}

// same fails the test if an answer is another one, or counts other tokens.
func same(t testing.TB, got, want []chat.Answer) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d answers, want %d", len(got), len(want))
	}
	for i := range got {
		if g, w := texts(got)[i], texts(want)[i]; g != w || !slices.Equal(got[i].IDs, want[i].IDs) {
			t.Errorf("answer %d: %q, want %q", i, g, w)
		}
		if got[i].Finish.Reason != want[i].Finish.Reason {
			t.Errorf("answer %d ends with %s, want %s", i, got[i].Finish.Reason, want[i].Finish.Reason)
		}
		g, w := got[i].Usage, want[i].Usage
		if g.Prompt != w.Prompt || g.Output != w.Output {
			t.Errorf("answer %d: usage %+v, want %+v", i, g, w)
		}
	}
}

// long is a request whose prompt fills some blocks.
func long(tokens int) *pipeline.Request {
	r := request("Which rivers cross Paris, and which of them has the most bridges? Tell of each bridge, from the oldest one to the newest one, in one sentence.")
	r.Chat.Sampling.MaxTokens = &tokens
	return r
}

// Two workers give the answer of one, and tell what the first one had cached.
func TestLegs(t *testing.T) {
	for name, meets := range map[string]bool{"one after the other": false, "at once": true} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, pipeline.Config{}, 1, 1, meets)
			want := undisturbed(t, long(40))
			for i, cached := range []bool{false, true} {
				r := long(40)
				answers, err := chat.Fold(p.Run(t.Context(), r))
				if err != nil {
					t.Fatal(err)
				}
				same(t, answers, want)
				if u := answers[0].Usage; u.Cached == nil || (*u.Cached > 0) != cached {
					t.Errorf("request %d: cached %v", i, u.Cached)
				}
				if n := r.Notes; n.Prefill == nil || n.Prefill.Worker != 1 || n.Target.Worker != 2 || n.Attempts != 1 {
					t.Errorf("notes %+v", n)
				}
			}
			p.settled(t)
			if want := (pipeline.HandoffCounts{Done: 2}); p.Handoffs() != want {
				t.Errorf("counted %+v", p.Handoffs())
			}
			first, second := p.prefill[0].sent()[0], p.decode[0].sent()[0]
			if first.ID != second.ID || first.Stop.MaxTokens != 1 || second.Stop.MaxTokens != 40 || !slices.Equal(first.TokenIDs, second.TokenIDs) {
				t.Errorf("legs %+v and %+v", first, second)
			}
		})
	}
}

// outcomes is an observer that writes down how requests have gone.
type outcomes struct {
	mu  sync.Mutex
	all []router.Outcome
}

func (*outcomes) Routed(*router.Decision, *router.Work) {}

func (o *outcomes) Ended(one *router.Outcome) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.all = append(o.all, *one)
}

// The router is told how long a transfer took at most, of the leg that answers alone,
// whether or not anybody asks for timing, and in agreement with who does.
func TestTransferIsTold(t *testing.T) {
	for name, tc := range map[string]struct {
		roles []string
		timed bool
		told  bool
	}{
		"two legs":        {[]string{"prefill", "decode"}, false, true},
		"two legs, timed": {[]string{"prefill", "decode"}, true, true},
		"one worker":      {[]string{"aggregated"}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			var engines []engine.Engine
			for _, role := range tc.roles {
				engines = append(engines, newShaky(t, role, false))
			}
			heard := &outcomes{}
			h := newHouseOf(t, pipeline.Config{}, router.Config{Mode: router.RoundRobin, Observer: heard}, engines...)
			r := long(20)
			if tc.timed {
				r.Traced = &pipeline.Traced{}
			}
			began := time.Now()
			if _, err := chat.Fold(h.Run(t.Context(), r)); err != nil {
				t.Fatal(err)
			}
			took := time.Since(began)
			heard.mu.Lock()
			defer heard.mu.Unlock()
			if len(heard.all) != len(tc.roles) {
				t.Fatalf("heard of %d legs", len(heard.all))
			}
			for _, o := range heard.all {
				if want := tc.told && o.Role == engine.Decode; (o.Transfer > 0) != want || o.Transfer > took {
					t.Errorf("the %s leg was told a transfer of %v in a request of %v", o.Role, o.Transfer, took)
				}
				if tc.timed && o.Transfer > 0 {
					c := r.Traced.Courses[0]
					// The trace looks at the clock a moment later.
					if traced := c.First.Sub(c.Computed); o.Transfer > traced {
						t.Errorf("a transfer of %v, and %v in the trace", o.Transfer, traced)
					}
				}
			}
		})
	}
}

// What ends at its first token has one leg, and so has what is to have one token:
// the engine is not even asked to keep that prompt for anybody.
func TestPrefillAnswers(t *testing.T) {
	p := newPair(t, pipeline.Config{}, 1, 1, false)
	single := long(1)
	single.Chat.Sampling.Logprobs = new(2)
	one := undisturbed(t, single)
	answers, err := chat.Fold(p.Run(t.Context(), single))
	if err != nil {
		t.Fatal(err)
	}
	same(t, answers, one)
	if d := cmp.Diff(one[0].Logprobs, answers[0].Logprobs); d != "" {
		t.Errorf("log probabilities: -want +got\n%s", d)
	}
	ended := long(20)
	ended.Chat.Sampling.StopIDs = one[0].IDs
	answers, err = chat.Fold(p.Run(t.Context(), ended))
	if err != nil || answers[0].Usage.Output != 1 || answers[0].Finish.Reason != chat.FinishStopSequence {
		t.Errorf("%+v, %v", answers, err)
	}
	p.settled(t)
	if want := (pipeline.HandoffCounts{Answered: 2}); p.Handoffs() != want || len(p.decode[0].sent()) != 0 {
		t.Errorf("counted %+v; the decode worker got %v", p.Handoffs(), p.decode[0].phases())
	}
	if got := p.prefill[0].phases(); !slices.Equal(got, []engine.Phase{engine.PhaseWhole, engine.PhasePrefill}) {
		t.Errorf("the prefill worker got %q", got)
	}
}

// An answer that must not end at its first token does not end with the prefill leg.
func TestPrefillMustNotAnswer(t *testing.T) {
	p := newPair(t, pipeline.Config{}, 1, 1, false)
	held := long(20)
	held.Chat.Sampling.StopIDs = undisturbed(t, long(1))[0].IDs
	held.Chat.Sampling.MinTokens = 3
	answers, err := chat.Fold(p.Run(t.Context(), held))
	if err != nil {
		t.Fatal(err)
	}
	same(t, answers, undisturbed(t, held))
	p.settled(t)
}

// Every choice has a hand-off of its own, between the same two workers.
func TestChoicesInTwoLegs(t *testing.T) {
	for _, meets := range []bool{false, true} {
		p := newPair(t, pipeline.Config{}, 2, 2, meets)
		r := long(10)
		r.Chat.Sampling.N = 3
		want := undisturbed(t, r)
		answers, err := chat.Fold(p.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		same(t, answers, want)
		p.settled(t)
		if p.Handoffs().Done != 3 {
			t.Errorf("counted %+v", p.Handoffs())
		}
		for _, of := range [][]*shaky{p.prefill, p.decode} {
			if a, b := len(of[0].sent()), len(of[1].sent()); a*b != 0 || a+b != 3 {
				t.Errorf("meets %v: %d and %d legs", meets, a, b)
			}
		}
	}
}

// A choice that comes late begins where the others have, also when one of them just
// finds a place for its second leg.
func TestLateChoice(t *testing.T) {
	p := newPair(t, pipeline.Config{}, 1, 1, false)
	r := long(10)
	r.Chat.Sampling.N = 2
	a, b, err := p.Late(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	if a != b || a.Worker().Card().Role != engine.Prefill {
		t.Errorf("they begin at %+v and %+v", a.Decision(), b.Decision())
	}
	p.settled(t)
}

// What is noted of a request stays from its first event on, also where that is of a
// choice that has answered, or moved, before the others have a place for their second
// leg.
func TestNotesStay(t *testing.T) {
	for name, tc := range map[string]struct {
		moves bool
		done  int64 // second legs
	}{
		"the first leg answers": {false, 1},
		"the choice moves":      {true, 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPair(t, pipeline.Config{MigrationLimit: 1}, 2, 1, false)
			r := long(10)
			r.Chat.Sampling.N = 2
			if !tc.moves { // the first choice ends with the first token, which the other does not have
				r.Chat.Sampling.StopIDs = undisturbed(t, r)[0].IDs[:1]
			}
			heard := make(chan struct{})
			for _, e := range p.prefill {
				e.failing = func(_ int, q *engine.Request) *failing {
					switch {
					case q.ID == r.ID+".1-1":
						<-heard
					case q.ID == r.ID+"-1" && tc.moves:
						return &failing{kind: engine.Disconnected}
					}
					return nil
				}
			}
			var first pipeline.Notes
			for e, err := range p.Run(t.Context(), r) {
				if err != nil {
					t.Fatal(err)
				}
				if first.Model == "" {
					if e.Choice != 0 {
						t.Fatalf("choice %d has begun", e.Choice)
					}
					close(heard)
					first = *r.Notes
				}
			}
			if d := cmp.Diff(first, *r.Notes); d != "" {
				t.Errorf("-with the first event +with the last\n%s", d)
			}
			if n := p.Handoffs().Done; n != tc.done {
				t.Errorf("%d second legs, want %d", n, tc.done)
			}
			p.settled(t)
		})
	}
}

// Prompts whose own probabilities are wanted, and those of clients that ask for it,
// are computed where the answer is.
func TestOneLegOnly(t *testing.T) {
	p := newPair(t, pipeline.Config{}, 1, 1, false)
	r := long(5)
	r.Chat.Sampling.PromptLogprobs = new(int)
	if _, err := chat.Fold(p.Run(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	if got := p.decode[0].phases(); !slices.Equal(got, []engine.Phase{engine.PhaseWhole}) || len(p.prefill[0].sent()) != 0 {
		t.Errorf("the decode worker got %q", got)
	}
	p.settled(t)
}

// Every way in which a leg can fail, what comes of it, and that nothing is left.
func TestFailuresOfLegs(t *testing.T) {
	first := func(f failing) func(int, *engine.Request) *failing {
		return func(call int, _ *engine.Request) *failing {
			if call == 0 {
				return &f
			}
			return nil
		}
	}
	always := func(f failing) func(int, *engine.Request) *failing {
		return func(int, *engine.Request) *failing { return &f }
	}
	type phases = []engine.Phase
	const (
		pre = engine.PhasePrefill
		dec = engine.PhaseDecode
		all = engine.PhaseWhole
	)
	for name, tc := range map[string]struct {
		meets           bool
		prefill, decode func(int, *engine.Request) *failing // of the first of each
		unready         error
		alone           bool // there is one prefill worker
		limit           int
		want            engine.ErrorKind
		prefills        [2]phases
		decodes         [2]phases
		counted         pipeline.HandoffCounts
	}{
		"a prefill worker is lost": {
			limit: 3, prefill: first(failing{kind: engine.Disconnected}),
			prefills: [2]phases{{pre}, {pre}}, decodes: [2]phases{{dec}, nil}, counted: pipeline.HandoffCounts{PrefillFailed: 1, Done: 1},
		},
		"the only one": {
			limit: 3, alone: true, prefill: first(failing{kind: engine.CannotConnect}),
			prefills: [2]phases{{pre}}, decodes: [2]phases{{all}, nil}, counted: pipeline.HandoffCounts{PrefillFailed: 1, Whole: 1},
		},
		"nothing may move": {
			prefill:  first(failing{kind: engine.Disconnected}),
			want:     engine.Disconnected,
			prefills: [2]phases{{pre}, nil}, counted: pipeline.HandoffCounts{PrefillFailed: 1},
		},
		"a prompt is refused": {
			limit: 3, prefill: first(failing{kind: engine.InvalidArgument}),
			want:     engine.InvalidArgument,
			prefills: [2]phases{{pre}, nil}, counted: pipeline.HandoffCounts{PrefillFailed: 1},
		},
		"no hand-off is prepared": {
			limit: 3, unready: engine.Errorf(engine.CannotConnect, "injected"),
			prefills: [2]phases{nil, {pre}}, decodes: [2]phases{{dec}, nil}, counted: pipeline.HandoffCounts{PrefillFailed: 1, Done: 1},
		},
		"a decode worker is never reached": {
			limit: 3, decode: first(failing{kind: engine.CannotConnect}),
			prefills: [2]phases{{pre}, nil}, decodes: [2]phases{{dec}, {dec}}, counted: pipeline.HandoffCounts{DecodeFailed: 1, Resent: 1, Done: 1},
		},
		"a decode worker is lost before it begins": {
			limit: 3, decode: first(failing{kind: engine.Disconnected}),
			prefills: [2]phases{{pre}, {pre}}, decodes: [2]phases{{dec}, {dec}}, counted: pipeline.HandoffCounts{DecodeFailed: 1, Done: 1},
		},
		"a decode worker is lost in the middle": {
			limit: 3, decode: first(failing{after: 5, kind: engine.Disconnected}),
			prefills: [2]phases{{pre}, {pre}}, decodes: [2]phases{{dec}, {dec}}, counted: pipeline.HandoffCounts{Done: 2},
		},
		"a hand-off is refused": {
			limit: 3, decode: first(failing{kind: engine.InvalidArgument}),
			want:     engine.InvalidArgument,
			prefills: [2]phases{{pre}, nil}, decodes: [2]phases{{dec}, nil}, counted: pipeline.HandoffCounts{DecodeFailed: 1},
		},
		"at once: a prefill worker is lost": {
			meets: true, limit: 3, prefill: first(failing{kind: engine.Disconnected}),
			prefills: [2]phases{{pre}, {pre}}, decodes: [2]phases{{dec}, {dec}}, counted: pipeline.HandoffCounts{PrefillFailed: 1, Done: 1},
		},
		"at once: a prompt is refused": {
			meets: true, limit: 3, prefill: first(failing{kind: engine.InvalidArgument}),
			want:     engine.InvalidArgument,
			prefills: [2]phases{{pre}, nil}, decodes: [2]phases{{dec}, nil}, counted: pipeline.HandoffCounts{PrefillFailed: 1},
		},
		"at once: a decode worker is lost before it begins": {
			meets: true, limit: 3, decode: first(failing{kind: engine.Disconnected}),
			prefills: [2]phases{{pre}, {pre}}, decodes: [2]phases{{dec}, {dec}}, counted: pipeline.HandoffCounts{DecodeFailed: 1, Done: 1},
		},
		"at once: a decode worker is lost and a prompt hangs": {
			meets: true, limit: 3, decode: first(failing{kind: engine.Disconnected}), prefill: first(failing{}),
			prefills: [2]phases{{pre}, {pre}}, decodes: [2]phases{{dec}, {dec}}, counted: pipeline.HandoffCounts{DecodeFailed: 1, Done: 1},
		},
		"at once: a decode worker is lost in the middle": {
			meets: true, limit: 3, decode: first(failing{after: 5, kind: engine.Disconnected}),
			prefills: [2]phases{{pre}, {pre}}, decodes: [2]phases{{dec}, {dec}}, counted: pipeline.HandoffCounts{Done: 2},
		},
		"all decode workers fail": {
			limit: 1, decode: always(failing{kind: engine.Disconnected}),
			want:     engine.Disconnected,
			prefills: [2]phases{{pre}, {pre}}, decodes: [2]phases{{dec}, {dec}}, counted: pipeline.HandoffCounts{DecodeFailed: 2},
		},
	} {
		t.Run(name, func(t *testing.T) {
			prefills := 2
			if tc.alone {
				prefills = 1
			}
			p := newPair(t, pipeline.Config{MigrationLimit: tc.limit}, prefills, 2, tc.meets)
			p.prefill[0].failing, p.prefill[0].unready = tc.prefill, tc.unready
			p.decode[0].failing = tc.decode
			if tc.limit == 1 {
				p.decode[1].failing = tc.decode
			}
			r := long(40)
			answers, err := chat.Fold(p.Run(t.Context(), r))
			switch {
			case tc.want != "":
				if engine.KindOf(err) != tc.want {
					t.Errorf("error %v, want %s", err, tc.want)
				}
			case err != nil:
				t.Error(err)
			default:
				same(t, answers, undisturbed(t, long(40)))
			}
			p.settled(t)
			var got [4]phases
			for i, e := range p.prefill {
				got[i] = e.phases()
			}
			for i, e := range p.decode {
				got[2+i] = e.phases()
			}
			if d := cmp.Diff([4]phases{tc.prefills[0], tc.prefills[1], tc.decodes[0], tc.decodes[1]}, got); d != "" {
				t.Errorf("legs: -want +got\n%s", d)
			}
			if d := cmp.Diff(tc.counted, p.Handoffs()); d != "" {
				t.Errorf("counted: -want +got\n%s", d)
			}
			// An engine must know a failure from a client that leaves, and goes on with
			// the leg of one.
			for _, kind := range p.prefill[0].causes {
				if kind == engine.Cancelled {
					t.Error("the prefill leg ended as if the client had left")
				}
			}
		})
	}
}

// A client may leave at any moment.
func TestClientLeavesLegs(t *testing.T) {
	for _, meets := range []bool{false, true} {
		for _, at := range []engine.Phase{engine.PhasePrefill, engine.PhaseDecode, engine.PhaseWhole} {
			t.Run(fmt.Sprintf("meets %v, in %q", meets, at), func(t *testing.T) {
				p := newPair(t, pipeline.Config{MigrationLimit: 3}, 1, 1, meets)
				ctx, cancel := context.WithCancelCause(t.Context())
				leave := &failing{do: func() { cancel(engine.ErrClientGone) }}
				switch at {
				case engine.PhasePrefill:
					p.prefill[0].failing = func(int, *engine.Request) *failing { return leave }
				case engine.PhaseDecode:
					p.decode[0].failing = func(int, *engine.Request) *failing { return leave }
				default: // in the middle of the answer
					leave.after = 4
					p.decode[0].failing = func(int, *engine.Request) *failing { return leave }
				}
				_, err := chat.Fold(p.Run(ctx, long(40)))
				if engine.KindOf(err) != engine.Cancelled {
					t.Errorf("error %v", err)
				}
				p.settled(t)
				want := pipeline.HandoffCounts{Abandoned: 1}
				if at == engine.PhaseWhole {
					want = pipeline.HandoffCounts{Done: 1}
				}
				if p.Handoffs() != want {
					t.Errorf("counted %+v", p.Handoffs())
				}
				// And one that leaves the loop.
				p.prefill[0].failing, p.decode[0].failing = nil, nil
				for range p.Run(t.Context(), long(40)) {
					break
				}
				p.settled(t)
			})
		}
	}
}

// A client that leaves while the second leg waits for room.
func TestClientLeavesBetweenLegs(t *testing.T) {
	threshold := 0.0
	p := &pair{}
	p.prefill, p.decode = []*shaky{newShaky(t, "prefill", false)}, []*shaky{newShaky(t, "decode", false)}
	p.house = newHouseOf(t, pipeline.Config{}, router.Config{QueueThreshold: &threshold}, p.prefill[0], p.decode[0])
	other, err := p.router.Route(t.Context(), &router.Query{Model: "test/model", Tokens: p.ids("hello"), PinWorker: 2})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	go func() {
		_, err := chat.Fold(p.Run(ctx, long(40)))
		done <- err
	}()
	for p.router.Counters().Parked == 0 {
		select {
		case err := <-done:
			t.Fatalf("it did not wait: %v", err)
		default:
		}
	}
	if p.prefill[0].Kept() != 1 {
		t.Errorf("%d prompts are kept", p.prefill[0].Kept())
	}
	cancel(engine.ErrClientGone)
	if err := <-done; !errors.Is(err, engine.ErrClientGone) {
		t.Errorf("error %v", err)
	}
	other.Release()
	p.settled(t)
	if want := (pipeline.HandoffCounts{Abandoned: 1}); p.Handoffs() != want {
		t.Errorf("counted %+v", p.Handoffs())
	}
}

// A worker that is taken away is like one that fails.
func TestWorkerLostBetweenLegs(t *testing.T) {
	for _, meets := range []bool{false, true} {
		for _, role := range []string{"prefill", "decode"} {
			p := newPair(t, pipeline.Config{MigrationLimit: 3}, 2, 2, meets)
			lose, id := p.prefill[0], uint64(1)
			if role == "decode" {
				lose, id = p.decode[0], 3
			}
			var removed sync.WaitGroup
			lose.failing = func(int, *engine.Request) *failing {
				return &failing{do: func() { removed.Go(func() { p.fleet.Remove(id) }) }}
			}
			answers, err := chat.Fold(p.Run(t.Context(), long(40)))
			if err != nil {
				t.Fatal(err)
			}
			same(t, answers, undisturbed(t, long(40)))
			removed.Wait()
			p.Settle()
			p.released(t)
		}
	}
}

// handing is a fake that computes prompts for others.
type handing struct{ fake }

func newHanding() *handing {
	return &handing{fake{features: engine.Features{engine.FeatureHandoff}, change: func(c *engine.Card) { c.Role = engine.Prefill }}}
}

func (*handing) Prepare(context.Context, engine.HandoffQuery) (engine.Handoff, error) {
	return engine.Handoff{ID: "h", Prefill: []byte(`{}`)}, nil
}

func (*handing) Release(context.Context, string) error { return nil }

// Behind a thought that is cut the decode worker goes on alone, if it can; one that
// takes no whole requests has the longer prompt computed for it.
func TestThinkingBudgetInTwoLegs(t *testing.T) {
	for name, needs := range map[string][]engine.Role{"alone": nil, "with prefill": {engine.Prefill}} {
		t.Run(name, func(t *testing.T) {
			p, d := newHanding(), &fake{change: func(c *engine.Card) { c.Role, c.Needs = engine.Decode, needs }}
			h := newHouse(t, pipeline.Config{}, p, d)
			p.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
				u := &engine.Usage{Prompt: len(r.TokenIDs), Cached: new(7), Output: 1}
				yield(engine.Delta{TokenIDs: h.ids("<think>")[:1], Finish: engine.FinishLength, Usage: u, Handoff: []byte(`{"blocks":1}`)}, nil)
			}
			d.generate = h.thinker(3, "<think>", "\n</think>\n\n")
			r := request("why?")
			r.Chat.Thinking.Budget = new(5)
			answers, err := chat.Fold(h.Run(t.Context(), r))
			if err != nil {
				t.Fatal(err)
			}
			if u := answers[0].Usage; u.Cached == nil || *u.Cached != 7 || u.Prompt != r.Notes.PromptTokens {
				t.Errorf("usage %+v", u)
			}
			want, prefills := []engine.Phase{engine.PhaseDecode, engine.PhaseWhole}, 1
			if needs != nil {
				want, prefills = []engine.Phase{engine.PhaseDecode, engine.PhaseDecode}, 2
			}
			var got []engine.Phase
			for _, r := range d.sent() {
				got = append(got, r.Disagg.Phase)
			}
			if !slices.Equal(got, want) || len(p.sent()) != prefills {
				t.Errorf("the decode worker got %q, and the other %d", got, len(p.sent()))
			}
			if r.Notes.Attempts != 1 {
				t.Errorf("%d attempts: nothing has moved", r.Notes.Attempts)
			}
			h.released(t)
		})
	}
}

// What the decode worker finds of blocks that have come from elsewhere was not
// cached: nobody knows, if the prefill worker does not tell.
func TestNobodyTellsWhatWasCached(t *testing.T) {
	for _, told := range []bool{false, true} {
		p, d := newHanding(), &fake{change: func(c *engine.Card) { c.Role = engine.Decode }}
		h := newHouse(t, pipeline.Config{}, p, d)
		u := &engine.Usage{}
		if told {
			u.Cached = new(1 << 20) // clamped to the prompt
		}
		p.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
			yield(engine.Delta{TokenIDs: []uint32{1}, Finish: engine.FinishLength, Usage: u, Handoff: []byte(`{"blocks":1}`)}, nil)
		}
		d.generate = h.say(sentence, 1, engine.FinishEOS)
		r := request("Hello")
		answers, err := chat.Fold(h.Run(t.Context(), r))
		if err != nil {
			t.Fatal(err)
		}
		if c := answers[0].Usage.Cached; told != (c != nil) || told && *c != r.Notes.PromptTokens {
			t.Errorf("told %v: cached %v", told, c)
		}
	}
}

// A prompt too short to be handed over is computed where the answer is.
func TestNothingToHandOver(t *testing.T) {
	p, d := newHanding(), &fake{change: func(c *engine.Card) { c.Role = engine.Decode }}
	h := newHouse(t, pipeline.Config{}, p, d)
	p.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		yield(engine.Delta{TokenIDs: []uint32{1}, Finish: engine.FinishLength, Usage: &engine.Usage{}}, nil)
	}
	d.generate = h.say(sentence, 1, engine.FinishEOS)
	answers, err := chat.Fold(h.Run(t.Context(), request("Hello")))
	if err != nil || texts(answers)[0] != sentence {
		t.Fatalf("%+v, %v", answers, err)
	}
	if got := d.sent()[0].Disagg; got.Phase != engine.PhaseWhole || got.Handoff != nil {
		t.Errorf("the decode worker got %+v", got)
	}
}

// A decode worker that has most of a prompt computes the rest itself, if the operator
// says so.
func TestConditionalLegs(t *testing.T) {
	c := router.DefaultConditional()
	p := &pair{prefill: []*shaky{newShaky(t, "prefill", false)}, decode: []*shaky{newShaky(t, "decode", false)}}
	p.house = newHouseOf(t, pipeline.Config{}, router.Config{Conditional: &c}, p.prefill[0], p.decode[0])
	want := undisturbed(t, long(5))
	for range 2 {
		answers, err := chat.Fold(p.Run(t.Context(), long(5)))
		if err != nil {
			t.Fatal(err)
		}
		same(t, answers, want)
		// Its events are on their way.
		for end := time.Now().Add(10 * time.Second); p.router.Loads()[1].CachedBlocks < 2; runtime.Gosched() {
			if time.Now().After(end) {
				t.Fatal("the decode worker tells of no blocks")
			}
		}
	}
	if got := p.decode[0].phases(); !slices.Equal(got, []engine.Phase{engine.PhaseDecode, engine.PhaseWhole}) || len(p.prefill[0].sent()) != 1 {
		t.Errorf("the decode worker got %q, and the other %d", got, len(p.prefill[0].sent()))
	}
	p.settled(t)
}
