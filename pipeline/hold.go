package pipeline

import (
	"slices"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// Operators may have what sessions leave in the cache treated in another way than the
// rest: as worth nothing, where an agent has been started by another one, or as pinned,
// while a client has a session open.

// ephemeral says whether the blocks of a request's session are worth nothing behind its
// end.
func (p *Pipeline) ephemeral(r *Request) bool {
	return r.KV.Session.Ephemeral || p.Retention.SubagentEphemeral && r.KV.Session.Parent != ""
}

// hold has all that a request leaves in the cache stay between the turns of its
// session, if its engine keeps that open. It is a pin like any other, which ends with
// the session at the latest.
func (j *job) hold(b *router.Booking) {
	r, c := j.request, j.request.control()
	if !j.p.Retention.HoldSessions || c == nil {
		return
	}
	r.KV.Pins = slices.DeleteFunc(slices.Clone(r.KV.Pins), isHold) // of a place where it was before
	if r.KV.EvictSession || c.Action == router.CloseSession || !b.SessionKept() {
		return
	}
	terms, _ := b.SessionTerms()
	ttl, beyond := r.Caps.TTL(j.p.Retention.Grant(terms.Timeout))
	if beyond {
		r.Notes.cap(nvext.CapTTL)
	}
	r.KV.Pins = append(r.KV.Pins, kv.Pin{UpTo: kv.WholeSequence, TTL: ttl})
}

// isHold tells that nobody has asked for a pin.
func isHold(pin kv.Pin) bool { return pin.UpTo == kv.WholeSequence }

// askedFor returns the pins that clients have asked for.
func askedFor(pins []kv.Pin) []kv.Pin {
	if !slices.ContainsFunc(pins, isHold) {
		return pins
	}
	return slices.DeleteFunc(slices.Clone(pins), isHold)
}
