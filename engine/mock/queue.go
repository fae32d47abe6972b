package mock

// queue holds waiting requests: higher priority first, first come first served
// within one. Requests that come back from preemption stand before the others
// of their priority.
type queue struct {
	head, tail       *request
	fresh, preempted Moments // their lengths
}

func (q *queue) pushBack(r *request) {
	after := q.tail
	for after != nil && after.Priority < r.Priority {
		after = after.prev
	}
	q.insert(r, after)
}

func (q *queue) pushFront(r *request) {
	var after *request
	for next := q.head; next != nil && next.Priority > r.Priority; next = next.next {
		after = next
	}
	q.insert(r, after)
}

// putBack puts a request that comes back with blocks where it stood: before all of
// its priority that have come after it.
func (q *queue) putBack(r *request) {
	var after *request
	for next := q.head; next != nil && (next.Priority > r.Priority || next.Priority == r.Priority && next.arrived < r.arrived); next = next.next {
		after = next
	}
	q.insert(r, after)
}

// insert puts r behind after, or first if that is nil.
func (q *queue) insert(r, after *request) {
	r.waiting = true
	r.prev = after
	if after == nil {
		r.next, q.head = q.head, r
	} else {
		r.next, after.next = after.next, r
	}
	if r.next == nil {
		q.tail = r
	} else {
		r.next.prev = r
	}
	q.moments(r).add(r.length())
}

func (q *queue) remove(r *request) {
	if r.prev == nil {
		q.head = r.next
	} else {
		r.prev.next = r.next
	}
	if r.next == nil {
		q.tail = r.prev
	} else {
		r.next.prev = r.prev
	}
	r.prev, r.next, r.waiting = nil, nil, false
	q.moments(r).remove(r.length())
}

func (q *queue) moments(r *request) *Moments {
	if r.preempted > 0 {
		return &q.preempted
	}
	return &q.fresh
}
