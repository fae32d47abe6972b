package kvevent

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"time"

	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// ObjectSourceConfig says whose events are read.
type ObjectSourceConfig struct {
	// Events is where they are published, as in tcp://host:5558; Replay is where
	// those that were missed, and what the store holds, can be asked for; empty for
	// nowhere.
	Events, Replay string
	// MostObjects is how many objects are remembered; 0 = [DefaultMostObjects]. When
	// there are more, all is forgotten, and what comes from then on is known.
	MostObjects int
	Sockets     zmtp.Options
	Log         *slog.Logger // nil means nobody
}

// ObjectBatch is what has changed in a store.
type ObjectBatch struct {
	Number uint64
	// Restart says that all that was told before is void.
	Restart bool
	// Events tell of objects that came to the store, and of those that left it: an
	// object that lies in several places comes with the first and leaves with the
	// last of them.
	Events []ObjectEvent
}

// ObjectSource follows the events of a store of objects that workers share, of
// kvstore or of Mooncake's master.
type ObjectSource struct {
	config ObjectSourceConfig
	view   objectView
}

// NewObjectSource returns a source that has read nothing. It is to be read once.
func NewObjectSource(c ObjectSourceConfig) (*ObjectSource, error) {
	for _, endpoint := range []string{c.Events, c.Replay} {
		if endpoint == "" && c.Events != "" {
			continue
		}
		if _, err := zmtp.ParseEndpoint(endpoint); err != nil {
			return nil, fmt.Errorf("kvevent: events of a store: %w", err)
		}
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return &ObjectSource{config: c, view: objectView{most: cmp.Or(c.MostObjects, DefaultMostObjects)}}, nil
}

// Batches yields what happens in the store until ctx ends. What a store that
// cannot replay held before is not known.
func (s *ObjectSource) Batches(ctx context.Context) iter.Seq2[ObjectBatch, error] {
	return func(yield func(ObjectBatch, error) bool) {
		sub := zmtp.NewSub(s.config.Sockets)
		defer sub.Close() //nolint:errcheck // nothing is left to send
		err := sub.Subscribe("")
		if err == nil {
			err = sub.Connect(s.config.Events)
		}
		if err != nil {
			yield(ObjectBatch{}, fmt.Errorf("kvevent: events of a store: %w", err))
			return
		}
		for m, err := range sub.Messages(ctx) {
			if err != nil {
				yield(ObjectBatch{}, err)
				return
			}
			if !s.heard(ctx, m, func(b ObjectBatch) bool { return yield(b, nil) }) {
				return
			}
		}
	}
}

// heard works off what came over the socket.
func (s *ObjectSource) heard(ctx context.Context, m zmtp.Message, yield func(ObjectBatch) bool) bool {
	switch m.Event {
	case zmtp.Subscribed:
		// It may be another store by now, or another life of it. What it publishes
		// from here on will come.
		b := s.view.restart()
		s.ask(ctx, 0, &b)
		return yield(b)
	case zmtp.Lost:
		// Nobody knows what happens there now.
		return yield(s.view.restart())
	case zmtp.Data:
	default:
		return true
	}
	n := len(m.Parts)
	if n < 2 || len(m.Parts[n-2]) != 8 {
		s.config.Log.Warn("a message of a store that is no batch", "events", s.config.Events, "frames", n)
		return true
	}
	number := binary.BigEndian.Uint64(m.Parts[n-2])
	if s.view.told(number) {
		return true
	}
	b := ObjectBatch{Number: number}
	if s.view.missed(number) {
		s.ask(ctx, s.view.number+1, &b)
		if s.view.told(number) {
			return yield(b)
		}
		if s.view.missed(number) {
			b = s.view.restart()
			b.Number = number
		}
	}
	if err := s.view.apply(number, m.Parts[n-1], &b); err != nil {
		s.config.Log.Warn("a message of a store that cannot be read", "events", s.config.Events, "number", number, "error", err)
		b = s.view.restart()
		b.Number = number
	}
	return yield(b)
}

// ask asks for the messages from a number on, or for all that is held.
func (s *ObjectSource) ask(ctx context.Context, from uint64, b *ObjectBatch) {
	if s.config.Replay == "" {
		return
	}
	if err := s.replay(ctx, from, b); err != nil && ctx.Err() == nil {
		s.config.Log.Warn("a store does not tell what it holds", "replay", s.config.Replay, "error", err)
		*b = s.view.restart()
	}
}

func (s *ObjectSource) replay(ctx context.Context, from uint64, b *ObjectBatch) error {
	ctx, silent := context.WithCancelCause(ctx)
	defer silent(nil)
	idle := time.AfterFunc(replayIdle, func() { silent(fmt.Errorf("nothing came for %v", replayIdle)) })
	defer idle.Stop()
	dealer := zmtp.NewDealer(s.config.Sockets)
	defer dealer.Close() //nolint:errcheck // nothing is left to send
	if err := dealer.Connect(s.config.Replay); err != nil {
		return err
	}
	if err := dealer.Send(ctx, nil, binary.BigEndian.AppendUint64(nil, from)); err != nil {
		return err
	}
	for m, err := range dealer.Messages(ctx) {
		switch {
		case err != nil:
			return err
		case m.Event == zmtp.Lost, m.Event == zmtp.Failed:
			return m.Err
		case m.Event != zmtp.Data:
			continue
		}
		message, ok := replayed(m.Parts)
		switch {
		case !ok:
			return errors.New("an answer that is no replay")
		case message.Seq == endOfReplay:
			return nil
		}
		idle.Reset(replayIdle)
		if err := s.view.apply(message.Seq, message.Payload, b); err != nil {
			return err
		}
		b.Number = message.Seq
	}
	return context.Cause(ctx)
}

// objectView is what is known of a store.
type objectView struct {
	begun  bool
	number uint64 // of the newest message
	at     map[objectName]media
	most   int // objects
}

// told says whether a message is one of before.
func (v *objectView) told(number uint64) bool { return v.begun && number <= v.number }

// missed says whether there are others before it that did not come.
func (v *objectView) missed(number uint64) bool { return v.begun && number != v.number+1 }

// restart forgets everything.
func (v *objectView) restart() ObjectBatch {
	*v = objectView{at: map[objectName]media{}, most: v.most}
	return ObjectBatch{Restart: true}
}

// apply adds what a message tells to b.
func (v *objectView) apply(number uint64, payload []byte, b *ObjectBatch) error {
	events, err := DecodeObjectBatch(payload)
	if err != nil {
		return err
	}
	if v.at == nil {
		v.restart()
	}
	v.begun, v.number = true, number
	for _, e := range events {
		name := objectName{e.Tenant, e.Key}
		was := v.at[name]
		switch e.Kind {
		case kv.Stored:
			if was == 0 && len(v.at) >= v.most {
				return fmt.Errorf("more than %d objects are stored", v.most)
			}
			v.at[name] = was | mediumBit(e.Medium)
			if was == 0 {
				b.Events = append(b.Events, e)
			}
		case kv.Removed:
			if was == 0 {
				continue
			}
			if was &^= mediumBit(e.Medium); was != 0 {
				v.at[name] = was
				continue
			}
			delete(v.at, name)
			b.Events = append(b.Events, e)
		case kv.Cleared:
			clear(v.at)
			b.Restart, b.Events = true, nil
		}
	}
	return nil
}
