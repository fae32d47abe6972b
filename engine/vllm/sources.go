package vllm

import (
	"cmp"
	"fmt"
	"net/url"
	"slices"
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

// rankSource is where one rank publishes: where it listens, by a port that may be of
// nobody's choice.
type rankSource struct {
	Transport string `json:"transport"` // "" and "zmq" are ZMQ
	Rank      uint32 `json:"data_parallel_rank"`
	Endpoint  string `json:"endpoint"`
	Replay    string `json:"replay_endpoint"`
	Topic     string `json:"topic"`
}

// sourcesOf reads an answer of sourcesPath, which is a list or has one. What cannot be
// read tells of nobody.
func sourcesOf(text []byte) []rankSource {
	list := jsontext.Value(text)
	if list.Kind() == '{' {
		var within struct {
			Sources jsontext.Value `json:"sources"`
		}
		if json.Unmarshal(text, &within, lenient) != nil {
			return nil
		}
		list = within.Sources
	}
	var out []rankSource
	if json.Unmarshal(list, &out, lenient) != nil {
		return nil
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
		s := &sources[i]
		one, err := kvevent.EngineEndpoints(anyHost(s.Endpoint), anyHost(s.Replay), host, 0, 1)
		if err != nil {
			return nil, err
		}
		one[0].Rank, one[0].Bind = rank, false
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
