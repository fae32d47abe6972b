package estimate

import "slices"

// size is how many numbers of a key are kept.
const size = 64

// window is the latest numbers of a key.
type window struct {
	n    int // that have been added
	kept [size]uint32
	// As they are now, if sorted is n.
	sorted        int
	median, upper uint32
}

func (w *window) add(n uint32) {
	w.kept[w.n%size] = n
	w.n++
}

// len returns how many numbers are kept.
func (w *window) len() int { return min(w.n, size) }

// quantiles returns the median and the high quantile of the numbers: the least of them
// that so great a share of them is not above. There must be one.
func (w *window) quantiles() (median, upper uint32) {
	if w.sorted != w.n {
		in := w.kept
		of := in[:w.len()]
		slices.Sort(of)
		w.median, w.upper, w.sorted = of[rank(0.5, len(of))], of[rank(high, len(of))], w.n
	}
	return w.median, w.upper
}

// rank returns which of n sorted numbers is a quantile of them.
func rank(q float64, n int) int {
	at := int(q * float64(n))
	if float64(at) == q*float64(n) {
		at--
	}
	return max(at, 0)
}
