package llama

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// similar is how much of a prompt a slot must remember to be chosen for it.
const similar = 0.1

// slots are the places at which prompts are worked on. Who finds none waits, in
// order of arrival.
type slots struct {
	mu      sync.Mutex
	all     []slot
	waiting []*waiter
	clock   int
	gone    chan struct{}
	once    sync.Once
}

type slot struct {
	busy   bool
	last   int      // when it was used
	prompt []uint32 // what its cache holds
	lora   string
}

type waiter struct {
	want  int // a slot, or -1 for any
	ready chan int
}

func newSlots(n int) *slots { return &slots{all: make([]slot, n), gone: make(chan struct{})} }

var errGone = errors.New("the server has ended")

func (s *slots) close() { s.once.Do(func() { close(s.gone) }) }

// acquire waits for a slot: the one that is wanted, or, for -1, the free one that
// remembers most of the prompt, else the one that was idle for longest. It tells
// how many tokens of the prompt the slot has.
func (s *slots) acquire(ctx context.Context, want int, prompt []uint32, lora string) (id, cached int, err error) {
	if id, err = s.take(ctx, want, prompt); err != nil {
		return 0, 0, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	at := &s.all[id]
	if at.lora != lora {
		at.prompt, at.lora = nil, lora
	}
	return id, min(common(at.prompt, prompt), len(prompt)-1), nil
}

// erase waits for a slot and makes it forget; it returns how much that was.
func (s *slots) erase(ctx context.Context, id int) (tokens int, err error) {
	if id, err = s.take(ctx, id, nil); err != nil {
		return 0, err
	}
	s.mu.Lock()
	tokens = len(s.all[id].prompt)
	s.mu.Unlock()
	s.release(id, []uint32{})
	return tokens, nil
}

// take waits for a slot, which is busy then.
func (s *slots) take(ctx context.Context, want int, prompt []uint32) (int, error) {
	if want >= 0 {
		want %= len(s.all)
	}
	s.mu.Lock()
	if id := s.choose(want, prompt); id >= 0 {
		s.all[id].busy = true
		s.mu.Unlock()
		return id, nil
	}
	w := &waiter{want, make(chan int, 1)}
	s.waiting = append(s.waiting, w)
	s.mu.Unlock()
	return s.await(ctx, w)
}

func (s *slots) await(ctx context.Context, w *waiter) (int, error) {
	var err error
	select {
	case id := <-w.ready:
		return id, nil
	case <-ctx.Done():
		err = ctx.Err()
	case <-s.gone:
		err = errGone
	}
	s.mu.Lock()
	i := slices.Index(s.waiting, w)
	if i >= 0 {
		s.waiting = slices.Delete(s.waiting, i, i+1)
	}
	s.mu.Unlock()
	if i < 0 { // it was given one meanwhile
		s.release(<-w.ready, nil)
	}
	return 0, err
}

// choose returns a free slot, or -1. The lock must be held.
func (s *slots) choose(want int, prompt []uint32) int {
	best, most := -1, 0.0
	for i := range s.all {
		at := &s.all[i]
		if at.busy || want >= 0 && want != i {
			continue
		}
		likeness := float64(common(at.prompt, prompt)) / float64(max(1, len(prompt)))
		if likeness <= similar {
			likeness = 0
		}
		if best < 0 || likeness > most || likeness == most && at.last < s.all[best].last {
			best, most = i, likeness
		}
	}
	return best
}

// release gives a slot back, which remembers ids unless they are nil.
func (s *slots) release(id int, ids []uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock++
	at := &s.all[id]
	at.last = s.clock
	if ids != nil {
		at.prompt = ids
	}
	for i, w := range s.waiting {
		if w.want < 0 || w.want == id {
			s.waiting = slices.Delete(s.waiting, i, i+1)
			w.ready <- id
			return
		}
	}
	at.busy = false
}

// forget makes every slot forget its prompt.
func (s *slots) forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		s.all[i].prompt = nil
	}
}

// used returns how much of the room that slots have they use, each having so much.
func (s *slots) used(context int) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for i := range s.all {
		n += len(s.all[i].prompt)
	}
	return float64(n) / float64(context*len(s.all))
}

// counts returns how many slots are busy, in order, and how many requests wait.
func (s *slots) counts() (busy []bool, waiting int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range s.all {
		busy = append(busy, s.all[i].busy)
	}
	return busy, len(s.waiting)
}

// common returns how many ids two prompts begin with.
func common(a, b []uint32) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
