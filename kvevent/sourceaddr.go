package kvevent

import (
	"fmt"
	"net"
	"strconv"
	"strings"
)

// Endpoint is where one rank of an engine publishes, in ZeroMQ's notation.
type Endpoint struct {
	Rank uint32
	// Events is the address of its PUB socket: dialled, or, if Bind is set,
	// listened at, for an engine that connects out.
	Events string
	Bind   bool
	// Replay is the address of its ROUTER socket; empty if it replays nothing.
	Replay string
}

// EngineEndpoints says where the ranks [first, first+size) of an engine publish
// that was started with the addresses events and replay (which may be empty) in
// its configuration of KV events. Engines raise TCP ports by the rank; they
// listen where the host is * or ::, at host as seen from here, and connect to any
// other, even to 0.0.0.0, so that it is for us to listen there. Where they replay
// they always listen.
func EngineEndpoints(events, replay, host string, first, size uint32) ([]Endpoint, error) {
	size = max(1, size)
	binds := strings.Contains(events, "*") || strings.Contains(events, "::") || strings.HasPrefix(events, "ipc://")
	if err := disjoint(events, replay, size); err != nil {
		return nil, err
	}
	var out []Endpoint // which ends with the ports, however many ranks are claimed
	for i := range size {
		e := Endpoint{Rank: first + i, Bind: !binds}
		var err error
		at := host
		if e.Bind {
			at = ""
		}
		if e.Events, err = rankAddress(events, at, e.Rank); err != nil {
			return nil, fmt.Errorf("kvevent: events endpoint %q: %w", events, err)
		}
		if replay != "" {
			if e.Replay, err = rankAddress(replay, host, e.Rank); err != nil {
				return nil, fmt.Errorf("kvevent: replay endpoint %q: %w", replay, err)
			}
		}
		out = append(out, e)
	}
	return out, nil
}

// rankAddress raises the port of a TCP address by the rank, and puts host in
// place of a wildcard unless it is empty.
func rankAddress(address, host string, rank uint32) (string, error) {
	if path, ok := strings.CutPrefix(address, "ipc://"); ok {
		switch {
		case path == "":
			return "", fmt.Errorf("there is no path behind ipc://")
		case rank > 0:
			return "", fmt.Errorf("a path is of rank 0 alone, and rank %d needs a TCP port", rank)
		}
		return address, nil
	}
	rest, ok := strings.CutPrefix(address, "tcp://")
	if !ok {
		return "", fmt.Errorf("it must begin with tcp:// or ipc://")
	}
	name, text, err := splitAddress(rest)
	if err != nil {
		return "", err
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil || port == 0 {
		return "", fmt.Errorf("the port must be a number from 1 to 65535, which %q is not", text)
	}
	if port += uint64(rank); port > 65535 {
		return "", fmt.Errorf("rank %d would have port %d, and 65535 is the last", rank, port)
	}
	if anyHost(name) && host != "" {
		name = strings.Trim(host, "[]")
	}
	return "tcp://" + net.JoinHostPort(name, strconv.FormatUint(port, 10)), nil
}

// splitAddress divides host:port, also where the host is an IPv6 address
// without brackets, as ":::5557" is.
func splitAddress(s string) (host, port string, err error) {
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return "", "", fmt.Errorf("there is no port; tcp://*:5557 would be right")
	}
	return strings.Trim(s[:i], "[]"), s[i+1:], nil
}

func anyHost(host string) bool {
	return host == "*" || host == "" || host == "::" || host == "0.0.0.0"
}

// disjoint says what is wrong with ports of which some rank has two.
func disjoint(events, replay string, size uint32) error {
	_, a, errA := splitAddress(strings.TrimPrefix(events, "tcp://"))
	_, b, errB := splitAddress(strings.TrimPrefix(replay, "tcp://"))
	if errA != nil || errB != nil || !strings.HasPrefix(replay, "tcp://") || !strings.HasPrefix(events, "tcp://") {
		return nil
	}
	p, errA := strconv.ParseInt(a, 10, 32)
	q, errB := strconv.ParseInt(b, 10, 32)
	if errA != nil || errB != nil {
		return nil // said by rankAddress
	}
	if d := max(p-q, q-p); d < int64(size) {
		return fmt.Errorf("kvevent: events port %d and replay port %d are %d apart, and an engine of %d ranks needs at least as many ports for each", p, q, d, size)
	}
	return nil
}
