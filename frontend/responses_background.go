package frontend

import (
	"context"
	"net/http"
	"time"

	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/internal/wire"
)

// startBackground begins a response for which nobody waits, and tells the client
// of it. The client may leave; the work ends when it is done, when somebody
// cancels it, or with the server.
func (j *job) startBackground(w http.ResponseWriter, r *http.Request) {
	model := j.names.primary(j.call.model)
	var err *wire.Error
	switch {
	case model == "":
		err = unknown(j.call.model)
	case !j.keeper.admit(j.MaxBackground):
		err = &wire.Error{
			Status: http.StatusTooManyRequests, Type: "rate_limit_error", Code: wire.CodeRateLimit, RetryAfter: 5 * time.Second, Param: "background",
			Message: "Too many responses are being made in the background: wait until one has ended, or cancel one",
		}
	}
	if err != nil {
		j.refuse(w, err)
		j.record.finish(err)
		j.record.end()
		j.cancel(err)
		j.stage.leave()
		return
	}
	k := j.call.encoder(j.x, model).(*kept)
	j.x.answered = true // what goes wrong from now on is told by the response
	stream := j.call.stream
	j.call.stream = false
	j.call.encoder = func(*exchange, string) encoder { return k }
	object := k.object()
	k.show()
	k.begin(j.cancel)
	// The work may end, and give its permit back, before its end is sent.
	j.stage.join()
	defer j.stage.leave()
	go func() {
		defer j.stage.leave()
		defer j.recover(nowhere{}, j.x)
		defer k.end(errPanicked)
		j.run(nowhere{})
	}()
	if stream {
		j.replay(w, r, k, 0)
		return
	}
	j.respond(w, http.StatusOK, object) //nolint:errcheck // the client has gone, and nothing is left to do
}

// admit counts one more response in the background, unless there are too many.
func (r *keeper) admit(most int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.background >= most {
		return false
	}
	r.background++
	return true
}

// nowhere takes the answer of a response that is made in the background.
type nowhere struct{}

// Header implements http.ResponseWriter.
func (nowhere) Header() http.Header { return http.Header{} }

// Write implements http.ResponseWriter.
func (nowhere) Write(b []byte) (int, error) { return len(b), nil }

// WriteHeader implements http.ResponseWriter.
func (nowhere) WriteHeader(int) {}

// Flush implements http.Flusher.
func (nowhere) Flush() {}

// recorded is a stream that was recorded, or is still being recorded.
type recorded interface {
	// from returns events from number n on, the number of the event behind them,
	// and what is closed when there are more; nil if there will be none.
	from(n int) (events []byte, next int, more <-chan struct{}, err error)
}

// from implements [recorded].
func (k *kept) from(n int) (events []byte, next int, more <-chan struct{}, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	events, next, err = k.tape.From(n)
	// The tape goes on as soon as the lock is released.
	events = append([]byte(nil), events...)
	if k.ended {
		return events, next, nil, err
	}
	if k.changed == nil {
		k.changed = make(chan struct{})
	}
	return events, next, k.changed, err
}

// replay sends a stream again, from event n on, and goes on with it until it ends.
// Work that is cut ends its stream, so there is no need to look for that here.
func (s *Server) replay(w http.ResponseWriter, r *http.Request, tape recorded, n int) {
	x := exchangeOf(r)
	x.answered = true
	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	timing := *s.Timing
	timing.Hold = 0
	out := sse.NewWriter(w, replayed{s}, x.arrived, timing, cancel)
	defer out.Abandon()
	for {
		events, next, more, err := tape.from(n)
		if err != nil {
			out.Fail(err)
			return
		}
		if len(events) > 0 && out.Event(events) != nil {
			return
		}
		switch {
		case next > n:
			n = next
		case more == nil:
			out.Close() //nolint:errcheck // the client has gone, and nothing is left to do
			return
		default:
			select {
			case <-more:
			case <-ctx.Done():
				return
			}
		}
	}
}

// replayed is what surrounds events that were recorded: they hold their own
// beginning and end.
type replayed struct{ *Server }

// AppendOpening implements [sse.Protocol].
func (replayed) AppendOpening(dst []byte) []byte { return dst }

// AppendPing implements [sse.Protocol].
func (replayed) AppendPing(dst []byte) []byte { return append(dst, sse.Comment...) }

// AppendEnd implements [sse.Protocol].
func (replayed) AppendEnd(dst []byte) []byte { return append(dst, doneFrame...) }

// AppendFailure implements [sse.Protocol].
func (replayed) AppendFailure(dst []byte, _ error) []byte { return append(dst, doneFrame...) }

// Refuse implements [sse.Protocol].
func (s replayed) Refuse(w http.ResponseWriter, err error) { s.refuse(w, err) }
