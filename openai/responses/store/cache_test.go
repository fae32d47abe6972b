package store

import (
	"fmt"
	"testing"
)

func TestCacheIsBounded(t *testing.T) {
	c := &cache{limit: 8000}
	var nodes []*node
	for i := range 100 {
		n := &node{name: name{"", fmt.Sprint(i)}}
		nodes = append(nodes, n)
		c.add(n, &Record{Events: make([]byte, 900)})
		c.add(n, &Record{Events: make([]byte, 900)}) // again counts once
	}
	kept := 0
	for i, n := range nodes {
		if n.record != nil {
			kept++
			if i < 92 {
				t.Errorf("%d is kept, and came before those that are not", i)
			}
		}
	}
	if kept != 8 || c.bytes != 7200 || len(c.nodes) != 8 {
		t.Fatalf("%d records, %d bytes, %d nodes", kept, c.bytes, len(c.nodes))
	}
	huge, unfinished := &node{}, &node{unfinished: true}
	c.add(huge, &Record{Events: make([]byte, 1001)})
	c.add(unfinished, &Record{Events: make([]byte, 1)})
	if huge.record != nil || unfinished.record != nil {
		t.Fatal("what is too large, or not finished, is kept")
	}
}
