package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// A frame is a byte of flags, the size of its body in one byte or, if it is
// long, in eight, and the body. A message ends with its first frame without
// the flag more.
const (
	flagMore    = 1
	flagLong    = 2
	flagCommand = 4
)

// maxCommand bounds the body of a command: the longest are subscriptions.
const maxCommand = 8 << 10

// header reads the head of the frame at the beginning of b: its flags, and where
// its body begins and ends. Before the whole head is here, body is how many
// bytes it has at least, and ok is false.
func header(b []byte) (flags byte, body int, size uint64, ok bool) {
	if len(b) < 2 {
		return 0, 2, 0, false
	}
	if b[0]&flagLong == 0 {
		return b[0], 2, uint64(b[1]), true
	}
	if len(b) < 9 {
		return b[0], 9, 0, false
	}
	return b[0], 9, binary.BigEndian.Uint64(b[1:]), true
}

// cut cuts the first frame off b, which has been scanned.
func cut(b []byte) (flags byte, body, rest []byte) {
	flags, at, size, _ := header(b)
	end := at + int(size)
	return flags, b[at:end:end], b[end:]
}

// appendFrame appends a frame.
func appendFrame(b []byte, flags byte, body []byte) []byte {
	if len(body) < 256 {
		b = append(b, flags, byte(len(body)))
	} else {
		b = append(b, flags|flagLong)
		b = binary.BigEndian.AppendUint64(b, uint64(len(body)))
	}
	return append(b, body...)
}

// encode returns a message in its form on the wire.
func encode(parts [][]byte) []byte {
	wire, _ := wireSize(parts)
	b := make([]byte, 0, wire)
	for i, p := range parts {
		var flags byte
		if i < len(parts)-1 {
			flags = flagMore
		}
		b = appendFrame(b, flags, p)
	}
	return b
}

// wireSize is the size of a message on the wire, and size that of its parts.
func wireSize(parts [][]byte) (wire, size int) {
	for _, p := range parts {
		size += len(p)
		wire += 2
		if len(p) > 255 {
			wire += 7
		}
	}
	return wire + size, size
}

// scanner finds the ends of messages in a growing buffer, and holds them to the
// limits as soon as their sizes are known.
type scanner struct {
	maxMessage, maxParts int

	at       int // the next frame begins here
	whole    int // what lies before it are whole messages and commands
	messages int // how many of them are messages

	parts int // of the message begun, with the commands among them
	size  uint64
}

// scan goes on in b, whose first bytes have been scanned already. Commands are
// passed to command, if they are whole, and stay in the buffer. The frame that
// is not whole yet ends at need, as far as is known.
func (s *scanner) scan(b []byte, command func(body []byte) error) (need int, err error) {
	for {
		flags, body, size, ok := header(b[s.at:])
		if !ok {
			if len(b) > s.at && b[s.at]&^(flagMore|flagLong|flagCommand) != 0 {
				return 0, fmt.Errorf("a frame with unknown flags %#02x", b[s.at])
			}
			return s.at + body, nil
		}
		switch {
		case flags&^(flagMore|flagLong|flagCommand) != 0:
			return 0, fmt.Errorf("a frame with unknown flags %#02x", flags)
		case flags&flagCommand != 0 && flags&flagMore != 0:
			return 0, errors.New("a command of more than one frame")
		case flags&flagCommand != 0 && size > maxCommand:
			return 0, fmt.Errorf("a command of %d bytes; at most %d are allowed", size, maxCommand)
		case s.parts == s.maxParts: // also commands, which stay here until the message is whole
			return 0, fmt.Errorf("%w: more than %d parts", ErrTooLarge, s.maxParts)
		case flags&flagCommand == 0 && size > uint64(s.maxMessage)-s.size:
			return 0, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, s.maxMessage)
		}
		end := s.at + body + int(size)
		if end > len(b) {
			return end, nil
		}
		if flags&flagCommand != 0 {
			if err := command(b[s.at+body : end]); err != nil {
				return 0, err
			}
			s.at = end
			if s.parts == 0 {
				s.whole = end
			} else {
				s.parts++
			}
			continue
		}
		s.at = end
		if flags&flagMore != 0 {
			s.parts++
			s.size += size
			continue
		}
		s.parts, s.size, s.whole = 0, 0, end
		s.messages++
	}
}

// shift says that the whole messages are no longer in the buffer.
func (s *scanner) shift() {
	s.at -= s.whole
	s.whole, s.messages = 0, 0
}
