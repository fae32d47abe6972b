package kvevent

// ReplayOutcome says how a replay ended.
type ReplayOutcome uint8

// The outcomes of a replay.
const (
	ReplayComplete      ReplayOutcome = iota // all that was asked for came
	ReplayEmpty                              // nothing came, though there was something
	ReplayStartedLate                        // the engine no longer keeps its beginning
	ReplayNonContiguous                      // messages in the midst of it are missing
	ReplayEndedEarly                         // it ended before a message that was live before
	ReplayFailed                             // it broke off or was not answered, time and again

	replayOutcomes
)

var replayOutcomeNames = [replayOutcomes]string{
	"complete", "empty", "started_after_requested", "non_contiguous", "ended_before_target", "failed",
}

// String returns the label of the outcome.
func (r ReplayOutcome) String() string { return replayOutcomeNames[r] }

// OrderStats counts what an [Order] has seen. It is plain data.
type OrderStats struct {
	Live       uint64 // messages that came as they were published
	Replayed   uint64 // messages that came again
	Duplicates uint64 // live messages that had been applied already
	Malformed  uint64 // messages that could not be read
	Gaps       uint64 // live messages before which others were missing
	Missed     uint64 // messages that were missing for good, since it listened
	Spilled    uint64 // live messages for which there was no room during a replay
	Restarts   uint64 // lives of the engine that were seen to begin
	Mixed      uint64 // replays that were of another life than the live messages
	Cleared    uint64 // times that the receiver had to forget the rank
	Voided     uint64 // of those, the times that a replay did not come soon enough
	// Replays counts them by outcome.
	Replays [replayOutcomes]uint64
	// Partial says that the engine may hold more than was told.
	Partial bool
}

// Add adds the counters of another order; the sum is partial if one of them is.
func (s *OrderStats) Add(o OrderStats) {
	s.Live += o.Live
	s.Replayed += o.Replayed
	s.Duplicates += o.Duplicates
	s.Malformed += o.Malformed
	s.Gaps += o.Gaps
	s.Missed += o.Missed
	s.Spilled += o.Spilled
	s.Restarts += o.Restarts
	s.Mixed += o.Mixed
	s.Cleared += o.Cleared
	s.Voided += o.Voided
	for i, n := range o.Replays {
		s.Replays[i] += n
	}
	s.Partial = s.Partial || o.Partial
}
