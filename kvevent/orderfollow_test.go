package kvevent_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
	"github.com/dynago/dynago/kvindex"
)

// region is a publisher, the ways from it, and a router's view of it.
type region struct {
	publisher *kvevent.Publisher
	truth     *kvindex.Index
	follower  *kvevent.Follower
	view      *kvindex.Index
	now       time.Time

	live     []kvevent.RouterEvent // on their way, not always in order
	question *kvevent.Recovery
	answer   *kvevent.Answer // on its way
	problems []string
}

var (
	followed = kv.Target{Worker: 7, Rank: 1}
	instant  = time.Unix(1e9, 0)
)

func newRegion(t testing.TB, recoverable bool) *region {
	r := &region{view: kvindex.New(), now: instant}
	r.begin(t)
	r.follower = kvevent.NewFollower(followed.Worker, followed.Rank, recoverable, r)
	r.follower.Activate()
	return r
}

// begin begins another life of the publisher.
func (r *region) begin(t testing.TB) {
	r.publisher = newRankPublisher(t, kvevent.PublisherConfig{Worker: followed.Worker, Rank: followed.Rank})
	r.truth, r.live, r.answer = kvindex.New(), nil, nil
}

// Apply, Clear, Rebuild, Complete, Recover and Cancel implement [kvevent.FollowEffects].

func (r *region) Apply(e kvevent.RouterEvent) { _ = r.view.Apply(followed, e.Event) }
func (r *region) Clear(kv.GapReason)          { r.view.RemoveTarget(followed) }
func (r *region) Rebuild()                    {}
func (r *region) Complete()                   {}
func (r *region) Recover(q kvevent.Recovery) {
	r.question, r.answer = &q, nil
}

func (r *region) Cancel() {
	if r.question == nil {
		r.problems = append(r.problems, "took back a question that is not open")
	}
	r.question, r.answer = nil, nil
}

func (r *region) happen(e kv.Event, lost bool) {
	_ = r.truth.Apply(followed, e)
	for _, m := range r.publisher.Publish(r.now, []kv.Event{e}) {
		if !lost {
			r.live = append(r.live, m...)
		}
	}
}

func (r *region) deliver(i int) {
	if i < len(r.live) {
		e := r.live[i]
		r.live = append(r.live[:i:i], r.live[i+1:]...)
		r.follower.Live(e)
	}
}

// reply makes the publisher answer, and arrive hands the answer over.
func (r *region) reply() {
	if r.question != nil && r.answer == nil {
		a := r.publisher.Answer(*r.question)
		r.answer = &a
	}
}

func (r *region) arrive() {
	if r.answer != nil {
		a := *r.answer
		r.question, r.answer = nil, nil
		r.follower.Answered(r.now, a)
	}
}

func (r *region) fail() {
	if r.question != nil {
		r.question, r.answer = nil, nil
		r.follower.Failed(r.now)
	}
}

func (r *region) settle() {
	for range 10_000 {
		at, ok := r.follower.Deadline()
		switch {
		case len(r.live) > 0:
			r.deliver(0)
		case r.question != nil:
			r.reply()
			r.arrive()
		case ok:
			r.now = at
			r.follower.Tick(at)
		default:
			return
		}
	}
	r.problems = append(r.problems, "it never comes to rest")
}

func (r *region) step(t testing.TB, draw func(n int) int) {
	switch d := draw(40); {
	case d < 10:
		r.happen(tree(draw), false)
	case d < 12:
		r.happen(tree(draw), true)
	case d < 20:
		r.deliver(0)
	case d == 20 && len(r.live) > 0:
		r.deliver(draw(len(r.live)))
	case d == 21 && len(r.live) > 0:
		r.live = append(r.live, r.live[draw(len(r.live))])
	case d < 26:
		r.reply()
	case d < 32:
		r.arrive()
	case d == 32:
		r.fail()
	case d == 33 && r.question != nil && r.question.From == 0:
		r.question, r.answer = nil, nil
		r.follower.Answered(r.now, kvevent.Answer{Kind: kvevent.AnswerDumpFailed, Worker: followed.Worker, Rank: followed.Rank})
	case d < 36:
		r.now = r.now.Add(time.Second)
		r.follower.Tick(r.now)
	case d == 36 && draw(10) == 0:
		r.begin(t)
		r.follower.Replaced(true)
	case d == 37:
		r.happen(emptied, draw(2) == 0)
	}
}

// check compares the view with the publisher's own after everything that was
// not lost has arrived.
func (r *region) check() error {
	r.settle()
	r.happen(emptyRemoval, false) // a loss behind which nothing comes cannot be seen
	r.settle()
	if len(r.problems) > 0 {
		return fmt.Errorf("%s", strings.Join(r.problems, "; "))
	}
	if got, want := scores(r.view), scores(r.truth); got != want {
		return fmt.Errorf("the router knows\n%s, the worker\n%s", got, want)
	}
	return nil
}

var emptyRemoval = kv.Event{Kind: kv.Removed}

// Events that are lost, come twice or out of order, clears in the midst of a
// recovery, answers that fail and publishers that are replaced: in the end the
// router knows what the worker does.
func TestFollowerRecovers(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(rt, "n") }
		r := newRegion(t, true)
		for range 60 {
			r.step(t, draw)
		}
		if err := r.check(); err != nil {
			rt.Fatal(err)
		}
	})
}

func TestFollowerLong(t *testing.T) {
	var s kvevent.FollowStats
	for seed := range uint64(100) {
		draw := rand.New(rand.NewPCG(seed, 3)).IntN
		r := newRegion(t, true)
		for range 10 {
			for range 60 {
				r.step(t, draw)
			}
			if err := r.check(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		got := r.follower.Stats()
		s.Gaps += got.Gaps
		s.Ignored += got.Ignored
		s.Failed += got.Failed
	}
	if s.Gaps == 0 || s.Ignored == 0 || s.Failed == 0 {
		t.Errorf("something never happened: %+v", s)
	}
}

// follow leads a follower by commands, as run does an order: numbers are live
// events, 5! is a clear; dump 7, events 4-6 7, too_new, invalid, failed, foreign
// and none are answers, the last number of which is that of the publisher.
func follow(t *testing.T, recoverable bool, commands string) (*kvevent.Follower, string) {
	s := &followScript{}
	f, now := kvevent.NewFollower(7, 1, recoverable, s), instant
	event := func(id uint64, clears bool) kvevent.RouterEvent {
		e := kvevent.RouterEvent{Worker: 7, Rank: 1, ID: id, Event: gone(kv.TierDevice, int(id))}
		if clears {
			e.Event = emptied
		}
		return e
	}
	for command := range strings.SplitSeq(commands, ";") {
		words := strings.Fields(command)
		a := kvevent.Answer{Worker: 7, Rank: 1}
		switch words[0] {
		case "activate":
			f.Activate()
		case "replaced":
			f.Replaced(recoverable)
		case "wait":
			d, err := time.ParseDuration(words[1])
			if err != nil {
				t.Fatal(err)
			}
			now = now.Add(d)
			f.Tick(now)
		case "none":
			f.Failed(now)
		case "dump":
			a.Kind = kvevent.AnswerDump
			fmt.Sscan(words[1], &a.Last)
			a.Events = append(a.Events, event(0, false))
			f.Answered(now, a)
		case "events":
			var from, to uint64
			fmt.Sscanf(words[1], "%d-%d", &from, &to)
			fmt.Sscan(words[2], &a.Last)
			for id := from; id <= to; id++ {
				a.Events = append(a.Events, event(id, len(words) > 3 && id == from))
			}
			f.Answered(now, a)
		case "too_new":
			a.Kind = kvevent.AnswerTooNew
			f.Answered(now, a)
		case "invalid":
			a.Kind = kvevent.AnswerInvalid
			f.Answered(now, a)
		case "failed":
			a.Kind = kvevent.AnswerDumpFailed
			f.Answered(now, a)
		case "foreign":
			a.Kind, a.Worker = kvevent.AnswerDump, 8
			f.Answered(now, a)
		case "stranger":
			f.Live(kvevent.RouterEvent{Worker: 8, Rank: 1, ID: 1, Event: emptied})
		default:
			var id uint64
			fmt.Sscan(words[0], &id)
			f.Live(event(id, strings.HasSuffix(words[0], "!")))
		}
	}
	return f, strings.Join(s.did, "; ")
}

type followScript struct{ did []string }

func (s *followScript) Apply(e kvevent.RouterEvent) {
	s.did = append(s.did, fmt.Sprint(e.ID))
}
func (s *followScript) Clear(r kv.GapReason)       { s.did = append(s.did, string(r)) }
func (s *followScript) Rebuild()                   { s.did = append(s.did, "rebuild") }
func (s *followScript) Complete()                  { s.did = append(s.did, "complete") }
func (s *followScript) Recover(q kvevent.Recovery) { s.did = append(s.did, fmt.Sprint("ask ", q.From)) }
func (s *followScript) Cancel()                    { s.did = append(s.did, "cancel") }

func TestFollower(t *testing.T) {
	const tries = "none; wait 200ms; none; wait 400ms; none; wait 800ms; none; wait 1600ms; none; wait 3200ms; none; wait 6400ms; none; wait 12800ms; none"
	const asks = "ask 0; ask 0; ask 0; ask 0; ask 0; ask 0; ask 0; ask 0"
	for _, c := range []struct {
		name        string
		recoverable bool
		commands    string
		want        string
	}{
		{"nobody can be asked", false, "activate; 5; 6; 6; 4; 7", "5; 6; 7"},
		{"a gap, and nobody can be asked", false, "5; 8; 9", "5; lost; 8; 9"},
		{"a clear, and nobody can be asked", false, "5; 9!; 10", "5; restart; complete; 9; 10"},
		{"activated", true, "activate; dump 4; 5", "ask 0; lost; rebuild; 0; complete; 5"},
		{"not activated", true, "3; 4; dump 3; 5", "ask 0; lost; rebuild; 0; complete; 4; 5"},
		{"old ones are ignored", true, "activate; dump 4; 4; 3!; 5", "ask 0; lost; rebuild; 0; complete; 5"},
		{"a gap", true, "activate; dump 4; 6; 7; dump 6; 8", "ask 0; lost; rebuild; 0; complete; lost; ask 0; lost; rebuild; 0; complete; 7; 8"},
		{"out of order while it recovers", true, "activate; 7; 5; 6; 6; dump 4; 8", "ask 0; lost; rebuild; 0; complete; 5; 6; 7; 8"},
		{"a hole after a dump", true, "activate; 6; dump 4; events 5-6 6; 7", "ask 0; lost; rebuild; 0; complete; ask 5; 5; 6; 7"},
		{"the newest was dropped from the buffer, or lies in the answer", true, "activate; 6; dump 4; 8; events 5-7 7; 9", "ask 0; lost; rebuild; 0; complete; ask 5; 5; 6; 7; 8; 9"},
		{"events omitted before a clear", true, "activate; 9; dump 4; events 7-9 9 !; 10", "ask 0; lost; rebuild; 0; complete; ask 5; restart; complete; 7; 8; 9; 10"},
		{"events with a hole", true, "activate; 9; dump 4; events 7-9 9; 10", "ask 0; lost; rebuild; 0; complete; ask 5; lost; 7; 8; 9; 10"},
		{"a clear while it recovers", true, "activate; 6; 9!; dump 8; 10", "ask 0; cancel; restart; complete; 9; 10"},
		{"an old clear while it recovers", true, "activate; 6; dump 9; 8!; 10", "ask 0; lost; rebuild; 0; complete; 10"},
		{"no answer in time", true, "activate; 3; 4; " + tries + "; 5; 7", asks + "; lost; 3; 4; 5; lost; ask 0"},
		{"an answer in time", true, "activate; none; wait 199ms; wait 1ms; none; wait 399ms; wait 1ms; dump 4; 5", "ask 0; ask 0; ask 0; lost; rebuild; 0; complete; 5"},
		{"holes remain", true, "activate; 3; 5; " + tries + "; 6", asks + "; lost; 3; lost; 5; 6"},
		{"no answer about a hole", true, "activate; 6; dump 4; none; wait 200ms; dump 5; 7", "ask 0; lost; rebuild; 0; complete; ask 5; lost; ask 0; lost; rebuild; 0; complete; 6; 7"},
		{"not there yet", true, strings.ReplaceAll("activate; 3; "+tries, "none", "too_new") + "; 4", asks + "; lost; 3; 4"},
		{"not possible", true, strings.ReplaceAll("activate; 3; "+tries, "none", "invalid") + "; 4", asks + "; lost; 3; 4"},
		{"cannot be told now", true, strings.ReplaceAll("activate; 3; "+tries, "none", "failed") + "; 4; dump 3; 5", asks + "; ask 0; lost; rebuild; 0; complete; 4; 5"},
		{
			"cannot be told now, and then comes by itself", true,
			strings.ReplaceAll("activate; 6; dump 4; "+tries, "none", "failed") + "; 5; 7",
			"ask 0; lost; rebuild; 0; complete; " + strings.ReplaceAll(asks, "0", "5") + "; 5; 6; 7",
		},
		{"an answer that stands for more than its events", true, "activate; 6; dump 4; events 5-6 8; 9", "ask 0; lost; rebuild; 0; complete; ask 5; 5; 6; 9"},
		{"an answer nobody waits for", true, "activate; dump 4; dump 9; none; 5", "ask 0; lost; rebuild; 0; complete; 5"},
		{"an answer while it waits to ask again", true, "activate; none; dump 9; none; wait 1s; dump 4", "ask 0; ask 0; lost; rebuild; 0; complete"},
		{"an answer for somebody else", true, "activate; foreign; 5; 6!; wait 1h", "ask 0; lost"},
		{"replaced", true, "activate; dump 4; 5; replaced; 1; dump 1; 2", "ask 0; lost; rebuild; 0; complete; 5; restart; ask 0; lost; rebuild; 0; complete; 2"},
		{"replaced while it recovers", true, "activate; 3; replaced; dump 1; 2", "ask 0; cancel; restart; ask 0; lost; rebuild; 0; complete; 2"},
		{"replaced after an answer for somebody else", true, "activate; foreign; replaced; dump 1; 2", "ask 0; lost; restart; ask 0; lost; rebuild; 0; complete; 2"},
		{"an event of somebody else", true, "activate; dump 4; stranger; 5", "ask 0; lost; rebuild; 0; complete; 5"},
		{"activated twice", true, "activate; activate; dump 4; activate", "ask 0; lost; rebuild; 0; complete"},
	} {
		t.Run(c.name, func(t *testing.T) {
			if _, did := follow(t, c.recoverable, c.commands); did != c.want {
				t.Errorf("%s\n  did  %s\n  want %s", c.commands, did, c.want)
			}
		})
	}
}

func TestFollowerBuffer(t *testing.T) {
	r := newRegion(t, true)
	for id := range uint64(1500) {
		r.follower.Live(kvevent.RouterEvent{Worker: 7, Rank: 1, ID: id + 1, Event: emptyRemoval})
	}
	if s := r.follower.Stats(); s.Dropped != 1500-1024 || s.Applied != 0 {
		t.Errorf("counted %+v", s)
	}
	f, _ := follow(t, true, "activate; foreign")
	if last, known := f.Last(); !f.Fenced() || known || last != 0 {
		t.Errorf("fenced %t, last %d, %t", f.Fenced(), last, known)
	}
}
