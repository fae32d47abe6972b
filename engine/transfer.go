package engine

import (
	"slices"
	"strings"
)

// Transfer says how KV blocks get from a prefill worker to a decode worker. The
// zero value is a worker that hands nothing over.
type Transfer struct {
	Style string // nixl, mooncake, bootstrap, context, pull; "": none
	// Host and Port are where decode workers meet this prefill worker, if both
	// legs run at once; Port 0: they run one after the other.
	Host string
	Port uint16
	// SmallRooms says that the numbers of rooms in which legs meet must be below
	// 2^31-1 on the way to this worker.
	SmallRooms bool
	// Layout is a fingerprint of how the bytes of a block lie; pull needs equal
	// ones.
	Layout string

	// Domain names the member of [Card.Topology] in which both workers had better
	// agree, such as "rack"; "": none. Enforcement says how firmly, and
	// PreferredWeight, 0..1, how much a preference is worth.
	Domain          string
	Enforcement     Enforcement
	PreferredWeight *float64
}

// Enforcement says how firmly a decode worker is held to the domain of its
// prefill worker.
type Enforcement string

// Enforcements.
const (
	TransferRequired  Enforcement = "required"
	TransferPreferred Enforcement = "preferred"
)

const topologyTaint = "dynamo.topology/"

// TopologyTaint returns the taint that workers have whose [Card.Topology] says
// value for a domain.
func TopologyTaint(domain, value string) string { return topologyTaint + domain + "=" + value }

// HasTaint says whether the worker has a taint, by its own list or by where it
// stands.
func (c *Card) HasTaint(taint string) bool {
	if slices.Contains(c.Taints, taint) {
		return true
	}
	place, ok := strings.CutPrefix(taint, topologyTaint)
	if !ok {
		return false
	}
	domain, value, ok := strings.Cut(place, "=")
	if !ok {
		return false
	}
	have, ok := c.Topology[domain]
	return ok && have == value
}
