package vllm

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/kvevent"
)

// sourcesPath tells where each rank publishes its KV events, in builds that have
// it, whether they are in development mode or not.
const sourcesPath = "/kv_event_sources"

// publisher is what a server says of how it was told to publish KV events.
type publisher struct {
	Enabled   bool    `json:"enable_kv_cache_events"`
	Publisher string  `json:"publisher"`
	Endpoint  string  `json:"endpoint"`
	Replay    *string `json:"replay_endpoint"`
	Topic     string  `json:"topic"`
}

// rankSource is where one rank publishes: as it was told to, or where it listens, by
// a port that may be of nobody's choice.
type rankSource struct {
	publisher
	told      bool   // as its publisher was told to
	Transport string `json:"transport"` // "" and "zmq" are ZMQ
	Rank      uint32 `json:"data_parallel_rank"`
}

// sourcesOf reads an answer of sourcesPath: an object of configurations by rank, a
// list of addresses, or an object that has one. What cannot be read tells of nobody.
func sourcesOf(text []byte) []rankSource {
	var out []rankSource
	var members map[string]jsontext.Value
	if json.Unmarshal(text, &members, lenient) != nil {
		members = map[string]jsontext.Value{"sources": text}
	}
	for name, value := range members {
		if name == "sources" {
			var list []rankSource
			if json.Unmarshal(value, &list, lenient) == nil {
				out = append(out, list...)
			}
			continue
		}
		rank, err := strconv.ParseUint(name, 10, 32)
		one := rankSource{told: true}
		if err == nil && json.Unmarshal(value, &one.publisher, lenient) == nil && one.Enabled && one.Publisher == "zmq" {
			one.Rank = uint32(rank)
			out = append(out, one)
		}
	}
	out = slices.DeleteFunc(out, func(s rankSource) bool {
		return s.Endpoint == "" || s.Transport != "" && s.Transport != "zmq"
	})
	slices.SortFunc(out, func(a, b rankSource) int { return cmp.Compare(a.Rank, b.Rank) })
	return out
}

// endpointsOf returns where the ranks [first, first+size) listen, as seen from the
// host by which their server is reached.
func endpointsOf(sources []rankSource, host string, first, size uint32) ([]kvevent.Endpoint, error) {
	var out []kvevent.Endpoint
	for rank := first; rank-first < max(1, size); rank++ {
		i := slices.IndexFunc(sources, func(s rankSource) bool { return s.Rank == rank })
		if i < 0 {
			return nil, fmt.Errorf("the server does not tell where rank %d publishes", rank)
		}
		s := sources[i]
		replay := ""
		if s.Replay != nil {
			replay = *s.Replay
		}
		if !s.told { // it listens there
			s.Endpoint, replay = anyHost(s.Endpoint), anyHost(replay)
		}
		one, err := kvevent.EngineEndpoints(s.Endpoint, replay, host, 0, 1)
		if err != nil {
			return nil, err
		}
		one[0].Rank, one[0].Bind = rank, one[0].Bind && s.told
		out = append(out, one[0])
	}
	return out, nil
}

// anyHost writes every form of "any address" as a publisher's configuration does.
func anyHost(endpoint string) string {
	u, err := url.Parse(endpoint)
	if err == nil && u.Scheme == "tcp" && slices.Contains([]string{"0.0.0.0", "::", "*"}, u.Hostname()) {
		return "tcp://*:" + endpoint[strings.LastIndexByte(endpoint, ':')+1:]
	}
	return endpoint
}
