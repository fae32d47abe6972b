package mock

// Moments sums up a set of numbers exactly, so that members can come and go.
type Moments struct{ N, Sum, squares uint64 }

func (m *Moments) add(x int) {
	m.N++
	m.Sum += uint64(x)
	m.squares += uint64(x) * uint64(x)
}

func (m *Moments) remove(x int) {
	m.N--
	m.Sum -= uint64(x)
	m.squares -= uint64(x) * uint64(x)
}

// Variance returns the population variance; that of the empty set is 0.
func (m Moments) Variance() float64 {
	if m.N == 0 {
		return 0
	}
	mean := float64(m.Sum) / float64(m.N)
	return max(0, float64(m.squares)/float64(m.N)-mean*mean)
}

// Snapshot tells what one pass did and what it left waiting, as engines report
// their forward passes.
type Snapshot struct {
	Prefills      Moments // prompt lengths of the requests that computed some of it
	PrefillTokens int     // prompt tokens computed
	PrefillKV     int     // prompt tokens those requests had before
	Decodes       Moments // lengths of the requests that computed none
	QueuedPrefill Moments // prompt lengths of those that wait to begin
	QueuedDecode  Moments // lengths of those that were preempted
}
