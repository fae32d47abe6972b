package kvevent_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent"
)

// publisher is an engine's cache, its sequence, and what it keeps for replay.
// Its payloads say what happened: "@7 +3 -5 !" stores 3, removes 5, and clears;
// the number behind @ is the time, which no two messages share.
type publisher struct {
	cache  uint64   // a bit per block
	past   []uint64 // the cache after each message
	next   uint64
	buffer []kvevent.Message
	keeps  int
}

func newPublisher(keeps int) *publisher { return &publisher{past: []uint64{0}, keeps: keeps} }

func (p *publisher) publish(payload string) kvevent.Message {
	p.cache, _ = change(p.cache, payload)
	p.past = append(p.past, p.cache)
	m := kvevent.Message{Seq: p.next, Payload: []byte(payload)}
	p.next++
	if p.buffer = append(p.buffer, m); len(p.buffer) > p.keeps {
		p.buffer = p.buffer[1:]
	}
	return m
}

// change makes what a payload tells true of a cache, and says whether it was
// emptied.
func change(cache uint64, payload string) (after uint64, cleared bool) {
	for word := range strings.FieldsSeq(payload) {
		n, _ := strconv.Atoi(word[1:])
		switch word[0] {
		case '+':
			cache |= 1 << n
		case '-':
			cache &^= 1 << n
		case '!':
			cache, cleared = 0, true
		}
	}
	return cache, cleared
}

// clockOf returns the time of a message.
func clockOf(m kvevent.Message) (at int) {
	fmt.Sscanf(string(m.Payload), "@%d", &at) //nolint:errcheck // all have one
	return at
}

// item is what comes over the connection for live messages: one of them, or the
// news that the connection is a new one.
type item struct {
	m         kvevent.Message
	connected bool
}

// world is an engine, the ways from it, and what a receiver has made of it.
type world struct {
	config kvevent.OrderConfig
	order  *kvevent.Order
	now    time.Time
	clock  int
	keeps  int

	engine    *publisher
	lives     []*publisher
	connected bool
	live      []item // on their way

	requested bool
	from      uint64
	replay    []kvevent.Message // on their way; the last one is the end of it
	answered  bool

	// behind is since when the receiver has been without something that was
	// published, or had nobody to hear it from; each message of a replay is a step
	// forward. patience is how long that may be so and what is gone still be believed.
	behind   time.Time
	patience time.Duration
	applied  int // the time of the newest message applied
	newest   int // that of the newest live message of the connection

	view     uint64
	state    string // what the receiver takes its view for
	spoilt   bool   // this life has published something that cannot be read
	problems []string
}

func newWorld(keeps int, c kvevent.OrderConfig) *world {
	w := &world{config: c, keeps: keeps, state: "partial", now: time.Unix(1e9, 0)}
	w.begin()
	w.order = kvevent.NewOrder(c, w)
	return w
}

// Apply, Clear, Rebuild, Complete, Replay and Stop implement [kvevent.Effects].

func (w *world) Apply(m kvevent.Message) (bool, error) {
	if w.applied = max(w.applied, clockOf(m)); w.newest <= w.applied {
		w.behind = time.Time{}
	}
	if strings.Contains(string(m.Payload), "?") {
		return false, kvevent.ErrMalformed
	}
	var cleared bool
	w.view, cleared = change(w.view, string(m.Payload))
	if cleared && w.state == "partial" {
		w.state = "exact"
	}
	return cleared, nil
}

func (w *world) Clear(reason kv.GapReason) {
	w.view = 0
	w.state = "partial"
}

func (w *world) Rebuild() {
	if w.view != 0 || w.state != "partial" {
		w.problems = append(w.problems, "rebuilt before it was cleared")
	}
	w.state = "rebuilding"
}

func (w *world) Complete() {
	if w.state == "exact" {
		w.problems = append(w.problems, "completed twice")
	}
	w.state = "exact"
}

func (w *world) Replay(from uint64) {
	w.requested, w.from, w.answered, w.replay = true, from, false, nil
}

func (w *world) Stop() {
	if !w.requested {
		w.problems = append(w.problems, "stopped a replay that does not run")
	}
	w.requested, w.answered, w.replay = false, false, nil
}

// What can happen in a world.

func (w *world) begin() {
	w.engine, w.spoilt = newPublisher(w.keeps), false
	w.lives = append(w.lives, w.engine)
}

func (w *world) connect() {
	w.connected = true
	w.live = append(w.live, item{connected: true})
}

// disconnect loses all but the first keep messages that are on their way.
func (w *world) disconnect(keep int) {
	w.connected = false
	w.live = w.live[:min(keep, len(w.live))]
}

func (w *world) publish(words string, lost bool) {
	w.clock++
	m := w.engine.publish(fmt.Sprintf("@%d %s", w.clock, words))
	if w.connected && !lost {
		w.live = append(w.live, item{m: m})
	}
}

// restart begins another life of the engine. Connections to the old one end.
func (w *world) restart(keep int) {
	w.disconnect(keep)
	w.begin()
	w.breakReplay(keep)
}

// deliver brings the next live message.
func (w *world) deliver() {
	if len(w.live) == 0 {
		return
	}
	next := w.live[0]
	w.live = w.live[1:]
	if next.connected {
		w.newest = 0
		w.order.Connected(w.now)
	} else {
		w.newest = max(w.newest, clockOf(next.m))
		w.order.Live(w.now, next.m)
	}
	w.lag()
}

// lag notes whether the receiver is behind.
func (w *world) lag() {
	switch {
	case w.newest == 0 && !w.requested, w.newest > 0 && w.newest <= w.applied:
		w.behind = time.Time{}
	case w.behind.IsZero():
		w.behind, w.patience = w.now, 500*time.Millisecond
	}
}

// answer makes the engine answer a request for replay.
func (w *world) answer() {
	if !w.requested || w.answered {
		return
	}
	w.answered = true
	for _, m := range w.engine.buffer {
		if m.Seq >= w.from {
			w.replay = append(w.replay, m)
		}
	}
	w.replay = append(w.replay, kvevent.Message{Seq: 1<<64 - 1})
}

// deliverReplay brings the next message of a replay.
func (w *world) deliverReplay() {
	if len(w.replay) == 0 {
		return
	}
	m := w.replay[0]
	w.replay = w.replay[1:]
	if !w.behind.IsZero() {
		w.behind = w.now
	}
	if m.Seq == 1<<64-1 {
		w.requested, w.answered = false, false
		w.order.ReplayEnded(w.now)
		w.lag()
		return
	}
	w.order.Replayed(w.now, m)
}

// breakReplay lets the first keep messages on their way arrive, and no more.
func (w *world) breakReplay(keep int) {
	for range keep {
		if len(w.replay) > 1 {
			w.deliverReplay()
		}
	}
	if w.requested {
		w.requested, w.answered, w.replay = false, false, nil
		w.order.ReplayFailed(w.now)
	}
}

// settle lets everything arrive, and time pass, until nothing happens any more.
func (w *world) settle() {
	if !w.connected {
		w.connect()
	}
	for range 10_000 {
		switch {
		case len(w.live) > 0:
			w.deliver()
		case w.requested:
			w.answer()
			w.deliverReplay()
		default:
			at, ok := w.order.Deadline()
			if !ok {
				return
			}
			if at.After(w.now) {
				w.now = at
			}
			w.order.Tick(w.now)
		}
	}
	w.problems = append(w.problems, "it never comes to rest")
}

// check compares the view with the engine's cache, after everything has arrived.
func (w *world) check() error {
	w.settle()
	w.publish("", false) // a loss behind which nothing comes cannot be seen
	w.settle()
	switch cache := w.engine.cache; {
	case w.state == "rebuilding":
		return fmt.Errorf("at rest, and still rebuilding")
	case w.state == "exact" && w.view != cache:
		return fmt.Errorf("a view that is said to be exact is %b, and the cache %b", w.view, cache)
	case w.view&^cache != 0:
		return fmt.Errorf("a view that is said to be %s is %b, and the cache %b", w.state, w.view, cache)
	case w.config.Replays && uint64(w.keeps) >= w.engine.next && w.state != "exact" && !w.spoilt:
		return fmt.Errorf("the engine can replay its whole life, and the view is still %s", w.state)
	}
	return w.possible()
}

// possible says what is wrong with the view whatever is still on its way: the
// engine must have had that cache at some moment of one of its lives, or, if the
// view is known to be partial, one that holds it.
func (w *world) possible() error {
	if len(w.problems) > 0 {
		return fmt.Errorf("%s", strings.Join(w.problems, "; "))
	}
	if gone := w.view &^ w.engine.cache; !w.behind.IsZero() && w.now.Sub(w.behind) >= w.patience && gone != 0 {
		return fmt.Errorf("behind for %v, and still %b is believed, which is gone", w.now.Sub(w.behind), gone)
	}
	if partial := w.order.Stats().Partial; (w.state == "partial") != partial {
		return fmt.Errorf("the receiver takes its view for %s, and partial is %t", w.state, partial)
	}
	for _, life := range w.lives {
		for _, cache := range life.past {
			if w.view == cache || w.state == "partial" && w.view&^cache == 0 {
				return nil
			}
		}
	}
	return fmt.Errorf("the cache never was %b, which the view is, as %s", w.view, w.state)
}

// words draws what a step of the engine does.
func words(draw func(n int) int) string {
	var b strings.Builder
	for range 1 + draw(4) {
		switch d := draw(30); {
		case d == 0:
			b.WriteString("! ")
		case d < 8:
			fmt.Fprintf(&b, "-%d ", draw(60))
		default:
			fmt.Fprintf(&b, "+%d ", draw(60))
		}
	}
	return b.String()
}

// step does one random thing, of which those that make progress are likely.
func (w *world) step(draw func(n int) int) error {
	switch d := draw(42); {
	case d < 8:
		w.publish(words(draw), false)
	case d < 10:
		w.publish(words(draw), true)
	case d < 20:
		w.deliver()
	case d < 23:
		w.answer()
	case d < 31:
		w.deliverReplay()
	case d == 31:
		w.breakReplay(draw(4))
	case d == 32:
		w.disconnect(draw(4))
		if draw(2) == 0 && len(w.live) == 0 {
			w.order.Disconnected(w.now)
			w.behind, w.patience = w.now, 2*time.Second
		}
	case d < 35:
		if !w.connected {
			w.connect()
		}
	case d == 35:
		w.restart(draw(4))
	case d == 36:
		w.restart(0)
		w.order.Restarted(w.now)
		w.requested, w.answered, w.replay = false, false, nil
		w.connect()
	case d == 37: // what a proxy might send twice
		if i := len(w.live); i > 0 && !w.live[i-1].connected {
			w.live = append(w.live, w.live[i-1])
		}
	case d == 38:
		w.now = w.now.Add([]time.Duration{time.Millisecond, 100 * time.Millisecond, time.Minute}[draw(3)])
		w.order.Tick(w.now)
	case d == 39:
		// One lost in the midst of a replay: its beginning is no sign of that.
		if i := len(w.replay) - 2; i > 0 {
			i = 1 + draw(i)
			w.replay = slices.Delete(w.replay, i, i+1)
		}
	case d == 40:
		if draw(4) == 0 {
			w.spoilt = true
			w.publish("+1 ?", false)
		}
	default:
		return w.check()
	}
	return w.possible()
}

// drive runs a random life to its end.
func drive(draw func(n int) int, steps int) (*world, error) {
	w := newWorld([]int{2, 5, 20, 1 << 20}[draw(4)], kvevent.OrderConfig{
		Replays: draw(4) > 0, HeldMessages: 1 + draw(5), Window: 50,
	})
	for i := range steps {
		if err := w.step(draw); err != nil {
			return w, fmt.Errorf("step %d: %w", i, err)
		}
	}
	return w, w.check()
}

// Whatever is lost, comes twice or comes from another life: in the end the view
// is the engine's cache, or known to be a part of it.
func TestOrderIsNeverWrong(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		draw := func(n int) int { return rapid.IntRange(0, n-1).Draw(t, "n") }
		if _, err := drive(draw, 80); err != nil {
			t.Fatal(err)
		}
	})
}

func FuzzOrder(f *testing.F) {
	f.Add([]byte("a life of an engine, in bytes"))
	f.Fuzz(func(t *testing.T, script []byte) {
		script = script[:min(len(script), 1000)]
		draw := func(n int) int {
			if len(script) == 0 {
				return 0
			}
			b := script[0]
			script = script[1:]
			return int(b) % n
		}
		if _, err := drive(draw, len(script)); err != nil {
			t.Fatal(err)
		}
	})
}
