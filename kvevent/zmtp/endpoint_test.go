package zmtp

import (
	"testing"
)

func TestParseEndpoint(t *testing.T) {
	for _, tt := range []struct {
		in      string
		want    Endpoint
		out     string
		dial    bool
		problem string
	}{
		{in: "tcp://127.0.0.1:5557", want: Endpoint{"tcp", "127.0.0.1:5557"}, dial: true},
		{in: "tcp://engine-0.engines.svc:5557", want: Endpoint{"tcp", "engine-0.engines.svc:5557"}, dial: true},
		{in: "tcp://[::1]:5557", want: Endpoint{"tcp", "[::1]:5557"}, dial: true},
		{in: "tcp://*:5557", want: Endpoint{"tcp", ":5557"}},
		{in: "tcp://127.0.0.1:*", want: Endpoint{"tcp", "127.0.0.1:0"}, out: "tcp://127.0.0.1:0"},
		{in: "tcp://*:*", want: Endpoint{"tcp", ":0"}, out: "tcp://*:0"},
		{in: "ipc:///run/kv.sock", want: Endpoint{"unix", "/run/kv.sock"}, dial: true},
		{in: "ipc://@kv", want: Endpoint{"unix", "@kv"}, dial: true},

		{in: "127.0.0.1:5557", problem: "must begin with tcp:// or ipc://"},
		{in: "inproc://kv", problem: "must begin with tcp:// or ipc://"},
		{in: "", problem: "must begin with tcp:// or ipc://"},
		{in: "tcp://127.0.0.1", problem: "is not tcp://host:port"},
		{in: "tcp://::1:5557", problem: "is not tcp://host:port"},
		{in: "tcp://host:http", problem: "the port must be a number"},
		{in: "tcp://host:70000", problem: "the port must be a number"},
		{in: "tcp://host:-1", problem: "the port must be a number"},
		{in: "ipc://", problem: "has no path"},
	} {
		got, err := ParseEndpoint(tt.in)
		if tt.problem != "" {
			if !says(err, tt.problem) {
				t.Errorf("%s: %v, want %q", tt.in, err, tt.problem)
			}
			continue
		}
		if tt.out == "" {
			tt.out = tt.in
		}
		if err != nil || got != tt.want || got.String() != tt.out || (got.dialable() == nil) != tt.dial {
			t.Errorf("%s: %+v (%s), %v", tt.in, got, got, err)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, s := range []string{"tcp://*:5557", "ipc://@x", "tcp://[::1]:0", "tcp://[::1%25lo]:1"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		e, err := ParseEndpoint(s)
		if err != nil {
			return
		}
		again, err := ParseEndpoint(e.String())
		if err != nil || again != e {
			t.Errorf("%q becomes %q, which is %+v, %v", s, e, again, err)
		}
	})
}
