package kvstore

import (
	"time"

	"github.com/dynago/dynago/kvcache"
)

// lease keeps a unit from going until then, or longer if it was renewed.
type lease struct {
	until time.Duration
	u     *unit
}

// leaseUntil grants or renews the lease of u.
func (sp *space) leaseUntil(u *unit, until time.Duration) {
	u.lease = until
	if u.leased {
		return
	}
	u.leased = true
	u.eachOrder(func(o *kvcache.Order) { o.Hold(u.ref) })
	sp.leases = append(sp.leases, lease{until, u})
}

// endLeases ends the leases that are over by now.
func (sp *space) endLeases(now time.Duration) {
	for len(sp.leases) > 0 && sp.leases[0].until <= now {
		if u := sp.takeLease(); u.leased && u.lease > now {
			sp.leases = append(sp.leases, lease{u.lease, u})
		} else {
			u.endLease()
		}
	}
}

// breakLease ends the lease that is over next, and reports whether there was one
// to end.
func (sp *space) breakLease() bool {
	// In the first round those that were renewed learn until when.
	for range 2 * len(sp.leases) {
		first := sp.leases[0]
		u := sp.takeLease()
		switch {
		case !u.leased:
		case u.busy || first.until < u.lease:
			sp.leases = append(sp.leases, lease{u.lease, u})
		default:
			u.endLease()
			return true
		}
		if len(sp.leases) == 0 {
			return false
		}
	}
	return false
}

func (sp *space) takeLease() *unit {
	u := sp.leases[0].u
	sp.leases[0].u = nil
	sp.leases = sp.leases[1:]
	return u
}

// endLease lets u go, if it was leased.
func (u *unit) endLease() {
	if u.leased {
		u.leased = false
		u.eachOrder(func(o *kvcache.Order) { o.Release(u.ref) })
	}
}
