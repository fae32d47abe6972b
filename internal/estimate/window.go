package estimate

import "slices"

// size is how many numbers of a key are kept.
const size = 64

// window is the latest numbers of a key.
type window struct {
	n    int // that have been added
	kept [size]uint32
	// As they are now, if sorted is n.
	sorted int
	at     [quantiles]uint32
}

func (w *window) add(n uint32) {
	w.kept[w.n%size] = n
	w.n++
}

// len returns how many numbers are kept.
func (w *window) len() int { return min(w.n, size) }

// quantiles returns those of the numbers: the least of them that so great a share of them
// is not above. There must be one.
func (w *window) quantiles() [quantiles]uint32 {
	if w.sorted != w.n {
		in := w.kept
		of := in[:w.len()]
		slices.Sort(of)
		for i, share := range shares {
			w.at[i] = of[rank(share, len(of))]
		}
		w.sorted = w.n
	}
	return w.at
}

// rank returns which of n sorted numbers is a quantile of them.
func rank(q float64, n int) int {
	at := int(q * float64(n))
	if float64(at) == q*float64(n) {
		at--
	}
	return max(at, 0)
}
