package zmtp

import (
	"bytes"
	"encoding/hex"
	"strings"
	"testing"
)

// The frames of libzmq, as recorded in testdata.
func TestCommands(t *testing.T) {
	for _, tt := range []struct {
		name string
		got  []byte
		hex  string
	}{
		{"READY of a SUB", appendReady(nil, metadata{socketType: "SUB"}), "04190552454144590b536f636b65742d5479706500000003535542"},
		{"READY of a PUB", appendReady(nil, metadata{socketType: "PUB"}), "04190552454144590b536f636b65742d5479706500000003505542"},
		{"READY of a DEALER", appendReady(nil, metadata{"DEALER", []byte("me")}), "042b0552454144590b536f636b65742d54797065000000064445414c4552084964656e74697479000000026d65"},
		{"READY of a ROUTER", appendReady(nil, metadata{socketType: "ROUTER"}), "04290552454144590b536f636b65742d5479706500000006524f55544552084964656e7469747900000000"},
		{"SUBSCRIBE", appendSubscription(nil, 1, true, []byte("kv")), "040c095355425343524942456b76"},
		{"CANCEL", appendSubscription(nil, 1, false, []byte("kv")), "04090643414e43454c6b76"},
		{"a subscription of 3.0", appendSubscription(nil, 0, true, []byte("kv")), "0003016b76"},
		{"a cancellation of 3.0", appendSubscription(nil, 0, false, []byte("kv")), "0003006b76"},
		{"PING", appendPing(nil, ""), "04070450494e470000"},
		{"ERROR", appendError(nil, "no"), "0409054552524f52026e6f"},
	} {
		if got := hex.EncodeToString(tt.got); got != tt.hex {
			t.Errorf("%s: %s, want %s", tt.name, got, tt.hex)
		}
	}
}

func TestPong(t *testing.T) {
	for _, tt := range []struct{ content, want, problem string }{
		{"\x00\x32", "\x04\x05\x04PONG", ""},
		{"\x00\x00context of 16 by", "\x04\x15\x04PONGcontext of 16 by", ""},
		{"\x00", "", "a PING of 1 bytes"},
		{"\x00\x00context of 17 byt", "", "a PING of 19 bytes"},
	} {
		got, err := appendPong(nil, []byte(tt.content))
		if string(got) != tt.want || tt.problem == "" && err != nil || tt.problem != "" && !says(err, tt.problem) {
			t.Errorf("PING %q: %q, %v", tt.content, got, err)
		}
	}
}

func says(err error, what string) bool { return err != nil && strings.Contains(err.Error(), what) }

func TestParseReady(t *testing.T) {
	for _, tt := range []struct {
		name, content string
		want          metadata
		problem       string
	}{
		{"a SUB", "\x0bSocket-Type\x00\x00\x00\x03SUB", metadata{socketType: "SUB"}, ""},
		{"any case, any order, more properties", "\x08identity\x00\x00\x00\x02me\x01X\x00\x00\x00\x00\x0bsocket-type\x00\x00\x00\x06DEALER", metadata{"DEALER", []byte("me")}, ""},
		{"nothing", "", metadata{}, "without Socket-Type"},
		{"half a name", "\x0bSocket", metadata{}, "cut off"},
		{"half a size", "\x01X\x00\x00", metadata{}, "cut off"},
		{"half a value", "\x0bSocket-Type\x00\x00\x00\x04SUB", metadata{}, `"Socket-Type" is cut off`},
		{"an absurd size", "\x0bSocket-Type\xff\xff\xff\xffSUB", metadata{}, `"Socket-Type" is cut off`},
		{"the longest identity", "\x08Identity\x00\x00\x00\xff" + strings.Repeat("x", 255) + "\x0bSocket-Type\x00\x00\x00\x03REQ", metadata{"REQ", bytes.Repeat([]byte("x"), 255)}, ""},
		{"a long identity", "\x08Identity\x00\x00\x01\x00" + strings.Repeat("x", 256), metadata{}, "identity of 256 bytes"},
	} {
		got, err := parseReady([]byte(tt.content))
		if got.socketType != tt.want.socketType || !bytes.Equal(got.identity, tt.want.identity) || tt.problem == "" && err != nil || tt.problem != "" && !says(err, tt.problem) {
			t.Errorf("%s: %+v, %v; want %+v, %q", tt.name, got, err, tt.want, tt.problem)
		}
	}
}

func TestParseError(t *testing.T) {
	for content, want := range map[string]string{
		"\x02no":  `the peer reports an error: "no"`,
		"\x02no.": `the peer reports an error: "no"`,
		"\x03no":  "the peer reports an error",
		"":        "the peer reports an error",
	} {
		if got := parseError([]byte(content)).Error(); got != want {
			t.Errorf("%q: %s, want %s", content, got, want)
		}
	}
	long := appendError(nil, strings.Repeat("x", 300))
	if _, body, _ := cut(long); len(body) != 1+5+1+255 {
		t.Errorf("a long reason makes a command of %d bytes", len(body))
	}
}

// Commands of any content are read or refused, and what was read of ours is what
// was written.
func FuzzCommand(f *testing.F) {
	for _, frame := range [][]byte{
		appendReady(nil, metadata{"DEALER", []byte("me")}), appendPing(nil, "context"), appendError(nil, "no"),
		appendSubscription(nil, 1, true, []byte("kv")), appendSubscription(nil, 0, false, nil),
	} {
		flags, body, _ := cut(frame)
		f.Add(flags, body)
	}
	f.Fuzz(func(t *testing.T, flags byte, body []byte) {
		if on, prefix, ok := parseSubscription(flags, body); ok {
			minor := byte(0)
			if flags&flagCommand != 0 {
				minor = 1
			}
			_, again, _ := cut(appendSubscription(nil, minor, on, prefix))
			if !bytes.Equal(again, body) {
				t.Errorf("subscription %q becomes %q", body, again)
			}
		}
		name, content, err := parseCommand(body)
		if err != nil {
			return
		}
		if _, again, _ := cut(appendCommand(nil, name, content...)); !bytes.Equal(again, body) {
			t.Errorf("command %q becomes %q", body, again)
		}
		if m, err := parseReady(content); err == nil {
			if m.socketType == "" || len(m.identity) > 255 {
				t.Errorf("READY %q says %+v", content, m)
			}
		}
		if pong, err := appendPong(nil, content); err == nil && len(pong) > 2+1+4+maxPingContext {
			t.Errorf("a PONG of %d bytes", len(pong))
		}
		if parseError(content) == nil {
			t.Error("an ERROR is none")
		}
	})
}
