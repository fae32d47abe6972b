package kvevent

import (
	"bytes"
	"time"

	"github.com/dynago/dynago/kv"
)

// voidAt returns until when a state that ages is believed.
func (o *Order) voidAt() (at time.Time, ok bool) {
	switch {
	case o.aged.IsZero() || !o.dirty:
		return time.Time{}, false
	case o.phase == idle:
		return o.aged.Add(longestAbsence), true
	}
	return o.aged.Add(replayPatience), true
}

// mending says that a replay is to bring a better state than the one there is,
// which goes on until it does.
func (o *Order) mending() bool { return o.ask.mend && (o.phase == asking || o.phase == waiting) }

// age notes that the state is, from now on, that of a while ago.
func (o *Order) age(now time.Time) {
	if o.aged.IsZero() {
		o.aged = now
	}
}

// void forgets a state that has been that of a while ago for too long. What was
// held counts from now on, and so does what comes; a replay has to bring
// everything.
func (o *Order) void(now time.Time) {
	if len(o.held) > 0 {
		o.missed(o.held[0].Seq)
	}
	o.stats.Voided++
	o.forget(kv.GapLost)
	held := o.held
	if o.spilled {
		held = nil // those that did not fit are missing behind them
	}
	switch o.phase {
	case asking:
		o.drop()
		o.replay(now, true)
	case waiting:
		o.drop()
		o.ask.mend = true
	default:
		return
	}
	for _, m := range held {
		o.keep(m)
		o.advance(now, m)
	}
}

// tooFar says that the engine has shown to keep fewer messages than it takes to
// go on from the newest one applied to m.
func (o *Order) tooFar(m Message) bool {
	return o.keeps > 0 && o.based && m.Seq+1 >= o.next && m.Seq+2-o.next > o.keeps
}

// opens takes the first message of a replay, and says whether it is to be
// applied.
func (o *Order) opens(now time.Time, m Message) bool {
	resumes := o.ask.resume && m.Seq+1 == o.next
	switch {
	case o.ask.resume && m.Seq+1 < o.next:
		return false // more than was asked for
	case resumes && o.applied(m):
		o.ask.heard = true
		return false // the same life goes on
	case resumes:
		o.restart()
		o.replay(now, false)
		return false
	case o.ask.mend && m.Seq != 0 && o.based && m.Seq >= o.first:
		// All of it is known, and what came before is kept no longer.
		o.fx.Stop()
		o.giveUp(now, ReplayStartedLate)
		o.mend = false
		return false
	case o.ask.resume, m.Seq != 0:
		// The engine keeps too little. What it has is true as far as it goes.
		o.missed(m.Seq)
		o.incomplete(ReplayStartedLate)
		o.ask.late = true
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

// incomplete counts a replay that does not tell everything.
func (o *Order) incomplete(why ReplayOutcome) {
	o.stats.Replays[why]++
	o.ask.flawed = true
	o.forget(kv.GapLost)
}

// mayReplay says whether what is missing can be asked for now.
func (o *Order) mayReplay(now time.Time) bool {
	return o.config.Replays && !now.Before(o.cooldown) && !o.mending()
}

// replay asks for what is missing. With mend the state as it is goes on until
// something better comes.
func (o *Order) replay(now time.Time, mend bool) {
	if o.phase = asking; !mend {
		o.linked = false
		o.age(now)
	}
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
		o.drop() // all of it was applied as it came
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
	o.phase, o.aged = live, time.Time{}
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
		o.replay(now, false)
	default:
		o.forget(kv.GapLost) // those that did not fit will never come
	}
}
