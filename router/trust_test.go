package router

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

// A judgement changes belief, and only when it is due.
func TestTrust(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var tr trust
		now := time.Unix(1000, 0)
		var doubts []time.Time
		var agree int // answers in a row that agreed
		for range rapid.IntRange(1, 300).Draw(t, "answers") {
			now = now.Add(time.Duration(rapid.IntRange(0, 3000).Draw(t, "ms")) * time.Millisecond)
			blocks := rapid.IntRange(0, 20).Draw(t, "blocks")
			wrong := rapid.SampledFrom([]int{0, 0, 0, blocks, blocks / 2, blocks + 5}).Draw(t, "wrong")
			believed := tr.believed()
			if blocks > 0 {
				if wrong == 0 {
					agree++
				} else {
					agree = 0
				}
			}
			missing := rapid.IntRange(0, wrong).Draw(t, "missing")
			switch tr.answer(missing, wrong-missing, blocks, now) {
			case doubt:
				if !believed || tr.believed() {
					t.Fatalf("doubt: believed before %v, now %v, %d blocks wrong", believed, tr.believed(), wrong)
				}
				if n := len(doubts); n > 0 && now.Sub(doubts[n-1]) < firstDoubt {
					t.Fatalf("doubted again after %v", now.Sub(doubts[n-1]))
				}
				doubts = append(doubts, now)
			case believe:
				if believed || !tr.believed() || agree == 0 && now.Sub(doubts[len(doubts)-1]) < longestDoubt || now.Sub(doubts[len(doubts)-1]) < firstDoubt {
					t.Fatal("believed without reason")
				}
			case again:
				if believed || tr.believed() || now.Sub(doubts[len(doubts)-1]) < firstDoubt {
					t.Fatal("rebuilt again without reason")
				}
			case asBefore:
				if tr.believed() != believed {
					t.Fatal("belief changed without a judgement")
				}
			}
			if tr.drift < 0 || tr.drift > 1 {
				t.Fatalf("drift %v", tr.drift)
			}
		}
	})
}

// What is always right is always believed, what is always wrong never for long,
// and each time for less of the time.
func TestTrustInTheLongRun(t *testing.T) {
	for _, tc := range []struct {
		name          string
		wrong         func(i int) int // of ten blocks
		doubts, least int
	}{
		{"right", func(int) int { return 0 }, 0, 0},
		{"a tenth of the answers half wrong", func(i int) int { return 5 * btoi(i%10 == 0) }, 0, 0},
		{"always wrong", func(int) int { return 10 }, 1, 1},
		{"wrong half of the time", func(i int) int { return 10 * btoi(i%2 == 0) }, 1, 1},
		{"right for a minute, wrong for a minute", func(i int) int { return 10 * btoi(i/60%2 == 1) }, 14, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var tr trust
			doubts := 0
			for i := range 3600 {
				if tr.answer(tc.wrong(i), 0, 10, time.Unix(int64(i), 0)) == doubt {
					doubts++
				}
			}
			if doubts > tc.doubts || doubts < tc.least {
				t.Errorf("doubted %d times in an hour, want %d to %d", doubts, tc.least, tc.doubts)
			}
		})
	}
}

// Who was doubted and is now neither right nor wrong enough is believed after the
// longest doubt.
func TestTrustBetween(t *testing.T) {
	var tr trust
	now := time.Unix(0, 0)
	at := func(wrong int) judgement {
		now = now.Add(time.Second)
		return tr.answer(0, wrong, 10, now)
	}
	for at(10) != doubt {
	}
	began := now
	for at(1) != believe {
		if now.Sub(began) > 2*longestDoubt {
			t.Fatal("doubted for ever")
		}
	}
	if d := now.Sub(began); d < longestDoubt {
		t.Errorf("believed after %v", d)
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// A doubt that comes back lasts longer, and one that comes back late begins anew.
func TestPatience(t *testing.T) {
	for _, tc := range []struct{ patience, since, want time.Duration }{
		{0, time.Hour, firstDoubt},
		{0, 0, firstDoubt},
		{firstDoubt, time.Minute, 2 * firstDoubt},
		{longestDoubt, time.Minute, longestDoubt},
		{longestDoubt, 4 * longestDoubt, longestDoubt},
		{longestDoubt, 4*longestDoubt + 1, firstDoubt},
	} {
		if got := longer(tc.patience, tc.since); got != tc.want {
			t.Errorf("%v after %v of patience: %v, want %v", tc.since, tc.patience, got, tc.want)
		}
	}
}
