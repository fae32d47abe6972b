package zmtp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
)

// A command is a name, preceded by its length, and what the name defines.
const (
	ready     = "READY"
	failure   = "ERROR"
	ping      = "PING"
	pong      = "PONG"
	subscribe = "SUBSCRIBE"
	cancel    = "CANCEL"
)

// maxIdentity bounds the name of a socket, by the protocol.
const maxIdentity = 255

// maxPingContext is how much of a PING comes back, by the protocol.
const maxPingContext = 16

// maxPrefix bounds what is subscribed to: a command must hold it.
const maxPrefix = maxCommand - 1 - len(subscribe)

// appendCommand appends the frame of a command.
func appendCommand(b []byte, name string, content ...byte) []byte {
	body := make([]byte, 0, 1+len(name)+len(content))
	body = append(body, byte(len(name)))
	body = append(body, name...)
	body = append(body, content...)
	return appendFrame(b, flagCommand, body)
}

// parseCommand splits the body of a command.
func parseCommand(body []byte) (name string, content []byte, err error) {
	if len(body) == 0 || int(body[0]) > len(body)-1 || body[0] == 0 {
		return "", nil, errors.New("a command without a whole name")
	}
	end := 1 + int(body[0])
	return string(body[1:end]), body[end:], nil
}

// appendPing appends a PING that asks for its context. Its time to live is none:
// a reader that falls behind is slow, not dead.
func appendPing(b []byte, context string) []byte {
	return appendCommand(b, ping, append([]byte{0, 0}, context...)...)
}

// appendPong appends the answer to a PING's content.
func appendPong(b, content []byte) ([]byte, error) {
	if len(content) < 2 || len(content) > 2+maxPingContext {
		return b, fmt.Errorf("a PING of %d bytes; it has 2 to %d", len(content), 2+maxPingContext)
	}
	return appendCommand(b, pong, content[2:]...), nil
}

// appendError appends an ERROR; its reason is at most 255 bytes.
func appendError(b []byte, reason string) []byte {
	reason = reason[:min(len(reason), 255)]
	return appendCommand(b, failure, append([]byte{byte(len(reason))}, reason...)...)
}

// parseError returns the reason of an ERROR as an error.
func parseError(content []byte) error {
	if len(content) == 0 || int(content[0]) > len(content)-1 {
		return errors.New("the peer reports an error")
	}
	return fmt.Errorf("the peer reports an error: %q", content[1:1+int(content[0])])
}

// metadata is what peers tell of themselves.
type metadata struct {
	socketType string
	identity   []byte
}

// appendReady appends a READY. DEALER and ROUTER sockets tell an identity, be it
// empty.
func appendReady(b []byte, m metadata) []byte {
	var content []byte
	content = appendProperty(content, "Socket-Type", []byte(m.socketType))
	if m.socketType == "DEALER" || m.socketType == "ROUTER" {
		content = appendProperty(content, "Identity", m.identity)
	}
	return appendCommand(b, ready, content...)
}

func appendProperty(b []byte, name string, value []byte) []byte {
	b = append(b, byte(len(name)))
	b = append(b, name...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(value)))
	return append(b, value...)
}

// parseReady reads the content of a READY. Names of properties have no case, and
// unknown ones say nothing to us.
func parseReady(content []byte) (metadata, error) {
	var m metadata
	for len(content) > 0 {
		size := int(content[0])
		if len(content) < 1+size+4 {
			return metadata{}, errors.New("a READY whose properties are cut off")
		}
		name := string(content[1 : 1+size])
		value := content[1+size+4:]
		n := binary.BigEndian.Uint32(content[1+size:])
		if uint64(n) > uint64(len(value)) {
			return metadata{}, fmt.Errorf("a READY whose property %q is cut off", name)
		}
		switch {
		case strings.EqualFold(name, "Socket-Type"):
			m.socketType = string(value[:n])
		case strings.EqualFold(name, "Identity"):
			if n > maxIdentity {
				return metadata{}, fmt.Errorf("an identity of %d bytes; at most %d are allowed", n, maxIdentity)
			}
			m.identity = append([]byte(nil), value[:n]...)
		}
		content = value[n:]
	}
	if m.socketType == "" {
		return metadata{}, errors.New("a READY without Socket-Type")
	}
	return m, nil
}

// appendSubscription appends what subscribes to a prefix, or cancels that: a
// command for peers that know it, else a message whose first byte says which.
func appendSubscription(b []byte, peerMinor byte, on bool, prefix []byte) []byte {
	if peerMinor >= 1 {
		name := cancel
		if on {
			name = subscribe
		}
		return appendCommand(b, name, prefix...)
	}
	first := byte(0)
	if on {
		first = 1
	}
	return appendFrame(b, 0, append([]byte{first}, prefix...))
}

// parseSubscription reads a frame that a subscriber sent; ok is false if it is
// no subscription.
func parseSubscription(flags byte, body []byte) (on bool, prefix []byte, ok bool) {
	if flags&flagCommand != 0 {
		name, prefix, err := parseCommand(body)
		return name == subscribe, prefix, err == nil && (name == subscribe || name == cancel)
	}
	if flags&flagMore != 0 || len(body) == 0 || body[0] > 1 {
		return false, nil, false
	}
	return body[0] == 1, body[1:], true
}
