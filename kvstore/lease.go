package kvstore

import (
	"slices"
	"time"
)

// leases keep what was read from leaving the store for a while. In memory it need
// not stay, if it lies below that as well.
type leases struct {
	tier  int     // the lowest one that is not told later
	queue []lease // the earliest first, but for those renewed since
	count int     // of the units that are leased
	bytes int64   // and of their bytes
}

// lease keeps a unit from going until then, or longer if it was renewed.
type lease struct {
	until time.Duration
	u     *unit
}

// leaseUntil grants or renews the lease of u. Leases take half of the tier at the
// most, and the oldest ends for a new one: else, where everything is read, what is
// stored would be all that may go.
func (sp *space) leaseUntil(u *unit, until time.Duration) {
	u.lease = until
	if u.leased {
		return
	}
	u.leased = true
	u.eachHold(func(tier int) { sp.orderOf(tier).Hold(u.ref) })
	u.leasedBytes = u.size[whole] + u.size[metadata]
	l := &sp.leases
	l.count++
	l.queue = append(l.queue, lease{until, u})
	l.sweep()
	for l.bytes += u.leasedBytes; l.bytes > sp.shelves[l.tier].may/2 && len(l.queue) > 1; {
		if !sp.breakLease() {
			return
		}
	}
}

// eachHold calls do for the orders that hold u while it is leased.
func (u *unit) eachHold(do func(tier int)) {
	do(all)
	if last := u.sp.leases.tier; len(u.sp.shelves) > 1 && u.places().has(last) {
		do(last)
	}
}

// endLeases ends the leases that are over by now.
func (sp *space) endLeases(now time.Duration) {
	for l := &sp.leases; len(l.queue) > 0 && l.queue[0].until <= now; {
		if u := l.take(); u.leased && u.lease > now {
			l.queue = append(l.queue, lease{u.lease, u})
		} else {
			u.endLease()
		}
	}
}

// breakLease ends the lease that is over next, and reports whether there was one
// to end.
func (sp *space) breakLease() bool {
	l := &sp.leases
	// In the first round those that were renewed learn until when.
	for range 2 * len(l.queue) {
		first := l.queue[0]
		u := l.take()
		switch {
		case !u.leased:
		case u.busy || first.until < u.lease:
			l.queue = append(l.queue, lease{u.lease, u})
		default:
			u.endLease()
			return true
		}
		if len(l.queue) == 0 {
			return false
		}
	}
	return false
}

// sweep drops what was leased and is gone when it is more than what is not.
func (l *leases) sweep() {
	if len(l.queue) > 2*l.count+64 {
		l.queue = slices.DeleteFunc(l.queue, func(q lease) bool { return !q.u.leased })
	}
}

func (l *leases) take() *unit {
	u := l.queue[0].u
	l.queue[0].u = nil
	l.queue = l.queue[1:]
	return u
}

// endLease lets u go, if it was leased.
func (u *unit) endLease() {
	if u.leased {
		u.eachHold(func(tier int) { u.sp.orderOf(tier).Release(u.ref) })
		u.leased = false
		u.sp.leases.count--
		u.sp.leases.bytes -= u.leasedBytes
	}
}
