package main

import (
	"fmt"
	"log/slog"
	"net/url"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/engine/remote"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router/peers"
)

// peerSettings name other frontends over the same workers.
type peerSettings struct {
	Addresses []string `name:"router-peers" env:"DYN_ROUTER_PEERS" sep:"," placeholder:"URL,..." help:"Tell these other frontends where sessions are bound, and hear it from them, as in http://10.0.0.2:8000; the address of their --admin-port if they have one. All frontends may name the same ones, themselves too, and have to name workers by the same addresses."`
	Key       string   `name:"router-peers-key" env:"DYN_ROUTER_PEERS_KEY" placeholder:"KEY" secret:"" help:"The API key that they want, of no tenant."`
}

// open lets a router tell its peers; nil is that it has none.
func (s *peerSettings) open(sys *system, log *slog.Logger) (*peers.Peers, error) {
	if len(s.Addresses) == 0 {
		return nil, nil
	}
	for i, text := range s.Addresses {
		address, err := peers.ParseAddress(text)
		if err != nil {
			return nil, fmt.Errorf("--router-peers: %w", err)
		}
		s.Addresses[i] = address
		if s.Key != "" && overNetwork(address) {
			log.Warn("the key for a peer goes over the network in plain text: want https, or a network of your own", "peer", address)
		}
	}
	if sys.files != nil {
		log.Warn("peers cannot know the mock engines of this process: want --engine for workers that all frontends have", "setting", "--router-peers")
	}
	return peers.New(peers.Config{
		Router: sys.router, Fleet: sys.fleet, Name: sys.meter.RouterID(), Addresses: s.Addresses, Key: s.Key,
		Known: knownElsewhere, Logger: log,
	})
}

// overNetwork says whether what is sent to an address can be read on a network.
func overNetwork(address string) bool {
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "http" && !thisMachine(u.Hostname())
}

// knownElsewhere says whether another frontend that knows a worker by this one's id
// means the same: ids are made of addresses, and what runs in this process has none.
// Only workers that speak our own protocol say themselves which of their lives it is;
// of other servers each frontend counts that by itself.
func knownElsewhere(w *fleet.Worker) (epoch uint64, shared bool) {
	if _, attached := w.Engine().(*attach.Engine); !attached {
		return 0, false
	}
	if _, ours := engine.As[*remote.Client](w.Engine()); ours && w.Card() != nil {
		epoch = w.Status().Epoch
	}
	return epoch, true
}

// peerMetrics tell how peers are told where sessions are bound, and what they tell.
type peerMetrics struct {
	peers *peers.Peers // or nil

	up, queued, sent, dropped, failures, wholes, heard *prometheus.Desc
}

func newPeerMetrics(p *peers.Peers) *peerMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc("dynago_router_peer_"+name, help, append([]string{"peer"}, labels...), nil)
	}
	return &peerMetrics{
		peers:    p,
		up:       desc("up", "1 for every peer that has answered last."),
		queued:   desc("queued_events", "Uses of sessions that a peer is yet to hear of."),
		sent:     desc("sent_events_total", "Uses of sessions that a peer has heard of."),
		dropped:  desc("dropped_events_total", "Uses of sessions that a peer has not heard of, because too many waited."),
		failures: desc("failures_total", "Messages that a peer has not answered as it should."),
		wholes:   desc("wholes_total", "How often a peer was told all bindings: when it came, and when it had missed some."),
		heard:    desc("heard_events_total", "What a peer has told, by what came of it; peer is empty for those whose address is not known here.", "outcome"),
	}
}

// Describe implements prometheus.Collector.
func (m *peerMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{m.up, m.queued, m.sent, m.dropped, m.failures, m.wholes, m.heard} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (m *peerMetrics) Collect(ch chan<- prometheus.Metric) {
	if m.peers == nil {
		return
	}
	tell := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, labels ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, labels...)
	}
	counter := prometheus.CounterValue
	for _, s := range m.peers.Stats() {
		if s.Address != "" {
			up := 0.0
			if s.Up {
				up = 1
			}
			tell(m.up, prometheus.GaugeValue, up, s.Address)
			tell(m.queued, prometheus.GaugeValue, float64(s.Queued), s.Address)
			tell(m.sent, counter, float64(s.Sent), s.Address)
			tell(m.dropped, counter, float64(s.Dropped), s.Address)
			tell(m.failures, counter, float64(s.Failures), s.Address)
			tell(m.wholes, counter, float64(s.Wholes), s.Address)
		}
		tell(m.heard, counter, float64(s.Adopted), s.Address, "adopted")
		tell(m.heard, counter, float64(s.Ignored), s.Address, "ignored")
	}
}
