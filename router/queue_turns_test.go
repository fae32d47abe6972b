package router_test

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/router"
)

// turns is a queue of classes A, B, … that are given so many tokens in their
// turns. Who waits is named by the class and a number.
type turns struct {
	*router.Queue[string]
	classes []*router.Class
	named   []int
}

func newTurns(t rapid.TB, quanta ...int) *turns {
	text := "default_policy_family: A\nuncached_isl_buckets: [{min_tokens: 0, bucket: all}]\npolicy_classes:\n"
	for i, quantum := range quanta {
		text += fmt.Sprintf("  - {name: %c, policy_family: %[1]c, cache_bucket: all, quantum: %d}\n", 'A'+i, quantum)
	}
	p := policyFile(t, text).Profile("")
	return &turns{router.NewQueue[string](p, epoch), p.Classes, make([]int, len(quanta))}
}

func (q *turns) push(t rapid.TB, class int, costs ...int) (last *router.Item[string]) {
	t.Helper()
	for _, cost := range costs {
		q.named[class]++
		last = arrival{name: fmt.Sprintf("%c%d", 'A'+class, q.named[class]), tokens: cost + 7, cached: 7}.item(q.classes[class])
		push(t, q.Queue, last)
	}
	return last
}

// some returns the names of the next n that go.
func (q *turns) some(n int, free func(*router.Item[string]) bool) string {
	var names []string
	for it := range q.Ready(epoch, free) {
		if names = append(names, it.Value); len(names) == n {
			break
		}
	}
	return strings.Join(names, " ")
}

func TestTurns(t *testing.T) {
	t.Run("one after the other", func(t *testing.T) {
		q := newTurns(t, 8, 4, 1)
		q.push(t, 0, 10, 10)
		q.push(t, 1, 3, 3, 3)
		q.push(t, 2, 2)
		// A 8, B 4-3; C 1, A 16-10; B 5-3; C 2-2; A 14-10; B 6-3.
		if got, want := order(q.Queue, room), "B1 A1 B2 C1 A2 B3"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("many turns at once", func(t *testing.T) {
		q := newTurns(t, 8, 4, 1)
		q.push(t, 0, 100)
		q.push(t, 1, 30)
		q.push(t, 2, 9)
		// 8, 4, 1; 7 turns more: 64, 32, 8, so B; C 9; A 72, 4 turns more: 104.
		if got, want := order(q.Queue, room), "B1 C1 A1"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("no turn too many", func(t *testing.T) {
		q := newTurns(t, 8, 4, 1)
		q.push(t, 0, 33, 1)
		q.push(t, 1, 16, 16)
		// 8, 4; 3 turns more: 32, 16. B has nothing left, A had it with one more.
		if got, want := order(q.Queue, room), "B1 A1 A2 B2"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("credit is spent before others have their turn", func(t *testing.T) {
		q := newTurns(t, 10, 10)
		q.push(t, 0, 4, 4, 4, 4)
		q.push(t, 1, 4, 4, 4, 4)
		if got, want := order(q.Queue, room), "A1 A2 B1 B2 A3 A4 B3 B4"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("nothing to compute costs a token", func(t *testing.T) {
		q := newTurns(t, 2, 2)
		q.push(t, 0, 0, 0, 0)
		q.push(t, 1, 1, 1)
		if got, want := order(q.Queue, room), "A1 A2 B1 B2 A3"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	t.Run("a class without room is given nothing", func(t *testing.T) {
		q := newTurns(t, 8, 8)
		q.push(t, 0, 16)
		q.push(t, 1, 8, 8, 8, 8, 8)
		if got, want := q.some(0, func(it *router.Item[string]) bool { return it.Value != "A1" && it.Value != "B4" }), "B1 B2 B3"; got != want {
			t.Fatalf("%s, want %s", got, want)
		}
		if got, want := order(q.Queue, room), "B4 A1 B5"; got != want {
			t.Errorf("%s, want %s", got, want)
		}
	})
	for name, empty := range map[string]func(*turns, *router.Item[string]){
		"whoever goes last takes the credit along":     func(q *turns, _ *router.Item[string]) { q.some(1, room) },
		"whoever gives up last takes the credit along": func(q *turns, it *router.Item[string]) { q.Remove(it) },
	} {
		t.Run(name, func(t *testing.T) {
			q := newTurns(t, 100, 100)
			last := q.push(t, 0, 1, 1)
			if got := q.some(1, room); got != "A1" {
				t.Fatal(got)
			}
			empty(q, last)
			q.push(t, 0, 150)
			q.push(t, 1, 150)
			// B's turn: 100, A 100; one turn more: both could, and B is the first.
			if got, want := order(q.Queue, room), "B1 A3"; got != want {
				t.Errorf("%s, want %s", got, want)
			}
		})
	}
}

// While all classes have somebody with room, they share what is computed in
// proportion to their quanta, whatever their prompts cost.
func TestTurnsShare(t *testing.T) {
	quanta, longest := []int{8192, 2048, 256}, []int{30_000, 500, 8000}
	q := newTurns(t, quanta...)
	random := rand.New(rand.NewPCG(1, 2))
	cost := make(map[string]int)
	spent := make([]int, len(quanta))
	more := func(class int) {
		n := 1 + random.IntN(longest[class])
		cost[q.push(t, class, n).Value] = n
	}
	for class := range quanta {
		more(class)
		more(class)
	}
	total := 0
	for it := range q.Ready(epoch, room) {
		class := int(it.Value[0] - 'A')
		spent[class] += cost[it.Value]
		if total += cost[it.Value]; total > 50_000_000 {
			break
		}
		more(class)
	}
	for class, quantum := range quanta {
		share, want := float64(spent[class])/float64(total), float64(quantum)/(8192+2048+256)
		if share < 0.98*want || share > 1.02*want {
			t.Errorf("class %c has computed %.4f of all, want %.4f", 'A'+class, share, want)
		}
	}
}

// While a class has somebody with room, no more than the documented tokens of
// another class go before them, whatever others cost and whether they have room.
func TestNobodyStarves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const longest = 60
		quanta := rapid.SliceOfN(rapid.IntRange(1, 40), 2, 5).Draw(t, "quanta")
		costs := rapid.IntRange(1, longest)
		cost := make(map[string]int)
		q := newTurns(t, quanta...)
		more := func(class int) {
			c := costs.Draw(t, "cost")
			cost[q.push(t, class, c).Value] = c
		}
		for class := range quanta {
			more(class)
			more(class)
		}
		heads := make([]int, len(quanta)) // by class, the number of who is next
		spent := make([][]int, len(quanta))
		for class := range quanta {
			heads[class], spent[class] = 1, make([]int, len(quanta))
		}
		for range rapid.IntRange(1, 60).Draw(t, "requests") {
			// Class A always has room, the others not always.
			blocked := rapid.SliceOfN(rapid.Bool(), len(quanta), len(quanta)).Draw(t, "blocked")
			blocked[0] = false
			name := q.some(1, func(it *router.Item[string]) bool { return !blocked[it.Value[0]-'A'] })
			class := int(name[0] - 'A')
			more(class)
			if class == 0 {
				heads[0]++
				clear(spent[0])
				continue
			}
			spent[0][class] += cost[name]
			waits := cost[fmt.Sprintf("A%d", heads[0])]
			turns := (waits + quanta[0] - 1) / quanta[0]
			if bound := longest + (3+turns+turns/2)*quanta[class]; spent[0][class] > bound {
				t.Fatalf("quanta %v: %d tokens of class %c before A's %d, want at most %d", quanta, spent[0][class], 'A'+class, waits, bound)
			}
		}
	})
}
