package admin

import (
	"fmt"
	"net/http"
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/dynago/dynago/internal/scrape"
	"github.com/dynago/dynago/kvcache"
	"github.com/dynago/dynago/kvstore"
)

// metrics is the page of figures. All of them are read from the store when the
// page is. Those that boards for block managers know keep their names; a value is
// what they call a block. The others begin with dynago_kv.
type metrics struct {
	store    *kvstore.Server
	registry *prometheus.Registry
	figures  []figure
	recent   recent
}

// figure is one name of the page, and what stands under it.
type figure struct {
	desc *prometheus.Desc
	kind prometheus.ValueType
	of   func(st *kvstore.Stats, say func(v float64, labels ...string))
}

// pools are what boards call tiers; those that have no name of their own are
// object stores.
const (
	host   = "host"
	disk   = "disk"
	object = "object"
)

func poolOf(tier string) string {
	switch tier {
	case kvstore.MemoryTier:
		return host
	case disk:
		return disk
	}
	return object
}

func newMetrics(o Options) (*metrics, error) {
	m := &metrics{store: o.Store}
	m.figures = slices.Concat(blockFigures(), tierFigures(), m.recent.figures(), serverFigures(), namespaceFigures())
	registry, err := scrape.Registry(append([]prometheus.Collector{m}, o.Collectors...)...)
	if err != nil {
		return nil, fmt.Errorf("kvstore/admin: metrics: %w", err)
	}
	m.registry = registry
	return m, nil
}

// Metrics returns what the page shows, for programs that gather it themselves.
func (s *Server) Metrics() *prometheus.Registry { return s.metrics.registry }

func (m *metrics) page() http.Handler { return scrape.Page(m.registry) }

// Describe implements prometheus.Collector.
func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	for _, f := range m.figures {
		ch <- f.desc
	}
	ch <- transferTimes
}

// Collect implements prometheus.Collector.
func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	st := m.store.Stats()
	m.recent.see(&st)
	for _, f := range m.figures {
		f.of(&st, func(v float64, labels ...string) {
			ch <- prometheus.MustNewConstMetric(f.desc, f.kind, v, labels...)
		})
	}
	eachEdge(&st, func(edge string, t *kvstore.Transfers) {
		within, sum := map[float64]uint64{}, uint64(0)
		for i, bound := range kvstore.TransferBounds() {
			sum += uint64(t.Within[i])
			within[bound] = sum
		}
		ch <- prometheus.MustNewConstHistogram(transferTimes, uint64(t.Values), t.Time.Seconds(), within, edge)
	})
}

var transferTimes = prometheus.NewDesc("dynago_kv_transfer_seconds", "How long values took between memory and a pool below it.", []string{"edge"}, nil)

// eachEdge calls do for both ways between memory and each pool below it.
func eachEdge(st *kvstore.Stats, do func(edge string, t *kvstore.Transfers)) {
	for i := range st.Tiers {
		if t := &st.Tiers[i]; i > 0 {
			do(host+"_"+poolOf(t.Name), &t.Down)
			do(poolOf(t.Name)+"_"+host, &t.Up)
		}
	}
}

func newFigure(kind prometheus.ValueType, name, help string, labels []string, of func(st *kvstore.Stats, say func(float64, ...string))) figure {
	return figure{prometheus.NewDesc(name, help, labels, nil), kind, of}
}

// one is a figure that is a single number, with fixed values of its labels.
func one(kind prometheus.ValueType, name, help string, of func(st *kvstore.Stats) int64) figure {
	return newFigure(kind, name, help, nil, func(st *kvstore.Stats, say func(float64, ...string)) { say(float64(of(st))) })
}

const (
	counter = prometheus.CounterValue
	gauge   = prometheus.GaugeValue
)

// blockFigures are those that managers of blocks have.
func blockFigures() []figure {
	pool := func(kind prometheus.ValueType, name, help string, of func(st *kvstore.Stats) int64) figure {
		return newFigure(kind, name, help, []string{"pool"}, func(st *kvstore.Stats, say func(float64, ...string)) { say(float64(of(st)), host) })
	}
	sum := func(of func(n *kvstore.NamespaceStats) int64) func(st *kvstore.Stats) int64 {
		return func(st *kvstore.Stats) (n int64) {
			for i := range st.Namespaces {
				n += of(&st.Namespaces[i])
			}
			return n
		}
	}
	return []figure{
		pool(counter, "kvbm_registrations_total", "Values that were stored under a key that had none.", func(st *kvstore.Stats) int64 { return st.Stored - st.Replaced }),
		pool(counter, "kvbm_duplicate_blocks_total", "Values that were stored under a key that had one.", func(st *kvstore.Stats) int64 { return st.Replaced }),
		pool(counter, "kvbm_match_hashes_requested_total", "Hashes of prompts that KV.PREFIX was asked for.", func(st *kvstore.Stats) int64 { return st.PrefixAsked }),
		pool(counter, "kvbm_match_blocks_returned_total", "Those of them that began the prompt and were there.", func(st *kvstore.Stats) int64 { return st.PrefixFound }),
		pool(counter, "kvbm_scan_hashes_requested_total", "Keys that EXISTS was asked for.", func(st *kvstore.Stats) int64 { return st.Looked }),
		pool(counter, "kvbm_scan_blocks_returned_total", "Those of them that were there.", func(st *kvstore.Stats) int64 { return st.Found }),
		pool(gauge, "kvbm_inflight_immutable", "Values that were read so recently that they are kept.", sum(func(n *kvstore.NamespaceStats) int64 { return int64(n.Leased) })),
		pool(gauge, "kvbm_inactive_pool_size", "Values that nobody has read recently.", sum(func(n *kvstore.NamespaceStats) int64 { return int64(n.Values - n.Leased) })),
		newFigure(counter, "dynago_kv_evictions_total", "Values that had to leave the store for others, by why they were the next.", []string{"pool", "class"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			for _, n := range st.EvictedAs {
				say(float64(n.Values), host, n.Class.String())
			}
		}),
		newFigure(counter, "dynago_kv_pin_requests_total", "Pins asked for, by outcome.", []string{"outcome"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			say(float64(st.PinsFull), "full")
			say(float64(st.PinsDenied), "denied")
		}),
		newFigure(gauge, "dynago_kv_session_blocks", "Values tagged with sessions, by the state of the session.", []string{"state"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			for state := kvcache.SessionActive; state <= kvcache.SessionClosing; state++ {
				n := 0
				for i := range st.Namespaces {
					n += st.Namespaces[i].SessionValues[state]
				}
				say(float64(n), state.String())
			}
		}),
		one(counter, "dynago_kv_retention_expired_total", "Priorities and pins of values that came to the end of their time.", sum(func(n *kvstore.NamespaceStats) int64 { return n.RetentionExpired })),
		one(counter, "dynago_kv_prefetch_wasted_blocks_total", "Values that were read ahead, and left memory before anybody asked for them.", func(st *kvstore.Stats) int64 { return st.PrefetchWasted }),
		one(counter, "dynago_kv_checksum_failures_total", "Values that were not what was stored, and were dropped.", func(st *kvstore.Stats) int64 { return st.Corrupt }),
	}
}

// tierFigures are those of each tier.
func tierFigures() []figure {
	each := func(kind prometheus.ValueType, name, help string, of func(t *kvstore.TierStats) int64) figure {
		return newFigure(kind, name, help, []string{"pool"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			for i := range st.Tiers {
				say(float64(of(&st.Tiers[i])), poolOf(st.Tiers[i].Name))
			}
		})
	}
	moved := func(name, help, pool string, of func(t *kvstore.TierStats) int64) figure {
		return one(counter, name, help, func(st *kvstore.Stats) (n int64) {
			for i := range st.Tiers {
				if poolOf(st.Tiers[i].Name) == pool {
					n += of(&st.Tiers[i])
				}
			}
			return n
		})
	}
	stored := func(t *kvstore.TierStats) int64 { return t.Stored }
	return []figure{
		each(counter, "kvbm_allocations_total", "Values for which room was taken.", stored),
		each(counter, "kvbm_evictions_total", "Values that had to leave the pool for others.", func(t *kvstore.TierStats) int64 { return t.Evicted }),
		moved("kvbm_offload_blocks_h2d", "Values that were written to disk.", disk, stored),
		moved("kvbm_offload_blocks_d2o", "Values that were written to an object store.", object, stored),
		each(gauge, "dynago_kvstore_pool_bytes", "Bytes of values in the pool.", func(t *kvstore.TierStats) int64 { return t.Used }),
		each(gauge, "dynago_kvstore_pool_capacity_bytes", "What they may come to; 0 is not known.", func(t *kvstore.TierStats) int64 { return t.Capacity }),
		each(counter, "dynago_kvstore_pool_hits_total", "Values that were read from the pool.", func(t *kvstore.TierStats) int64 { return t.Hits }),
		each(counter, "dynago_kvstore_pool_failed_total", "Values that could not be written to it.", func(t *kvstore.TierStats) int64 { return t.Failed }),
		each(counter, "dynago_kvstore_pool_lost_total", "Values that it no longer had, or not as they were.", func(t *kvstore.TierStats) int64 { return t.Lost }),
		each(gauge, "dynago_kvstore_pool_waiting", "Changes that it has yet to be told of.", func(t *kvstore.TierStats) int64 { return int64(t.Waiting) }),
		newFigure(gauge, "dynago_kv_pinned_blocks", "Values that are pinned, by pool and by the kind of their pins.", []string{"pool", "kind"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			for i := range st.Tiers {
				t := &st.Tiers[i]
				say(float64(t.SoftPins), poolOf(t.Name), "soft")
				say(float64(t.HardPins), poolOf(t.Name), "hard")
			}
		}),
		newFigure(counter, "dynago_kv_prefetch_blocks_total", "Values that were to be read ahead, by where they lay and what became of it.", []string{"tier", "outcome"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			say(float64(st.PrefetchAlready), host, "already")
			say(float64(st.PrefetchMissing), "none", "missing")
			for i := range st.Tiers {
				if t := &st.Tiers[i]; i > 0 {
					say(float64(t.Prefetched), poolOf(t.Name), "loaded")
					say(float64(t.PrefetchFailed), poolOf(t.Name), "failed")
				}
			}
		}),
		newFigure(counter, "dynago_kv_transfer_bytes_total", "Bytes of values that went between memory and a pool below it.", []string{"edge"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			eachEdge(st, func(edge string, t *kvstore.Transfers) { say(float64(t.Bytes), edge) })
		}),
		newFigure(counter, "dynago_kv_offload_skipped_total", "Values that were not copied, by edge and reason.", []string{"edge", "reason"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			for i := range st.Tiers {
				if t := &st.Tiers[i]; i > 0 {
					say(float64(t.Late), poolOf(st.Tiers[i-1].Name)+"_"+poolOf(t.Name), "queue_full")
				}
			}
		}),
	}
}

// serverFigures are those of the server as a whole.
func serverFigures() []figure {
	return []figure{
		one(gauge, "dynago_kvstore_clients", "Clients connected.", func(st *kvstore.Stats) int64 { return int64(st.Clients) }),
		one(counter, "dynago_kvstore_connections_accepted_total", "Connections that were served.", func(st *kvstore.Stats) int64 { return st.Accepted }),
		one(counter, "dynago_kvstore_connections_refused_total", "Connections beyond the limit.", func(st *kvstore.Stats) int64 { return st.Refused }),
		one(gauge, "dynago_kvstore_receiving_bytes", "Memory of values that are on their way.", func(st *kvstore.Stats) int64 { return st.Receiving }),
		one(counter, "dynago_kvstore_received_value_bytes_total", "Bytes of values that clients sent.", func(st *kvstore.Stats) int64 { return st.BytesIn }),
		one(counter, "dynago_kvstore_sent_value_bytes_total", "Bytes of values that clients were sent.", func(st *kvstore.Stats) int64 { return st.BytesOut }),
		one(counter, "dynago_kvstore_hits_total", "Values asked for that were there.", func(st *kvstore.Stats) int64 { return st.Hits }),
		one(counter, "dynago_kvstore_misses_total", "Values asked for that were not.", func(st *kvstore.Stats) int64 { return st.Misses }),
		one(counter, "dynago_kvstore_expired_total", "Values whose time to live ended.", func(st *kvstore.Stats) int64 { return st.Expired }),
		one(counter, "dynago_kvstore_orphans_total", "Metadata that came after its bytes had gone.", func(st *kvstore.Stats) int64 { return st.Orphans }),
		newFigure(counter, "dynago_kvstore_refused_values_total", "Values that were not stored, by reason.", []string{"reason"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			say(float64(st.Full), "full")
			say(float64(st.Denied), "quota")
		}),
		newFigure(counter, "dynago_kvstore_commands_total", "Commands answered.", []string{"command"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			for _, c := range st.Commands {
				say(float64(c.Calls), c.Name)
			}
		}),
		newFigure(counter, "dynago_kvstore_commands_failed_total", "Those of them that were answered with an error.", []string{"command"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			for _, c := range st.Commands {
				say(float64(c.Failed), c.Name)
			}
		}),
	}
}

// namespaceFigures are those of each namespace.
func namespaceFigures() []figure {
	each := func(name, help string, of func(n *kvstore.NamespaceStats) float64) figure {
		return newFigure(gauge, name, help, []string{"namespace"}, func(st *kvstore.Stats, say func(float64, ...string)) {
			for i := range st.Namespaces {
				say(of(&st.Namespaces[i]), st.Namespaces[i].Name)
			}
		})
	}
	return []figure{
		each("dynago_kvstore_keys", "Keys, of which a pair has two.", func(n *kvstore.NamespaceStats) float64 { return float64(n.Keys) }),
		each("dynago_kvstore_values", "Values, of which a pair is one.", func(n *kvstore.NamespaceStats) float64 { return float64(n.Values) }),
		each("dynago_kvstore_value_bytes", "Bytes of values.", func(n *kvstore.NamespaceStats) float64 { return float64(n.Used) }),
		each("dynago_kvstore_capacity_bytes", "What they may come to.", func(n *kvstore.NamespaceStats) float64 { return float64(n.Capacity) }),
		each("dynago_kvstore_pinned_bytes", "Bytes of pinned values.", func(n *kvstore.NamespaceStats) float64 { return float64(n.Pinned) }),
		each("dynago_kvstore_pin_budget_bytes", "What those may come to.", func(n *kvstore.NamespaceStats) float64 { return float64(n.PinBudget) }),
		each("dynago_kvstore_sessions", "Sessions that are open.", func(n *kvstore.NamespaceStats) float64 { return float64(n.Sessions) }),
	}
}
