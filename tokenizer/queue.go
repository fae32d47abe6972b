package tokenizer

import "slices"

// pairQueue holds places in a word by the rank of the pair that begins there,
// lowest first, then leftmost. The places of one rank nearly always come before
// the first of them goes, so that each rank has a list and only the ranks are in
// a heap: a run of one character, however long, has few ranks and costs no more
// than its length. A place that comes too late for its list goes to a heap of
// single places, and so do all of a word that is short enough to be quicker
// without lists. Thus n places take n log n at most.
type pairQueue struct {
	buckets []bucket
	byRank  map[uint32]int32
	recent  [64]recentBucket // a part of byRank, by rank
	ranks   minHeap          // rank<<32 | index of a bucket that is not empty
	late    minHeap          // rank<<32 | place
	short   bool             // use late alone
}

// shortQueue is the length of a word from which lists are quicker.
const shortQueue = 192

type bucket struct {
	places []int32
	next   int  // of places, to go
	mixed  bool // places are not in order yet
	queued bool // in ranks
}

type recentBucket struct {
	rank  uint32
	index int32 // plus one; 0 is none
}

// reset empties the queue for a word of n symbols.
func (q *pairQueue) reset(n int) {
	q.ranks, q.late = q.ranks[:0], q.late[:0]
	if q.short = n < shortQueue; q.short {
		return
	}
	if q.byRank == nil {
		q.byRank = map[uint32]int32{}
	}
	clear(q.byRank)
	clear(q.recent[:])
	q.buckets = q.buckets[:0]
}

// bucket returns the bucket of a rank and its index.
func (q *pairQueue) bucket(rank uint32) (*bucket, int32) {
	recent := &q.recent[rank%uint32(len(q.recent))]
	if recent.index > 0 && recent.rank == rank {
		return &q.buckets[recent.index-1], recent.index - 1
	}
	index, ok := q.byRank[rank]
	if !ok {
		index = int32(len(q.buckets))
		q.byRank[rank] = index
		if len(q.buckets) < cap(q.buckets) {
			q.buckets = q.buckets[:index+1]
			q.buckets[index] = bucket{places: q.buckets[index].places[:0]}
		} else {
			q.buckets = append(q.buckets, bucket{})
		}
	}
	*recent = recentBucket{rank, index + 1}
	return &q.buckets[index], index
}

func (q *pairQueue) push(rank uint32, place int32) {
	if q.short {
		q.late.push(uint64(rank)<<32 | uint64(place))
		return
	}
	b, index := q.bucket(rank)
	if n := len(b.places); n > 0 && place < b.places[n-1] {
		if b.next > 0 {
			q.late.push(uint64(rank)<<32 | uint64(place))
			return
		}
		b.mixed = true
	}
	b.places = append(b.places, place)
	if !b.queued {
		b.queued = true
		q.ranks.push(uint64(rank)<<32 | uint64(index))
	}
}

// pop takes the first place of the lowest rank.
func (q *pairQueue) pop() (rank uint32, place int32, ok bool) {
	if len(q.ranks) == 0 {
		if len(q.late) == 0 {
			return 0, 0, false
		}
		late := q.late.pop()
		return uint32(late >> 32), int32(uint32(late)), true
	}
	rank = uint32(q.ranks[0] >> 32)
	b := &q.buckets[uint32(q.ranks[0])]
	if b.mixed {
		slices.Sort(b.places)
		b.mixed = false
	}
	place = b.places[b.next]
	if len(q.late) > 0 && q.late[0] < uint64(rank)<<32|uint64(place) {
		late := q.late.pop()
		return uint32(late >> 32), int32(uint32(late)), true
	}
	b.next++
	if b.next == len(b.places) {
		b.queued = false
		q.ranks.pop()
	}
	return rank, place, true
}

// minHeap is a binary heap.
type minHeap []uint64

func (h *minHeap) push(v uint64) {
	*h = append(*h, v)
	a := *h
	for i := len(a) - 1; i > 0; {
		parent := (i - 1) / 2
		if a[i] >= a[parent] {
			return
		}
		a[i], a[parent] = a[parent], a[i]
		i = parent
	}
}

func (h *minHeap) pop() uint64 {
	a := *h
	top, last := a[0], len(a)-1
	a[0] = a[last]
	a = a[:last]
	*h = a
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < len(a) && a[child+1] < a[child] {
			child++
		}
		if child >= len(a) || a[child] >= a[i] {
			return top
		}
		a[i], a[child] = a[child], a[i]
		i = child
	}
}
