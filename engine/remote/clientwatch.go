package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/protobuf/proto"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// How long to wait before a worker is asked again.
const (
	firstRedial = 100 * time.Millisecond
	lastRedial  = 5 * time.Second
	redialShake = 0.2
)

// run keeps Describe open until ctx ends, and posts what it tells.
func (w *watch) run(ctx context.Context) {
	redial := firstRedial
	for patient := false; ctx.Err() == nil; patient = true {
		begun := time.Now()
		heard, err := w.describe(ctx, patient)
		if ctx.Err() != nil {
			return
		}
		if heard && time.Since(begun) > lastRedial { // else it answers, and never stays
			redial = firstRedial
		}
		pause := time.Duration(float64(redial) * (1 + redialShake*(2*rand.Float64()-1)))
		redial = min(2*redial, lastRedial)
		s := w.board.status()
		s.Reason = err.Error()
		switch kind := engine.KindOf(err); {
		case kind == engine.Denied || kind == engine.Unsupported || kind == engine.Internal:
			s.State, pause = engine.Failed, askAgain
		case kind == engine.ConnectionTimeout && patient && w.client.told.now().GetState() != connectivity.Ready:
			s.Reason = w.board.status().Reason // which says more
			fallthrough
		default:
			s.State = engine.Dead
			if s.Card == nil {
				s.State = engine.Loading
			}
		}
		if errors.Is(err, errLeft) {
			w.settle(ctx)
		}
		w.lose()
		if s.State != engine.Failed && w.client.told.now().GetState() == connectivity.Ready {
			w.client.reconnect() // it leads nowhere, or to one who has left
		}
		w.board.post(s)
		wait(ctx, pause)
	}
}

// errLeft is how a worker is lost that has said goodbye.
var errLeft = engine.Errorf(engine.Disconnected, "the worker has left")

// settle sends nothing new to a worker that has left, and lets requests end whose last words are still on the way: they come over
// another connection than the goodbye of a worker that has waited for them.
func (w *watch) settle(ctx context.Context) {
	const (
		patience = time.Second
		every    = 5 * time.Millisecond
	)
	s := w.board.status()
	s.State, s.Reason = engine.Draining, errLeft.Message
	w.board.post(s)
	for end := time.Now().Add(patience); time.Now().Before(end) && w.client.busy(); {
		if !wait(ctx, every) {
			return
		}
	}
}

// describe reads one Describe to its end, and says whether the worker has answered.
// Who is patient waits for a connection; else it is told why there is none.
func (w *watch) describe(ctx context.Context, patient bool) (heard bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	// Neither the call nor Recv can be given a time for the first message alone: that
	// is what the goroutine is for.
	messages, end := make(chan *workerpb.Description), make(chan error, 1)
	go func() {
		defer close(messages)
		end <- w.listen(ctx, patient, messages)
	}()
	defer func() {
		cancel()
		for range messages {
		}
	}()
	silence := time.NewTimer(firstMessage)
	defer silence.Stop()
	var beat time.Duration
	var last time.Time // when something was heard
	quiet := false
	for {
		select {
		case m, ok := <-messages:
			if !ok {
				return heard, <-end
			}
			if !heard {
				w.welcome()
			}
			beat, quiet = heartbeat(m), false
			if err := w.hear(ctx, m, !heard); err != nil {
				return true, err
			}
			heard = true
			last = time.Now()
			silence.Reset(silentIntervals * beat)
		case <-silence.C:
			s := w.board.status()
			idle := s.State == engine.Loading || s.State == engine.Failed
			switch {
			case !heard:
				return false, engine.Errorf(engine.ConnectionTimeout, "the worker did not answer within %v", firstMessage)
			case idle && time.Since(last) < loadingIntervals*beat:
				silence.Reset(silentIntervals * beat)
			case !idle && !quiet:
				quiet = true
				s.State, s.Reason = engine.Suspect, "the worker has been silent for "+(silentIntervals*beat).String()
				w.board.post(s)
				silence.Reset((deadIntervals - silentIntervals) * beat)
			default:
				return true, engine.Errorf(engine.Disconnected, "the worker has been silent for %v", time.Since(last).Round(beat))
			}
		}
	}
}

// listen passes the messages of one Describe on, and returns how it ended.
func (w *watch) listen(ctx context.Context, patient bool, to chan<- *workerpb.Description) error {
	stream, err := w.client.worker().Describe(w.client.signed(ctx), &workerpb.DescribeRequest{Protocol: Protocol, Caller: w.client.config.Caller}, grpc.WaitForReady(patient))
	if err != nil {
		return connectError(errorOf(err, nil, false))
	}
	for heard := false; ; heard = true {
		m, err := stream.Recv()
		if err != nil {
			return lost(errorOf(err, stream.Trailer(), heard), heard)
		}
		select {
		case to <- m:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// welcome makes requests try their connections at once: the worker is there.
func (w *watch) welcome() {
	for _, l := range w.client.calls {
		conn := l.now()
		conn.ResetConnectBackoff()
		conn.Connect()
	}
}

func heartbeat(m *workerpb.Description) time.Duration {
	if m.HeartbeatMs == 0 {
		return defaultHeartbeat
	}
	return min(max(shortestBeat, time.Duration(m.HeartbeatMs)*time.Millisecond), longestBeat)
}

// lost tells how a Describe ended that should not have.
func lost(e *engine.Error, heard bool) error {
	switch {
	case e.Kind == engine.StreamIncomplete || e.Kind == engine.EngineShutdown:
		return errLeft
	case !heard:
		return connectError(e)
	case e.Kind == engine.Internal || e.Kind == engine.InvalidArgument:
		e.Kind = engine.Disconnected // it did answer, so that it may again
	}
	return e
}

// connectError is the error of a call to which nobody has answered.
func connectError(e *engine.Error) *engine.Error {
	if e.Kind == engine.Unavailable && !e.FromEngine {
		e.Kind = engine.CannotConnect
	}
	return e
}

// hear posts what the worker tells; first says that it is the first message of its
// stream.
func (w *watch) hear(ctx context.Context, m *workerpb.Description, first bool) error {
	if m.Epoch == 0 {
		return errNoEpoch
	}
	old := w.board.status()
	s := engine.Status{Worker: m.WorkerId, Epoch: m.Epoch, Revision: m.Revision, State: engine.Loading, Reason: m.Reason}
	if state, ok := states.word[m.State]; ok {
		s.State = state
	}
	switch {
	case m.Card != nil && old.Card != nil && proto.Equal(m.Card, w.card):
		s.Card = old.Card // told again, and not another one
	case m.Card != nil:
		var err error
		if s.Card, err = w.client.card(ctx, m.Card, deadIntervals*heartbeat(m)); err != nil {
			return err
		}
		w.card = m.Card
	case !first || old.Epoch == m.Epoch:
		s.Card = old.Card // absent: as before
	}
	if s.Card == nil && (s.State == engine.Ready || s.State == engine.Draining) {
		s.State, s.Reason = engine.Failed, "the worker says that it is ready, and not what it is: its description has no card"
	}
	w.board.post(s)
	if len(m.Load) > 0 {
		w.board.postLoad(loadOf(m.Load), time.Now())
	}
	return nil
}
