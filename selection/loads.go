package selection

import (
	"cmp"
	"maps"
	"net/http"
	"slices"

	"github.com/dynago/dynago/router"
)

// load is what a rank carries, or would carry.
type load struct {
	Worker   workerID `json:"worker_id"`
	Rank     uint32   `json:"dp_rank"`
	Prefill  int      `json:"potential_prefill_tokens"`
	Decode   int      `json:"potential_decode_blocks"`
	Requests int      `json:"active_requests"`
}

// modelLoads are those of one partition, with what waits for room there.
type modelLoads struct {
	Model         string `json:"model_name"`
	Group         string `json:"routing_group"`
	Loads         []load `json:"loads"`
	Pending       int    `json:"pending_count"`
	PendingTokens int    `json:"pending_isl_tokens"`
}

// loads tells what each rank carries.
func (s *Service) loads(w http.ResponseWriter, r *http.Request) {
	booked := make(map[uint64][]router.TargetLoad)
	for _, l := range s.Router.Loads() {
		booked[l.Target.Worker] = append(booked[l.Target.Worker], l)
	}
	waiting := make(map[string]router.QueueStats)
	for _, q := range s.Router.Queues() {
		sum := waiting[q.Model]
		for _, c := range q.Classes {
			sum.Requests += c.Requests
			sum.Tokens += c.Tokens
		}
		waiting[q.Model] = sum
	}
	by := make(map[partition]*modelLoads)
	for _, rec := range s.catalog.list(filters(r)) {
		loads := booked[rec.ID.inner()]
		if len(loads) == 0 {
			continue
		}
		m := by[rec.partition()]
		if m == nil {
			parked := waiting[rec.partition().name()]
			m = &modelLoads{Model: rec.Model, Group: rec.Group, Pending: parked.Requests, PendingTokens: parked.Tokens}
			by[rec.partition()] = m
		}
		for _, l := range loads {
			m.Loads = append(m.Loads, load{outer(l.Target.Worker), l.Target.Rank, l.PrefillTokens, l.ActiveBlocks, l.Requests})
		}
	}
	out := slices.SortedFunc(maps.Values(by), func(a, b *modelLoads) int {
		return cmp.Or(cmp.Compare(a.Model, b.Model), cmp.Compare(a.Group, b.Group))
	})
	answer(w, http.StatusOK, out)
}

// potentialLoads tells what each rank would carry with one more request.
func (s *Service) potentialLoads(w http.ResponseWriter, r *http.Request) {
	var in selectRequest
	q, err := s.asked(w, r, &in)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	loads, err := s.Router.PotentialLoads(r.Context(), q)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	out := make([]load, 0, len(loads))
	for _, l := range loads {
		out = append(out, load{outer(l.Target.Worker), l.Target.Rank, l.PrefillTokens, l.DecodeBlocks, l.Requests})
	}
	answer(w, http.StatusOK, out)
}

// scores are what every rank has cached of a prompt, and what it would cost there.
type scores struct {
	BlockSize int         `json:"block_size"`
	Blocks    int         `json:"num_blocks"`
	Workers   []score     `json:"workers"`
	Shared    sharedCache `json:"shared_cache"`
	Barred    []barred    `json:"not_eligible"`
}

// score is the row of one rank. Host and disk count what lies above them too; the
// extensions are their own.
type score struct {
	Worker        workerID `json:"worker_id"`
	Rank          uint32   `json:"dp_rank"`
	BlockSize     int      `json:"block_size"`
	Device        int      `json:"device_blocks"`
	Host          int      `json:"host_pinned_blocks"`
	Disk          int      `json:"disk_blocks"`
	HostExtension int      `json:"host_pinned_extension_blocks"`
	DiskExtension int      `json:"disk_extension_blocks"`
	Shared        *int     `json:"shared_beyond_device_blocks"`
	Credit        float64  `json:"router_credit_blocks"`
	Terms         terms    `json:"cost"`
}

// terms are the parts of a cost, in blocks unless said otherwise.
type terms struct {
	PrefillTokens int     `json:"active_prefill_tokens"`
	ActiveBlocks  int     `json:"active_blocks"`
	DecodeBlocks  int     `json:"potential_decode_blocks"`
	Requests      int     `json:"active_requests"`
	RawPrefill    float64 `json:"raw_prefill_blocks"`
	Decay         float64 `json:"credit_decay"`
	Credit        float64 `json:"credit_blocks"`
	Scale         float64 `json:"prefill_load_scale"` // what a block of raw prefill and of credit counts
	Prefill       float64 `json:"prefill"`
	Decode        float64 `json:"decode"`
	RequestsCost  float64 `json:"requests"`
	Preference    float64 `json:"preference"`
	Total         float64 `json:"total"`
	Probability   float64 `json:"probability"`
}

// sharedCache tells what a cache beside the workers has of the prompt.
type sharedCache struct {
	Enabled bool     `json:"enabled"`
	Blocks  int      `json:"total_hit_blocks"`
	Ranges  [][2]int `json:"ranges"`
	Error   *string  `json:"error"`
}

// barred is a worker that may not serve the request.
type barred struct {
	Worker workerID `json:"worker_id"`
	Code   string   `json:"code"`
	Reason string   `json:"reason"`
}

// overlapScores tells what every rank has cached of a prompt, and what each part
// of its cost would be.
func (s *Service) overlapScores(w http.ResponseWriter, r *http.Request) {
	var in selectRequest
	q, err := s.asked(w, r, &in)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	rows, err := s.Router.Explain(r.Context(), q)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	out := scores{Shared: sharedCache{Enabled: s.Router.SharesCache()}}
	for i := range rows {
		row := &rows[i]
		if i == 0 {
			out.BlockSize = row.BlockSize
			out.Blocks = blocks(q, row.BlockSize)
			for _, span := range row.SharedSpans {
				out.Shared.Ranges = append(out.Shared.Ranges, [2]int{span.Start, span.End})
				out.Shared.Blocks += span.End - span.Start
			}
		}
		out.Workers = append(out.Workers, scoreOf(row, out.Shared.Enabled))
	}
	for _, b := range s.Router.Barred(q) {
		out.Barred = append(out.Barred, barred{outer(b.Worker.ID()), b.Code, b.Reason})
	}
	answer(w, http.StatusOK, out)
}

// blocks is how many complete blocks a query's prompt has.
func blocks(q *router.Query, blockSize int) int {
	if q.Hashes != nil {
		return len(q.Hashes.Seq)
	}
	return len(q.Tokens) / blockSize
}

func scoreOf(row *router.Row, shared bool) score {
	out := score{
		Worker: outer(row.Target.Worker), Rank: row.Target.Rank, BlockSize: row.BlockSize,
		Device: row.Device, Host: row.Device + row.Host, Disk: row.Device + row.Host + row.Disk,
		HostExtension: row.Host, DiskExtension: row.Disk,
		Credit: row.Terms.Undecayed,
		Terms: terms{
			PrefillTokens: row.PrefillTokens, ActiveBlocks: row.ActiveBlocks, DecodeBlocks: row.DecodeBlocks, Requests: row.Requests,
			RawPrefill: row.Terms.RawPrefill, Decay: row.Terms.Decay, Credit: row.Terms.Credit, Scale: row.Terms.Scale,
			Prefill: row.Terms.Prefill, Decode: row.Terms.Decode, RequestsCost: row.Terms.Requests,
			Preference: row.Terms.Preference, Total: row.Terms.Total, Probability: row.Chance,
		},
	}
	if shared {
		out.Shared = &row.Shared
	}
	return out
}

// filters are the partitions that a request's query asks about; empty is all.
func filters(r *http.Request) (model, group string) {
	q := r.URL.Query()
	return q.Get("model_name"), q.Get("routing_group")
}
