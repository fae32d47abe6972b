package prompt

import (
	"container/list"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// DefaultTurnBytes is the size of the turn cache that a loaded model has.
const DefaultTurnBytes = 256 << 20

// Turns remembers what models answered, as text and as the ids that they chose.
// Where the next prompt shows an answer as it was given, its ids are these, and
// not those that the tokenizer would have chosen: so the prompt begins with the
// one before it and its answer, token for token, and an engine finds all of it
// in its cache.
//
// An answer is known by the ids of the prompt before it. A conversation needs no
// name, and one that was edited shares nothing with what it was.
//
// It belongs to one model, and is safe for concurrent use.
type Turns struct {
	limit int

	mu    sync.Mutex
	known map[uint64][]*list.Element // by prompt, the latest answer last
	used  list.List                  // of *turn, the latest in use first
	tails map[string]int             // how many turns have this tail
	stats TurnStats

	// begin are the keys of tails, to be read without the lock.
	begin atomic.Pointer[[]string]
}

// TurnStats counts since the cache was made.
type TurnStats struct {
	// Hits are the answers in prompts whose ids were known, Misses those that had
	// to be tokenized.
	Hits, Misses uint64
	Tokens       uint64 // of the hits
	Evictions    uint64
	Bytes, Turns int // held now
}

// turn is one answer. It never changes.
type turn struct {
	prompt uint64 // the chain of the prompt's ids up to its last cut
	// tail is the prompt's text behind that cut, such as "assistant\n", and text
	// is that and the answer's, without the end of the turn. ids are those of text.
	tail, text string
	ids        []uint32
	// What must be known to put ids where the text is shown in another way.
	at   int    // number of the turn in the conversation
	said uint64 // what it says, as [Saying.sum]; 0 is not known
}

const (
	// turnOverhead is about what a turn takes beside its bytes and ids.
	turnOverhead = 240
	// mostAnswers is how many answers to one prompt are remembered.
	mostAnswers = 128
)

func (t *turn) bytes() int { return len(t.text) + 4*len(t.ids) + turnOverhead }

// NewTurns returns a cache that holds at most so many bytes.
func NewTurns(bytes int) *Turns {
	c := &Turns{limit: bytes, known: map[uint64][]*list.Element{}, tails: map[string]int{}}
	c.begin.Store(new([]string))
	return c
}

// Stats returns the counters.
func (c *Turns) Stats() TurnStats {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.stats
}

// put remembers an answer. Of two with the same text the later one counts.
func (c *Turns) put(t *turn) {
	if t.bytes() > c.limit {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	same := func(e *list.Element) bool { return e.Value.(*turn).text == t.text }
	if i := slices.IndexFunc(c.known[t.prompt], same); i >= 0 {
		c.drop(c.known[t.prompt][i])
	} else if answers := c.known[t.prompt]; len(answers) >= mostAnswers {
		c.drop(answers[0])
		c.stats.Evictions++
	}
	c.known[t.prompt] = append(c.known[t.prompt], c.used.PushFront(t))
	if c.tails[t.tail]++; c.tails[t.tail] == 1 {
		c.tell()
	}
	c.stats.Bytes += t.bytes()
	c.stats.Turns++
	for c.stats.Bytes > c.limit {
		c.drop(c.used.Back())
		c.stats.Evictions++
	}
}

func (c *Turns) drop(e *list.Element) {
	t := c.used.Remove(e).(*turn)
	rest := slices.DeleteFunc(c.known[t.prompt], func(other *list.Element) bool { return other == e })
	if c.known[t.prompt] = rest; len(rest) == 0 {
		delete(c.known, t.prompt)
	}
	if c.tails[t.tail]--; c.tails[t.tail] == 0 {
		delete(c.tails, t.tail)
		c.tell()
	}
	c.stats.Bytes -= t.bytes()
	c.stats.Turns--
}

// tell lets readers know which tails there are.
func (c *Turns) tell() {
	tails := slices.Collect(maps.Keys(c.tails))
	c.begin.Store(&tails)
}

// find returns the known answer that shows as most of the text behind a prompt,
// and how much that is. The function shows tells it of each candidate, or 0. Only
// where an answer could begin does find look, and, if counted is set, count.
func (c *Turns) find(prompt chain, text string, shows func(*turn) int, counted bool) (*turn, int) {
	if !c.begins(text) {
		return nil, 0
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	var (
		best   *list.Element
		length int
	)
	for _, e := range c.known[prompt.sum] {
		if n := shows(e.Value.(*turn)); n > length {
			best, length = e, n
		}
	}
	switch {
	case best == nil && counted:
		c.stats.Misses++
		return nil, 0
	case best == nil:
		return nil, 0
	}
	c.used.MoveToFront(best)
	t := best.Value.(*turn)
	if counted {
		c.stats.Hits++
		c.stats.Tokens += uint64(len(t.ids))
	}
	return t, length
}

// fewTails are tried one by one.
const fewTails = 8

// begins tells that text may begin, and go on, as answers do.
func (c *Turns) begins(text string) bool {
	tails := *c.begin.Load()
	return len(tails) > fewTails || slices.ContainsFunc(tails, func(tail string) bool {
		return len(text) > len(tail) && strings.HasPrefix(text, tail)
	})
}
