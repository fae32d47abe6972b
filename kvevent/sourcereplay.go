package kvevent

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// Limits of one replay: as a whole, and of the silence within.
const (
	replayLimit = 2 * time.Minute
	replayIdle  = 2 * time.Second
)

// Replays bounds how many replays run at a time.
type Replays struct{ slots chan struct{} }

// NewReplays returns a bound of n, at least 1.
func NewReplays(n int) *Replays { return &Replays{make(chan struct{}, max(1, n))} }

// processReplays is the bound of sources that bring none.
var processReplays = NewReplays(8)

// Replay implements [Effects].
func (r *sourceRank) Replay(from uint64) {
	r.Stop()
	ctx, quit := context.WithCancel(r.ctx)
	r.quit = quit
	r.run.Go(func() {
		defer quit()
		err := r.replay(ctx, from)
		// A replay is stopped by who works with the order, and so not beside this.
		if !r.enter(ctx) {
			return
		}
		defer r.leave()
		if err == nil {
			r.order.ReplayEnded(time.Now())
		} else {
			r.log.Warn("no replay of KV events", "replay", r.endpoint.Replay, "from", from, "error", err)
			r.order.ReplayFailed(time.Now())
		}
		r.settle()
	})
}

// Stop implements [Effects].
func (r *sourceRank) Stop() {
	if r.quit != nil {
		r.quit()
		r.quit = nil
	}
}

// replay asks for the messages from number from on and hands them over. A nil
// error says that their end has come.
func (r *sourceRank) replay(ctx context.Context, from uint64) error {
	select {
	case r.config.Replays.slots <- struct{}{}:
		defer func() { <-r.config.Replays.slots }()
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, replayLimit, fmt.Errorf("it takes longer than %v", replayLimit))
	defer cancel()
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	idle := time.AfterFunc(replayIdle, func() { silent(fmt.Errorf("nothing came for %v", replayIdle)) })
	defer idle.Stop()

	// A connection of its own makes the answer one of a single life.
	dealer := zmtp.NewDealer(r.config.Sockets)
	defer dealer.Close()
	if err := dealer.Connect(r.endpoint.Replay); err != nil {
		return err
	}
	asked := false
	for m, err := range dealer.Messages(ctx) {
		switch {
		case err != nil:
			return err
		case m.Event == zmtp.Connected && !asked:
			asked = true
			if err := dealer.Send(ctx, nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
				return err
			}
		case m.Event == zmtp.Lost, m.Event == zmtp.Failed:
			return m.Err
		case m.Event == zmtp.Data:
			message, ok := replayed(m.Parts)
			switch {
			case !ok:
				return errors.New("an answer that is no replay")
			case message.Seq == endOfReplay:
				return nil
			}
			idle.Stop() // the consumer's time is not the engine's
			if !r.handReplayed(ctx, message) {
				return context.Cause(ctx)
			}
			idle.Reset(replayIdle)
		}
	}
	return context.Cause(ctx)
}

// handReplayed gives a message to the order, unless that wants no more of this
// replay.
func (r *sourceRank) handReplayed(ctx context.Context, m Message) bool {
	if !r.enter(ctx) {
		return false
	}
	defer r.leave()
	r.order.Replayed(time.Now(), m)
	r.settle()
	return true
}

// replayed reads an answer from its end: old engines put nothing between the
// delimiter and the number, newer ones the topic.
func replayed(parts [][]byte) (Message, bool) {
	n := len(parts)
	if n < 3 || len(parts[n-2]) != 8 {
		return Message{}, false
	}
	return Message{binary.BigEndian.Uint64(parts[n-2]), parts[n-1]}, true
}
