package live

import (
	"net/url"
	"strings"

	"github.com/dynago/dynago/kvevent"
)

// Published says where a server publishes what its caches do, in the words of its
// own --kv-events-config. Rank r has ports that are r higher.
type Published struct {
	Endpoint string // such as tcp://*:5557; empty: as found out, or nowhere
	Replay   string // empty: it replays nothing
	Topic    string // a prefix; empty for all
	// Bind says that the server connects to Endpoint, and we listen there; nil: as its
	// form shows.
	Bind *bool
	// Window is how many messages it keeps for replay; 0: as many as engines do unless
	// told otherwise.
	Window uint64
}

// Endpoints returns where the ranks [first, first+size) publish, as seen from one
// who knows their server by its URL.
func (p *Published) Endpoints(server string, first, size uint32) ([]kvevent.Endpoint, error) {
	u, err := url.Parse(server)
	if err != nil {
		return nil, err
	}
	at := p.Endpoint
	if p.Bind != nil && *p.Bind {
		at = strings.Replace(at, "*", "0.0.0.0", 1)
	}
	list, err := kvevent.EngineEndpoints(at, p.Replay, u.Hostname(), first, size)
	for i := range list {
		if p.Bind != nil {
			list[i].Bind = *p.Bind
		}
	}
	return list, err
}
