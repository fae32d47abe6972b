package bpe

import (
	"cmp"
	"container/heap"
	"maps"
	"slices"
)

// Merge is a pair of neighbouring tokens that becomes one.
type Merge struct{ Left, Right string }

// word is a word of the corpus as the tokens it consists of so far.
type word struct {
	tokens []string
	count  int
}

// Learn returns the merges of byte-pair encoding that make the first limit tokens
// from words and how often each occurs: again and again the pair of neighbours
// that occurs most often becomes one. Two merges can make the same token. Pairs
// that occur once are not worth one. Among equals the first in byte order wins.
func Learn(counts map[string]int, limit int) []Merge {
	var words []word
	pairs := map[Merge]*pairCount{}
	for _, text := range slices.Sorted(maps.Keys(counts)) {
		w := word{count: counts[text]}
		for _, b := range []byte(text) {
			w.tokens = append(w.tokens, string([]byte{b}))
		}
		words = append(words, w)
		addPairs(pairs, words[len(words)-1], len(words)-1, 1)
	}
	queue := make(pairQueue, 0, len(pairs))
	for p, c := range pairs {
		queue = append(queue, queued{p, c.n})
	}
	heap.Init(&queue)

	var merges []Merge
	made := map[string]bool{}
	for len(made) < limit && len(queue) > 0 {
		top := heap.Pop(&queue).(queued)
		count := pairs[top.Merge]
		if count.n != top.n {
			continue // it was queued again when its count changed
		}
		if top.n < 2 {
			break
		}
		merges = append(merges, top.Merge)
		made[top.Left+top.Right] = true
		changed := map[Merge]bool{}
		for i := range count.words {
			w := &words[i]
			addPairs(pairs, *w, i, -1)
			for j := range len(w.tokens) - 1 {
				changed[Merge{w.tokens[j], w.tokens[j+1]}] = true
			}
			w.tokens = apply(top.Merge, w.tokens)
			addPairs(pairs, *w, i, 1)
			for j := range len(w.tokens) - 1 {
				changed[Merge{w.tokens[j], w.tokens[j+1]}] = true
			}
		}
		for p := range changed {
			if n := pairs[p].n; n > 0 {
				heap.Push(&queue, queued{p, n})
			}
		}
	}
	return merges
}

// apply merges the pair wherever it stands in tokens, from the left.
func apply(m Merge, tokens []string) []string {
	out := tokens[:0]
	for i := 0; i < len(tokens); i++ {
		if i+1 < len(tokens) && tokens[i] == m.Left && tokens[i+1] == m.Right {
			out = append(out, m.Left+m.Right)
			i++
			continue
		}
		out = append(out, tokens[i])
	}
	return out
}

// pairCount tells how often a pair occurs and in which words it may be found.
type pairCount struct {
	n     int
	words map[int]bool
}

// addPairs counts the pairs of a word in, or with sign -1 out again.
func addPairs(pairs map[Merge]*pairCount, w word, index, sign int) {
	for i := range len(w.tokens) - 1 {
		p := Merge{w.tokens[i], w.tokens[i+1]}
		c := pairs[p]
		if c == nil {
			c = &pairCount{words: map[int]bool{}}
			pairs[p] = c
		}
		c.n += sign * w.count
		if sign > 0 {
			c.words[index] = true
		} else {
			delete(c.words, index)
		}
	}
}

// pairQueue is a heap of pairs, the most frequent first.
type pairQueue []queued

type queued struct {
	Merge
	n int
}

func (q pairQueue) Len() int { return len(q) }
func (q pairQueue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[j].n, q[i].n), cmp.Compare(q[i].Left, q[j].Left), cmp.Compare(q[i].Right, q[j].Right)) < 0
}
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *pairQueue) Push(x any)   { *q = append(*q, x.(queued)) }
func (q *pairQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
