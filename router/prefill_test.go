package router

import (
	"context"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
	"pgregory.net/rapid"
)

// computing is a target with outstanding prefills, and a clock.
type computing struct {
	books books
	load  *load
	now   time.Time
}

func newComputing() *computing {
	c := &computing{now: time.Unix(1000, 0)}
	c.load = c.books.load(kv.Target{Worker: 1}, context.Background())
	return c
}

// place adds a prompt of so many tokens that is predicted to take so long; less
// than 0: nobody predicts.
func (c *computing) place(tokens int, takes time.Duration) *Booking {
	k := &Booking{load: c.load, requests: 1, placed: c.now, prefill: prefill{tokens: tokens, takes: max(0, takes), told: takes >= 0}}
	c.books.enter(k, nil)
	return k
}

func (c *computing) done(k *Booking) { c.books.prefilled(k, c.now) }

func (c *computing) expect(t *testing.T, after time.Duration, want int) {
	t.Helper()
	c.now = c.now.Add(after)
	if got := c.load.activePrefill(c.now); got != want {
		t.Errorf("after %v: %d tokens are outstanding, want %d", after, got, want)
	}
}

// If all are predicted, they are computed at the rate of the oldest, also beyond
// it. What is done before its turn gives its time back.
func TestPrefillShrinks(t *testing.T) {
	c := newComputing()
	first, second, third := c.place(100, time.Second), c.place(200, 2*time.Second), c.place(50, time.Second/2)
	c.expect(t, 0, 350)
	c.expect(t, time.Second/2, 300)
	c.expect(t, 9*time.Millisecond, 300) // 50.9 tokens
	c.expect(t, 991*time.Millisecond, 200)
	c.done(second)
	c.expect(t, 0, 150) // it would have begun at 2 s, but no anchor begins in the future
	c.expect(t, time.Second/2, 100)
	c.done(first)
	c.expect(t, 0, 50)
	c.expect(t, time.Second/4, 25)
	c.expect(t, time.Hour, 0)
	c.done(third)
	c.done(third)
	c.expect(t, 0, 0)
	late := c.place(10, time.Second)
	c.expect(t, time.Second/10, 9)
	c.books.leave(late, c.now)
	c.expect(t, 0, 0)
}

// The time of one that is done early counts only as far as it goes.
func TestPrefillDoneEarly(t *testing.T) {
	c := newComputing()
	c.place(1000, 10*time.Second)
	short := c.place(100, time.Second)
	c.expect(t, 5*time.Second, 600)
	c.done(short)
	c.expect(t, 0, 600) // the anchor has had four seconds
	c.expect(t, time.Second, 500)
}

// Where one is not predicted, only the oldest shrinks, and not below itself.
func TestPrefillUntold(t *testing.T) {
	c := newComputing()
	anchor, untold := c.place(100, time.Second), c.place(70, -1)
	c.expect(t, time.Second/4, 145)
	c.expect(t, time.Second/12, 137) // 66.7 are rounded up
	c.expect(t, time.Minute, 70)
	c.done(anchor)
	next := c.place(30, time.Second)
	c.expect(t, time.Minute, 100) // the oldest is not predicted
	c.done(untold)
	c.expect(t, 0, 30)
	c.expect(t, time.Second/2, 15)
	c.done(next)
	c.expect(t, 0, 0)
}

func TestPrefillInNoTime(t *testing.T) {
	c := newComputing()
	c.place(100, 0)
	c.expect(t, 0, 0)
	c.place(50, time.Second)
	c.expect(t, time.Minute, 50)
	c.place(20, -1)
	c.expect(t, time.Minute, 70)
}

// Whatever comes and goes, what is outstanding is neither less than nothing nor
// more than there is, and in the end it is nothing.
func TestPrefillBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := newComputing()
		var open []*Booking
		sum := 0
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(open) == 0 || rapid.Bool().Draw(t, "place") {
				k := c.place(rapid.IntRange(0, 5000).Draw(t, "tokens"), time.Duration(rapid.IntRange(-1, 3000).Draw(t, "ms"))*time.Millisecond)
				open, sum = append(open, k), sum+k.prefill.tokens
			} else {
				i := rapid.IntRange(0, len(open)-1).Draw(t, "which")
				sum -= open[i].prefill.tokens
				c.done(open[i])
				open = append(open[:i], open[i+1:]...)
			}
			c.now = c.now.Add(time.Duration(rapid.IntRange(0, 2000).Draw(t, "passes")) * time.Millisecond)
			if got := c.load.activePrefill(c.now); got < 0 || got > sum {
				t.Fatalf("%d of %d tokens are outstanding", got, sum)
			}
			if l := &c.load.prefills; (l.oldest == nil) != (sum == 0) || l.anchored.After(c.now) {
				t.Fatalf("%+v with %d tokens", l, sum)
			}
		}
		for _, k := range open {
			c.books.leave(k, c.now)
		}
		if l := c.load; l.prefillTokens != 0 || l.prefills.oldest != nil || l.prefills.newest != nil || l.prefills.untold != 0 {
			t.Errorf("left behind: %+v", l)
		}
	})
}

func TestPolynomialPrefill(t *testing.T) {
	for _, tc := range []struct {
		batch, tokens int
		want          time.Duration
	}{
		{1, 0, 16501420}, {1, 1000, 32105858}, {2, 500, 32105858}, {1, 32000, 933474373},
	} {
		got, ok := PolynomialPrefill{}.Predict(tc.batch, tc.tokens, 77)
		if d := got - tc.want; !ok || d < -time.Microsecond || d > time.Microsecond {
			t.Errorf("%d prompts of %d tokens take %v, want %v", tc.batch, tc.tokens, got, tc.want)
		}
	}
}
