package trace

import (
	"context"
	"io"
)

// Stream is the sink that writes records as lines between those of a log.
type Stream struct {
	out  io.Writer
	line []byte
}

// NewStream returns a sink that writes each record by one call of out.
func NewStream(out io.Writer) *Stream { return &Stream{out: out} }

// Name implements [Sink].
func (*Stream) Name() string { return SinkStderr }

// Write implements [Sink].
func (s *Stream) Write(_ context.Context, records []*Record) error {
	for i, r := range records {
		line, err := r.Append(s.line[:0])
		if err == nil {
			s.line = append(line, '\n')
			_, err = s.out.Write(s.line)
		}
		if err != nil {
			return &Lost{len(records) - i, err}
		}
	}
	return nil
}

// Close implements [Sink]. The stream is not its own.
func (*Stream) Close(context.Context) error { return nil }
