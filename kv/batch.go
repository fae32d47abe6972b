package kv

// BatchEvents and BatchBlocks are the most that sources put into one batch. An
// event that has more blocks by itself goes alone, since its number cannot be
// shared.
const (
	BatchEvents = 128
	BatchBlocks = 8192
)

// Cut divides events, in their order, so that each part is within the limits of
// a batch. The parts share the memory of events.
func Cut(events []Event) [][]Event {
	var parts [][]Event
	for len(events) > 0 {
		n, blocks := 0, 0
		for n < len(events) && n < BatchEvents {
			if blocks += len(events[n].Blocks); blocks > BatchBlocks && n > 0 {
				break
			}
			n++
		}
		parts = append(parts, events[:n:n])
		events = events[n:]
	}
	return parts
}
