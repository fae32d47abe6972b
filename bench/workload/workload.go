// Package workload makes histories of a fleet's caches: which prompts were
// asked for, and which blocks each worker stored and evicted because of them,
// in the order in which a router would see it. The KV index is measured with
// them.
//
// The one idea: everything is decided before the clock runs. A [Corpus] is three
// flat arrays without pointers, which lie in a file that is mapped into memory
// and are handed to an index as they are; so neither making a history nor
// holding it shows in a figure, and other indexes can be run on the same file.
package workload

import (
	"errors"
	"fmt"

	"github.com/dynago/dynago/bench/data"
	"github.com/dynago/dynago/kv"
)

// Kind says what an [Op] is.
type Kind uint8

// The kinds of operations.
const (
	Query  Kind = iota // which worker holds how much of this prompt?
	Store              // a worker holds blocks now, from the root on
	Extend             // a worker holds blocks now, below one that it holds
	Remove             // a worker has evicted blocks
)

// Op is one operation. Its hashes are N elements of the corpus's Locals, of a
// query, or Blocks, of everything else, from First on.
type Op struct {
	Kind   Kind
	_      [3]uint8
	Worker uint32 // the worker that answers the query, or whose cache changes
	Time   uint32 // milliseconds since the start
	N      uint32
	First  uint64
	Parent kv.EngineHash // of Extend alone
}

// Corpus is a history. It is read only, and may be replayed by several
// goroutines.
type Corpus struct {
	Workers int
	Ops     []Op
	Locals  []kv.LocalHash
	Blocks  []kv.Block

	unmap func() error // of a corpus that lies in a file
}

// Prompt returns the local hashes that op, a query, asks for.
func (c *Corpus) Prompt(op Op) []kv.LocalHash {
	return c.Locals[op.First : op.First+uint64(op.N) : op.First+uint64(op.N)]
}

// Event returns what op, not a query, tells of its worker's cache. The event's
// blocks belong to the corpus.
func (c *Corpus) Event(op Op) kv.Event {
	e := kv.Event{Blocks: c.Blocks[op.First : op.First+uint64(op.N) : op.First+uint64(op.N)]}
	switch op.Kind {
	case Extend:
		e.Parent, e.HasParent = op.Parent, true
	case Remove:
		e.Kind = kv.Removed
	}
	return e
}

// Target is the target whose cache op changes.
func (op Op) Target() kv.Target { return kv.Target{Worker: uint64(op.Worker) + 1} }

// Counts are numbers of block operations: a hash of a query, a block stored and
// a block removed are one each.
type Counts struct{ Queried, Stored, Removed int }

// All returns the sum of them.
func (n Counts) All() int { return n.Queried + n.Stored + n.Removed }

// Held returns how many blocks are left.
func (n Counts) Held() int { return n.Stored - n.Removed }

func (n *Counts) add(op Op) {
	switch op.Kind {
	case Query:
		n.Queried += int(op.N)
	case Remove:
		n.Removed += int(op.N)
	default:
		n.Stored += int(op.N)
	}
}

// CountsOf counts the block operations of ops.
func CountsOf(ops []Op) Counts {
	var n Counts
	for _, op := range ops {
		n.add(op)
	}
	return n
}

// Tenths cuts the history into ten parts of as many block operations each.
func (c *Corpus) Tenths() [10][]Op {
	var parts [10][]Op
	all := CountsOf(c.Ops).All()
	var n Counts
	part, start := 0, 0
	for i, op := range c.Ops {
		if n.add(op); part < 9 && n.All() >= all*(part+1)/10 {
			parts[part] = c.Ops[start : i+1]
			part, start = part+1, i+1
		}
	}
	parts[9] = c.Ops[start:]
	return parts
}

// Capacity returns the most blocks that a worker ever held, which is the size of
// the caches in a history in which they filled up.
func (c *Corpus) Capacity() int {
	held := make([]Counts, c.Workers)
	most := 0
	for _, op := range c.Ops {
		n := &held[op.Worker]
		n.add(op)
		most = max(most, n.Held())
	}
	return most
}

// Steady returns the first of the tenths that began with the caches as full as
// they ever became, give or take a hundredth; 10 if there is none.
func (c *Corpus) Steady() int {
	tenths := c.Tenths()
	var n Counts
	most := 0
	for _, op := range c.Ops {
		n.add(op)
		most = max(most, n.Held())
	}
	n = Counts{}
	for i, ops := range tenths {
		if 100*n.Held() >= 99*most {
			return i
		}
		for _, op := range ops {
			n.add(op)
		}
	}
	return len(tenths)
}

// Keys says which keys engines give to their blocks.
type Keys int

// The kinds of keys.
const (
	// OwnKeys: each worker has keys of its own, as engines have that start
	// their hashes from a random number.
	OwnKeys Keys = iota
	// SequenceKeys: the key is the sequence hash of the block, the same on
	// every worker. Some indexes can do without the router's own hashes then.
	SequenceKeys
)

// names are the corpora that have a name.
var names = map[string]func(short bool, keys Keys) (*Corpus, error){
	"C44": func(short bool, keys Keys) (*Corpus, error) { return conversation(4, 128, short, keys) },
	"B1":  func(short bool, keys Keys) (*Corpus, error) { return conversation(20, 128, short, keys) },
	"EN":  func(short bool, keys Keys) (*Corpus, error) { return conversation(2, 8, short, keys) },
	"AG": func(short bool, keys Keys) (*Corpus, error) {
		a := Agents{Sessions: 4000, Turns: 20, Workers: 128, Keys: keys}
		if short {
			a.Sessions = 400
		}
		return a.Corpus(), nil
	},
}

// Named returns one of the corpora that figures are taken with, made anew:
//
//   - C44: the conversation trace, 4 times as long and 4 times over, on 128
//     workers of 16,384 blocks; two turnovers of their caches
//   - B1: the same 20 times over; ten turnovers
//   - EN: the same twice over on 8 workers, for their engines to tell of; sixteen
//     turnovers
//   - AG: agents whose conversations grow turn by turn; nothing is evicted
//
// The short form has an eighth of the trace and of the caches, or a tenth of the
// agents.
func Named(name string, short bool, keys Keys) (*Corpus, error) {
	make := names[name]
	if make == nil {
		return nil, fmt.Errorf("corpus %q: want AG, B1, C44 or EN", name)
	}
	return make(short, keys)
}

func conversation(duplication, workers int, short bool, keys Keys) (*Corpus, error) {
	replay := Replay{Requests: data.Conversation(), Factor: 4, Duplication: duplication, Workers: workers, Capacity: 16384, Keys: keys}
	if short {
		replay.Requests = replay.Requests[:len(replay.Requests)/8]
		replay.Capacity /= 8
	}
	return replay.Corpus()
}

// Replay describes a history that a trace of requests leaves behind.
type Replay struct {
	Requests []data.Request
	// Factor is how many blocks stand for each block of the trace.
	Factor int
	// Duplication is how often each request is made, each time with content of
	// its own.
	Duplication int
	// Workers is the number of workers, among which requests are dealt at
	// random, and Capacity the number of blocks that each one's cache has.
	Workers, Capacity int
	Keys              Keys
}

// seed is that of every random choice.
const seed = 42

// Corpus replays the requests. Each is a query, then the eviction of what must
// make room, then the store of what its worker lacks.
func (r Replay) Corpus() (*Corpus, error) {
	if r.Factor < 1 || r.Duplication < 1 || r.Workers < 1 || len(r.Requests) == 0 {
		return nil, errors.New("replay: want requests, and a factor, a duplication and workers of at least 1")
	}
	var last uint32
	longest, all := 0, 0
	for _, request := range r.Requests {
		for _, id := range request.HashIDs {
			last = max(last, id)
		}
		longest = max(longest, len(request.HashIDs)*r.Factor)
		all += len(request.HashIDs) * r.Factor * r.Duplication
	}
	if longest > r.Capacity {
		return nil, fmt.Errorf("replay: a request of %d blocks does not fit into caches of %d", longest, r.Capacity)
	}
	copyIDs := uint64(last+1) * uint64(r.Factor)
	if copyIDs*uint64(r.Duplication) > 1<<32 {
		return nil, fmt.Errorf("replay: %d times %d distinct blocks are more than 2^32", r.Duplication, copyIDs)
	}

	recorder := newRecorder(r.Workers, int(copyIDs)*r.Duplication, r.Keys)
	// At most every block asked for is stored, and removed again.
	recorder.corpus.Ops = make([]Op, 0, 3*len(r.Requests)*r.Duplication)
	recorder.corpus.Locals = make([]kv.LocalHash, 0, all)
	recorder.corpus.Blocks = make([]kv.Block, 0, 2*all)
	caches := make([]*cache, r.Workers)
	for i := range caches {
		caches[i] = newCache(r.Capacity)
	}
	deal := newRand()
	chain := make([]uint32, 0, longest)
	var evicted []uint32
	for _, request := range r.Requests {
		for copied := range r.Duplication {
			chain = chain[:0]
			for _, id := range request.HashIDs {
				for part := range r.Factor {
					chain = append(chain, uint32(copied)*uint32(copyIDs)+id*uint32(r.Factor)+uint32(part))
				}
			}
			worker := deal.IntN(r.Workers)
			now := uint32(request.Timestamp)
			recorder.name(chain)
			recorder.query(now, worker, chain)
			hit := caches[worker].hit(chain)
			evicted = caches[worker].admit(chain, hit, evicted[:0])
			recorder.remove(now, worker, evicted)
			recorder.store(now, worker, chain, hit)
		}
	}
	return &recorder.corpus, nil
}

// recorder writes a corpus. Blocks are told by small ids, each of which stands
// for a block with all before it.
type recorder struct {
	corpus Corpus
	keys   Keys
	known  []name // by id
}

// name is what a block is called by.
type name struct {
	local kv.LocalHash
	seq   kv.SeqHash
}

func newRecorder(workers, ids int, keys Keys) *recorder {
	return &recorder{corpus: Corpus{Workers: workers}, keys: keys, known: make([]name, ids)}
}

// blockSize is the number of tokens of a block, all of which are its id.
const blockSize = 128

// name computes the hashes of those blocks of chain that are new. chain begins
// at the root.
func (r *recorder) name(chain []uint32) {
	for i, id := range chain {
		if r.known[id] != (name{}) {
			continue
		}
		var tokens [blockSize]uint32
		for j := range tokens {
			tokens[j] = id
		}
		local := kv.HashBlock(tokens[:], kv.HashSeed)
		seq := kv.SeqHash(local)
		if i > 0 {
			seq = r.known[chain[i-1]].seq.Next(local)
		}
		r.known[id] = name{local, seq}
	}
}

func (r *recorder) key(worker int, id uint32) kv.EngineHash {
	seq := uint64(r.known[id].seq)
	if r.keys == SequenceKeys {
		return kv.EngineHash(seq)
	}
	return kv.EngineHash(mix(seq ^ mix(uint64(worker)+1)))
}

// mix is the finalizer of splitmix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

func (r *recorder) query(now uint32, worker int, chain []uint32) {
	c := &r.corpus
	c.Ops = append(c.Ops, Op{Kind: Query, Worker: uint32(worker), Time: now, N: uint32(len(chain)), First: uint64(len(c.Locals))})
	for _, id := range chain {
		c.Locals = append(c.Locals, r.known[id].local)
	}
}

// store records that a worker stored what stands in chain from the block at from
// on.
func (r *recorder) store(now uint32, worker int, chain []uint32, from int) {
	if from == len(chain) {
		return
	}
	op := Op{Kind: Store, Worker: uint32(worker), Time: now}
	if from > 0 {
		op.Kind, op.Parent = Extend, r.key(worker, chain[from-1])
	}
	r.event(op, chain[from:])
}

func (r *recorder) remove(now uint32, worker int, ids []uint32) {
	if len(ids) > 0 {
		r.event(Op{Kind: Remove, Worker: uint32(worker), Time: now}, ids)
	}
}

func (r *recorder) event(op Op, ids []uint32) {
	c := &r.corpus
	op.N, op.First = uint32(len(ids)), uint64(len(c.Blocks))
	c.Ops = append(c.Ops, op)
	for _, id := range ids {
		c.Blocks = append(c.Blocks, kv.Block{Engine: r.key(int(op.Worker), id), Local: r.known[id].local})
	}
}
