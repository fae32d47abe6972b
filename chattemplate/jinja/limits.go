package jinja

import "time"

// A template is bounded in two ways. What it makes and how often it goes around
// is counted, so that the same template always fails at the same place. What
// that leaves, such as comparing long texts again and again, is bounded by the
// clock: everything that takes longer for longer values reports its work, and
// each few microseconds of work the clock is looked at.

// Limits bounds what one render may use. Zero fields mean the defaults.
type Limits struct {
	Time   time.Duration // on the wall (default 5 s)
	Output int           // bytes of output, and of any one value (default 64 MiB)
	Steps  int           // rounds of loops and calls of functions (default 64,000,000)
	Depth  int           // nested calls of macros and recursive loops (default 200)
}

func (l *Limits) fill() {
	if l.Time <= 0 {
		l.Time = 5 * time.Second
	}
	if l.Output <= 0 {
		l.Output = maxText
	}
	if l.Steps <= 0 {
		l.Steps = 64_000_000
	}
	if l.Depth <= 0 {
		l.Depth = 200
	}
}

const (
	// spendFactor is how many times the output limit a template may write in
	// strings and lists that it makes on the way.
	spendFactor = 16
	// itemBytes is about what an item of a list takes, in bytes.
	itemBytes = 16
	// between is the work between two looks at the clock.
	between = 1 << 15
)

// work counts n units of work. A unit is about what it takes to copy a few
// bytes or to look at an item. A comparison, which has no way to fail, may
// ignore the error: it comes again with the next work, at the end of the render
// at the latest. A nil state, outside of a render, has no limits.
func (st *state) work(n int) error {
	if st == nil {
		return nil
	}
	if st.left -= n; st.left > 0 {
		return nil
	}
	if st.over == nil && time.Since(st.began) > st.limits.Time {
		st.over = fail(TimeError, "template ran longer than %v", st.limits.Time)
	}
	if st.over == nil {
		st.left = between
	}
	return st.over
}

// step counts one round of a loop or one call.
func (st *state) step() error {
	if st.steps++; st.steps > st.limits.Steps {
		return fail(LimitError, "template ran more than %d steps", st.limits.Steps)
	}
	return st.work(1)
}

// room is how many bytes one value may print as. Lists that hold the same list
// twice, again and again, print as more than any memory holds.
func (st *state) room() int {
	if st == nil {
		return maxText
	}
	return st.limits.Output
}

// prints accounts for one more value, nested so deep in one of which so many bytes
// are printed.
func (st *state) prints(size, depth int) error {
	if depth > maxNesting || size > st.room() {
		return fail(LimitError, "value nested more than %d levels deep, or longer than %d bytes, to print", maxNesting, st.room())
	}
	return st.work(1)
}

func (st *state) enter() error {
	if st.depth++; st.depth > st.limits.Depth {
		return fail(LimitError, "template called more than %d levels deep", st.limits.Depth)
	}
	return nil
}

func (st *state) leave() { st.depth-- }

// spend counts n bytes of a new string or list.
func (st *state) spend(n int) error {
	if n > st.limits.Output {
		return st.tooMuch()
	}
	if st.spent += n; st.spent > spendFactor*st.limits.Output {
		return st.tooMuch()
	}
	return st.work(n)
}

func (st *state) tooMuch() error {
	return fail(LimitError, "template built more than its %d bytes of text", st.limits.Output)
}

// spendTimes counts n times size bytes.
func (st *state) spendTimes(size, n int) error {
	if size > 0 && n > st.limits.Output/size {
		return st.tooMuch()
	}
	return st.spend(size * n)
}

// spendItems counts the n items of a new list, which all together may take as
// much as all text that is made on the way, since a long text has many parts.
func (st *state) spendItems(n int) error {
	if n > spendFactor*st.limits.Output/itemBytes {
		return st.tooMuch()
	}
	if st.spent += itemBytes * n; st.spent > spendFactor*st.limits.Output {
		return st.tooMuch()
	}
	return st.work(n)
}
