package remote

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestBreaker(t *testing.T) {
	now := time.Unix(0, 0)
	b := new(breaker)
	ask := func(well bool) bool {
		try, ok := b.enter(now)
		if ok {
			b.judge(try, well, now)
		}
		return ok
	}
	for range 4 {
		ask(false)
	}
	ask(true)
	for range 4 {
		ask(false)
	}
	if b.open() {
		t.Fatal("it opens after failures that were not in a row")
	}
	ask(false)
	if !b.open() || ask(true) {
		t.Fatal("the server is asked after five failures in a row")
	}
	for _, pause := range []time.Duration{250, 500, 1000, 2000, 4000, 8000, 16000, 30000, 30000} {
		now = now.Add(pause*time.Millisecond - 1)
		if ask(false) {
			t.Fatalf("the server is asked before a pause of %d ms is over", pause)
		}
		now = now.Add(1)
		if !ask(false) {
			t.Fatalf("the server is not asked after a pause of %d ms", pause)
		}
	}
	now = now.Add(30 * time.Second)
	try, ok := b.enter(now)
	if _, second := b.enter(now); !ok || !try || second {
		t.Fatal("want one to try, and no other")
	}
	b.leave(try)
	if try, ok = b.enter(now); !ok {
		t.Fatal("one who tried and left stands in the way of others")
	}
	b.judge(try, true, now)
	if b.open() || !ask(true) {
		t.Fatal("it is open although the server is well")
	}
}

// Whatever comes in which order, a breaker is never stuck: a minute later
// somebody may ask again.
func TestBreakerIsNeverStuck(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		now, b := time.Unix(0, 0), new(breaker)
		var asking []bool // whether each is a try
		for range rapid.IntRange(0, 60).Draw(t, "steps") {
			now = now.Add(time.Duration(rapid.IntRange(0, 1000).Draw(t, "ms")) * time.Millisecond)
			if len(asking) == 0 || rapid.Bool().Draw(t, "ask") {
				if try, ok := b.enter(now); ok {
					asking = append(asking, try)
				}
				continue
			}
			switch rapid.IntRange(0, 2).Draw(t, "end") {
			case 0:
				b.leave(asking[0])
			case 1:
				b.judge(asking[0], true, now)
			case 2:
				b.judge(asking[0], false, now)
			}
			asking = asking[1:]
		}
		for _, try := range asking {
			b.judge(try, false, now)
		}
		now = now.Add(time.Minute)
		if _, ok := b.enter(now); !ok {
			t.Fatalf("nobody may ask: %+v", *b)
		}
	})
}
