package httpapi

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"iter"
	"net/http"

	"github.com/dynago/dynago/engine"
)

// Lines posts a body and yields each line of the answer, which is a JSON value of
// its own and may be used until the next one is asked for. A failure that the
// engine tells inside of the stream is a line like any other, see [Told].
func (c *Client) Lines(ctx context.Context, path string, header http.Header, body []byte) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		r, err := c.ask(ctx, http.MethodPost, path, header, body)
		if err != nil {
			yield(nil, err)
			return
		}
		defer r.body.Close()
		if r.kind != "application/x-ndjson" {
			yield(nil, notAStream(r))
			return
		}
		for line, err := range lines(r.body) {
			if err != nil {
				yield(nil, lost(ctx, path, err))
				return
			}
			if !yield(line, nil) {
				return
			}
		}
		if ctx.Err() != nil {
			yield(nil, engine.CauseOf(ctx, ctx.Err()))
		}
	}
}

// lines yields those that are not blank, with either line ending. The last one
// needs no end, unless the stream was cut: then it is a part of one, and only the
// error is told.
func lines(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		s := bufio.NewScanner(r)
		s.Buffer(make([]byte, 0, 4<<10), longestLine)
		ended := true
		s.Split(func(data []byte, last bool) (n int, line []byte, err error) {
			n, line, err = bufio.ScanLines(data, last)
			ended = n > 0 && data[n-1] == '\n'
			return n, line, err
		})
		for s.Scan() {
			if line := bytes.TrimSpace(s.Bytes()); len(line) > 0 && (ended || s.Err() == nil) && !yield(line, nil) {
				return
			}
		}
		if err := s.Err(); err != nil {
			yield(nil, err)
		}
	}
}
