package kvevent

import (
	"bytes"
	"cmp"
	"math"
	"slices"
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
	cooldown time.Time // until when no replay is tried
	pause    time.Duration
	mend     bool // a later replay may mend a partial state
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
	mend   bool // of a state that is good as far as it goes
	heard  bool // something has come
	flawed bool // and was not what was asked for
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
	case o.phase == waiting:
		return o.at, true
	case o.phase == live && o.mend && !o.whole:
		return o.cooldown, true
	}
	return time.Time{}, false
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
		o.replay(false)
		return
	}
	// Whether this is still the life that was followed cannot be known.
	o.forget(kv.GapLost)
	o.phase = live
}

// Disconnected says that no more messages arrive until it is connected again.
func (o *Order) Disconnected() {
	if o.phase == asking {
		o.fx.Stop()
	}
	o.drop()
	o.phase = idle
}

// Restarted says that the engine has begun another life. Nothing is expected
// until it is connected again.
func (o *Order) Restarted() {
	o.Disconnected()
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
		o.hold(now, m)
	}
}

// Replayed tells of the next message of the replay asked for.
func (o *Order) Replayed(now time.Time, m Message) {
	if o.phase != asking || m.Seq == endOfReplay {
		return
	}
	o.stats.Replayed++
	switch {
	case !o.ask.heard:
		if !o.opens(m) {
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
		o.replay(false)
		return
	case !o.ask.heard && o.ask.hasTarget:
		o.giveUp(now, ReplayEmpty)
		return
	case o.ask.hasTarget && o.next <= o.ask.target:
		o.giveUp(now, ReplayEndedEarly)
		return
	case len(o.held) > 0 && o.held[0].Seq > o.next:
		// More is missing, between what was replayed and what came live since.
		o.stats.Gaps++
		o.replay(false)
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
	at, ok := o.Deadline()
	switch {
	case !ok || now.Before(at):
	case o.phase == waiting:
		o.replay(o.ask.mend)
	default:
		o.replay(true)
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
		o.hold(now, m)
		o.replay(false)
		return
	}
	o.missed(m.Seq)
	o.forget(kv.GapLost)
	o.base(m.Seq)
	o.linked = true
	o.apply(m)
}

// opens takes the first message of a replay, and says whether it is to be
// applied.
func (o *Order) opens(m Message) bool {
	resumes := o.ask.resume && m.Seq+1 == o.next
	switch {
	case o.ask.resume && m.Seq+1 < o.next:
		return false // more than was asked for
	case resumes && o.applied(m):
		o.ask.heard = true
		return false // the same life goes on
	case resumes:
		o.restart()
		o.replay(false)
		return false
	case o.ask.resume, m.Seq != 0:
		// The engine keeps too little. What it has is true as far as it goes.
		o.missed(m.Seq)
		o.incomplete(ReplayStartedLate)
		o.base(m.Seq)
	default:
		o.forget(kv.GapLost)
		o.base(0)
		o.whole, o.dirty = true, true
		o.fx.Rebuild()
	}
	o.ask.heard, o.ask.mend = true, false
	return true
}

// meets compares a replayed message with the one of its number that is held,
// and lets go of those that it makes superfluous.
func (o *Order) meets(m Message) bool {
	for len(o.held) > 0 && o.held[0].Seq <= m.Seq {
		same := o.held[0].Seq != m.Seq || bytes.Equal(o.held[0].Payload, m.Payload)
		if !same {
			return false
		}
		o.linked = o.linked || o.held[0].Seq == m.Seq
		o.unhold()
	}
	return true
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
	o.whole, o.told, o.dirty = false, false, false
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
}

// incomplete counts a replay that does not tell everything.
func (o *Order) incomplete(why ReplayOutcome) {
	o.stats.Replays[why]++
	o.ask.flawed = true
	o.forget(kv.GapLost)
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

func (o *Order) mayReplay(now time.Time) bool {
	return o.config.Replays && !now.Before(o.cooldown)
}

// replay asks for what is missing. With mend the state as it is stays until
// something better comes.
func (o *Order) replay(mend bool) {
	o.phase, o.linked = asking, false
	o.ask = ask{mend: mend, resume: !mend && o.based && o.next > 0}
	if o.ask.resume {
		o.ask.from = o.next - 1
	}
	if len(o.held) > 0 {
		o.ask.target, o.ask.hasTarget = o.held[0].Seq, true
	}
	o.fx.Replay(o.ask.from)
}

// retry plans the next attempt at a replay, if there is one.
func (o *Order) retry(now time.Time, progress bool) {
	if progress {
		o.attempts = 0
	}
	if o.attempts++; o.attempts >= replayAttempts {
		o.giveUp(now, ReplayFailed)
		return
	}
	o.phase, o.at = waiting, now.Add(replayBackoff)
}

// giveUp goes on without what is missing, and leaves the engine alone for a
// while.
func (o *Order) giveUp(now time.Time, why ReplayOutcome) {
	o.pause = min(max(2*o.pause, replayCooldown), longestCooldown)
	o.cooldown, o.mend, o.attempts = now.Add(o.pause), true, 0
	if o.ask.mend {
		o.stats.Replays[why]++
	} else {
		if len(o.held) > 0 {
			o.missed(o.held[0].Seq)
		}
		o.incomplete(why)
	}
	o.resumeLive(now)
}

// mixed takes note that replay and live messages are not of one life, or not of
// one publisher. The live ones count; the next attempt will tell.
func (o *Order) mixed(now time.Time) {
	o.stats.Mixed++
	if o.phase == asking {
		o.fx.Stop()
	}
	o.restart()
	o.retry(now, false)
}

// resumeLive goes on with the messages that were held.
func (o *Order) resumeLive(now time.Time) {
	o.phase = live
	held, spilled := o.held, o.spilled
	o.drop()
	for _, m := range held {
		if o.phase == live {
			o.advance(now, m)
		} else {
			o.hold(now, m)
		}
	}
	switch {
	case !spilled:
	case o.phase != live:
		o.spilled = true
	case o.mayReplay(now):
		o.replay(false)
	}
}

// hold keeps a live message until the replay is over.
func (o *Order) hold(now time.Time, m Message) {
	n := len(o.held)
	switch {
	case o.known(m.Seq) && o.applied(m), o.holds(m):
		o.stats.Duplicates++
	case o.known(m.Seq), n > 0 && m.Seq <= o.held[n-1].Seq:
		// It is of another life than what was applied or held so far.
		o.drop()
		o.keep(m)
		o.mixed(now)
	case o.spilled, n >= o.config.HeldMessages, n > 0 && o.heldBytes+len(m.Payload) > o.config.HeldBytes:
		o.spilled = true
		o.stats.Spilled++
	default:
		o.keep(m)
	}
}

// holds says whether m is among the messages held, which ascend.
func (o *Order) holds(m Message) bool {
	i, ok := slices.BinarySearchFunc(o.held, m.Seq, func(h Message, seq uint64) int { return cmp.Compare(h.Seq, seq) })
	return ok && bytes.Equal(o.held[i].Payload, m.Payload)
}

func (o *Order) keep(m Message) {
	m.Payload = bytes.Clone(m.Payload)
	o.held = append(o.held, m)
	o.heldBytes += len(m.Payload)
}

// unhold lets go of the oldest message held.
func (o *Order) unhold() {
	o.heldBytes -= len(o.held[0].Payload)
	o.held[0] = Message{}
	if o.held = o.held[1:]; len(o.held) == 0 {
		o.held = nil
	}
}

// drop lets go of all messages held.
func (o *Order) drop() {
	o.held, o.heldBytes, o.spilled = nil, 0, false
}
