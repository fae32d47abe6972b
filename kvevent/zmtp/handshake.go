package zmtp

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"syscall"
)

// partners lists which sockets a socket may talk to.
var partners = map[string][]string{
	"SUB":    {"PUB", "XPUB"},
	"PUB":    {"SUB", "XSUB"},
	"DEALER": {"ROUTER", "REP", "DEALER"},
	"ROUTER": {"DEALER", "REQ", "ROUTER"},
	"PULL":   {"PUSH"},
}

// welcome is what a handshake told of a peer.
type welcome struct {
	metadata
	minor byte
}

// shake greets a peer and checks that it is one for us. A peer that is not is
// told why, where it can understand that. It reads not one byte too many.
func shake(conn io.ReadWriter, our metadata) (welcome, error) {
	if _, err := conn.Write(greeting[:]); err != nil {
		return welcome{}, fmt.Errorf("send the greeting: %w", err)
	}
	var their [greetingSize]byte
	// Whoever speaks something else may wait for an answer to its first bytes.
	for _, part := range [][2]int{{0, 1}, {1, signatureSize}, {signatureSize, greetingSize}} {
		n, err := io.ReadFull(conn, their[part[0]:part[1]])
		if wrong := checkSignature(their[:part[0]+n]); wrong != nil {
			return welcome{}, wrong
		}
		switch {
		case ended(err):
			// As libzmq does if the mechanisms differ.
			return welcome{}, errors.New("the peer closed the connection instead of greeting; it may want a security mechanism, but only NULL is spoken here")
		case err != nil:
			return welcome{}, fmt.Errorf("read the greeting: %w", err)
		}
	}
	peerMinor, err := parseGreeting(&their)
	switch {
	case err != nil && their[10] < major: // it knows no commands
		return welcome{}, err
	case err != nil:
		return welcome{}, refuse(conn, err)
	}
	if _, err := conn.Write(appendReady(nil, our)); err != nil {
		return welcome{}, fmt.Errorf("send READY: %w", err)
	}
	m, err := readReady(conn)
	if err != nil {
		return welcome{}, err
	}
	if wanted := partners[our.socketType]; !slices.Contains(wanted, m.socketType) {
		return welcome{}, refuse(conn, fmt.Errorf("the peer is a %s socket; a %s socket talks to %q", m.socketType, our.socketType, wanted))
	}
	return welcome{m, peerMinor}, nil
}

// refuse tells the peer why it is refused, and returns that. Whether the peer
// hears it makes no difference.
func refuse(conn io.Writer, why error) error {
	_, _ = conn.Write(appendError(nil, why.Error()))
	return why
}

// ended says whether the peer hung up.
func ended(err error) bool {
	return errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, syscall.ECONNRESET)
}

// readReady reads the READY of a peer. Other commands may come before it.
func readReady(conn io.Reader) (metadata, error) {
	for range 8 {
		flags, body, err := readCommand(conn)
		switch {
		case ended(err):
			// As libzmq does if the types do not fit.
			return metadata{}, errors.New("the peer closed the connection after the greeting; it may be a socket of a type that does not fit")
		case err != nil:
			return metadata{}, fmt.Errorf("read READY: %w", err)
		}
		if flags&flagCommand == 0 {
			return metadata{}, fmt.Errorf("the peer sends a message before it is ready")
		}
		name, content, err := parseCommand(body)
		if err != nil {
			return metadata{}, err
		}
		switch name {
		case ready:
			return parseReady(content)
		case failure:
			return metadata{}, parseError(content)
		}
	}
	return metadata{}, fmt.Errorf("the peer sends commands but no READY")
}

// readCommand reads one frame of no more than a command's size.
func readCommand(conn io.Reader) (flags byte, body []byte, err error) {
	head := make([]byte, 0, 9)
	for {
		flags, n, size, ok := header(head)
		if ok && size > maxCommand {
			return 0, nil, fmt.Errorf("a command of %d bytes; at most %d are allowed", size, maxCommand)
		}
		if ok {
			body := make([]byte, size)
			_, err := io.ReadFull(conn, body)
			return flags, body, err
		}
		read, err := io.ReadFull(conn, head[len(head):n])
		head = head[:len(head)+read]
		if err != nil {
			return 0, nil, err
		}
	}
}
