package remote

import (
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// loadEvery is how often load is told at most.
const loadEvery = 100 * time.Millisecond

// Describe tells what the worker is: changes at once, load now and then, and a sign
// of life with every heartbeat.
func (s *Server) Describe(_ *workerpb.DescribeRequest, stream workerpb.Worker_DescribeServer) error {
	t := teller{beat: s.config.Heartbeat}
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		now, changed := s.board.read()
		if m := t.next(now, time.Now()); m != nil {
			if err := stream.Send(m); err != nil {
				return err
			}
		}
		if now.closed {
			return nil
		}
		timer.Reset(t.due(now, time.Now()))
		select {
		case <-changed:
		case <-timer.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
}

// teller knows what one frontend was told.
type teller struct {
	beat     time.Duration
	told     engine.Status
	loads    uint64
	at, load time.Time // of the last message, and of the last one with load
}

// next returns what is to be told now, or nil.
func (t *teller) next(now posted, at time.Time) *workerpb.Description {
	first := t.at.IsZero()
	news := first || now.status != t.told
	load := now.loads != t.loads && len(now.load.Ranks) > 0 && (news || at.Sub(t.load) >= loadEvery)
	if !news && !load && at.Sub(t.at) < t.beat {
		return nil
	}
	s := now.status
	m := &workerpb.Description{
		Protocol: Protocol, WorkerId: s.Worker, Epoch: s.Epoch, Revision: s.Revision, State: stateMessage(s.State), Reason: s.Reason,
		HeartbeatMs: uint32(t.beat.Milliseconds()),
	}
	if s.Card != nil && (first || s.Card != t.told.Card) {
		m.Card = cardMessage(s.Card)
	}
	if load {
		m.Load = loadMessages(now.load, at.Sub(now.loadAt))
		t.loads, t.load = now.loads, at
	}
	t.told, t.at = s, at
	return m
}

// due returns when there is something to tell if nothing changes.
func (t *teller) due(now posted, at time.Time) time.Duration {
	due := t.at.Add(t.beat)
	if held := t.load.Add(loadEvery); now.loads != t.loads && len(now.load.Ranks) > 0 && held.Before(due) {
		due = held
	}
	return max(0, due.Sub(at))
}
