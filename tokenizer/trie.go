package tokenizer

import (
	"bytes"
	"slices"
	"strings"
)

// pieceTrie finds all tokens that a text begins with, byte by byte. Its nodes
// are numbered level by level, so that the children of one are neighbours and a
// node takes nine bytes.
type pieceTrie struct {
	labels []byte   // by node: the byte that leads to it
	first  []uint32 // by node: its first child; the last is before that of the next node
	ids    []uint32 // by node: the token that ends there, or none
}

// trieToken is a token while a trie is built.
type trieToken struct {
	text string
	id   uint32
}

// newPieceTrie makes a trie of tokens, of which the first counts if a text comes
// again.
func newPieceTrie(tokens []trieToken) *pieceTrie {
	slices.SortStableFunc(tokens, func(a, b trieToken) int { return strings.Compare(a.text, b.text) })
	type node struct{ low, high, depth int } // tokens that share their first depth bytes
	t := &pieceTrie{labels: []byte{0}}
	for nodes := []node{{0, len(tokens), 0}}; len(t.first) < len(t.labels); {
		n := nodes[len(t.first)]
		id := none
		for n.low < n.high && len(tokens[n.low].text) == n.depth {
			if id == none {
				id = tokens[n.low].id
			}
			n.low++
		}
		t.ids = append(t.ids, id)
		t.first = append(t.first, uint32(len(t.labels)))
		for low := n.low; low < n.high; {
			b := tokens[low].text[n.depth]
			high := low + 1
			for high < n.high && tokens[high].text[n.depth] == b {
				high++
			}
			t.labels = append(t.labels, b)
			nodes = append(nodes, node{low, high, n.depth + 1})
			low = high
		}
	}
	t.first = append(t.first, uint32(len(t.labels)))
	return t
}

// child returns the node that b leads to, or 0.
func (t *pieceTrie) child(node uint32, b byte) uint32 {
	first := t.first[node]
	at := bytes.IndexByte(t.labels[first:t.first[node+1]], b)
	if at < 0 {
		return 0
	}
	return first + uint32(at)
}

// within tells whether a token is part of text.
func (t *pieceTrie) within(text string) bool {
	for start := range len(text) {
		node := uint32(0)
		for i := start; i < len(text); i++ {
			if node = t.child(node, text[i]); node == 0 {
				break
			}
			if t.ids[node] != none {
				return true
			}
		}
	}
	return false
}
