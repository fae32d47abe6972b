package router_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"weak"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/router"
)

// epoch is when the queues of the tests were made.
var epoch = time.Unix(1_700_000_000, 0)

// at is so many seconds after the epoch.
func at(seconds float64) time.Time { return epoch.Add(time.Duration(seconds * float64(time.Second))) }

// arrival describes an item of a test: the name is its value.
type arrival struct {
	name     string
	at       float64 // seconds after the epoch
	priority float64
	strict   uint32
	tokens   int
	cached   int
}

func (a arrival) item(c *router.Class) *router.Item[string] {
	return &router.Item[string]{
		Value: a.name, Class: c, Arrived: at(a.at),
		Priority: a.priority, StrictPriority: a.strict, Tokens: a.tokens, Cached: a.cached,
	}
}

func push[T any](t rapid.TB, q *router.Queue[T], items ...*router.Item[T]) {
	t.Helper()
	for _, it := range items {
		if err := q.Push(it, 1, it.Arrived); err != nil {
			t.Fatal(err)
		}
	}
}

// room lets every head go.
func room[T any](*router.Item[T]) bool { return true }

// drain returns the values of what may go, in order.
func drain[T any](q *router.Queue[T], free func(*router.Item[T]) bool) []T {
	var out []T
	for it := range q.Ready(epoch, free) {
		out = append(out, it.Value)
	}
	return out
}

func order(q *router.Queue[string], free func(*router.Item[string]) bool) string {
	return strings.Join(drain(q, free), " ")
}

func TestOrders(t *testing.T) {
	for _, c := range []struct {
		name     string
		order    router.QueueOrder
		arrivals []arrival
		want     string
	}{
		{"a jump of 5 at 10 s scores -5 and comes before 6 s", router.FCFS, []arrival{{name: "six", at: 6}, {name: "ten", at: 10, priority: 5}}, "ten six"},
		{"a jump of 4 at 10 s is as good as 6 s, and came later", router.FCFS, []arrival{{name: "six", at: 6}, {name: "ten", at: 10, priority: 4}}, "six ten"},
		{"a jump of 3 at 10 s is not enough", router.FCFS, []arrival{{name: "six", at: 6}, {name: "ten", at: 10, priority: 3}}, "six ten"},
		{"a jump below 0 is none", router.FCFS, []arrival{{name: "one", at: 1, priority: -100}, {name: "two", at: 2}}, "one two"},
		{"what came before the queue came at its start", router.FCFS, []arrival{{name: "zero", at: 0}, {name: "before", at: -5}}, "zero before"},
		{"strict beats any jump", router.FCFS, []arrival{{name: "jump", at: 0, priority: 1e9}, {name: "strict", at: 9, strict: 1}, {name: "stricter", at: 10, strict: 4_294_967_295}}, "stricter strict jump"},
		{"score counts within a strict tier", router.FCFS, []arrival{{name: "late", at: 9, strict: 1}, {name: "early", at: 8, strict: 1}, {name: "plain", at: 0}}, "early late plain"},
		{"last come, first served", router.LCFS, []arrival{{name: "one", at: 1}, {name: "two", at: 2}, {name: "three", at: 3}}, "three two one"},
		{"a jump counts in lcfs", router.LCFS, []arrival{{name: "one", at: 1, priority: 1.5}, {name: "two", at: 2}}, "one two"},
		{"least to compute first", router.WSPT, []arrival{{name: "long", at: 0, tokens: 1000}, {name: "short", at: 1, tokens: 10}}, "short long"},
		{"what is cached need not be computed", router.WSPT, []arrival{{name: "short", at: 0, tokens: 10}, {name: "cached", at: 1, tokens: 1000, cached: 995}}, "cached short"},
		{"all cached costs one token", router.WSPT, []arrival{{name: "one", at: 0, tokens: 1}, {name: "none", at: 1, tokens: 5, cached: 5}, {name: "two", at: 0, tokens: 2}}, "one none two"},
		{"the weight is 1 + jump", router.WSPT, []arrival{{name: "plain", at: 0, tokens: 100}, {name: "heavy", at: 1, tokens: 299, priority: 2}, {name: "light", at: 1, tokens: 301, priority: 2}}, "heavy plain light"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := router.DefaultProfile(nil, c.order)
			q := router.NewQueue[string](p, epoch)
			for _, a := range c.arrivals {
				push(t, q, a.item(p.Classes[0]))
			}
			if got := order(q, room); got != c.want {
				t.Errorf("%s, want %s", got, c.want)
			}
			if q.Len() != 0 {
				t.Errorf("%d are left", q.Len())
			}
		})
	}
}

// A key is fixed when a request is parked: what becomes of its prompt's cache
// meanwhile is no matter.
func TestKeysAreFixed(t *testing.T) {
	p := router.DefaultProfile(nil, router.WSPT)
	q := router.NewQueue[string](p, epoch)
	long := arrival{name: "long", tokens: 1000}.item(p.Classes[0])
	short := arrival{name: "short", tokens: 10}.item(p.Classes[0])
	push(t, q, long, short)
	long.Cached, long.Priority, long.StrictPriority = 999, 50, 1
	short.Tokens, short.Class, short.Pinned = 2000, nil, true
	if got := order(q, room); got != "short long" {
		t.Errorf("%s", got)
	}
	if s := q.Stats()[0]; s.Requests != 0 || s.Tokens != 0 || s.CachedTokens != 0 {
		t.Errorf("left behind: %+v", s)
	}
}

// Priorities that are no numbers rank as if there were none, and do not break
// the order of others.
func TestOddPriorities(t *testing.T) {
	p := router.DefaultProfile(nil, router.FCFS)
	q := router.NewQueue[string](p, epoch)
	for i, priority := range []float64{math.NaN(), math.Inf(-1), math.Inf(1), 0} {
		push(t, q, arrival{name: fmt.Sprint(priority), at: float64(i), priority: priority}.item(p.Classes[0]))
	}
	if got, want := order(q, room), "+Inf NaN -Inf 0"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

var (
	here  = kv.Target{Worker: 1}
	there = kv.Target{Worker: 1, Rank: 1}
)

// lanes is a queue of one class where a target is named in upper case by those
// pinned to it.
type lanes struct {
	*router.Queue[string]
	class *router.Class
	busy  map[kv.Target]bool
}

func newLanes() *lanes {
	p := router.DefaultProfile(nil, router.FCFS)
	return &lanes{router.NewQueue[string](p, epoch), p.Classes[0], map[kv.Target]bool{}}
}

func (l *lanes) push(t *testing.T, a arrival, pin *kv.Target) *router.Item[string] {
	t.Helper()
	it := a.item(l.class)
	if pin != nil {
		it.Pinned, it.Target = true, *pin
	}
	push(t, l.Queue, it)
	return it
}

// free says whether a target that will do is not busy.
func (l *lanes) free(it *router.Item[string]) bool {
	if it.Pinned {
		return !l.busy[it.Target]
	}
	return !l.busy[here] || !l.busy[there]
}

func TestLanes(t *testing.T) {
	setup := func() *lanes {
		l := newLanes()
		l.push(t, arrival{name: "here1", at: 1}, &here)
		l.push(t, arrival{name: "any2", at: 2}, nil)
		l.push(t, arrival{name: "there3", at: 3}, &there)
		l.push(t, arrival{name: "here4", at: 4}, &here)
		l.push(t, arrival{name: "any5", at: 5}, nil)
		l.push(t, arrival{name: "there0", at: 9, priority: 8.5}, &there)
		return l
	}
	for _, c := range []struct {
		name string
		busy []kv.Target
		want string
	}{
		{"all free", nil, "there0 here1 any2 there3 here4 any5"},
		{"one lane blocked", []kv.Target{here}, "there0 any2 there3 any5"},
		{"the other blocked", []kv.Target{there}, "here1 any2 here4 any5"},
		{"all blocked", []kv.Target{here, there}, ""},
	} {
		l := setup()
		for _, b := range c.busy {
			l.busy[b] = true
		}
		if got := order(l.Queue, l.free); got != c.want {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
		left := l.Len()
		if clear(l.busy); len(drain(l.Queue, l.free)) != left || l.Len() != 0 {
			t.Errorf("%s: %d of %d are left", c.name, l.Len(), left)
		}
	}
}

// Whoever heads the shared lane blocks it, even if the next one had room.
func TestHeadOfLine(t *testing.T) {
	l := newLanes()
	l.push(t, arrival{name: "blocked", at: 1}, nil)
	l.push(t, arrival{name: "next", at: 2}, nil)
	l.push(t, arrival{name: "pinned", at: 3}, &here)
	free := func(it *router.Item[string]) bool { return it.Value != "blocked" }
	if got := order(l.Queue, free); got != "pinned" {
		t.Errorf("%s went, want pinned alone", got)
	}
	if got := order(l.Queue, room); got != "blocked next" {
		t.Errorf("then %s", got)
	}
}

// A newcomer of a class with a backlog is pushed and then one drain runs: it
// goes at once only if it heads its lane and has room.
func TestNewcomer(t *testing.T) {
	l := newLanes()
	l.busy[here], l.busy[there] = true, true
	l.push(t, arrival{name: "first", at: 1}, nil)
	l.push(t, arrival{name: "pinned", at: 2}, &here)
	for _, c := range []struct {
		newcomer arrival
		pin      *kv.Target
		free     []kv.Target
		want     string
	}{
		{arrival{name: "behind", at: 3}, nil, nil, ""},
		{arrival{name: "lane", at: 4}, &there, []kv.Target{there}, "first behind lane"}, // now any will do for the others
		{arrival{name: "ahead", at: 5, strict: 1}, nil, []kv.Target{there}, "ahead"},
		{arrival{name: "last", at: 6}, &here, []kv.Target{there}, ""},
		{arrival{name: "urgent", at: 7, priority: 10}, &here, []kv.Target{here}, "urgent pinned last"},
	} {
		clear(l.busy)
		l.busy[here], l.busy[there] = true, true
		for _, f := range c.free {
			l.busy[f] = false
		}
		l.push(t, c.newcomer, c.pin)
		if got := order(l.Queue, l.free); got != c.want {
			t.Errorf("%s: %q went, want %q", c.newcomer.name, got, c.want)
		}
	}
}

// The busy test is asked anew after each request that goes, and not again where
// it said no.
func TestReadyAsksAnew(t *testing.T) {
	l := newLanes()
	for i := range 5 {
		l.push(t, arrival{name: fmt.Sprint(i), at: float64(i)}, nil)
	}
	l.push(t, arrival{name: "pinned"}, &here)
	slots, asked := 3, 0
	got := order(l.Queue, func(it *router.Item[string]) bool {
		asked++
		if it.Pinned || slots == 0 {
			return false
		}
		slots--
		return true
	})
	if got != "0 1 2" || asked != 5 { // the lane once, the shared head four times
		t.Errorf("%s after %d questions", got, asked)
	}
	for it := range l.Ready(epoch, room) {
		if it.Value != "pinned" || it.Parked() || l.Len() != 2 {
			t.Errorf("%s, %d left", it.Value, l.Len())
		}
		break
	}
	if got := order(l.Queue, room); got != "3 4" {
		t.Errorf("after a break: %s", got)
	}
}

// Where one target has become freer, those who are pinned elsewhere are not asked.
func TestReadyAt(t *testing.T) {
	for _, c := range []struct {
		at   kv.Target
		want string
	}{
		{here, "here1 any2"}, {there, "any2 there3"}, {kv.Target{}, "any2"},
	} {
		l := newLanes()
		l.push(t, arrival{name: "here1", at: 1}, &here)
		l.push(t, arrival{name: "any2", at: 2}, nil)
		l.push(t, arrival{name: "there3", at: 3}, &there)
		var got []string
		for it := range l.ReadyAt(epoch, c.at, room) {
			got = append(got, it.Value)
		}
		if strings.Join(got, " ") != c.want || l.Len() != 3-len(got) {
			t.Errorf("at %v: %v went, want %s", c.at, got, c.want)
		}
	}
}

// The loop over those who go may park others, remove some, and run another
// loop.
func TestReadyWhileChanging(t *testing.T) {
	l := newLanes()
	var items []*router.Item[string]
	for i := range 6 {
		items = append(items, l.push(t, arrival{name: fmt.Sprint(i), at: float64(i)}, nil))
	}
	var got []string
	for it := range l.Ready(epoch, room) {
		got = append(got, it.Value)
		switch it.Value {
		case "0":
			if !l.Remove(items[1]) || l.Remove(items[1]) || l.Remove(it) {
				t.Error("a removal is told wrongly")
			}
			l.push(t, arrival{name: "new", at: 2.5}, nil)
		case "2":
			for it := range l.Ready(epoch, room) {
				got = append(got, it.Value+"!")
				break
			}
		case "5":
			push(t, l.Queue, it) // once more
			if got = append(got, "again"); len(got) > 9 {
				t.Fatal(got)
			}
			items[4].Value = ""
			l.Remove(it)
		}
	}
	if want := "0 2 new! 3 4 5 again"; strings.Join(got, " ") != want || l.Len() != 0 {
		t.Errorf("%v, want %s", got, want)
	}
}

func TestMisuse(t *testing.T) {
	l := newLanes()
	it := l.push(t, arrival{name: "a"}, nil)
	other := router.DefaultProfile(nil, router.FCFS).Classes[0]
	for what, f := range map[string]func(){
		"parked twice":           func() { _ = l.Push(it, 1, epoch) },
		"class of another queue": func() { _ = l.Push(arrival{}.item(other), 1, epoch) },
	} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%s: no panic", what)
				}
			}()
			f()
		}()
	}
	if l.Len() != 1 || l.Backlog(l.class) != 1 {
		t.Errorf("%d parked", l.Len())
	}
}

func TestLimits(t *testing.T) {
	class := func(requests, tokens, cached *int) *router.Profile {
		p := router.DefaultProfile(nil, router.FCFS)
		p.Classes[0].RequestLimit, p.Classes[0].TokenLimit, p.Classes[0].CachedTokenLimit = requests, tokens, cached
		return p
	}
	for _, c := range []struct {
		name    string
		profile *router.Profile
		workers int
		tokens  int // of each request
		cached  int
		taken   int // before one is rejected
		want    string
	}{
		{"requests", class(new(3), nil, nil), 1, 10, 0, 3, `{"policy_class":"default","limit_kind":"requests","current":3,"limit":3}`},
		{"for each worker", class(new(3), nil, nil), 4, 10, 0, 12, `{"policy_class":"default","limit_kind":"requests","current":12,"limit":12}`},
		{"none at all", class(new(0), nil, nil), 4, 10, 0, 0, `{"policy_class":"default","limit_kind":"requests","current":0,"limit":0}`},
		{"no worker", class(new(5), nil, nil), 0, 10, 0, 0, `{"policy_class":"default","limit_kind":"requests","current":0,"limit":0}`},
		{"exactly the tokens", class(nil, new(20), nil), 1, 10, 0, 2, `{"policy_class":"default","limit_kind":"raw_isl_tokens","current":20,"limit":20}`},
		{"one below: the one that crosses is taken", class(nil, new(21), nil), 1, 10, 0, 3, `{"policy_class":"default","limit_kind":"raw_isl_tokens","current":30,"limit":21}`},
		{"cached tokens", class(nil, nil, new(8)), 1, 10, 4, 2, `{"policy_class":"default","limit_kind":"cached_tokens","current":8,"limit":8}`},
		{"the first of several", class(new(2), new(20), new(8)), 1, 10, 4, 2, `{"policy_class":"default","limit_kind":"requests","current":2,"limit":2}`},
		{"a product too large", class(new(1), new(math.MaxInt/2), nil), 4, 10, 0, 4, `{"policy_class":"default","limit_kind":"requests","current":4,"limit":4}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			q := router.NewQueue[int](c.profile, epoch)
			var err error
			taken := 0
			for ; taken <= c.taken; taken++ {
				it := &router.Item[int]{Class: c.profile.Classes[0], Arrived: epoch, Tokens: c.tokens, Cached: c.cached}
				if err = q.Push(it, c.workers, epoch); err != nil {
					if it.Parked() {
						t.Error("it is parked all the same")
					}
					break
				}
			}
			why, ok := errors.AsType[*router.QueueRejection](err)
			if !ok || engine.KindOf(err) != engine.ResourceExhausted || taken != c.taken || q.Len() != c.taken {
				t.Fatalf("%d taken, %d parked, then %v", taken, q.Len(), err)
			}
			if got, err := json.Marshal(why); err != nil || string(got) != c.want {
				t.Errorf("%s %v, want %s", got, err, c.want)
			}
			if got := q.Stats()[0].Rejected; len(got) != 1 || got[why.Kind] != 1 {
				t.Errorf("counted: %v", got)
			}
			if drain(q, func(*router.Item[int]) bool { return true }); q.Len() != 0 {
				t.Fatalf("%d left", q.Len())
			}
		})
	}
}

// What clients are told, in the shape that they know.
func TestRejection(t *testing.T) {
	p := policyFile(t, `
default_policy_family: chat
uncached_isl_buckets: [{min_tokens: 0, bucket: all}]
policy_classes:
  - {name: chat, policy_family: chat, cache_bucket: all, quantum: 1}
  - {name: interactive, quantum: 1, raw_isl_token_queue_limit_per_worker: 131072}
`).Profile("")
	q := router.NewQueue[string](p, epoch)
	var err error
	for range 4 {
		if err == nil {
			err = q.Push(arrival{tokens: 87382}.item(p.Classify("interactive", 0)), 2, epoch)
		}
	}
	why, _ := errors.AsType[*router.QueueRejection](err)
	if got, want := fmt.Sprint(err), `queue: resource_exhausted: the queue of policy class "interactive" is full: raw_isl_tokens 262146 of 262144`; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	got, _ := json.Marshal(why)
	if want := `{"policy_class":"interactive","limit_kind":"raw_isl_tokens","current":262146,"limit":262144}`; string(got) != want {
		t.Errorf("%s, want %s", got, want)
	}
	push(t, q, arrival{tokens: 1}.item(p.Classify("", 0))) // others have room
}

// Room that somebody leaves behind is room, whether they went or gave up.
func TestLimitsAreGivenBack(t *testing.T) {
	p := router.DefaultProfile(nil, router.FCFS)
	p.Classes[0].RequestLimit = new(1)
	q := router.NewQueue[string](p, epoch)
	a, b := arrival{name: "a"}.item(p.Classes[0]), arrival{name: "b"}.item(p.Classes[0])
	push(t, q, a)
	if err := q.Push(b, 1, epoch); err == nil {
		t.Fatal("the limit is 1")
	}
	q.Remove(a)
	push(t, q, b)
	if got := order(q, room); got != "b" {
		t.Errorf("%s", got)
	}
	push(t, q, a)
}

// What is told of the queue adds up, and is nothing when it is empty.
func TestStats(t *testing.T) {
	p := policyFile(t, string(wholeFile(t))).Profile("")
	q := router.NewQueue[string](p, epoch)
	hot, cold := p.Classify("chat", 0), p.Classify("chat", 6000)
	items := []*router.Item[string]{
		arrival{name: "a", tokens: 100, cached: 90}.item(hot),
		arrival{name: "b", tokens: 50, cached: 60}.item(hot), // more cached than there is
		arrival{name: "c", tokens: 7000, cached: -5}.item(cold),
	}
	push(t, q, items...)
	got := fmt.Sprint(q.Stats()[:2])
	if want := "[{chat-hot 2 150 140 map[]} {chat-cold 1 7000 0 map[]}]"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if q.Backlog(hot) != 2 || q.Backlog(cold) != 1 || q.Backlog(p.Classify("nightly", 0)) != 0 || q.Len() != 3 {
		t.Error("the backlog is told wrongly")
	}
	q.Remove(items[0])
	drain(q, room)
	for _, s := range q.Stats() {
		if s.Requests != 0 || s.Tokens != 0 || s.CachedTokens != 0 {
			t.Errorf("left behind: %+v", s)
		}
	}
}

// The outlook is the backlog times the mean time between those that went.
func TestOutlook(t *testing.T) {
	p := router.DefaultProfile(nil, router.FCFS)
	c := p.Classes[0]
	c.RequestLimit = new(10)
	q := router.NewQueue[string](p, epoch)
	one := func(now time.Time) {
		for range q.Ready(now, room) {
			break
		}
	}
	outlook := func(now time.Time) time.Duration {
		var e *engine.Error
		err := q.Push(arrival{at: 100}.item(c), 1, now)
		if !errors.As(err, &e) || e.RetryAfter != q.Outlook(c, now) {
			t.Fatalf("%v, want the outlook %v", err, q.Outlook(c, now))
		}
		return e.RetryAfter
	}
	for range 10 {
		push(t, q, arrival{at: 100}.item(c))
	}
	if got := outlook(at(100)); got != 0 {
		t.Errorf("%v before anybody went", got)
	}
	one(at(102)) // 2 s after the first came
	push(t, q, arrival{at: 102}.item(c))
	if got := outlook(at(102)); got != 20*time.Second {
		t.Errorf("10 of 2 s: %v", got)
	}
	if err := q.Push(arrival{at: 104}.item(c), 2, at(104)); err != nil { // another, in between
		t.Fatal(err)
	}
	one(at(106))
	if got := outlook(at(106)); got != 30*time.Second {
		t.Errorf("10 of 3 s: %v", got)
	}
	// An hour without anybody is no pace.
	drain(q, room)
	if got := q.Outlook(c, at(106)); got != 0 {
		t.Errorf("%v for nobody", got)
	}
	push(t, q, arrival{at: 3600}.item(c), arrival{at: 3600}.item(c))
	if got := q.Outlook(c, at(3600)); got > time.Minute {
		t.Errorf("%v after a quiet hour", got)
	}
	for i := range 100 {
		one(at(3600 + float64(i)))
		push(t, q, arrival{at: 3600 + float64(i)}.item(c))
	}
	if got := q.Outlook(c, at(3700)); got < 1900*time.Millisecond || got > 2100*time.Millisecond {
		t.Errorf("2 of 1 s: %v", got)
	}
}

// A hundred thousand clients leave, in the worst order, and leave nothing.
func TestCrowdLeaves(t *testing.T) {
	const crowd = 100_000
	p := router.DefaultProfile(nil, router.FCFS)
	q := router.NewQueue[int](p, epoch)
	before := liveBytes()
	items := make([]*router.Item[int], crowd)
	for i := range items {
		items[i] = &router.Item[int]{Value: i, Class: p.Classes[0], Arrived: at(float64(i)), Tokens: 1000}
		if i%3 == 0 {
			items[i].Pinned, items[i].Target = true, kv.Target{Worker: uint64(1 + i)}
		}
		push(t, q, items[i])
	}
	for i := range items { // the oldest first: each was a head
		if !q.Remove(items[i]) || items[i].Parked() {
			t.Fatalf("%d was not there", i)
		}
	}
	clear(items)
	if s := q.Stats()[0]; q.Len() != 0 || s.Requests != 0 || s.Tokens != 0 {
		t.Errorf("left behind: %+v", s)
	}
	if kept := liveBytes() - before - crowd*8; kept > 64<<10 {
		t.Errorf("an empty queue keeps %d bytes", kept)
	}
	runtime.KeepAlive(q)
	runtime.KeepAlive(items)
}

// Any one of many may leave, and the others stay in order.
func TestRemoveFromAnywhere(t *testing.T) {
	random := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		l := newLanes()
		var items []*router.Item[string]
		for i := range 100 {
			items = append(items, l.push(t, arrival{name: fmt.Sprintf("%03d", i), at: float64(i)}, nil))
		}
		random.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		for _, it := range items[:50] {
			l.Remove(it)
		}
		if left := drain(l.Queue, room); len(left) != 50 || !slices.IsSorted(left) {
			t.Fatalf("%d: %v", len(left), left)
		}
	}
}

// Who has left is not held on to.
func TestNobodyIsKept(t *testing.T) {
	l := newLanes()
	l.push(t, arrival{name: "first"}, nil)
	l.push(t, arrival{name: "pinned"}, &here)
	gone := []weak.Pointer[router.Item[string]]{
		weak.Make(l.push(t, arrival{name: "went"}, nil)), weak.Make(l.push(t, arrival{name: "gave up"}, &there)),
	}
	l.Remove(gone[1].Value())
	drain(l.Queue, room)
	l.push(t, arrival{name: "next"}, nil)
	runtime.GC()
	for _, it := range gone {
		if it := it.Value(); it != nil {
			t.Errorf("%s is kept", it.Value)
		}
	}
	if l.Len() != 1 {
		t.Errorf("%d parked", l.Len())
	}
}

// Who had no room in one queue may have some in another.
func TestItemChangesQueues(t *testing.T) {
	a, b := newLanes(), newLanes()
	it := a.push(t, arrival{name: "it"}, nil)
	if got := drain(a.Queue, func(*router.Item[string]) bool { return false }); got != nil {
		t.Fatal(got)
	}
	if b.Remove(it) || !a.Remove(it) {
		t.Error("it is removed from where it is not, or not from where it is")
	}
	it.Class = b.class
	push(t, b.Queue, it)
	if got := order(b.Queue, room); got != "it" {
		t.Errorf("%q went", got)
	}
}

func liveBytes() int {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}

func ExampleQueue() {
	profile := router.DefaultProfile(nil, router.FCFS)
	start := time.Unix(0, 0)
	queue := router.NewQueue[string](profile, start)
	for _, it := range []router.Item[string]{
		{Value: "came first", Arrived: start.Add(6 * time.Second)},
		{Value: "came later, for five seconds' sake first", Arrived: start.Add(10 * time.Second), Priority: 5},
		{Value: "goes before everybody", Arrived: start.Add(11 * time.Second), StrictPriority: 1},
	} {
		it.Class = profile.Classify("", it.Tokens-it.Cached)
		if err := queue.Push(&it, 1, it.Arrived); err != nil {
			fmt.Println(err)
		}
	}
	slots := 2
	for it := range queue.Ready(start, func(*router.Item[string]) bool { return slots > 0 }) {
		fmt.Println(it.Value)
		slots--
	}
	fmt.Println(queue.Len(), "waits")
	// Output:
	// goes before everybody
	// came later, for five seconds' sake first
	// 1 waits
}
