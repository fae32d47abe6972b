package zmtp

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestEncode(t *testing.T) {
	for _, tt := range []struct {
		parts []string
		wire  string
	}{
		{[]string{""}, "\x00\x00"},
		{[]string{"kv"}, "\x00\x02kv"},
		{[]string{"kv", "", "x"}, "\x01\x02kv\x01\x00\x00\x01x"},
		{[]string{strings.Repeat("a", 255)}, "\x00\xff" + strings.Repeat("a", 255)},
		{[]string{strings.Repeat("a", 256), ""}, "\x03\x00\x00\x00\x00\x00\x00\x01\x00" + strings.Repeat("a", 256) + "\x00\x00"},
	} {
		parts := byteParts(tt.parts)
		if got := string(encode(parts)); got != tt.wire {
			t.Errorf("%.20q: %.40q, want %.40q", tt.parts, got, tt.wire)
		}
		if wire, _ := wireSize(parts); wire != len(tt.wire) {
			t.Errorf("%.20q: %d bytes on the wire, want %d", tt.parts, wire, len(tt.wire))
		}
	}
}

func byteParts(parts []string) [][]byte {
	list := make([][]byte, len(parts))
	for i, p := range parts {
		list[i] = []byte(p)
	}
	return list
}

func TestScan(t *testing.T) {
	const long = "\x02\x00\x00\x00\x00\x00\x00\x00"
	for _, tt := range []struct {
		name, in string
		want     scanner // at, whole, messages, parts and size
		need     int
		commands []string
		problem  string
	}{
		{name: "nothing", need: 2},
		{name: "half a head", in: "\x00", need: 2},
		{name: "half a long head", in: long, need: 9},
		{name: "half a body", in: "\x00\x05abc", need: 7},
		{name: "half a long body", in: long + "\x09abc", need: 18},
		{name: "a message", in: "\x00\x01a", want: scanner{at: 3, whole: 3, messages: 1}, need: 5},
		{name: "half a message", in: "\x01\x01a", want: scanner{at: 3, parts: 1, size: 1}, need: 5},
		{name: "a message and a half", in: "\x00\x00\x01\x01a\x00\x02b", want: scanner{at: 5, whole: 2, messages: 1, parts: 1, size: 1}, need: 9},
		{name: "a command", in: "\x04\x05\x04PING", want: scanner{at: 7, whole: 7}, need: 9, commands: []string{"\x04PING"}},
		{name: "a long command", in: "\x06\x00\x00\x00\x00\x00\x00\x00\x01x", want: scanner{at: 10, whole: 10}, need: 12, commands: []string{"x"}},
		{name: "a command amid a message", in: "\x01\x01a\x04\x01c\x00\x00", want: scanner{at: 8, whole: 8, messages: 1}, need: 10, commands: []string{"c"}},
		{name: "a command before the end of a message", in: "\x01\x01a\x04\x01c", want: scanner{at: 6, parts: 2, size: 1}, need: 8, commands: []string{"c"}},
		{name: "as large as can be", in: "\x00\x0a0123456789", want: scanner{at: 12, whole: 12, messages: 1}, need: 14},

		{name: "too large", in: "\x00\x0b", problem: "too large: more than 10 bytes"},
		{name: "too large together", in: "\x01\x060123456\x00\x05", problem: "unknown flags"},
		{name: "too large in parts", in: "\x01\x06012345\x00\x05", problem: "too large: more than 10 bytes"},
		{name: "absurdly large", in: "\x02\xff\xff\xff\xff\xff\xff\xff\xff", problem: "too large: more than 10 bytes"},
		{name: "large beyond signed numbers", in: "\x01\x01a\x02\x80\x00\x00\x00\x00\x00\x00\x00", problem: "too large: more than 10 bytes"},
		{name: "too many parts", in: "\x01\x00\x01\x00\x01\x00\x00\x00", problem: "too large: more than 3 parts"},
		{name: "too many commands amid a message", in: "\x01\x00" + "\x04\x01c\x04\x01c\x04\x01c", problem: "too large: more than 3 parts"},
		{name: "unknown flags", in: "\x08\x00", problem: "unknown flags 0x08"},
		{name: "unknown flags at once", in: "\xff", problem: "unknown flags 0xff"},
		{name: "a command of several frames", in: "\x05\x01a", problem: "command of more than one frame"},
		{name: "a large command", in: "\x06\x00\x00\x00\x00\x00\x00\x20\x01", problem: "command of 8193 bytes"},
		{name: "a bad command", in: "\x04\x03bad", problem: "bad command"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := scanner{maxMessage: 10, maxParts: 3}
			var commands []string
			need, err := s.scan([]byte(tt.in), func(body []byte) error {
				if string(body) == "bad" {
					return errors.New("bad command")
				}
				commands = append(commands, string(body))
				return nil
			})
			if tt.problem != "" {
				if err == nil || !strings.Contains(err.Error(), tt.problem) {
					t.Fatalf("%v, want %q", err, tt.problem)
				}
				return
			}
			tt.want.maxMessage, tt.want.maxParts = 10, 3
			if err != nil || need != tt.need || s != tt.want || !slices.Equal(commands, tt.commands) {
				t.Errorf("%+v, %d, %q, %v; want %+v, %d, %q", s, need, commands, err, tt.want, tt.need, tt.commands)
			}
		})
	}
}

// Whatever the pieces in which a stream arrives, the same messages and commands
// come out of it as went in.
func TestScanPieces(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var wire []byte
		var messages, commands [][]string
		part := rapid.SliceOfN(rapid.Byte(), 0, 300)
		for range rapid.IntRange(0, 20).Draw(t, "items") {
			parts := rapid.SliceOfN(part, 1, 5).Draw(t, "parts")
			if rapid.Bool().Draw(t, "command") {
				wire = appendFrame(wire, flagCommand, parts[0])
				commands = append(commands, []string{string(parts[0])})
				continue
			}
			at := rapid.IntRange(0, len(parts)).Draw(t, "amid")
			for i, p := range parts {
				if i == at && i > 0 { // as libzmq may do
					wire = appendFrame(wire, flagCommand, []byte("amid"))
					commands = append(commands, []string{"amid"})
				}
				flags := byte(flagMore)
				if i == len(parts)-1 {
					flags = 0
				}
				wire = appendFrame(wire, flags, p)
			}
			messages = append(messages, texts(parts))
		}

		s := scanner{maxMessage: 2000, maxParts: 6}
		var gotMessages, gotCommands [][]string
		var c chunk
		home := make(chan *chunk, 1)
		for sent := 0; sent < len(wire); {
			if c.n == len(c.buf) {
				c.grow(rapid.IntRange(1, 100).Draw(t, "room") + c.n)
			}
			n := min(rapid.IntRange(1, 500).Draw(t, "piece"), len(c.buf)-c.n, len(wire)-sent)
			c.n += copy(c.buf[c.n:], wire[sent:sent+n])
			sent += n
			if _, err := s.scan(c.buf[:c.n], func(body []byte) error {
				gotCommands = append(gotCommands, []string{string(body)})
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			before := len(gotMessages)
			b := inbox{open: delivery{chunk: &chunk{home: home}}, rest: bytes.Clone(c.buf[:s.whole])}
			for m, ok := b.next(); ok; m, ok = b.next() {
				gotMessages = append(gotMessages, texts(m.Parts))
			}
			<-home // it has been given back
			if got := len(gotMessages) - before; got != s.messages {
				t.Fatalf("%d messages were counted, %d are there", s.messages, got)
			}
			c.n = copy(c.buf, c.buf[s.whole:c.n])
			s.shift()
		}
		if diff := cmp.Diff(messages, gotMessages); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(commands, gotCommands); diff != "" {
			t.Fatal(diff)
		}
	})
}

func texts(parts [][]byte) []string {
	list := make([]string, len(parts))
	for i, p := range parts {
		list[i] = string(p)
	}
	return list
}

// What a peer claims costs no memory; only what it sends does.
func TestGrowByWhatCame(t *testing.T) {
	c := chunk{buf: make([]byte, 100), n: 100}
	c.grow(1 << 40)
	if len(c.buf) != 200 {
		t.Errorf("100 bytes came, and there is room for %d", len(c.buf))
	}
	c.n = 200
	c.grow(250)
	if len(c.buf) != 250 {
		t.Errorf("250 bytes are needed, and there is room for %d", len(c.buf))
	}
}

// Bytes of any kind, whole or in two pieces, are taken or refused alike.
func FuzzScan(f *testing.F) {
	f.Add([]byte("\x01\x02kv\x00\x05hello"), 3)
	f.Add([]byte("\x04\x05\x04PING\x02\x00\x00\x00\x00\x00\x00\x00\x01a"), 9)
	f.Add([]byte("\x01\x00\x01\x00\x01\x00\x00\x00"), 1)
	f.Fuzz(func(t *testing.T, in []byte, at int) {
		run := func(pieces ...int) (scanner, string) {
			s := scanner{maxMessage: 64, maxParts: 3}
			var log strings.Builder
			for _, n := range pieces {
				need, err := s.scan(in[:n], func(body []byte) error {
					fmt.Fprintf(&log, "%q ", body)
					return nil
				})
				if err != nil {
					fmt.Fprint(&log, err)
					return scanner{}, log.String()
				}
				if need <= n || s.whole > s.at || s.at > n || s.size > 64 || s.parts > 3 {
					t.Fatalf("need %d of %d, %+v", need, n, s)
				}
			}
			b := inbox{rest: in[:s.whole]}
			messages := 0
			for m, ok := b.next(); ok; m, ok = b.next() {
				messages++
				if wire := encode(m.Parts); len(m.Parts) == 0 || len(wire) == 0 {
					t.Fatal("a message without parts")
				}
			}
			if messages != s.messages {
				t.Fatalf("%d messages were counted, %d are there", s.messages, messages)
			}
			return s, log.String()
		}
		whole, said := run(len(in))
		halves, saidToo := run(min(max(at, 0), len(in)), len(in))
		if whole != halves || said != saidToo {
			t.Errorf("at once %+v %s, in two %+v %s", whole, said, halves, saidToo)
		}
	})
}
