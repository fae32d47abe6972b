package zmtp

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strconv"
	"strings"
)

// Endpoint is an address as ZeroMQ writes it.
type Endpoint struct {
	Network string // tcp or unix
	Address string // host:port with an empty host for all, or a path
}

// ParseEndpoint reads tcp://host:port or ipc://path. A host * means all
// addresses and a port * or 0 a free one; both only bind. A path that begins
// with @ is a name in Linux's abstract name space.
func ParseEndpoint(s string) (Endpoint, error) {
	scheme, rest, _ := strings.Cut(s, "://")
	switch scheme {
	case "ipc":
		if rest == "" {
			return Endpoint{}, fmt.Errorf("endpoint %q has no path; ipc:///run/engine.sock would be one", s)
		}
		return Endpoint{"unix", rest}, nil
	case "tcp":
		host, port, err := net.SplitHostPort(rest)
		if err != nil {
			return Endpoint{}, fmt.Errorf("endpoint %q is not tcp://host:port", s)
		}
		if host == "*" {
			host = ""
		}
		if port == "*" {
			port = "0"
		}
		if _, err := strconv.ParseUint(port, 10, 16); err != nil {
			return Endpoint{}, fmt.Errorf("endpoint %q: the port must be a number up to 65535, or *", s)
		}
		return Endpoint{"tcp", net.JoinHostPort(host, port)}, nil
	}
	return Endpoint{}, fmt.Errorf("endpoint %q must begin with tcp:// or ipc://", s)
}

// String returns the endpoint as ZeroMQ writes it.
func (e Endpoint) String() string {
	if e.Network == "unix" {
		return "ipc://" + e.Address
	}
	if port, all := strings.CutPrefix(e.Address, ":"); all {
		return "tcp://*:" + port
	}
	return "tcp://" + e.Address
}

// dialable says what is wrong with an endpoint to connect to.
func (e Endpoint) dialable() error {
	if host, port, _ := net.SplitHostPort(e.Address); e.Network == "tcp" && (host == "" || port == "0") {
		return fmt.Errorf("endpoint %v is a wildcard: one binds it, but connects to one host and port", e)
	}
	return nil
}

// listen listens at the endpoint. A path that a listener left behind, who no
// longer answers, is taken over.
func (e Endpoint) listen(ctx context.Context, o *Options) (net.Listener, error) {
	l, err := o.Listen(ctx, e.Network, e.Address)
	if err == nil || e.Network != "unix" || strings.HasPrefix(e.Address, "@") {
		return l, err
	}
	info, statErr := os.Lstat(e.Address)
	if statErr != nil || info.Mode().Type() != fs.ModeSocket {
		return nil, err
	}
	if conn, dialErr := o.Dial(ctx, e.Network, e.Address); dialErr == nil {
		return nil, errors.Join(err, conn.Close())
	}
	if err := os.Remove(e.Address); err != nil {
		return nil, err
	}
	return o.Listen(ctx, e.Network, e.Address)
}
