package kvcache_test

import (
	"math"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/dynago/dynago/kvcache"
)

// drain runs a link to its end and returns what it told.
func drain(l *kvcache.Link) []kvcache.Delivery {
	var out []kvcache.Delivery
	for {
		at, ok := l.Next()
		if !ok {
			return out
		}
		out = append(out, l.Advance(at)...)
	}
}

func TestLinkSharesEvenly(t *testing.T) {
	const ms = time.Millisecond
	type event struct {
		at         time.Duration
		op         string // "" adds
		id         uint64
		bytes      int64
		background bool
	}
	for _, tt := range []struct {
		name   string
		cfg    kvcache.LinkConfig
		events []event
		want   []kvcache.Delivery
	}{
		{
			"one",
			kvcache.LinkConfig{Bandwidth: 1000},
			[]event{{0, "", 1, 100, false}},
			[]kvcache.Delivery{{1, 100 * ms}},
		},
		{
			"a second one halves the rate from then on",
			kvcache.LinkConfig{Bandwidth: 1000},
			[]event{{0, "", 1, 100, false}, {50 * ms, "", 2, 100, false}},
			[]kvcache.Delivery{{1, 150 * ms}, {2, 200 * ms}},
		},
		{
			"equal ones end in the order they came",
			kvcache.LinkConfig{Bandwidth: 1000},
			[]event{{0, "", 7, 50, false}, {0, "", 3, 50, false}},
			[]kvcache.Delivery{{7, 100 * ms}, {3, 100 * ms}},
		},
		{
			"no bandwidth means no time",
			kvcache.LinkConfig{},
			[]event{{5 * ms, "", 1, 1 << 40, false}},
			[]kvcache.Delivery{{1, 5 * ms}},
		},
		{
			"latency comes first and shares nothing",
			kvcache.LinkConfig{Bandwidth: 1000, Latency: 30 * ms},
			[]event{{0, "", 1, 100, false}, {70 * ms, "", 2, 100, false}},
			[]kvcache.Delivery{{1, 160 * ms}, {2, 230 * ms}},
		},
		{
			"one at a time",
			kvcache.LinkConfig{Bandwidth: 1000, Limit: 1},
			[]event{{0, "", 1, 100, false}, {0, "", 2, 10, false}},
			[]kvcache.Delivery{{1, 100 * ms}, {2, 110 * ms}},
		},
		{
			"the background has a quarter",
			kvcache.LinkConfig{Bandwidth: 1000},
			[]event{{0, "", 1, 100, true}},
			[]kvcache.Delivery{{1, 400 * ms}},
		},
		{
			"and stands still while others move",
			kvcache.LinkConfig{Bandwidth: 1000},
			[]event{{0, "", 1, 100, true}, {200 * ms, "", 2, 300, false}},
			[]kvcache.Delivery{{2, 500 * ms}, {1, 700 * ms}},
		},
		{
			"adopted it keeps what it has",
			kvcache.LinkConfig{Bandwidth: 1000},
			[]event{{0, "", 1, 100, true}, {200 * ms, "promote", 1, 0, false}},
			[]kvcache.Delivery{{1, 250 * ms}},
		},
		{
			"who is cancelled leaves room",
			kvcache.LinkConfig{Bandwidth: 1000},
			[]event{{0, "", 1, 100, false}, {0, "", 2, 100, false}, {100 * ms, "cancel", 2, 0, false}},
			[]kvcache.Delivery{{1, 150 * ms}},
		},
		{
			"the background takes no place from the front",
			kvcache.LinkConfig{Bandwidth: 1000, Limit: 1},
			[]event{{0, "", 1, 100, true}, {0, "", 2, 100, false}},
			[]kvcache.Delivery{{2, 100 * ms}, {1, 500 * ms}},
		},
		{
			"nor waits for its first byte before it has a place",
			kvcache.LinkConfig{Bandwidth: 1000, Latency: 50 * ms, Limit: 1},
			[]event{{0, "", 1, 100, false}, {0, "", 2, 100, true}},
			[]kvcache.Delivery{{1, 150 * ms}, {2, 600 * ms}},
		},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := kvcache.NewLink(tt.cfg)
			var got []kvcache.Delivery
			for _, e := range tt.events {
				switch e.op {
				case "":
					l.Add(e.at, e.id, e.bytes, e.background)
				case "promote":
					l.Promote(e.at, e.id)
				case "cancel":
					if !l.Cancel(e.at, e.id) {
						t.Errorf("transfer %d is not there", e.id)
					}
				}
			}
			if got = append(got, drain(l)...); !slices.Equal(got, tt.want) {
				t.Errorf("got %v, want %v", got, tt.want)
			}
			if l.Len() != 0 {
				t.Errorf("%d transfers are left", l.Len())
			}
		})
	}
}

// load is one transfer of a random program.
type load struct {
	at         time.Duration
	bytes      int64
	background bool
}

func drawLoads(t *rapid.T) []load {
	loads := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) load {
		return load{
			at:         time.Duration(rapid.IntRange(0, 500).Draw(t, "µs")) * time.Microsecond,
			bytes:      int64(rapid.IntRange(0, 3).Draw(t, "units")) * 100,
			background: rapid.IntRange(0, 3).Draw(t, "background") == 0,
		}
	}), 1, 12).Draw(t, "loads")
	slices.SortStableFunc(loads, func(a, b load) int { return int(a.at - b.at) })
	return loads
}

func drawLink(t *rapid.T) kvcache.LinkConfig {
	return kvcache.LinkConfig{
		Bandwidth: rapid.SampledFrom([]float64{0, 1e6, 7e6, 3333333}).Draw(t, "bandwidth"),
		Latency:   time.Duration(rapid.SampledFrom([]int{0, 1, 300}).Draw(t, "latency")) * time.Microsecond,
		Limit:     rapid.IntRange(0, 3).Draw(t, "limit"),
	}
}

// play runs loads over a link. Looks are when it is asked in between.
func play(cfg kvcache.LinkConfig, loads []load, looks []time.Duration) []kvcache.Delivery {
	l := kvcache.NewLink(cfg)
	var got []kvcache.Delivery
	for i, x := range loads {
		for len(looks) > 0 && looks[0] <= x.at {
			got = append(got, l.Advance(looks[0])...)
			looks = looks[1:]
		}
		l.Add(x.at, uint64(i), x.bytes, x.background)
	}
	for _, at := range looks {
		got = append(got, l.Advance(at)...)
	}
	return append(got, drain(l)...)
}

// TestLinkIsExact holds a link against one without any idea: everyone who moves
// has his own count of what is left, and all counts go down together from one
// event to the next.
func TestLinkIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, loads := drawLink(t), drawLoads(t)
		got := play(cfg, loads, nil)
		if len(got) != len(loads) {
			t.Fatalf("%d of %d transfers ended", len(got), len(loads))
		}
		want := naive(cfg, loads)
		for _, d := range got {
			if diff := (d.At - want[d.ID]).Abs(); diff > time.Duration(4*len(loads)) {
				t.Fatalf("transfer %d ended at %v, want %v", d.ID, d.At, want[d.ID])
			}
		}
		if !slices.IsSortedFunc(got, func(a, b kvcache.Delivery) int { return int(a.At - b.At) }) {
			t.Fatalf("told out of order: %v", got)
		}
	})
}

// naive returns when each transfer ends. Its times are whole nanoseconds, as the
// link's are.
func naive(cfg kvcache.LinkConfig, loads []load) []time.Duration {
	const never = time.Duration(math.MaxInt64)
	type state struct {
		left     float64
		admitted bool
		begin    time.Duration
		end      time.Duration
	}
	s := make([]state, len(loads))
	for i, x := range loads {
		s[i] = state{left: float64(x.bytes), end: never}
	}
	admit := func(now time.Duration, i int) {
		taken := 0
		for j := range s {
			if s[j].admitted && s[j].end == never && (loads[i].background || !loads[j].background) {
				taken++
			}
		}
		if !s[i].admitted && (cfg.Limit <= 0 || taken < cfg.Limit) {
			s[i].admitted, s[i].begin = true, now+cfg.Latency
		}
	}
	arrived := 0
	for now := time.Duration(0); ; {
		moving := func(i int) bool { return s[i].admitted && s[i].begin <= now && s[i].end == never }
		var sharing [2]float64
		for i, x := range loads {
			if moving(i) && x.background {
				sharing[1]++
			} else if moving(i) {
				sharing[0]++
			}
		}
		rate := func(i int) float64 {
			switch {
			case !loads[i].background:
				return cfg.Bandwidth / sharing[0]
			case sharing[0] > 0:
				return 0
			}
			return cfg.Bandwidth * kvcache.BackgroundShare / sharing[1]
		}
		next := never
		for i := range loads {
			switch {
			case s[i].admitted && s[i].begin > now:
				next = min(next, s[i].begin)
			case moving(i) && (s[i].left <= 1e-9 || cfg.Bandwidth <= 0):
				next = now
			case moving(i) && rate(i) > 0:
				next = min(next, now+time.Duration(max(1, math.Ceil(s[i].left/rate(i)*1e9-1e-3))))
			}
		}
		// One that comes at the same time comes after everything else.
		coming := arrived < len(loads) && loads[arrived].at < next
		if coming {
			next = max(now, loads[arrived].at)
		} else if next == never {
			break
		}
		step := make([]float64, len(s))
		for i := range s {
			if moving(i) && cfg.Bandwidth > 0 {
				step[i] = rate(i) * (next - now).Seconds()
			}
		}
		for i := range s {
			if s[i].left -= step[i]; moving(i) && (s[i].left <= 1e-6 || cfg.Bandwidth <= 0) {
				s[i].end = next
			}
		}
		now = next
		if coming {
			arrived++
		}
		for _, inBackground := range []bool{false, true} {
			for i, x := range loads[:arrived] {
				if x.background == inBackground {
					admit(now, i)
				}
			}
		}
	}
	ends := make([]time.Duration, len(s))
	for i := range s {
		ends[i] = s[i].end
	}
	return ends
}

// TestLinkDoesNotMindBeingAsked cuts the same time into other pieces.
func TestLinkDoesNotMindBeingAsked(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, loads := drawLink(t), drawLoads(t)
		looks := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) time.Duration {
			return time.Duration(rapid.IntRange(0, 2_000_000).Draw(t, "ns"))
		}), 0, 30).Draw(t, "looks")
		slices.Sort(looks)
		if one, other := play(cfg, loads, nil), play(cfg, loads, looks); !slices.Equal(one, other) {
			t.Fatalf("asked at the end %v, asked at %v %v", one, looks, other)
		}
	})
}

// TestLinkOneMoreIsNoGain adds one transfer: no other one ends earlier, but for
// nanoseconds lost in rounding. (With latency and a limit it may: while the next
// one waits for its first byte, the others have the link for themselves.)
func TestLinkOneMoreIsNoGain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, loads := drawLink(t), drawLoads(t)
		if cfg.Latency > 0 {
			cfg.Limit = 0
		}
		ends := func(loads []load, skip int) []time.Duration {
			at := make([]time.Duration, len(loads))
			for _, d := range play(cfg, loads, nil) {
				at[d.ID] = d.At
			}
			if skip >= 0 {
				at = slices.Delete(at, skip, skip+1)
			}
			return at
		}
		k := rapid.IntRange(0, len(loads)-1).Draw(t, "more")
		more := ends(loads, k)
		less := ends(slices.Delete(slices.Clone(loads), k, k+1), -1)
		for i := range less {
			if more[i] < less[i]-time.Duration(2*len(loads)) {
				t.Fatalf("with one more (%+v) transfer %d ends at %v, without at %v", loads[k], i, more[i], less[i])
			}
		}
	})
}

// TestLinkBandwidth looks at any stretch of a busy link: no more is delivered in
// it than the bandwidth allows.
func TestLinkBandwidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		cfg, loads := drawLink(t), drawLoads(t)
		if cfg.Bandwidth <= 0 {
			cfg.Bandwidth = 1e6
		}
		var sum, last float64
		for _, d := range play(cfg, loads, nil) {
			sum += float64(loads[d.ID].bytes)
			last = math.Max(last, d.At.Seconds())
			if sum > (d.At-loads[0].at).Seconds()*cfg.Bandwidth*(1+1e-9)+1e-3 {
				t.Fatalf("%v bytes delivered by %v, from %v on, at %v bytes/s", sum, d.At, loads[0].at, cfg.Bandwidth)
			}
		}
	})
}

func BenchmarkLink(b *testing.B) {
	l := kvcache.NewLink(kvcache.LinkConfig{Bandwidth: 14e9})
	var id uint64
	now := time.Duration(0)
	b.ReportAllocs()
	for b.Loop() {
		id++
		l.Add(now, id, 2<<20, false)
		if l.Len() > 16 {
			now, _ = l.Next()
			l.Advance(now)
		}
	}
}
