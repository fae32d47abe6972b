package peer

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
)

// reply is an answer in RESP2: simple, fault, number, bulk, array, or nil.
type reply any

type (
	simple string
	fault  string // an error, as the server words it
	number int64
	bulk   []byte
	array  []reply
)

// Bounds of what a server may make us hold.
const (
	maxLine  = 4 << 10
	maxItems = 64 << 10
	maxDepth = 4
	// slack is what the answers of an exchange may have besides a value.
	slack = 4 << 20
	// itemCost is what each reply is taken to cost besides its bytes.
	itemCost = 32
	// stretch is how much memory is taken for a string before its bytes come.
	stretch = 16 << 20
)

// budget is how many bytes the answers of an exchange may still have together.
type budget int64

// take reports whether n bytes were left.
func (b *budget) take(n int64) bool {
	*b -= budget(n)
	return *b >= 0
}

var errProtocol = errors.New("not RESP")

// command returns a request: words as strings, or as byte strings that are sent
// from where they lie.
func command(words ...any) net.Buffers {
	var bufs net.Buffers
	head := fmt.Appendf(nil, "*%d\r\n", len(words))
	for _, w := range words {
		switch w := w.(type) {
		case string:
			head = fmt.Appendf(head, "$%d\r\n%s\r\n", len(w), w)
		case []byte:
			head = fmt.Appendf(head, "$%d\r\n", len(w))
			bufs = append(bufs, head, w)
			head = []byte("\r\n")
		default:
			panic(fmt.Sprintf("peer: a word of type %T", w))
		}
	}
	return append(bufs, head)
}

// readReply reads one answer, as far as left goes.
func readReply(r *bufio.Reader, left *budget, depth int) (reply, error) {
	line, err := readLine(r)
	if err != nil {
		return nil, err
	}
	if !left.take(itemCost + int64(len(line))) {
		return nil, fmt.Errorf("%w: an answer without end", errProtocol)
	}
	if len(line) == 0 {
		return nil, fmt.Errorf("%w: an empty line", errProtocol)
	}
	rest := string(line[1:])
	switch line[0] {
	case '+':
		return simple(rest), nil
	case '-':
		return fault(rest), nil
	}
	n, err := strconv.ParseInt(rest, 10, 64)
	if err != nil {
		return nil, fmt.Errorf("%w: %q", errProtocol, line)
	}
	switch {
	case line[0] == ':':
		return number(n), nil
	case line[0] == '$' && n == -1, line[0] == '*' && n == -1:
		return nil, nil
	case line[0] == '$' && n >= 0 && left.take(n):
		return readBulk(r, n)
	case line[0] == '*' && n >= 0 && n <= maxItems && depth < maxDepth:
		return readArray(r, n, left, depth)
	}
	return nil, fmt.Errorf("%w: %q", errProtocol, line)
}

// readLine returns a line without its end.
func readLine(r *bufio.Reader) ([]byte, error) {
	line, err := r.ReadSlice('\n')
	if err != nil {
		if errors.Is(err, bufio.ErrBufferFull) {
			return nil, fmt.Errorf("%w: a line of more than %d bytes", errProtocol, maxLine)
		}
		return nil, unexpected(err)
	}
	if len(line) < 2 || line[len(line)-2] != '\r' {
		return nil, fmt.Errorf("%w: a line without its end", errProtocol)
	}
	return line[:len(line)-2], nil
}

// readBulk reads a string of n bytes. Memory is taken as they come, since a
// length costs a liar nothing.
func readBulk(r *bufio.Reader, n int64) (reply, error) {
	b := make([]byte, 0, min(n, stretch))
	for int64(len(b)) < n {
		from := len(b)
		if from == cap(b) {
			b = append(make([]byte, 0, min(n, 4*int64(from))), b...)
		}
		b = b[:cap(b)]
		if _, err := io.ReadFull(r, b[from:]); err != nil {
			return nil, unexpected(err)
		}
	}
	var end [2]byte
	if _, err := io.ReadFull(r, end[:]); err != nil {
		return nil, unexpected(err)
	}
	if end != [2]byte{'\r', '\n'} {
		return nil, fmt.Errorf("%w: a string that goes on after its end", errProtocol)
	}
	return bulk(b), nil
}

func readArray(r *bufio.Reader, n int64, left *budget, depth int) (reply, error) {
	items := array{}
	for range n {
		item, err := readReply(r, left, depth+1)
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

// unexpected returns err, of which io.EOF in the middle of an answer is none.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
