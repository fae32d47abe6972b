package peers

import (
	"container/list"

	"github.com/dynago/dynago/router"
)

// outbox is what a peer is yet to hear: of each binding the newest, in the order in
// which they were first spoken of. It is plain data.
type outbox struct {
	limit int
	order list.List // of router.BindingEvent
	of    map[name]*list.Element
}

// name is that of a binding, of which a session may have had several.
type name struct {
	router.BindingKey
	router string
	number uint64
}

func nameOf(e *router.BindingEvent) name { return name{e.BindingKey, e.Router, e.Number} }

// put puts an event in, or returns false if there is no room.
func (o *outbox) put(e router.BindingEvent) bool {
	n := nameOf(&e)
	if at := o.of[n]; at != nil {
		at.Value = e
		return true
	}
	if o.order.Len() >= o.limit {
		return false
	}
	if o.of == nil {
		o.of = make(map[name]*list.Element)
	}
	o.of[n] = o.order.PushBack(e)
	return true
}

// take takes out up to so many events.
func (o *outbox) take(most int) (events []router.BindingEvent) {
	for at := o.order.Front(); at != nil && len(events) < most; at = o.order.Front() {
		e := o.order.Remove(at).(router.BindingEvent)
		delete(o.of, nameOf(&e))
		events = append(events, e)
	}
	return events
}

func (o *outbox) empty() {
	o.order.Init()
	clear(o.of)
}
