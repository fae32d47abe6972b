package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"mime"
	"net/http"
	"time"

	"github.com/dynago/dynago/engine"
)

// longestLine bounds one line of a stream: with log probabilities and routed
// experts, they are long.
const longestLine = 64 << 20

// Stream posts a body and yields the data of each event of the answer, which may
// be used until the next one is asked for. The sequence ends at [DONE] or where
// the stream ends; whether that was in order only its reader can say. A failure
// that the engine tells inside of the stream is data like any other, see
// [Told].
func (c *Client) Stream(ctx context.Context, path string, header http.Header, body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
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
		for data, err := range Events(resp.Body) {
			if err != nil {
				yield(nil, lost(ctx, path, err))
				return
			}
			if !yield(data, nil) {
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

var done = []byte("[DONE]")

// Events yields the data of server-sent events, as engines write them: with
// either line ending, with or without a blank behind the colon, with comments
// between them. Data over several lines is joined by line feeds. It ends at
// [DONE]. What is yielded may be used until the next is asked for.
func Events(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		lines := bufio.NewScanner(r)
		lines.Buffer(make([]byte, 0, 4<<10), longestLine)
		var event []byte
		begun := false
		for lines.Scan() {
			line := bytes.TrimSuffix(lines.Bytes(), []byte{'\r'})
			if len(line) == 0 {
				if begun && (bytes.Equal(event, done) || !yield(event, nil)) {
					return
				}
				event, begun = event[:0], false
				continue
			}
			data, ok := bytes.CutPrefix(line, []byte("data:"))
			if !ok {
				continue // a comment, or a field that says nothing here
			}
			if begun {
				event = append(event, '\n')
			}
			begun = true
			event = append(event, bytes.TrimPrefix(data, []byte{' '})...)
		}
		if err := lines.Err(); err != nil {
			yield(nil, err)
			return
		}
		// The last event of a stream that was cut has no blank line behind it: it
		// is whole only if nothing of it is missing, which its reader will see.
		if begun && !bytes.Equal(event, done) {
			yield(event, nil)
		}
	}
}
