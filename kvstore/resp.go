package kvstore

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

const (
	// MaxBulk is the longest value that the protocol allows, in bytes.
	MaxBulk = 512 << 20
	// maxArgs and maxArgBytes bound a request apart from the value it stores.
	maxArgs     = 1 << 16
	maxArgBytes = 16 << 20
	// maxArg bounds each argument that is no value to be stored: names of keys.
	maxArg = 64 << 10
	// step is how much of a value is read, or written, at a time.
	step = 1 << 20
	// keptBody is the longest buffer for values that an idle connection keeps, and
	// keptArena that for all other arguments.
	keptBody  = 4 << 20
	keptArena = 64 << 10
	// strangerArgs and strangerArg are what a client may send before it has shown a
	// token.
	strangerArgs = 10
	strangerArg  = 16 << 10
)

// protocolError is what a client must not send: nothing after it can be told
// apart, and the connection ends.
type protocolError string

func (e protocolError) Error() string { return "Protocol error: " + string(e) }

// errBusy refuses a value for which there is no memory just now.
var errBusy = errors.New("BUSY too many values are being received, try again")

// decoder reads requests: an array of bulk strings, or a line of words.
//
// Memory is taken as bytes come and not as they are announced. The value of a
// SET, which may be long, has a buffer of its own. That, and answers that are not
// gathered before they are sent, is why no library for servers of this protocol
// serves here.
type decoder struct {
	r        *bufio.Reader
	maxValue int64
	// reserve is asked before the buffer for values grows by n bytes, and told
	// when it shrinks.
	reserve func(n int64) bool
	// keep reports whether there is memory to spare, for a buffer that is not in
	// use.
	keep func() bool
	// progress is called before each step of a request that has begun.
	progress func()
	// stranger says that no token was shown, so that nothing long is taken.
	stranger bool

	// placing, if not nil, lets fill read a value to where it will lie, if there is
	// room for it; forget takes back what it returned.
	placing func(size int, fill func([]byte) (uint64, error)) (*placed, error)
	forget  func(*placed)
	placed  *placed // the value of the request, which is not in body then

	line      []byte
	arena     []byte
	arenaHeld int64 // of it, what was reserved
	spans     []span
	body      []byte
	args      [][]byte
}

// span is an argument in the arena; the body's begins at -1.
type span struct{ from, to int }

// next returns the arguments of the next request, which are good until the next
// one. Refused is why it cannot be answered, though it was read to its end; err
// ends the connection.
func (d *decoder) next() (args [][]byte, refused, err error) {
	d.shrink()
	d.arena, d.spans, d.args = d.arena[:0], d.spans[:0], d.args[:0]
	line, err := d.readLine()
	if err != nil {
		return nil, nil, err
	}
	if len(line) == 0 || line[0] != '*' {
		d.args = append(d.args, bytes.Fields(line)...)
		return d.args, nil, nil
	}
	n, err := number(line[1:], maxArgs)
	if err != nil {
		return nil, nil, protocolError("invalid multibulk length")
	}
	if d.stranger && n > strangerArgs {
		return nil, nil, protocolError("unauthenticated multibulk length")
	}
	for i := range max(n, 0) {
		bad, err := d.bulk(i)
		if err != nil {
			return nil, nil, unexpected(err)
		}
		if refused == nil {
			refused = bad
		}
	}
	for _, s := range d.spans {
		if s.from < 0 && d.placed != nil {
			d.args = append(d.args, d.placed.value.Bytes)
		} else if s.from < 0 {
			d.args = append(d.args, d.body[:s.to])
		} else {
			d.args = append(d.args, d.arena[s.from:s.to:s.to])
		}
	}
	return d.args, refused, nil
}

// bulk reads the argument of that number.
func (d *decoder) bulk(i int) (refused, err error) {
	line, err := d.readLine()
	if err != nil {
		return nil, err
	}
	if len(line) == 0 || line[0] != '$' {
		return nil, protocolError(fmt.Sprintf("expected '$', got %.1q", line))
	}
	size, err := number(line[1:], MaxBulk)
	if err != nil || size < 0 {
		return nil, protocolError("invalid bulk length")
	}
	if d.stranger && size > strangerArg {
		return nil, protocolError("unauthenticated bulk length")
	}
	switch value := i == 2 && d.isSet(); {
	case value && int64(size) > d.maxValue:
		refused = fmt.Errorf("ERR value of %d bytes is too large: at most %d are stored", size, d.maxValue)
	case value:
		there, err := d.place(size)
		if err == nil && !there {
			refused, err = d.value(size)
		}
		if err != nil {
			return nil, err
		}
		if refused == nil {
			d.spans = append(d.spans, span{-1, size})
			return nil, d.end()
		}
		size -= len(d.body)
	case size > maxArg:
		refused = fmt.Errorf("ERR argument of %d bytes is too long: at most %d", size, maxArg)
	case len(d.arena)+size > maxArgBytes:
		return nil, protocolError("too many bytes in arguments")
	case !d.growArena(size):
		refused = errBusy
	}
	if refused != nil {
		d.spans = append(d.spans, span{})
		return refused, errors.Join(d.discard(size), d.end())
	}
	from := len(d.arena)
	d.arena = d.arena[:from+size]
	d.spans = append(d.spans, span{from, from + size})
	if _, err := io.ReadFull(d.r, d.arena[from:]); err != nil {
		return nil, err
	}
	return nil, d.end()
}

// growArena makes room for size bytes more of arguments, if there is memory for
// them. What every connection may keep is not asked for.
func (d *decoder) growArena(size int) bool {
	want := len(d.arena) + size
	if want <= cap(d.arena) {
		return true
	}
	if want = max(want, min(2*cap(d.arena), maxArgBytes), 512); want <= keptArena {
		d.arena = append(make([]byte, 0, want), d.arena...)
		return true
	}
	if !d.reserve(int64(want) - d.arenaHeld) {
		return false
	}
	d.arenaHeld = int64(want)
	d.arena = append(make([]byte, 0, want), d.arena...)
	return true
}

// isSet reports whether the first argument is the command that stores.
func (d *decoder) isSet() bool {
	return bytes.EqualFold(d.arena[d.spans[0].from:d.spans[0].to], []byte("SET"))
}

// value reads size bytes into the body, or fewer if there is no room for them.
func (d *decoder) value(size int) (refused, err error) {
	d.body = d.body[:0]
	for len(d.body) < size {
		if len(d.body) == cap(d.body) && !d.grow(size) {
			return errBusy, nil
		}
		d.progress()
		from := len(d.body)
		d.body = d.body[:min(size, cap(d.body), from+step)]
		if _, err := io.ReadFull(d.r, d.body[from:]); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// grow doubles the body, up to what is wanted.
func (d *decoder) grow(size int) bool {
	had := cap(d.body)
	want := min(max(size, 4<<10), max(2*had, step))
	if !d.reserve(int64(want - had)) {
		return false
	}
	d.body = append(make([]byte, 0, want), d.body...)
	d.reserve(int64(want - cap(d.body)))
	return true
}

// shrink gives the body back unless it may be kept for the next request.
func (d *decoder) shrink() {
	d.unplace()
	if d.arenaHeld > 0 || cap(d.spans) > keptArena/16 {
		d.reserve(-d.arenaHeld)
		d.arena, d.spans, d.args, d.arenaHeld = nil, nil, nil, 0
	}
	if cap(d.line) > 4<<10 {
		d.line = nil
	}
	if cap(d.body) > keptBody || cap(d.body) > 0 && !d.keep() {
		d.reserve(-int64(cap(d.body)))
		d.body = nil
	}
}

// giveBack gives the buffers back.
func (d *decoder) giveBack() {
	d.unplace()
	d.reserve(-int64(cap(d.body)) - d.arenaHeld)
	d.body = nil
	d.arena, d.arenaHeld = nil, 0
}

func (d *decoder) discard(n int) error {
	for n > 0 {
		d.progress()
		m, err := d.r.Discard(min(n, step))
		if n -= m; err != nil {
			return err
		}
	}
	return nil
}

// end reads the two bytes behind a bulk string.
func (d *decoder) end() error {
	var crlf [2]byte
	if _, err := io.ReadFull(d.r, crlf[:]); err != nil {
		return err
	}
	if crlf != [2]byte{'\r', '\n'} {
		return protocolError("bulk string is longer than it said")
	}
	return nil
}

// readLine reads up to the end of a line, which may lack its CR.
func (d *decoder) readLine() ([]byte, error) {
	d.line = d.line[:0]
	for {
		part, err := d.r.ReadSlice('\n')
		d.line = append(d.line, part...)
		switch {
		case err == nil:
			return bytes.TrimSuffix(d.line[:len(d.line)-1], []byte{'\r'}), nil
		case err != bufio.ErrBufferFull && len(d.line) > 0:
			return nil, unexpected(err)
		case err != bufio.ErrBufferFull:
			return nil, err
		case len(d.line) > maxArg:
			return nil, protocolError("too big inline request")
		}
	}
}

// unexpected is err, for an end within a request.
func unexpected(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return err
}

// number reads a length, of digits with or without a sign.
func number(b []byte, most int) (int, error) {
	if len(b) == 0 || len(b) > 11 {
		return 0, strconv.ErrSyntax
	}
	n, err := strconv.Atoi(string(b))
	if err != nil || n > most {
		return 0, strconv.ErrRange
	}
	return n, nil
}

// encoder writes answers. Long values are written from where they lie; the first
// error ends the connection with the next flush.
type encoder struct {
	w        *bufio.Writer
	progress func()
	// resp3 writes what is null, and what is a map, as version 3 of the protocol
	// does; all else is the same in both.
	resp3    bool
	failures int  // errors written
	gone     bool // the client has, and what is written goes nowhere
	scratch  []byte
}

func (e *encoder) head(kind byte, n int64) {
	e.scratch = strconv.AppendInt(append(e.scratch[:0], kind), n, 10)
	e.scratch = append(e.scratch, '\r', '\n')
	e.w.Write(e.scratch) //nolint:errcheck // kept by the writer
}

func (e *encoder) text(kind byte, s string) {
	e.w.WriteByte(kind)     //nolint:errcheck // kept by the writer
	e.w.WriteString(s)      //nolint:errcheck // kept by the writer
	e.w.WriteString("\r\n") //nolint:errcheck // kept by the writer
}

func (e *encoder) simple(s string) { e.text('+', s) }

// fail writes an error; lines of it become one.
func (e *encoder) fail(s string) {
	e.failures++
	flat := []byte(s)
	for i, b := range flat {
		if b == '\r' || b == '\n' {
			flat[i] = ' '
		}
	}
	e.text('-', string(flat))
}

func (e *encoder) integer(n int64) { e.head(':', n) }
func (e *encoder) array(n int)     { e.head('*', int64(n)) }

func (e *encoder) null() {
	if e.resp3 {
		e.w.WriteString("_\r\n") //nolint:errcheck // kept by the writer
		return
	}
	e.w.WriteString("$-1\r\n") //nolint:errcheck // kept by the writer
}

// dictionary begins n pairs of names and values.
func (e *encoder) dictionary(n int) {
	if e.resp3 {
		e.head('%', int64(n))
		return
	}
	e.array(2 * n)
}

func (e *encoder) bulk(s string) {
	e.head('$', int64(len(s)))
	e.w.WriteString(s)      //nolint:errcheck // kept by the writer
	e.w.WriteString("\r\n") //nolint:errcheck // kept by the writer
}

func (e *encoder) value(b []byte) {
	e.head('$', int64(len(b)))
	for len(b) > 0 && !e.gone {
		n := min(len(b), step)
		e.progress()
		_, err := e.w.Write(b[:n])
		e.gone = err != nil
		b = b[n:]
	}
	e.w.WriteString("\r\n") //nolint:errcheck // kept by the writer
}
