package kvcache

import (
	"container/heap"
	"fmt"
	"math"
	"slices"
	"time"
)

// LinkConfig describes one direction of a way between two tiers. The zero value
// moves everything at once.
type LinkConfig struct {
	Bandwidth float64       // bytes per second; 0 or less takes no time
	Latency   time.Duration // before the first byte of each transfer
	Limit     int           // transfers at a time, others wait; 0 = no limit
	// Background is the share of the bandwidth that transfers in the background
	// may take together, 0 = [BackgroundShare]. They stand still while others move.
	Background float64
}

// check says what is wrong with a configuration, if anything is.
func (c LinkConfig) check() error {
	switch {
	case math.IsNaN(c.Bandwidth) || math.IsInf(c.Bandwidth, 0):
		return fmt.Errorf("a bandwidth of %v bytes/s, want a number, or 0 for a way that takes no time", c.Bandwidth)
	case !(c.Background >= 0 && c.Background <= 1):
		return fmt.Errorf("a share of %v for the background, want 0 to 1", c.Background)
	case c.Latency < 0:
		return fmt.Errorf("a latency of %v, want at least 0", c.Latency)
	}
	return nil
}

// BackgroundShare is what prefetches may take of a link's bandwidth.
const BackgroundShare = 0.25

// Link says when transfers over one way end. Those that move share the bandwidth
// evenly: with n of them each gets the n-th part, and who comes or goes changes
// the parts of all others from then on.
//
// It is plain data. Time must not go backwards; what does counts as the present.
// Only transfers that come, go and end change what it computes, so that it does
// not matter how often it is asked.
type Link struct {
	cfg   LinkConfig
	at    time.Duration // of the last change
	lanes [2]lane       // in front and in the background
	begin []*parcel     // wait for their latency; in the order in which it ends
	byID  map[uint64]*parcel
	seq   uint64
	done  []Delivery
}

// Delivery is a transfer that has ended.
type Delivery struct {
	ID uint64
	At time.Duration
}

// Lanes of a link.
const (
	front = iota
	background
)

// lane is what shares one part of the bandwidth. Instead of counting down every
// transfer it counts up what each of them was served since the lane was last
// empty; a transfer ends when that reaches its due.
type lane struct {
	served  float64
	moving  parcels
	waiting []*parcel // for the limit; FIFO
	taken   int       // moving or waiting for their latency
}

type parcel struct {
	id    uint64
	seq   uint64
	bytes float64
	lane  int
	state parcelState
	begin time.Duration
	due   float64 // of lane.served, while moving
	index int     // in lane.moving
}

type parcelState uint8

const (
	parcelWaiting parcelState = iota
	parcelBeginning
	parcelMoving
)

// NewLink returns an idle link.
func NewLink(cfg LinkConfig) *Link {
	if cfg.Background <= 0 {
		cfg.Background = BackgroundShare
	}
	return &Link{cfg: cfg, byID: map[uint64]*parcel{}}
}

// Add begins a transfer. The id is the caller's and must not be on the link.
func (l *Link) Add(now time.Duration, id uint64, bytes int64, inBackground bool) {
	if l.byID[id] != nil {
		panic(fmt.Sprintf("kvcache: transfer %d is on the link already", id))
	}
	now = l.run(now)
	l.seq++
	p := &parcel{id: id, seq: l.seq, bytes: float64(max(bytes, 0)), lane: front}
	if inBackground {
		p.lane = background
	}
	l.byID[id] = p
	l.lanes[p.lane].waiting = append(l.lanes[p.lane].waiting, p)
	l.admit(now)
	l.run(now)
}

// Promote takes a transfer out of the background. It keeps what it has moved.
func (l *Link) Promote(now time.Duration, id uint64) {
	now = l.run(now)
	p := l.byID[id]
	if p == nil || p.lane == front {
		return
	}
	from, to := &l.lanes[background], &l.lanes[front]
	p.lane = front
	switch p.state {
	case parcelWaiting:
		from.waiting = slices.DeleteFunc(from.waiting, func(q *parcel) bool { return q == p })
		to.waiting = append(to.waiting, p)
	case parcelBeginning:
		from.taken--
		to.taken++
	case parcelMoving:
		l.settle(now)
		p.bytes = max(0, p.due-from.served)
		heap.Remove(&from.moving, p.index)
		from.taken--
		to.taken++
		l.move(p)
	}
	l.admit(now)
	l.run(now)
}

// Cancel takes a transfer off the link and reports whether it was there. One
// that has ended already, and was not yet returned by Advance, is not.
func (l *Link) Cancel(now time.Duration, id uint64) bool {
	now = l.run(now)
	p := l.byID[id]
	if p == nil {
		return false
	}
	delete(l.byID, id)
	n := &l.lanes[p.lane]
	switch p.state {
	case parcelWaiting:
		n.waiting = slices.DeleteFunc(n.waiting, func(q *parcel) bool { return q == p })
	case parcelBeginning:
		l.begin = slices.DeleteFunc(l.begin, func(q *parcel) bool { return q == p })
		n.taken--
	case parcelMoving:
		l.settle(now)
		heap.Remove(&n.moving, p.index)
		n.taken--
	}
	l.admit(now)
	l.run(now)
	return true
}

// Advance returns the transfers that have ended until now, in order. The slice
// is valid until the next call.
func (l *Link) Advance(now time.Duration) []Delivery {
	l.run(now)
	done := l.done
	l.done = l.done[len(l.done):]
	return done
}

// Next returns when the next transfer ends or begins to move, if there is one.
// Transfers that Advance has not yet returned count.
func (l *Link) Next() (at time.Duration, ok bool) {
	if len(l.done) > 0 {
		return l.done[0].At, true
	}
	return l.next()
}

// Len returns the number of transfers that have not ended.
func (l *Link) Len() int { return len(l.byID) }

// Estimate returns how long a transfer of so many bytes would take if it began
// now and nothing changed on the link until its end.
func (l *Link) Estimate(bytes int64, inBackground bool) time.Duration {
	d := l.cfg.Latency
	if l.cfg.Bandwidth <= 0 {
		return d
	}
	n, rate := &l.lanes[front], l.cfg.Bandwidth
	if inBackground {
		n, rate = &l.lanes[background], rate*l.cfg.Background
	}
	sharing := float64(n.taken + len(n.waiting) + 1)
	return d + nanoseconds(float64(bytes)*sharing/rate)
}

// run makes everything happen that happens until now, and returns the later of
// now and the last change.
func (l *Link) run(now time.Duration) time.Duration {
	now = max(now, l.at)
	for {
		at, ok := l.next()
		if !ok || at > now {
			return now
		}
		l.settle(at)
		for i := range l.lanes {
			l.deliver(i, at)
		}
		for len(l.begin) > 0 && l.begin[0].begin <= at {
			p := l.begin[0]
			l.begin = l.begin[1:]
			l.move(p)
		}
		l.admit(at)
	}
}

// next returns when something changes by itself.
func (l *Link) next() (at time.Duration, ok bool) {
	if len(l.begin) > 0 {
		at, ok = max(l.begin[0].begin, l.at), true
	}
	for i := range l.lanes {
		if end, moves := l.end(i); moves && (!ok || end < at) {
			at, ok = end, true
		}
	}
	return at, ok
}

// end returns when the first transfer of a lane ends.
func (l *Link) end(i int) (time.Duration, bool) {
	n := &l.lanes[i]
	if len(n.moving) == 0 {
		return 0, false
	}
	left := n.moving[0].due - n.served
	if l.cfg.Bandwidth <= 0 || left <= 0 {
		return l.at, true
	}
	rate := l.rate(i)
	if rate == 0 {
		return 0, false
	}
	return l.at + max(1, nanoseconds(left/rate)), true
}

// rate is what each transfer of a lane gets, in bytes per second.
func (l *Link) rate(i int) float64 {
	n := float64(len(l.lanes[i].moving))
	switch {
	case i == front:
		return l.cfg.Bandwidth / n
	case len(l.lanes[front].moving) > 0:
		return 0
	}
	return l.cfg.Bandwidth * l.cfg.Background / n
}

// settle books what was moved until at.
func (l *Link) settle(at time.Duration) {
	d := (at - l.at).Seconds()
	for i := range l.lanes {
		if n := &l.lanes[i]; len(n.moving) == 0 {
			n.served = 0
		} else if d > 0 && l.cfg.Bandwidth > 0 {
			n.served += l.rate(i) * d
		}
	}
	l.at = at
}

// deliver ends the transfers of a lane that have got all of theirs.
func (l *Link) deliver(i int, at time.Duration) {
	n := &l.lanes[i]
	for len(n.moving) > 0 {
		p := n.moving[0]
		if end, ok := l.end(i); !ok || end > at {
			return
		}
		n.served = max(n.served, p.due)
		heap.Pop(&n.moving)
		n.taken--
		delete(l.byID, p.id)
		l.done = append(l.done, Delivery{p.id, at})
	}
}

// admit lets transfers begin as far as the limit allows.
func (l *Link) admit(now time.Duration) {
	l.settle(now)
	for i := range l.lanes {
		n := &l.lanes[i]
		for len(n.waiting) > 0 && (l.cfg.Limit <= 0 || l.ahead(i) < l.cfg.Limit) {
			p := n.waiting[0]
			n.waiting = n.waiting[1:]
			n.taken++
			p.state, p.begin = parcelBeginning, now+l.cfg.Latency
			l.begin = append(l.begin, p)
		}
	}
}

// ahead counts the transfers that a lane has to leave room for, itself included.
// The background never takes room from the front.
func (l *Link) ahead(i int) int {
	if i == front {
		return l.lanes[front].taken
	}
	return l.lanes[front].taken + l.lanes[background].taken
}

func (l *Link) move(p *parcel) {
	n := &l.lanes[p.lane]
	if len(n.moving) == 0 {
		n.served = 0
	}
	p.state, p.due = parcelMoving, n.served+p.bytes
	heap.Push(&n.moving, p)
}

// nanoseconds rounds up, so that nothing ends before its last byte.
func nanoseconds(seconds float64) time.Duration {
	return time.Duration(min(math.Ceil(seconds*1e9), math.MaxInt64/4))
}

// parcels is a heap: the first to end on top, and of equals the first to come.
type parcels []*parcel

func (p parcels) Len() int { return len(p) }

func (p parcels) Less(i, j int) bool {
	if p[i].due != p[j].due {
		return p[i].due < p[j].due
	}
	return p[i].seq < p[j].seq
}

func (p parcels) Swap(i, j int) {
	p[i], p[j] = p[j], p[i]
	p[i].index, p[j].index = i, j
}

func (p *parcels) Push(x any) {
	q := x.(*parcel)
	q.index = len(*p)
	*p = append(*p, q)
}

func (p *parcels) Pop() any {
	old := *p
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*p = old[:len(old)-1]
	return q
}
