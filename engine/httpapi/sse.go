package httpapi

import (
	"bufio"
	"bytes"
	"io"
	"iter"
	"slices"
	"sync"
)

// longestLine bounds one line of a stream: with log probabilities and routed
// experts, they are long.
const longestLine = 64 << 20

// Events yields the data of server-sent events, as engines write them: with
// either line ending, with or without a blank behind the colon, with comments
// between them. Data over several lines is joined by line feeds. It ends at
// [DONE]. What is yielded may be used until the next is asked for.
func Events(r io.Reader) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		for bunch, err := range bunches(r) {
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

// Bunch is the data of events that have come together, in their order.
type Bunch struct {
	Events [][]byte
	// Last says that [DONE] is there as well.
	Last bool
}

// bunches yields what Events does, and together what is there at once: nothing
// waits for what is still to come.
func bunches(r io.Reader) iter.Seq2[Bunch, error] {
	return func(yield func(Bunch, error) bool) {
		in := intakes.Get().(*intake)
		in.r = r
		var event []byte                          // lies in what in has read
		begun, apart, done := false, false, false // apart: it has a place of its own
		for !done {
			line, ok := in.line()
			if !ok {
				if len(in.bunch) > 0 {
					if !yield(Bunch{Events: in.bunch}, nil) {
						return // whoever leaves may hold on to the events
					}
					in.bunch = in.bunch[:0]
				}
				// Most events come whole. This one is put aside while more is read.
				if begun && !apart {
					event, apart = bytes.Clone(event), true
				}
				if in.fill() {
					continue
				}
				if line, ok = in.rest(); !ok {
					break
				}
			}
			if len(line) == 0 {
				done = begun && string(event) == "[DONE]"
				if begun && !done {
					in.bunch = append(in.bunch, event)
				}
				begun = false
				continue
			}
			data, ok := bytes.CutPrefix(line, []byte("data:"))
			if !ok {
				continue // a comment, or a field that says nothing here
			}
			data = bytes.TrimPrefix(data, []byte{' '})
			if !begun {
				begun, apart, event = true, false, data
				continue
			}
			if !apart {
				event, apart = slices.Clip(event), true
			}
			event = append(append(event, '\n'), data...)
		}
		if !done && in.err != io.EOF {
			yield(Bunch{}, in.err)
			return
		}
		// The last event of a stream that was cut has no blank line behind it: it
		// is whole only if nothing of it is missing, which its reader will see.
		if begun && string(event) != "[DONE]" {
			in.bunch = append(in.bunch, event)
		}
		if len(in.bunch) > 0 && !yield(Bunch{in.bunch, done}, nil) {
			return
		}
		in.release()
	}
}

// intake cuts what it reads into lines, where it lies.
type intake struct {
	r      io.Reader
	buf    []byte
	unread []byte // of buf
	looked int    // bytes of unread that have no line end
	err    error  // that ended the reading
	bunch  [][]byte
}

// intakes are those of streams that have ended.
var intakes = sync.Pool{New: func() any { return &intake{buf: make([]byte, 4<<10)} }}

// release gives an intake back, unless one long line has made it large.
func (in *intake) release() {
	if len(in.buf) > 64<<10 || cap(in.bunch) > 1<<10 {
		return
	}
	clear(in.bunch)
	*in = intake{buf: in.buf, bunch: in.bunch[:0]}
	intakes.Put(in)
}

// line returns the next line that is there, without its end. It may be used until
// the next fill.
func (in *intake) line() (line []byte, ok bool) {
	i := bytes.IndexByte(in.unread[in.looked:], '\n')
	if i < 0 {
		in.looked = len(in.unread)
		return nil, false
	}
	i += in.looked
	line, in.unread, in.looked = in.unread[:i], in.unread[i+1:], 0
	return bytes.TrimSuffix(line, []byte{'\r'}), true
}

// rest returns a last line without an end, once nothing more can be read.
func (in *intake) rest() (line []byte, ok bool) {
	line, in.unread, in.looked = in.unread, nil, 0
	return bytes.TrimSuffix(line, []byte{'\r'}), len(line) > 0
}

// fill reads more, and says whether there is any. It fails for a line that is too
// long as well.
func (in *intake) fill() bool {
	if in.err != nil {
		return false
	}
	held := copy(in.buf, in.unread)
	if held == len(in.buf) {
		if held >= longestLine {
			in.unread, in.err = nil, bufio.ErrTooLong
			return false
		}
		larger := make([]byte, min(2*held, longestLine))
		copy(larger, in.unread)
		in.buf = larger
	}
	for range 100 {
		n, err := in.r.Read(in.buf[held:])
		in.err = err
		if in.unread = in.buf[:held+n]; n > 0 || err != nil {
			return n > 0
		}
	}
	in.err = io.ErrNoProgress
	return false
}
