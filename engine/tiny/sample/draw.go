package sample

import (
	"math"
	"slices"
)

// candidate is a token that may be drawn, with its logit over temperature, less that
// of the likeliest, and its weight against that of the likeliest.
type candidate struct {
	id     uint32
	logit  float64
	weight float64
}

// draw picks by weight, with u in [0, 1), from what the filters leave.
func (s *Sampler) draw(high, u float64) uint32 {
	least := math.Inf(-1)
	if s.params.MinP > 0 {
		least = math.Log(s.params.MinP)
	}
	s.heap = s.heap[:0]
	for id, l := range s.logits {
		if math.IsInf(l, -1) {
			continue
		}
		if l = (l - high) / s.params.Temperature; l >= least {
			s.heap = append(s.heap, candidate{id: uint32(id), logit: l})
		}
	}
	return pick(s.filter(), u)
}

// filter keeps the top-k, and of these the top-p. Without them the candidates
// stay as they are, in the order of ids; with them they come in falling order,
// equal ones by id.
func (s *Sampler) filter() []candidate {
	k, p := s.params.TopK, s.params.TopP
	list := s.heap
	if k > 0 && k < len(list) {
		list = best(list, func(n int, _ float64) bool { return n < k })
	}
	total := weigh(list)
	if p < 1 {
		list = best(list, func(_ int, above float64) bool { return above < p*total })
	}
	return list
}

// weigh sets the weights, and returns their sum.
func weigh(list []candidate) float64 {
	total := 0.0
	for i := range list {
		list[i].weight = math.Exp(list[i].logit)
		total += list[i].weight
	}
	return total
}

// best returns the likeliest candidates in falling order, as long as more of them are
// wanted behind so many with such a sum of weights.
func best(list []candidate, more func(n int, above float64) bool) []candidate {
	// The likeliest goes to the end of the slice, and what is left is a heap again.
	left := list
	for i := len(left)/2 - 1; i >= 0; i-- {
		sink(left, i)
	}
	above := 0.0
	for len(left) > 0 && more(len(list)-len(left), above) {
		last := len(left) - 1
		left[0], left[last] = left[last], left[0]
		above += left[last].weight
		left = left[:last]
		sink(left, 0)
	}
	list = list[len(left):]
	slices.Reverse(list)
	return list
}

// pick returns the candidate at which the running sum of weights passes the share
// u of all.
func pick(list []candidate, u float64) uint32 {
	total := 0.0
	for _, c := range list {
		total += c.weight
	}
	at, last := u*total, list[0].id
	for _, c := range list {
		if c.weight == 0 {
			continue
		}
		if last = c.id; at < c.weight {
			break
		}
		at -= c.weight
	}
	return last
}

// sink restores a heap with the likeliest candidate on top below place i.
func sink(h []candidate, i int) {
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && h[child+1].before(h[child]) {
			child++
		}
		if !h[child].before(h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

func (c candidate) before(d candidate) bool { return precedes(c.logit, c.id, d.logit, d.id) }

// uniform returns a number in [0, 1) for a seed and a position: SplitMix64 (Steele,
// Lea and Flood, 2014), whose stream is chosen by the mixed seed.
func uniform(seed uint64, position int) float64 {
	const golden = 0x9e3779b97f4a7c15
	return float64(mix(mix(seed+golden)+golden*uint64(position+1))>>11) / (1 << 53)
}

func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
