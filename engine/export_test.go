package engine

import (
	"strconv"

	"github.com/dynago/dynago/span"
)

// Gaps shows tests what is kept of the times between items.
type Gaps struct{ gaps gaps }

// NewGaps returns an empty one.
func NewGaps() *Gaps { return &Gaps{} }

// Add adds a gap.
func (g *Gaps) Add(ms float64) { g.gaps.add(float32(ms)) }

// Told returns how many are kept, and what a span says of them.
func (g *Gaps) Told() (kept int, p50, p99, most float64) {
	var s span.Span
	g.gaps.tell(&s)
	for _, a := range s.Attrs {
		n, _ := strconv.ParseFloat(a.Value.(string), 64)
		switch a.Key {
		case "itl_p50_ms":
			p50 = n
		case "itl_p99_ms":
			p99 = n
		case "itl_max_ms":
			most = n
		}
	}
	return len(g.gaps.kept), p50, p99, most
}
