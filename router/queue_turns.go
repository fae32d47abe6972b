package router

// next gives the classes their turns until one of them can pay for a head that
// has room, and returns that head, paid for. It returns nil if no head has room.
func (q *Queue[T]) next(d *door[T]) *Item[T] {
	defer q.forget()
	if c := q.carry; c >= 0 {
		q.carry = -1
		if l := &q.lines[c]; l.look(d) && l.head.cost <= l.deficit {
			return q.serve(c)
		}
	}
	for i := range q.lines {
		at := (q.cursor + i) % len(q.lines)
		l := &q.lines[at]
		if !l.look(d) {
			continue
		}
		if l.head.cost > l.deficit {
			l.deficit += l.class.Quantum
		}
		if l.head.cost <= l.deficit {
			return q.serve(at)
		}
	}
	// Nobody could pay after one turn: give all of them as many as it takes.
	rounds := 0
	for i := range q.lines {
		if l := &q.lines[i]; l.head != nil {
			need := (l.head.cost - l.deficit + l.class.Quantum - 1) / l.class.Quantum
			if rounds == 0 || need < rounds {
				rounds = need
			}
		}
	}
	for i := range q.lines {
		if l := &q.lines[i]; l.head != nil {
			l.deficit += rounds * l.class.Quantum
		}
	}
	for i := range q.lines {
		at := (q.cursor + i) % len(q.lines)
		if l := &q.lines[at]; l.head != nil && l.head.cost <= l.deficit {
			return q.serve(at)
		}
	}
	return nil
}

// look finds out who may go in a line, and says whether anybody may.
func (l *line[T]) look(d *door[T]) bool {
	if l.head == nil {
		l.head = l.first(d)
	}
	return l.head != nil
}

// serve lets a line pay for its head.
func (q *Queue[T]) serve(at int) *Item[T] {
	l := &q.lines[at]
	l.deficit -= l.head.cost
	q.cursor = (at + 1) % len(q.lines)
	q.carry = at // with no credit it will find nobody who can pay
	return l.head
}

// forget drops what was looked up for one turn.
func (q *Queue[T]) forget() {
	for i := range q.lines {
		q.lines[i].head = nil
	}
}
