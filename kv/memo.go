package kv

import (
	"container/list"
	"math/rand/v2"
	"slices"
	"sync"

	"github.com/zeebo/xxh3"
)

// Memo remembers the hashes of long prompts. The next turn of a conversation
// begins with the last one, and so only its new blocks are hashed; the same
// holds for the agents that share a system prompt.
//
// What a prompt has in common with earlier ones is found by fingerprints of its
// beginnings, which have 128 bits and a secret seed, and cost a tenth of the
// hashes themselves. A Memo is safe for concurrent use.
type Memo struct {
	limit int
	seed  uint64

	mu     sync.Mutex
	marked map[mark]*list.Element // of *past
	used   list.List              // the latest in use first
	bytes  int
}

// mark names the beginning of a prompt.
type mark struct {
	scheme Scheme
	print  xxh3.Uint128
}

// past is what is known of one prompt. It never changes.
type past struct {
	local []LocalHash
	seq   []SeqHash
	marks []mark
}

const (
	// stride is how many tokens lie between two fingerprints.
	stride = 1024
	// markEvery is at how many strides prompts are expected to part.
	markEvery = 8
	// MemoTokens is the length from which a prompt is remembered.
	MemoTokens = 2 * stride
	// pastOverhead is about what a prompt takes beside hashes and marks, and
	// markBytes what a mark takes.
	pastOverhead, markBytes = 200, 160
)

func (p *past) bytes() int {
	return 8*(len(p.local)+len(p.seq)) + markBytes*len(p.marks) + pastOverhead
}

// NewMemo returns a memo that holds at most so many bytes.
func NewMemo(bytes int) *Memo {
	return &Memo{limit: bytes, seed: rand.Uint64(), marked: map[mark]*list.Element{}}
}

// Hashes returns the local and the sequence hashes of a prompt's complete
// blocks. They may be shared, and must not be changed.
func (m *Memo) Hashes(tokens []uint32, s Scheme) ([]LocalHash, []SeqHash) {
	n := s.Blocks(len(tokens))
	p := &past{local: make([]LocalHash, 0, n), seq: make([]SeqHash, 0, n)}
	parted := -1 // mark of the prompt that this one goes on from
	if len(tokens) >= MemoTokens {
		p.marks = m.marks(tokens, s)
		if known, i := m.find(p.marks); known != nil {
			shared := s.Blocks((i + 1) * stride)
			p.local = append(p.local, known.local[:shared]...)
			p.seq = append(p.seq, known.seq[:shared]...)
			parted = i
		}
	}
	done := len(p.local)
	p.local = s.AppendLocal(p.local, tokens[done*s.BlockSize:])
	if done == 0 {
		p.seq = s.AppendSeq(p.seq, p.local)
	} else {
		p.seq = s.AppendSeqAfter(p.seq, p.seq[done-1], p.local[done:])
	}
	if len(tokens) >= MemoTokens {
		m.put(p, parted)
	}
	return p.local, p.seq
}

// marks returns a mark for the end of each whole stride of tokens.
func (m *Memo) marks(tokens []uint32, s Scheme) []mark {
	marks := make([]mark, 0, len(tokens)/stride)
	print := xxh3.Uint128{Lo: m.seed}
	for ; len(tokens) >= stride; tokens = tokens[stride:] {
		next := xxh3.Hash128Seed(littleEndian(tokens[:stride]), print.Lo)
		print = xxh3.Uint128{Hi: print.Hi ^ next.Hi, Lo: next.Lo}
		marks = append(marks, mark{s, print})
	}
	return marks
}

// find returns the prompt that has the most in common with one of these marks,
// and which of them is the last that both have.
func (m *Memo) find(marks []mark) (*past, int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, mark := range slices.Backward(marks) {
		if e := m.marked[mark]; e != nil {
			m.used.MoveToFront(e)
			return e.Value.(*past), i
		}
	}
	return nil, 0
}

// put remembers a prompt. It is found by the places where a later one is likely
// to part from it: its end, some of its beginnings, and where it parted itself
// from an earlier one, whose place it takes if that ended there.
func (m *Memo) put(p *past, parted int) {
	last := len(p.marks) - 1
	var kept []mark
	for i, mark := range p.marks {
		if (i+1)%markEvery == 0 || i == parted || i == last {
			kept = append(kept, mark)
		}
	}
	var from mark
	if parted >= 0 {
		from = p.marks[parted]
	}
	p.marks = kept
	if p.bytes() > m.limit {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if e := m.marked[from]; e != nil && e.Value.(*past).end() == from {
		m.drop(e)
	}
	e := m.used.PushFront(p)
	for _, mark := range kept {
		m.marked[mark] = e
	}
	for m.bytes += p.bytes(); m.bytes > m.limit; {
		m.drop(m.used.Back())
	}
}

// end is the last mark.
func (p *past) end() mark { return p.marks[len(p.marks)-1] }

func (m *Memo) drop(e *list.Element) {
	p := m.used.Remove(e).(*past)
	for _, mark := range p.marks {
		if m.marked[mark] == e {
			delete(m.marked, mark)
		}
	}
	m.bytes -= p.bytes()
}
