package toolevents

import (
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"

	"github.com/dynago/dynago/trace"
)

// Intake publishes what comes over either way, and counts it. Its methods may be
// called at the same time.
type Intake struct {
	// Publish takes a record, and must not wait.
	Publish func(*trace.Record)
	Log     *slog.Logger

	zmq, http tally
}

// Counts says what became of the events of one way.
type Counts struct {
	// Accepted are records now, Dropped were wrong, and Ignored had another topic.
	Accepted, Dropped, Ignored uint64
}

type tally struct{ accepted, dropped, ignored atomic.Uint64 }

func (t *tally) counts() Counts {
	return Counts{t.accepted.Load(), t.dropped.Load(), t.ignored.Load()}
}

// ZMQ and HTTP return what became of events so far.
func (i *Intake) ZMQ() Counts  { return i.zmq.counts() }
func (i *Intake) HTTP() Counts { return i.http.counts() }

// Body publishes the events of a body, as [DecodeBody] reads it: all that are good,
// or, with an error, none.
func (i *Intake) Body(body []byte) (Batch, error) {
	b, err := DecodeBody(body)
	if err != nil {
		return Batch{}, err
	}
	for _, r := range b.Accepted {
		i.Publish(r)
	}
	i.http.accepted.Add(uint64(len(b.Accepted)))
	if b.Dropped > 0 {
		i.drop(&i.http, b.Dropped, b.Why)
	}
	return b, nil
}

// drop counts events that are wrong, and logs the 1st, 2nd, 4th, 8th of them.
func (i *Intake) drop(t *tally, events int, why error) {
	after := t.dropped.Add(uint64(events))
	before := after - uint64(events)
	if after^before > before { // there is a power of two between them
		i.Log.Warn("a tool event is dropped", "error", why, "times", after)
	}
}

// message publishes the event of a message, if it is one of the topic.
func (i *Intake) message(topic string, parts [][]byte) {
	if string(parts[0]) != topic {
		i.zmq.ignored.Add(1)
		i.Log.Debug("a tool event of another topic is ignored", "topic", fmt.Sprintf("%.64q", parts[0]))
		return
	}
	r, err := decodeParts(parts)
	if err != nil {
		i.drop(&i.zmq, 1, err)
		return
	}
	i.Publish(r)
	i.zmq.accepted.Add(1)
}

// errParts is of a message that has not the frames that all have.
var errParts = errors.New("want a message of three frames: topic, number, event")

func decodeParts(parts [][]byte) (*trace.Record, error) {
	if len(parts) != 3 {
		return nil, errParts
	}
	return DecodeMsgpack(parts[2])
}
