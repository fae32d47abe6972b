package kvevent

import (
	"math"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/dynago/dynago/kv"
)

// Message is one batch of events as an engine numbered it: from 0 on in each
// life of its publisher, without holes.
type Message struct {
	Seq     uint64
	Payload []byte
}

// endOfReplay is the number that ends a replay; no message has it.
const endOfReplay = math.MaxUint64

// Effects is what an [Order] does to the world. Its methods are called from
// within those of the Order, and must not call back.
type Effects interface {
	// Apply makes the events of m part of the state, and says whether they
	// emptied the cache on the way. The payload is only lent. An error says that
	// m could not be read, so that its events are lost.
	Apply(m Message) (cleared bool, err error)
	// Clear says that everything applied so far is void.
	Clear(reason kv.GapReason)
	// Rebuild says that what is applied from now on begins with an empty cache,
	// and is not yet all of it.
	Rebuild()
	// Complete says that what was applied is all that the rank holds.
	Complete()
	// Replay asks the engine for all messages from number from on, instead of
	// any other replay that runs. What comes is told to the Order.
	Replay(from uint64)
	// Stop gives up a replay that runs.
	Stop()
}

// Limits of an [Order]. The first two are in force where its configuration has
// zeros.
const (
	// heldMessages and heldBytes bound the live messages that wait for a replay.
	heldMessages = 4096
	heldBytes    = 32 << 20
	// replayAttempts is how often a replay without progress is tried, and
	// replayBackoff the time between.
	replayAttempts = 3
	replayBackoff  = 100 * time.Millisecond
	// replayPatience is how long the state before a gap is believed while a replay
	// brings nothing. The publishers of stock engines look for requests ten times a
	// second, so that even an idle one answers in a fraction of it.
	replayPatience = 500 * time.Millisecond
	// longestAbsence is how long the state is believed while nothing is connected.
	longestAbsence = 2 * time.Second
	// replayCooldown is how long no replay is tried after all that failed.
	replayCooldown    = 30 * time.Second
	longestCooldown   = 10 * time.Minute
	rememberedDigests = 1024
	defaultWindow     = 10_000
)

// OrderConfig says what is known of a publisher.
type OrderConfig struct {
	// Replays says that the engine answers requests for replay.
	Replays bool
	// Window is how many messages the engine keeps for replay; 0 = 10,000. A
	// message that is further back than that is of another life.
	Window uint64
	// HeldMessages and HeldBytes bound what waits while a replay runs; 0 = 4,096
	// and 32 MiB. What does not fit is fetched by a further replay.
	HeldMessages, HeldBytes int
}

// Order puts the messages of one rank of one engine in sequence. It notices
// what is missing, asks for it, and where it cannot be had says so, so that the
// state built from what it applies is the engine's own or known to be partial,
// and never wrong.
//
// An engine's sequence numbers do not say of which of its lives they are. So a
// replay begins with the newest message applied, and only if that comes back as
// it was does the same life go on; in the same way the messages that were held
// must come again in the replay. Whatever is in doubt is settled by a replay,
// and where there is none, by forgetting.
//
// While a replay runs messages wait, and the state is that of a while ago: what
// the engine has let go of since still counts. That is borne for a moment, in
// which most replays have come. Then the state is void, the messages count as
// they come, and the replay has to bring everything.
//
// It is plain data and not safe for concurrent use; time comes in as an
// argument.
type Order struct {
	fx     Effects
	config OrderConfig
	stats  OrderStats

	phase phase
	// based says that next is the number of the next message expected. Without
	// it nothing is known.
	based bool
	next  uint64
	first uint64 // number of the first message applied on this base
	// linked says that a live message was seen to be of the life that was
	// applied, be it that it came in both ways or that all came live.
	linked bool
	// whole says that everything since the cache was empty was applied, and told
	// that the receiver knows. dirty says that the receiver was told something.
	whole, told, dirty bool
	// digests of the newest messages applied, by number.
	digests [rememberedDigests]uint64

	held      []Message
	heldBytes int
	spilled   bool // a live message did not fit

	ask      ask
	attempts int       // replays without progress
	at       time.Time // of the next attempt, while waiting
	// aged is when the state began to be that of a while ago, zero if it is not:
	// live messages wait, or do not arrive. Each message of a replay makes it young
	// again.
	aged     time.Time
	cooldown time.Time // until when no replay is tried
	pause    time.Duration
	mend     bool // a later replay may mend a partial state
	// keeps is how many messages the engine had for the last replay that began too
	// late, 0 if none did.
	keeps uint64
}

// phase is what an order is doing.
type phase uint8

const (
	idle    phase = iota // not connected
	live                 // applying messages as they come
	asking               // a replay runs
	waiting              // for the next attempt at a replay
)

// ask is the replay that runs.
type ask struct {
	from   uint64
	resume bool // begins with the newest message applied
	mend   bool // of a state that is good as far as it goes, and kept up meanwhile
	heard  bool // something has come
	flawed bool // and was not what was asked for
	late   bool // its beginning was missing
	holed  bool // something was missing in its midst
	gained bool // something was applied
	// target is the first message held when the request was made: it was sent
	// before, so that it must be in the replay.
	target    uint64
	hasTarget bool
}

// NewOrder returns an order that has heard nothing and is not connected.
func NewOrder(c OrderConfig, fx Effects) *Order {
	if c.Window == 0 {
		c.Window = defaultWindow
	}
	if c.HeldMessages <= 0 {
		c.HeldMessages = heldMessages
	}
	if c.HeldBytes <= 0 {
		c.HeldBytes = heldBytes
	}
	return &Order{fx: fx, config: c}
}

// Stats returns the counters so far.
func (o *Order) Stats() OrderStats {
	s := o.stats
	s.Partial = o.Partial()
	return s
}

// Partial says that the engine may hold more than was told.
func (o *Order) Partial() bool { return !o.whole }

// Deadline returns when [Order.Tick] is to be called, if ever.
func (o *Order) Deadline() (at time.Time, ok bool) {
	switch {
	case o.phase == live && o.mend && !o.whole:
		return o.cooldown, true
	case o.phase == waiting:
		at, ok = o.at, true
	}
	if void, ages := o.voidAt(); ages && (!ok || void.Before(at)) {
		return void, true
	}
	return at, ok
}

// Connected says that from now on the engine's messages arrive, for the first
// time or again.
func (o *Order) Connected(now time.Time) {
	o.drop()
	o.attempts = 0
	if o.phase == asking {
		o.fx.Stop()
	}
	if o.mayReplay(now) {
		o.aged = now
		o.replay(now, false)
		return
	}
	// Whether this is still the life that was followed cannot be known, nor whether
	// a replay would bring less than is there.
	o.forget(kv.GapLost)
	o.phase, o.mend = live, o.config.Replays
}

// Disconnected says that no more messages arrive until it is connected again.
func (o *Order) Disconnected(now time.Time) {
	if o.phase == asking {
		o.fx.Stop()
	}
	o.drop()
	o.phase, o.ask.mend = idle, false
	o.age(now)
}

// Resumed says that somebody listens again who needed nothing until now, and goes on
// with what was told before. It is believed for as long as after a lost connection.
func (o *Order) Resumed(now time.Time) {
	if !o.aged.IsZero() {
		o.aged = now
	}
}

// Restarted says that the engine has begun another life. Nothing is expected
// until it is connected again.
func (o *Order) Restarted(now time.Time) {
	o.Disconnected(now)
	o.restart()
}

// Live tells of a message that the engine has published just now.
func (o *Order) Live(now time.Time, m Message) {
	o.stats.Live++
	switch {
	case m.Seq == endOfReplay:
		o.stats.Malformed++
	case o.phase == live:
		o.advance(now, m)
	case o.phase != idle:
		if o.hold(now, m) && o.mending() {
			o.advance(now, m)
		}
	}
}

// Replayed tells of the next message of the replay asked for.
func (o *Order) Replayed(now time.Time, m Message) {
	if o.phase != asking || m.Seq == endOfReplay {
		return
	}
	o.stats.Replayed++
	o.aged = now
	switch {
	case !o.ask.heard:
		if !o.opens(now, m) {
			return
		}
	case m.Seq < o.next:
		return
	case m.Seq > o.next:
		o.missed(m.Seq)
		o.incomplete(ReplayNonContiguous)
		o.ask.holed, o.mend = true, true
		o.base(m.Seq)
	}
	if !o.meets(m) {
		o.mixed(now)
		return
	}
	o.ask.gained = true
	o.apply(m)
	o.aged = now // but held ones still wait
}

// ReplayEnded says that all of the replay has come.
func (o *Order) ReplayEnded(now time.Time) {
	if o.phase != asking {
		return
	}
	switch {
	case !o.ask.heard && o.ask.resume:
		// The life that was followed would have sent its newest message.
		o.restart()
		o.replay(now, false)
		return
	case !o.ask.heard && (o.ask.hasTarget || o.ask.mend && len(o.held) > 0):
		o.giveUp(now, ReplayEmpty)
		return
	case o.ask.hasTarget && o.next <= o.ask.target:
		o.giveUp(now, ReplayEndedEarly)
		return
	case len(o.held) > 0 && o.held[0].Seq > o.next:
		// More is missing, between what was replayed and what came live since.
		o.stats.Gaps++
		o.replay(now, false)
		return
	case !o.ask.heard:
		// The engine has published nothing yet, whatever it did in lives before.
		if o.based {
			o.restart()
		}
		o.base(0)
		o.whole = true
	}
	if !o.ask.flawed {
		o.stats.Replays[ReplayComplete]++
	}
	if o.ask.late && !o.ask.holed {
		o.keeps = o.next - o.first
	}
	o.attempts, o.pause = 0, 0
	switch {
	case o.ask.holed:
		o.cooldown = now.Add(replayCooldown)
	case !o.ask.resume:
		o.mend = false
	}
	o.complete()
	o.resumeLive(now)
}

// ReplayFailed says that the replay broke off, or that there was no answer.
func (o *Order) ReplayFailed(now time.Time) {
	if o.phase == asking {
		o.retry(now, o.ask.gained)
	}
}

// Tick does what was to be done at [Order.Deadline].
func (o *Order) Tick(now time.Time) {
	if at, ok := o.voidAt(); ok && !now.Before(at) {
		o.void(now)
	}
	switch at, ok := o.Deadline(); {
	case !ok || now.Before(at):
	case o.phase == waiting:
		o.replay(now, o.ask.mend)
	default:
		o.replay(now, true)
	}
}

// advance takes a live message while no replay runs.
func (o *Order) advance(now time.Time, m Message) {
	switch {
	case !o.based && m.Seq == 0:
		o.base(0)
		o.whole, o.linked = true, true
		o.complete()
		o.apply(m)
	case !o.based:
		o.leap(now, m)
	case m.Seq == o.next && (o.linked || m.Seq == 0 || !o.mayReplay(now)):
		o.linked = true
		o.apply(m)
	case m.Seq == o.next:
		o.leap(now, m)
	case m.Seq > o.next:
		o.stats.Gaps++
		o.leap(now, m)
	case o.known(m.Seq) && o.applied(m):
		o.stats.Duplicates++
	case o.known(m.Seq), m.Seq == 0, o.next-1-m.Seq > o.config.Window:
		o.restart()
		o.advance(now, m)
	default:
		o.stats.Duplicates++
	}
}

// leap takes a live message before which others are missing, or that may be of
// another life.
func (o *Order) leap(now time.Time, m Message) {
	if o.mayReplay(now) {
		if o.tooFar(m) {
			// What the engine still has is all that can be known.
			o.missed(m.Seq)
			o.forget(kv.GapLost)
		}
		o.age(now)
		o.hold(now, m)
		o.replay(now, false)
		return
	}
	o.missed(m.Seq)
	o.forget(kv.GapLost)
	o.base(m.Seq)
	o.linked = true
	o.apply(m)
}

// apply takes the message expected.
func (o *Order) apply(m Message) {
	o.digests[m.Seq%rememberedDigests] = xxh3.Hash(m.Payload)
	o.next = m.Seq + 1
	cleared, err := o.fx.Apply(m)
	o.dirty = true
	switch {
	case err != nil:
		o.stats.Malformed++
		o.lose(kv.GapLost)
	case cleared && !o.whole:
		o.whole, o.told = true, true
	}
}

// complete tells the receiver that it knows everything, if that is so.
func (o *Order) complete() {
	if o.whole && !o.told {
		o.told, o.dirty = true, true
		o.fx.Complete()
	}
}

// lose voids what the receiver was told.
func (o *Order) lose(reason kv.GapReason) {
	if o.dirty {
		o.fx.Clear(reason)
		o.stats.Cleared++
	}
	o.whole, o.told, o.dirty, o.aged = false, false, false, time.Time{}
}

// forget voids everything, also the place in the sequence.
func (o *Order) forget(reason kv.GapReason) {
	o.lose(reason)
	o.based, o.next = false, 0
}

// restart begins another life of the engine.
func (o *Order) restart() {
	o.stats.Restarts++
	o.forget(kv.GapRestart)
	o.mend = o.mend || o.config.Replays // of this one all may be kept
}

// missed counts the messages from the one expected up to number seq, which will
// never come.
func (o *Order) missed(seq uint64) {
	if o.based && seq > o.next {
		o.stats.Missed += seq - o.next
	}
}

// base begins a sequence at number seq, with nothing applied.
func (o *Order) base(seq uint64) {
	o.based, o.next, o.first = true, seq, seq
}

// known says whether the digest of message seq is remembered.
func (o *Order) known(seq uint64) bool {
	return o.based && seq >= o.first && seq < o.next && o.next-seq <= rememberedDigests
}

// applied says whether m is the message of its number that was applied, which
// must be known.
func (o *Order) applied(m Message) bool {
	return o.digests[m.Seq%rememberedDigests] == xxh3.Hash(m.Payload)
}
