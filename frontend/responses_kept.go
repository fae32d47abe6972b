package frontend

import (
	"bytes"
	"context"
	"iter"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
	"github.com/dynago/dynago/openai/responses/store"
)

// errStopped ends a response that a client wants stopped, by another request
// than the one that it answers.
var errStopped error = engine.Errorf(engine.Cancelled, "the response was cancelled by request")

// keeper has the responses that clients can come back to: those that are being
// made, and through its store those that are finished.
type keeper struct {
	store *store.Store

	mu         sync.Mutex
	making     map[owned]*kept
	background int
	sockets    map[*socket]bool
}

// owned is the id of a response, and whose it is.
type owned struct{ tenant, id string }

// kept is a response that others may look at and stop, from other goroutines, while
// it is made. It is the encoder of its answer. One that is to be stored records all
// that it sends.
type kept struct {
	*responsesEncoder
	keeper   *keeper
	key      owned
	stored   bool
	previous string
	created  time.Time
	input    []store.Item
	before   []store.Item // the conversation that it continues
	// inBackground says that the client has been told of it already.
	inBackground bool

	// mu guards the encoder and the rest.
	mu      sync.Mutex
	tape    store.Tape
	changed chan struct{} // closed when there is more to see; nil if nobody waits
	stop    context.CancelCauseFunc
	stopped bool // by a client
	untold  bool // the client has been refused, and does not know of it
	ended   bool
}

// keep makes the encoder of a response.
func (s *Server) keep(x *exchange, c *responses.Call, e *responsesEncoder, id string, before []store.Item) *kept {
	k := &kept{
		responsesEncoder: e, keeper: &s.keeper, key: owned{x.tenant, id}, stored: c.Store, previous: c.PreviousID,
		created: x.arrived, inBackground: c.Background,
	}
	if k.stored {
		k.input, k.before = storedItems(c.Input), before
		k.tape.Append(e.AppendOpening(nil))
	}
	return k
}

// begin implements [lasting]: from now on others can find the response.
func (k *kept) begin(stop context.CancelCauseFunc) {
	k.mu.Lock()
	k.stop = stop
	k.mu.Unlock()
	k.keeper.mu.Lock()
	defer k.keeper.mu.Unlock()
	if k.keeper.making == nil {
		k.keeper.making = map[owned]*kept{}
	}
	k.keeper.making[k.key] = k
}

// find returns a response that is being made.
func (r *keeper) find(key owned) *kept {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.making[key]
}

// appendEvent implements [encoder].
func (k *kept) appendEvent(dst []byte, event chat.Event) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	from := len(dst)
	dst = k.AppendEvent(dst, event)
	k.record(dst[from:])
	return dst
}

// gather implements [gatherer]: which tokens belong to which item is known while
// the events pass.
func (k *kept) gather(events iter.Seq2[chat.Event, error]) error {
	buf := buffers.Get().(*[]byte)
	defer release(buf)
	for event, err := range events {
		if err != nil {
			return err
		}
		*buf = k.appendEvent((*buf)[:0], event)
	}
	return nil
}

// appendAnswer implements [encoder].
func (k *kept) appendAnswer(dst []byte, _ []chat.Answer) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.stored {
		k.record(k.AppendTerminal(nil, time.Now().Unix()))
	} else {
		k.Complete(time.Now().Unix())
	}
	k.settle()
	return k.AppendResponse(dst)
}

// AppendEnd implements [sse.Protocol]. The response is stored before its end is
// sent: the next request may refer to it at once.
func (k *kept) AppendEnd(dst []byte) []byte {
	return k.last(dst, k.responsesEncoder.AppendEnd)
}

// AppendFailure implements [sse.Protocol].
func (k *kept) AppendFailure(dst []byte, err error) []byte {
	return k.last(dst, func(dst []byte) []byte {
		if k.stopped {
			k.Cancel()
			return append(dst, doneFrame...)
		}
		return k.responsesEncoder.AppendFailure(dst, err)
	})
}

// last appends the last frames and stores the response.
func (k *kept) last(dst []byte, frames func([]byte) []byte) []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	from := len(dst)
	dst = frames(dst)
	k.record(bytes.TrimSuffix(dst[from:], []byte(doneFrame)))
	k.settle()
	return dst
}

// doneFrame ends every stream, and belongs to no response.
const doneFrame = "data: [DONE]\n\n"

// Refuse implements [sse.Protocol]. A client that has never heard of a response
// cannot ask for it, so what is refused is not stored, but for what a client has
// stopped or waits for elsewhere.
func (k *kept) Refuse(w http.ResponseWriter, err error) {
	k.mu.Lock()
	stopped := k.stopped
	k.mu.Unlock()
	switch {
	case k.inBackground:
		k.AppendFailure(nil, err)
	case k.failsInStream(err) || stopped && k.stream:
		openStream(w)
		w.Write(k.AppendFailure(k.AppendOpening(nil), err)) //nolint:errcheck // the client has gone, and nothing is left to do
	case stopped:
		k.AppendFailure(nil, err)
		k.server.respond(w, http.StatusOK, k.object()) //nolint:errcheck // the client has gone, and nothing is left to do
	default:
		k.mu.Lock()
		k.untold = true
		k.mu.Unlock()
		k.server.refuse(w, k.server.responsesError(err))
	}
}

// end implements [lasting]: it stores what has not been stored, a response whose
// client has gone. An answer that was sent to its end has been.
func (k *kept) end(err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.ended {
		return
	}
	told := k.server.responsesError(err)
	if k.stopped || told.Status == wire.StatusClientClosedRequest {
		k.Cancel()
	} else {
		k.Fail(told)
	}
	k.settle()
}

// record adds frames to the tape and wakes who waits for them.
func (k *kept) record(frames []byte) {
	if len(frames) == 0 || !k.stored {
		return
	}
	k.tape.Append(frames)
	k.wake()
}

func (k *kept) wake() {
	if k.changed != nil {
		close(k.changed)
		k.changed = nil
	}
}

// settle stores the response, which has ended, and lets go of it.
func (k *kept) settle() {
	if k.ended {
		return
	}
	k.ended = true
	if k.stored && !k.untold {
		k.put()
	}
	k.input, k.before = nil, nil
	k.wake()
	k.keeper.mu.Lock()
	defer k.keeper.mu.Unlock()
	delete(k.keeper.making, k.key)
	if k.inBackground {
		k.keeper.background--
	}
}

// show lets other servers see a response that is being made, if there are any. It
// is for the one who begins it.
func (k *kept) show() {
	if k.keeper.store.Shared() {
		k.put()
	}
}

// put stores the response as it is now.
func (k *kept) put() {
	var events []byte
	if k.ended {
		events = k.tape.Bytes()
	}
	r, err := store.NewRecord(store.Record{
		ID: k.key.id, Tenant: k.key.tenant, Previous: k.previous, Status: string(k.Status()),
		Created: k.created, Input: k.input, Events: events,
	}, k.AppendResponse(nil))
	if err != nil {
		// What the encoder writes is an object with an output.
		k.server.Logger.Error("a response cannot be stored", "response_id", k.key.id, "error", err)
		return
	}
	k.keeper.store.Put(r, k.before)
}

// object returns the response as it is now.
func (k *kept) object() []byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.AppendResponse(nil)
}

// halt stops the response, if it has not ended, and waits until it has, or ctx is
// done.
func (k *kept) halt(ctx context.Context) error {
	k.mu.Lock()
	k.stopped = k.stopped || !k.ended
	k.mu.Unlock()
	k.stop(errStopped)
	for {
		changed, ended := k.watch()
		if ended {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// watch returns what is closed when there is more to see, and whether there will
// be.
func (k *kept) watch() (changed <-chan struct{}, ended bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	return k.changed, k.ended
}

// storedItems are the items of a request as they are stored. Each has an id:
// clients page through them by it.
func storedItems(items []responses.Item) []store.Item {
	stored := make([]store.Item, len(items))
	for i, item := range items {
		if item.ID == "" {
			item.ID = newItemID(item.Type)
		}
		stored[i] = store.Item{ID: item.ID, JSON: item.Wire}
	}
	return stored
}

// past is what one tenant has said earlier. It implements [responses.History].
type past struct {
	store  *store.Store // nil if nothing is kept
	tenant string
	conn   *socket // that the request came by, or nil
	// before is the conversation that was found.
	before []store.Item
}

// Conversation implements [responses.History].
func (p *past) Conversation(id string) ([]responses.Item, bool) {
	before, ok := p.conn.recall(id)
	if !ok && p.store != nil {
		var r *store.Record
		if r, before, ok = p.store.Conversation(p.tenant, id); ok {
			before, ok = append(before, r.Output...), r.Continuable()
		}
	}
	if !ok {
		return nil, false
	}
	p.before = before
	items := make([]responses.Item, len(p.before))
	for i, item := range p.before {
		var err error
		if items[i], err = responses.ParseItem(item.JSON); err != nil {
			return nil, false
		}
	}
	return items, true
}

// Item implements [responses.History].
func (p *past) Item(id string) (responses.Item, bool) {
	if p.store == nil {
		return responses.Item{}, false
	}
	stored, ok := p.store.Item(p.tenant, id)
	if !ok {
		return responses.Item{}, false
	}
	item, err := responses.ParseItem(stored.JSON)
	// An item that came without one has got its id here.
	item.ID = stored.ID
	return item, err == nil
}

// newItemID makes an id for an item that came without one.
func newItemID(kind string) string {
	prefix, ok := itemPrefixes[kind]
	if !ok {
		prefix = "item"
	}
	return prefix + "_" + strings.TrimPrefix(responses.NewID(), responses.IDPrefix)
}

var itemPrefixes = map[string]string{
	"message": "msg", "reasoning": "rs", "compaction": "cmp",
	"function_call": "fc", "function_call_output": "fco",
	"custom_tool_call": "ctc", "custom_tool_call_output": "ctco",
}

// recount implements [recounter].
func (k *kept) recount() []byte { return k.object() }
