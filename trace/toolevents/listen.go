package toolevents

import (
	"context"
	"log/slog"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// Listener takes events at a ZMQ PULL socket, to which any number of PUSH sockets
// connect. A message has three frames: the topic, a number that nothing is read from,
// and the event in MessagePack.
type Listener struct {
	// Endpoint is bound, and Topic must be the first frame.
	Endpoint, Topic string
	// Intake takes what comes.
	Intake *Intake
	Log    *slog.Logger
	// Bound, if not nil, is told where the socket listens.
	Bound func(endpoint string)
}

// Times between attempts to bind.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 30 * time.Second
)

// CheckEndpoint says what is wrong with an endpoint that can never be bound.
func CheckEndpoint(endpoint string) error {
	_, err := zmtp.ParseEndpoint(endpoint)
	return err
}

// Run takes events until ctx is done. While the endpoint cannot be bound, it tries
// again and again, and says so now and then.
func (l *Listener) Run(ctx context.Context) {
	socket := zmtp.NewPull(zmtp.Options{MaxMessage: 4 * MaxEvent, MaxParts: 16})
	defer socket.Close()
	for pause, tries := firstPause, 1; ; pause, tries = min(2*pause, longestPause), tries+1 {
		at, err := socket.Bind(ctx, l.Endpoint)
		if err == nil {
			l.Log.Info("tool events are taken", "endpoint", at)
			if l.Bound != nil {
				l.Bound(at)
			}
			break
		}
		if ctx.Err() != nil {
			return
		}
		if tries&(tries-1) == 0 {
			l.Log.Warn("tool events are not taken: the endpoint cannot be bound, and is tried again", "endpoint", l.Endpoint, "error", err, "times", tries)
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
	}
	for m, err := range socket.Messages(ctx) {
		switch {
		case err != nil:
			return
		case m.Event == zmtp.Data:
			l.Intake.message(l.Topic, m.Parts)
		}
	}
}
