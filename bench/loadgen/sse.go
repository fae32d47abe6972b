package loadgen

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
)

// Event is one server-sent event. Data is valid until the loop goes on.
type Event struct {
	Name string // of the event: field, "" if there was none
	Data []byte // data lines, joined by line feeds
}

// Events reads server-sent events from r. Comments, fields other than event and
// data, and events without data are passed over; lines end with LF or CRLF. A
// source that ends inside an event yields io.ErrUnexpectedEOF.
func Events(r *bufio.Reader) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		var line, data []byte
		var name string
		var hasData, open bool
		for {
			var err error
			line, err = readLine(r, line[:0])
			if err != nil {
				if errors.Is(err, io.EOF) && !open && len(line) == 0 {
					return
				}
				if errors.Is(err, io.EOF) {
					err = io.ErrUnexpectedEOF
				}
				yield(Event{}, err)
				return
			}

			if len(line) == 0 {
				if hasData && !yield(Event{name, data}, nil) {
					return
				}
				data, name, hasData, open = data[:0], "", false, false
				continue
			}
			field, value, _ := bytes.Cut(line, []byte{':'})
			value = bytes.TrimPrefix(value, []byte{' '})
			switch string(field) {
			case "data":
				if hasData {
					data = append(data, '\n')
				}
				data = append(data, value...)
				hasData, open = true, true
			case "event":
				name, open = string(value), true
			}
		}
	}
}

// readLine appends the next line without its end to dst. An unfinished last
// line comes with io.EOF.
func readLine(r *bufio.Reader, dst []byte) ([]byte, error) {
	for {
		part, err := r.ReadSlice('\n')
		dst = append(dst, part...)
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil {
			return dst, err
		}
		return bytes.TrimSuffix(dst[:len(dst)-1], []byte{'\r'}), nil
	}
}
