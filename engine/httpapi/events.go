package httpapi

import (
	"context"
	"fmt"
	"io"
	"iter"
	"mime"
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
		for events, err := range c.Bunches(ctx, path, header, body) {
			if err != nil {
				yield(nil, err)
				return
			}
			for _, data := range events {
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
func (c *Client) Bunches(ctx context.Context, path string, header http.Header, body []byte) iter.Seq2[[][]byte, error] {
	return func(yield func([][]byte, error) bool) {
		own, cancel := context.WithCancel(ctx)
		defer cancel()
		resp, err := c.Do(own, http.MethodPost, path, header, body)
		if err != nil {
			yield(nil, err)
			return
		}
		defer resp.Body.Close()
		if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != "text/event-stream" {
			yield(nil, notAStream(resp))
			return
		}
		for events, err := range bunches(resp.Body) {
			if err != nil {
				yield(nil, lost(ctx, path, err))
				return
			}
			if !yield(events, nil) {
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, engine.CauseOf(ctx, ctx.Err()))
			return
		}
		rest(resp.Body, cancel)
	}
}

// How much there may be behind the last event, and how long it may take to come.
const (
	mostRest    = 64 << 10
	restTimeout = 20 * time.Millisecond
)

// LastWords is how long a server may take over what follows the end of an answer:
// counts, and the word that nothing more comes. Those who wait for the answer have
// it by then.
const LastWords = 2 * time.Second

// rest reads what is left of an answer whose last event has come, so that its
// connection can take another request. It is there already, or not worth waiting
// for; cancel ends the wait.
func rest(body io.Reader, cancel func()) {
	late := time.AfterFunc(restTimeout, cancel)
	defer late.Stop()
	_, _ = io.CopyN(io.Discard, body, mostRest) // only the connection depends on it
}

// notAStream tells of an answer in place of a stream: an error under a good
// status, or not the engine's answer at all.
func notAStream(resp *http.Response) error {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, mostErrorText)) //nolint:errcheck // what came is told
	if told := Told(text); told.Found {
		return ErrorOf(http.StatusInternalServerError, resp.Header, text)
	}
	return &engine.Error{
		Kind: engine.Internal, FromEngine: true, Status: resp.StatusCode,
		Message: fmt.Sprintf("the answer is %q and no stream of events", resp.Header.Get("Content-Type")),
	}
}
