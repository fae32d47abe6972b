package publish

import (
	"context"
	"encoding/binary"
	"math"
	"sync"
	"time"

	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/kvevent/zmtp"
)

// rank is the publisher of one rank: a goroutine that publishes what the engine
// reports and, in between, answers for what it has published.
type rank struct {
	p      *Publisher
	number uint32

	mail    sync.Mutex
	reports []mock.Report
	behind  int // reports that were not published yet
	wake    chan struct{}

	sockets sync.Mutex // held to exchange them
	pub     *zmtp.Pub
	router  *zmtp.Router
	asked   chan request
	stand   stand

	// Of the goroutine.
	speak   speaker
	seq     uint64 // of the next message
	kept    []message
	delayed *message // one that changes places with the next
}

// message is one that was published.
type message struct {
	seq     uint64
	payload []byte
}

// request is one for replay.
type request struct {
	peer *zmtp.Peer
	on   *zmtp.Router
	from uint64
}

func newRank(p *Publisher, number uint32, blockSize int) *rank {
	return &rank{
		p: p, number: number, wake: make(chan struct{}, 1), asked: make(chan request),
		speak: newSpeaker(&p.config, number, blockSize),
	}
}

// post takes a report.
func (r *rank) post(report mock.Report) {
	r.mail.Lock()
	r.reports = append(r.reports, report)
	r.behind++
	r.mail.Unlock()
	select {
	case r.wake <- struct{}{}:
	default:
	}
}

// open opens the sockets.
func (r *rank) open() error {
	r.sockets.Lock()
	defer r.sockets.Unlock()
	events, err := Raise(r.p.events, int(r.number))
	if err != nil {
		return err
	}
	pub := zmtp.NewPub(zmtp.Options{HighWater: r.p.config.HighWater, Listen: r.stand.listen})
	if r.p.listens {
		_, err = pub.Bind(r.p.ctx, events)
	} else {
		err = pub.Connect(events)
	}
	if err != nil {
		pub.Close() //nolint:errcheck // it has nothing to say
		return err
	}
	r.pub = pub
	if r.p.replay == "" {
		return nil
	}
	replay, err := Raise(r.p.replay, int(r.number))
	if err == nil {
		router := zmtp.NewRouter(zmtp.Options{Listen: r.stand.listen})
		if _, err = router.Bind(r.p.ctx, replay); err == nil {
			r.router = router
			r.p.done.Go(func() { r.attend(router) })
			return nil
		}
		router.Close() //nolint:errcheck // it has nothing to say
	}
	r.pub.Close() //nolint:errcheck // it has nothing to say
	r.pub = nil
	return err
}

// leave closes the sockets and gives their addresses up.
func (r *rank) leave() {
	r.close()
	r.sockets.Lock()
	defer r.sockets.Unlock()
	r.stand.close()
}

// close closes the sockets.
func (r *rank) close() {
	r.sockets.Lock()
	defer r.sockets.Unlock()
	if r.pub != nil {
		r.pub.Close() //nolint:errcheck // it has nothing to say
	}
	if r.router != nil {
		r.router.Close() //nolint:errcheck // it has nothing to say
	}
	r.pub, r.router = nil, nil
}

// attend hands requests for replay to the rank's goroutine, until its socket is
// closed.
func (r *rank) attend(router *zmtp.Router) {
	for m, err := range router.Messages(r.p.ctx) {
		if err != nil {
			return
		}
		n := len(m.Parts)
		if m.Event != zmtp.Data || n == 0 || len(m.Parts[n-1]) != 8 {
			continue
		}
		select {
		case r.asked <- request{m.Peer, router, binary.BigEndian.Uint64(m.Parts[n-1])}:
		case <-r.p.ctx.Done():
			return
		}
	}
}

// run publishes until the publisher is closed.
func (r *rank) run() {
	defer r.leave()
	for {
		select {
		case <-r.p.ctx.Done():
			return
		case q := <-r.asked:
			r.answer(q)
		case <-r.wake:
			for {
				report, ok := r.next()
				if !ok {
					break
				}
				r.publish(&report)
				r.mail.Lock()
				r.behind--
				r.mail.Unlock()
			}
		}
	}
}

func (r *rank) next() (report mock.Report, ok bool) {
	r.mail.Lock()
	defer r.mail.Unlock()
	if len(r.reports) == 0 || r.p.ctx.Err() != nil {
		r.reports = nil
		return report, false
	}
	report = r.reports[0]
	r.reports = r.reports[1:]
	return report, true
}

// begin begins a life. Only the first has its sockets already.
func (r *rank) begin() {
	f := r.p.Faults()
	if r.speak.lives++; r.speak.lives > 1 && !f.Quiet {
		r.close()
		r.open() //nolint:errcheck // its addresses are held
	}
	r.seq, r.kept, r.delayed = 0, nil, nil
	r.speak.begin()
	if r.p.config.Dialect == SGLang {
		r.send(r.speak.message([][]byte{r.speak.cleared()}), &f)
	}
}

// publish makes a message of a report.
func (r *rank) publish(report *mock.Report) {
	if report.Fresh {
		r.begin()
		return
	}
	f := r.p.Faults()
	r.speak.claimed = f.BlockSize
	events := r.speak.events(report)
	if hits(f.Invent, r.seq) {
		events = append(events, r.speak.invented(r.seq))
	}
	payload := r.speak.message(events)
	if hits(f.Garble, r.seq) {
		payload = payload[:len(payload)/2]
	}
	r.send(payload, &f)
}

// send numbers a message, keeps it and sends it.
func (r *rank) send(payload []byte, f *Faults) {
	m := message{r.seq, payload}
	r.seq++
	r.kept = append(r.kept, m)
	if n := len(r.kept) - r.p.config.Window; n > 0 {
		r.kept = r.kept[n:]
	}
	before := r.delayed
	r.delayed = nil
	switch {
	case hits(f.Lose, m.seq):
	case hits(f.Swap, m.seq) && before == nil:
		r.delayed = &m
		return
	default:
		r.emit(m)
		if hits(f.Repeat, m.seq) {
			r.emit(m)
		}
	}
	if before != nil {
		r.emit(*before)
	}
}

func (r *rank) emit(m message) {
	r.pub.Send([]byte(r.p.config.Topic), binary.BigEndian.AppendUint64(nil, m.seq), m.payload) //nolint:errcheck // only this goroutine closes it
}

// patience is how long a listener may take for one replayed message.
const patience = 5 * time.Second

// answer replays what is kept, from a number on, and then an end.
func (r *rank) answer(q request) {
	if r.p.Faults().Mute {
		return
	}
	ctx, cancel := context.WithTimeout(r.p.ctx, patience)
	defer cancel()
	for _, m := range append(r.kept[:len(r.kept):len(r.kept)], message{seq: math.MaxUint64}) {
		if m.seq < q.from {
			continue
		}
		topic := r.p.config.Topic
		if m.payload == nil {
			topic = ""
		}
		parts := [][]byte{nil, []byte(topic), binary.BigEndian.AppendUint64(nil, m.seq), m.payload}
		if r.p.config.ShortReplay {
			parts = append(parts[:1], parts[2:]...)
		}
		if q.on.Send(ctx, q.peer, parts...) != nil {
			return // it has gone
		}
	}
}
