// Package estimate learns what to expect of requests from those that have ended: how
// many tokens an answer will have, how long a tool will take. It knows neither, only
// numbers by what is known of a request beforehand.
//
// The one idea: what is expected of a request is what the latest ones like it came to,
// drawn towards what those came to that are less like it, the more the fewer there were.
// A [Key] goes from the wide to the narrow, and each of its levels keeps a window of its
// latest numbers: of any so many numbers the median is right whatever a few of them are,
// and what is past is forgotten.
//
//	model ── agent ── tool ── trigger
//	 64       64       64      64       latest numbers of each
package estimate

import (
	"container/list"
	"hash/maphash"
	"math"
)

// Key is what is known of a request beforehand, from the widest to the narrowest. Its
// texts may be anything, and of any length: they are not kept.
type Key struct {
	// Owner is who gives the names below. Who invents many of them makes himself
	// forgotten, and others only where they have more. Owners share nothing; their names
	// are kept, so that it must not be clients who invent them.
	Owner   string
	Model   string
	Agent   string // what kind it is
	Tool    string // that it has called last
	Trigger string // what its newest turn brings
}

// levels is how many keys a key stands for.
const levels = 4

const (
	// DefaultKeys is how many keys a book keeps by default, of some 450 bytes each.
	DefaultKeys = 4096
	// LeastKeys is how many it keeps at least.
	LeastKeys = levels
	// enough is how many numbers of a model there have to be before anything is
	// expected.
	enough = 8
	// prior is how many numbers of a key count as much as all that is known of those
	// less like it.
	prior = 4
	// quantiles is how many there are of an estimate.
	quantiles = 3
)

// shares are those of the numbers that are not above Low, Median and High.
var shares = [quantiles]float64{0.1, 0.5, 0.9}

// Book keeps numbers by their keys. It is not safe for concurrent use.
type Book struct {
	most   int
	seed   maphash.Seed
	cells  map[uint64]*list.Element // of *cell, by the hash of owner and names
	owners map[string]*list.List    // the same, that of the latest number first
}

// cell is one level of a key.
type cell struct {
	name  uint64
	owner string
	window
}

// New makes a book of at most so many keys, each level of a key counted; less than
// [LeastKeys] means that.
func New(most int) *Book {
	return &Book{
		most: max(most, LeastKeys), seed: maphash.MakeSeed(),
		cells: map[uint64]*list.Element{}, owners: map[string]*list.List{},
	}
}

// Len returns how many keys are kept, each level of a key counted.
func (b *Book) Len() int { return len(b.cells) }

// level is one of the keys that a key stands for.
type level struct {
	depth int
	Key
}

// names returns the names of the levels of a key.
func (b *Book) names(k Key) (names [levels]uint64) {
	l := level{0, Key{Owner: k.Owner, Model: k.Model}}
	for ; l.depth < levels; l.depth++ {
		switch l.depth {
		case 1:
			l.Agent = k.Agent
		case 2:
			l.Tool = k.Tool
		case 3:
			l.Trigger = k.Trigger
		}
		names[l.depth] = maphash.Comparable(b.seed, l)
	}
	return names
}

// Observe notes what a request of a key came to.
func (b *Book) Observe(k Key, n uint32) {
	names := b.names(k)
	// From the narrowest on, so that a level stays longer than those below it.
	for i := levels - 1; i >= 0; i-- {
		b.cell(names[i], k.Owner).add(n)
	}
}

// cell returns the cell of a name, as the latest of its owner.
func (b *Book) cell(name uint64, owner string) *cell {
	if e := b.cells[name]; e != nil {
		c := e.Value.(*cell)
		b.owners[c.owner].MoveToFront(e)
		return c
	}
	if len(b.cells) >= b.most {
		b.forget()
	}
	l := b.owners[owner]
	if l == nil {
		l = list.New()
		b.owners[owner] = l
	}
	c := &cell{name: name, owner: owner}
	b.cells[name] = l.PushFront(c)
	return c
}

// forget drops the eldest cell of the owner who has most.
func (b *Book) forget() {
	var owner string
	var of *list.List
	for name, l := range b.owners {
		if of == nil || l.Len() > of.Len() || l.Len() == of.Len() && name < owner {
			owner, of = name, l
		}
	}
	c := of.Remove(of.Back()).(*cell)
	if delete(b.cells, c.name); of.Len() == 0 {
		delete(b.owners, owner)
	}
}

// Estimate is what a request is expected to come to.
type Estimate struct {
	Low    uint32 // one in ten comes to less
	Median uint32 // as many come to more as come to less
	High   uint32 // one in ten comes to more
	// Confidence is the share of it that comes from the very key, 0 to less than 1; the
	// rest comes from wider ones.
	Confidence float64
}

// Of returns what to expect of a request of a key. It is false as long as there is too
// little of its model to say.
func (b *Book) Of(k Key) (Estimate, bool) {
	var e Estimate
	var log [quantiles]float64
	for i, name := range b.names(k) {
		found := b.cells[name]
		if i == 0 && (found == nil || found.Value.(*cell).len() < enough) {
			return e, false
		}
		e.Confidence = 0
		if found == nil {
			continue
		}
		c := found.Value.(*cell)
		own := float64(c.len()) / float64(c.len()+prior)
		if e.Confidence = own; i == 0 {
			own = 1
		}
		// Numbers are added as their logarithms: twice as much is as far from it as half
		// as much.
		for i, n := range c.quantiles() {
			log[i] += own * (math.Log1p(float64(n)) - log[i])
		}
	}
	e.Low, e.Median, e.High = number(log[0]), number(log[1]), number(log[2])
	return e, true
}

// number undoes the logarithm.
func number(log float64) uint32 {
	return uint32(min(math.Round(math.Expm1(log)), math.MaxUint32))
}
