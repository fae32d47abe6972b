package main

import (
	"cmp"
	"container/heap"
	"fmt"
	"maps"
	"slices"

	"github.com/dlclark/regexp2"
)

// splitPattern cuts text into words; it is the one of Qwen2, which many models
// use.
const splitPattern = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`

// countWords returns how often each word occurs in text.
func countWords(text string) (map[string]int, error) {
	re := regexp2.MustCompile(splitPattern, regexp2.None)
	words := map[string]int{}
	m, err := re.FindStringMatch(text)
	for ; m != nil && err == nil; m, err = re.FindNextMatch(m) {
		words[m.String()]++
	}
	if err != nil {
		return nil, fmt.Errorf("split the corpus: %w", err)
	}
	return words, nil
}

// merge is a pair of tokens that becomes one.
type merge struct{ left, right string }

// word is a word of the corpus as the tokens it consists of so far.
type word struct {
	tokens []string
	count  int
}

// learn returns the merges of byte-pair encoding that make the first limit tokens:
// again and again the pair of neighbours that occurs most often becomes one. Two
// merges can make the same token. Pairs that occur once are not worth one. Among equals the first in byte order wins, so that the
// result depends on the counts alone.
func learn(counts map[string]int, limit int) []merge {
	var words []word
	pairs := map[merge]*pairCount{}
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

	var merges []merge
	made := map[string]bool{}
	for len(made) < limit && len(queue) > 0 {
		top := heap.Pop(&queue).(queued)
		count := pairs[top.merge]
		if count.n != top.n {
			continue // it was queued again when its count changed
		}
		if top.n < 2 {
			break
		}
		merges = append(merges, top.merge)
		made[top.left+top.right] = true
		changed := map[merge]bool{}
		for i := range count.words {
			w := &words[i]
			addPairs(pairs, *w, i, -1)
			for j := range len(w.tokens) - 1 {
				changed[merge{w.tokens[j], w.tokens[j+1]}] = true
			}
			w.tokens = apply(top.merge, w.tokens)
			addPairs(pairs, *w, i, 1)
			for j := range len(w.tokens) - 1 {
				changed[merge{w.tokens[j], w.tokens[j+1]}] = true
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
func apply(m merge, tokens []string) []string {
	out := tokens[:0]
	for i := 0; i < len(tokens); i++ {
		if i+1 < len(tokens) && tokens[i] == m.left && tokens[i+1] == m.right {
			out = append(out, m.left+m.right)
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
func addPairs(pairs map[merge]*pairCount, w word, index, sign int) {
	for i := range len(w.tokens) - 1 {
		p := merge{w.tokens[i], w.tokens[i+1]}
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
	merge
	n int
}

func (q pairQueue) Len() int { return len(q) }
func (q pairQueue) Less(i, j int) bool {
	return cmp.Or(cmp.Compare(q[j].n, q[i].n), cmp.Compare(q[i].left, q[j].left), cmp.Compare(q[i].right, q[j].right)) < 0
}
func (q pairQueue) Swap(i, j int) { q[i], q[j] = q[j], q[i] }
func (q *pairQueue) Push(x any)   { *q = append(*q, x.(queued)) }
func (q *pairQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
