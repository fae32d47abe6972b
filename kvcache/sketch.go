package kvcache

import "github.com/dynago/dynago/kv"

// sketch estimates how often a block was stored and hit: TinyLFU's count-min
// sketch of four-bit counters, sixteen to a word, which are halved now and then
// so that old fame fades.
//
// See Einziger, Friedman, Manes: TinyLFU, ACM Transactions on Storage 13 (2017).
type sketch struct {
	words  []uint64
	added  int
	period int
}

// Estimates from which on a block is warm, hot and very hot.
var levels = [...]uint64{3, 8, 15}

func newSketch(capacity int) *sketch {
	return &sketch{words: make([]uint64, max(1, capacity/4)), period: 10 * max(1, capacity)}
}

// counter returns the word and the shift of one of a hash's four counters.
func (s *sketch) counter(h kv.SeqHash, row uint64) (word int, shift uint64) {
	x := (uint64(h) + row + 1) * 0x9e3779b97f4a7c15
	x ^= x >> 32
	x *= 0xd6e8feb86659fd93
	x ^= x >> 32
	return int((x >> 8) % uint64(len(s.words))), (row*4 + x&3) * 4
}

func (s *sketch) add(h kv.SeqHash) {
	for row := range uint64(4) {
		word, shift := s.counter(h, row)
		if s.words[word]>>shift&15 < 15 {
			s.words[word] += 1 << shift
		}
	}
	if s.added++; s.added == s.period {
		s.added = 0
		for i := range s.words {
			s.words[i] = s.words[i] >> 1 & 0x7777777777777777
		}
	}
}

func (s *sketch) estimate(h kv.SeqHash) uint64 {
	least := uint64(15)
	for row := range uint64(4) {
		word, shift := s.counter(h, row)
		least = min(least, s.words[word]>>shift&15)
	}
	return least
}

// level returns 0 for a cold block to 3 for a very hot one.
func (s *sketch) level(h kv.SeqHash) (level uint8) {
	for n := s.estimate(h); int(level) < len(levels) && n >= levels[level]; {
		level++
	}
	return level
}
