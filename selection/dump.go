package selection

import (
	"bufio"
	"net/http"
	"slices"
	"time"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/kv"
)

// The events of a dump, as they pass between routers.
type (
	dumpedEvent struct {
		Worker workerID   `json:"worker_id"`
		Tier   string     `json:"storage_tier"`
		Event  dumpedData `json:"event"`
	}
	dumpedData struct {
		ID   uint64 `json:"event_id"`
		Data any    `json:"data"`
		Rank uint32 `json:"dp_rank"`
	}
	dumpedStore struct {
		Stored struct {
			Parent *kv.EngineHash `json:"parent_hash"`
			Blocks []dumpedBlock  `json:"blocks"`
		} `json:"stored"`
	}
	dumpedRemoval struct {
		Removed struct {
			Hashes []kv.EngineHash `json:"block_hashes"`
		} `json:"removed"`
	}
	dumpedBlock struct {
		Engine kv.EngineHash `json:"block_hash"`
		Local  kv.LocalHash  `json:"tokens_hash"`
		Media  any           `json:"mm_extra_info"` // covered by the hash of the content
	}
)

// event makes of an event one that other routers read.
func dumped(t kv.Target, number uint64, e kv.Event) dumpedEvent {
	out := dumpedEvent{Worker: outer(t.Worker), Tier: e.Tier.String(), Event: dumpedData{ID: number, Rank: t.Rank}}
	switch e.Kind {
	case kv.Removed:
		var d dumpedRemoval
		for _, b := range e.Blocks {
			d.Removed.Hashes = append(d.Removed.Hashes, b.Engine)
		}
		out.Event.Data = d
	case kv.Cleared:
		out.Event.Data = "cleared"
	default:
		var d dumpedStore
		if e.HasParent {
			d.Stored.Parent = &e.Parent
		}
		for _, b := range e.Blocks {
			d.Stored.Blocks = append(d.Stored.Blocks, dumpedBlock{Engine: b.Engine, Local: b.Local})
		}
		out.Event.Data = d
	}
	return out
}

// dumpTime is how long a client may take to accept a dump.
const dumpTime = 10 * time.Minute

// dump writes what is known of all caches, as events that make another index hold
// the same. It may be long, and is written as it is read.
func (s *Service) dump(w http.ResponseWriter, r *http.Request) {
	records := s.catalog.list(filters(r))
	slices.SortStableFunc(records, func(a, b record) int { return a.partition().compare(b.partition()) })
	w.Header().Set("Content-Type", "application/json")
	http.NewResponseController(w).SetWriteDeadline(time.Now().Add(dumpTime)) //nolint:errcheck // not every connection has deadlines
	d := dumper{out: bufio.NewWriterSize(w, 64<<10)}
	d.text("{")
	for i := range records {
		rec := &records[i]
		if i == 0 || rec.partition() != records[i-1].partition() {
			d.open(rec)
		}
		for rank := range rec.ranks() {
			t := kv.Target{Worker: rec.ID.inner(), Rank: rank}
			number := uint64(0)
			for e := range s.Router.Dump(t) {
				number++
				d.event(dumped(t, number, e))
				if r.Context().Err() != nil {
					return
				}
			}
		}
	}
	d.close()
	d.out.Flush() //nolint:errcheck // the client has gone, and nothing is left to do
}

// dumper writes the partitions of a dump.
type dumper struct {
	out          *bufio.Writer
	opened, some bool // a partition, and an event in it
}

func (d *dumper) text(s string) { d.out.WriteString(s) } //nolint:errcheck // told by Flush

func (d *dumper) value(v any) {
	b, err := json.Marshal(v, json.FormatNilSliceAsNull(false))
	if err != nil {
		panic(err) // all of it is ours
	}
	d.out.Write(b) //nolint:errcheck // told by Flush
}

// open begins the partition of a worker.
func (d *dumper) open(r *record) {
	if d.opened {
		d.text("]},")
	}
	d.value(r.Model + ":" + r.Group)
	d.text(`:{"block_size":`)
	d.value(value(r.BlockSize, 0))
	d.text(`,"events":[`)
	d.opened, d.some = true, false
}

func (d *dumper) event(e dumpedEvent) {
	if d.some {
		d.text(",")
	}
	d.value(e)
	d.some = true
}

func (d *dumper) close() {
	if d.opened {
		d.text("]}")
	}
	d.text("}")
}
