package vllm

import (
	"fmt"
	"net"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
)

// sourcesPath tells where each rank publishes its KV events, in builds that have
// it, whether they are in development mode or not.
const sourcesPath = "/kv_event_sources"

// publisher is what a server says of how it publishes KV events.
type publisher struct {
	Enabled   bool    `json:"enable_kv_cache_events"`
	Publisher string  `json:"publisher"`
	Endpoint  string  `json:"endpoint"`
	Replay    *string `json:"replay_endpoint"`
	Topic     string  `json:"topic"`
}

// publisherOf reads an answer of sourcesPath, which has the real addresses of each
// rank, and returns them as they would be for rank 0. It returns false where
// nobody publishes, or what is told cannot be read.
func publisherOf(text []byte) (publisher, bool) {
	var ranks map[uint32]publisher
	if json.Unmarshal(text, &ranks, lenient) != nil || len(ranks) == 0 {
		return publisher{}, false
	}
	first := ^uint32(0)
	for rank := range ranks {
		first = min(first, rank)
	}
	p := ranks[first]
	var err error
	if p.Endpoint, err = lower(p.Endpoint, first); err != nil {
		return publisher{}, false
	}
	if p.Replay != nil {
		replay, err := lower(*p.Replay, first)
		if err != nil {
			return publisher{}, false
		}
		p.Replay = &replay
	}
	return p, true
}

// lower takes a rank from the port of an address.
func lower(endpoint string, rank uint32) (string, error) {
	if rank == 0 {
		return endpoint, nil
	}
	address, tcp := strings.CutPrefix(endpoint, "tcp://")
	host, port, err := net.SplitHostPort(address)
	if err != nil || !tcp {
		return "", fmt.Errorf("%s: want tcp://HOST:PORT", endpoint)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil || n <= uint64(rank) {
		return "", fmt.Errorf("%s: want a port above that of rank 0", endpoint)
	}
	return "tcp://" + net.JoinHostPort(host, strconv.FormatUint(n-uint64(rank), 10)), nil
}
