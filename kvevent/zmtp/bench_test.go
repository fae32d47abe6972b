package zmtp_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/dynago/dynago/kvevent/zmtp"
)

// endless is a connection to a publisher that says a greeting once, and then the
// same bytes over and over, as fast as they are read.
type endless struct {
	net.Conn // nil: what is not below is not called
	greeting io.Reader
	repeated []byte
	at       int
	closed   chan struct{}
}

func (e *endless) Read(b []byte) (int, error) {
	select {
	case <-e.closed:
		return 0, net.ErrClosed
	default:
	}
	if n, _ := e.greeting.Read(b); n > 0 {
		return n, nil
	}
	n := copy(b, e.repeated[e.at:])
	e.at = (e.at + n) % len(e.repeated)
	return n, nil
}

func (e *endless) Write(b []byte) (int, error)     { return len(b), nil }
func (e *endless) SetDeadline(time.Time) error     { return nil }
func (e *endless) SetReadDeadline(time.Time) error { return nil }
func (e *endless) RemoteAddr() net.Addr            { return &net.TCPAddr{} }
func (e *endless) Close() error {
	select {
	case <-e.closed:
	default:
		close(e.closed)
	}
	return nil
}

// frames of a message as engines send it: topic, number, batch.
func batch(payload int) []byte {
	wire := []byte("\x01\x02kv\x01\x08\x00\x00\x00\x00\x00\x00\x00\x00")
	if payload < 256 {
		wire = append(wire, 0, byte(payload))
	} else {
		wire = append(wire, 2, 0, 0, 0, 0, byte(payload>>24), byte(payload>>16), byte(payload>>8), byte(payload))
	}
	return append(wire, make([]byte, payload)...)
}

// BenchmarkReceive is what the sockets add to a system call: reading, finding
// messages, and handing them to a loop.
func BenchmarkReceive(b *testing.B) {
	for _, payload := range []int{100, 1_500, 20_000, 1 << 20} {
		b.Run(fmt.Sprint(payload), func(b *testing.B) {
			repeated := bytes.Repeat(batch(payload), max(1, (1<<20)/payload))
			sub := newSub(b, zmtp.Options{Dial: func(context.Context, string, string) (net.Conn, error) {
				return &endless{greeting: bytes.NewReader([]byte(hello30 + readyPub)), repeated: repeated, closed: make(chan struct{})}, nil
			}}, "")
			connect(b, sub, "tcp://engine:1")
			b.SetBytes(int64(payload))
			b.ReportAllocs()
			n := -1000 // until buffers have grown
			for m, err := range sub.Messages(b.Context()) {
				if err != nil {
					b.Fatal(err)
				}
				if len(m.Parts) != 3 {
					continue
				}
				if n++; n == 0 {
					b.ResetTimer()
				}
				if n == b.N {
					break
				}
			}
		})
	}
}

// BenchmarkDealerRouter sends messages over the loopback device, the whole path.
func BenchmarkDealerRouter(b *testing.B) {
	for _, payload := range []int{100, 1_500, 20_000} {
		b.Run(fmt.Sprint(payload), func(b *testing.B) {
			dealer, router := newDealer(b, zmtp.Options{}), newRouter(b, zmtp.Options{})
			connect(b, dealer, bind(b, router, "tcp://127.0.0.1:*"))
			topic, number, body := []byte("kv"), make([]byte, 8), make([]byte, payload)
			b.SetBytes(int64(payload))
			b.ReportAllocs()
			go func() {
				for range b.N {
					_ = dealer.Send(b.Context(), topic, number, body)
				}
			}()
			n := 0
			for m, err := range router.Messages(b.Context()) {
				if err != nil {
					b.Fatal(err)
				}
				if m.Event != zmtp.Data {
					continue
				}
				if n++; n == b.N {
					break
				}
			}
		})
	}
}
