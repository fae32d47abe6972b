package kvevent

// Recovery is a router's question for what it has missed of one rank.
type Recovery struct {
	Worker uint64
	Rank   uint32
	// From and To are the numbers of the first and the last event missed; To 0 is
	// the newest. With From 0 the router knows nothing and asks for everything.
	From, To uint64
}

// AnswerKind says what the answer to a [Recovery] is.
type AnswerKind uint8

// The kinds of answers.
const (
	AnswerEvents     AnswerKind = iota // the events asked for, and those since
	AnswerDump                         // all that the rank holds
	AnswerTooNew                       // events are asked for that there are not yet
	AnswerInvalid                      // the end lies before the beginning
	AnswerDumpFailed                   // all is asked for, and cannot be told now
)

var answerNames = [...]string{"events", "tree_dump", "too_new", "invalid_range", "tree_dump_failed"}

// String returns the kind's name.
func (k AnswerKind) String() string { return answerNames[min(k, AnswerDumpFailed)] }

// Answer is what a publisher tells a router that has missed something.
type Answer struct {
	Kind AnswerKind
	// Worker and Rank are the publisher's own.
	Worker uint64
	Rank   uint32
	// Events are those asked for, with their numbers, or events that make an
	// empty index hold what the rank holds, numbered from 0 on.
	Events []RouterEvent
	// Last is the number of the event after which the rank is as told.
	Last uint64
}

// Answer answers a router.
func (p *Publisher) Answer(q Recovery) Answer {
	a := Answer{Worker: p.config.Worker, Rank: p.config.Rank, Last: p.ring.last}
	switch {
	case q.From > 0 && q.To > 0 && q.To < q.From:
		a.Kind = AnswerInvalid
	case p.ring.last > 0 && q.From > p.ring.last:
		a.Kind = AnswerTooNew
	case p.ring.last > 0 && q.From >= p.ring.first():
		a.Events = p.ring.since(q.From)
	case !p.held.Whole():
		a.Kind = AnswerDumpFailed
	default:
		a.Kind, a.Events = AnswerDump, p.everything()
	}
	return a
}

// everything returns a dump of what is held. Routers that start together ask
// together: one made a short while ago is continued by what has happened since.
func (p *Publisher) everything() []RouterEvent {
	since := p.ring.last - p.dumpLast
	if p.dump != nil && since <= ringEvents/2 && p.ring.clear <= p.dumpLast {
		all := p.dump[:len(p.dump):len(p.dump)]
		if since > 0 {
			all = append(all, p.ring.since(p.dumpLast+1)...)
		}
		return renumber(all, len(p.dump))
	}
	p.dump = make([]RouterEvent, 0)
	for i, e := range p.held.Dump() {
		p.dump = append(p.dump, RouterEvent{Worker: p.config.Worker, Rank: p.config.Rank, ID: uint64(i), Event: e})
	}
	p.dumpLast = p.ring.last
	return p.dump[:len(p.dump):len(p.dump)]
}

// renumber gives the events from index from on the numbers of their places.
func renumber(events []RouterEvent, from int) []RouterEvent {
	for i := from; i < len(events); i++ {
		events[i].ID = uint64(i)
	}
	return events
}
