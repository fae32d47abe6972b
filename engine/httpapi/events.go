package httpapi

import (
	"context"
	"fmt"
	"io"
	"iter"
	"net/http"
	"time"

	"github.com/dynago/dynago/engine"
)

// Stream posts a body and yields the data of each event of the answer, which may
// be used until the next one is asked for. The sequence ends at [DONE] or where
// the stream ends; whether that was in order only its reader can say. A failure
// that the engine tells inside of the stream is data like any other, see
// [Told].
func (c *Client) Stream(ctx context.Context, path string, header http.Header, body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for bunch, err := range c.Bunches(ctx, path, header, body) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, data := range bunch.Events {
				if !yield(data, nil) {
					return
				}
			}
		}
	}
}

// Bunches is [Client.Stream] for those who do with several events what they do with
// one: it yields together what has come together, which is never nothing. No event
// waits for another one.
func (c *Client) Bunches(ctx context.Context, path string, header http.Header, body []byte) iter.Seq2[Bunch, error] {
	return func(yield func(Bunch, error) bool) {
		r, err := c.ask(ctx, http.MethodPost, path, header, body)
		if err != nil {
			yield(Bunch{}, err)
			return
		}
		defer r.body.Close()
		if r.kind != eventStream {
			yield(Bunch{}, notAStream(r))
			return
		}
		for bunch, err := range bunches(r.body) {
			if err != nil {
				yield(Bunch{}, lost(ctx, path, err))
				return
			}
			if !yield(bunch, nil) {
				return
			}
		}
		if ctx.Err() != nil {
			yield(Bunch{}, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		r.leave()
	}
}

// LastWords is how long a server may take over what follows the end of an answer:
// counts, and the word that nothing more comes. Those who wait for the answer have
// it by then.
const LastWords = 2 * time.Second

// eventStream is the media type of server-sent events.
const eventStream = "text/event-stream"

// notAStream tells of an answer in place of a stream: an error under a good
// status, or not the engine's answer at all.
func notAStream(r *reply) error {
	text, _ := io.ReadAll(io.LimitReader(r.body, mostErrorText)) //nolint:errcheck // what came is told
	if told := Told(text); told.Found {
		return ErrorOf(http.StatusInternalServerError, r.header, text)
	}
	return &engine.Error{
		Kind: engine.Internal, FromEngine: true, Status: r.status,
		Message: fmt.Sprintf("the answer is %q and no stream of events", r.kind),
	}
}
