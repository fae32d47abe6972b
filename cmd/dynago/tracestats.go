package main

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/trace/tree"
)

type traceStats struct {
	recordedSettings
	Most int  `name:"most-chains" env:"DYN_MOST_CHAINS" default:"20" range:"0.." placeholder:"N" help:"Show so many chains, those with the largest prompts."`
	JSON bool `name:"json" env:"DYN_JSON" negatable:"" help:"Show everything as a JSON object."`
}

// Run counts a trace up as it is read.
func (c *traceStats) Run(to outlet) error {
	rows, _, err := c.rows(to, true)
	if err != nil {
		return err
	}
	var s tree.Stats
	for r, err := range rows {
		if err != nil {
			return err
		}
		s.Add(r.Record)
	}
	chains := s.Chains()
	if c.JSON {
		return statsJSON(to.out, &s, chains)
	}
	return c.table(to.out, &s, chains)
}

func (c *traceStats) table(out io.Writer, s *tree.Stats, chains []*tree.ChainTotals) error {
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "Requests\t%d in %s of %s", s.Requests, count(len(chains), "chain"), count(sessions(chains), "session"))
	for _, extra := range []struct {
		n    int
		what string
	}{{s.Alone.Requests, "of no session"}, {s.Failed, "failed"}, {s.Compactions, "of compaction"}, {s.Duplicates, "recorded twice"}} {
		if extra.n > 0 {
			fmt.Fprintf(w, ", %d %s", extra.n, extra.what)
		}
	}
	fmt.Fprintln(w)
	if s.Requests > 0 {
		fmt.Fprintf(w, "Time\t%s, %s\n", s.First.Format("2006-01-02 15:04:05.000Z"), short(s.Last.Sub(s.First)))
	}
	fmt.Fprintf(w, "Tokens\tin %d, out %d\n", s.Input, s.Output)
	fmt.Fprintf(w, "Cache\thit share %s, read/write %s", share(s.HitShare()), ratio(s.ReadWrite()))
	if s.Told < s.Input {
		fmt.Fprintf(w, "; of %d tokens nobody has told", s.Input-s.Told)
	}
	fmt.Fprintln(w)
	if expected, ok := s.ExpectedShare(); ok {
		fmt.Fprintf(w, "Router\texpected a hit share of %s\n", percent(expected))
	}
	fmt.Fprintf(w, "Tools\t%d asked for, %d told of, %d of these failed\n", s.ToolCalls, s.ToolEvents, s.ToolErrors)
	fmt.Fprintf(w, "Ended by\t%s\n", tally(s.Finish, plain))
	fmt.Fprintf(w, "Workers\t%s\n", tally(s.Workers, func(id uint64) string {
		if id == 0 {
			return "not recorded"
		}
		return strconv.FormatUint(id, 10)
	}))
	if err := w.Flush(); err != nil {
		return err
	}
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\n\tn\tmean\tp50\tp90\tp99\tmax\t")
	for _, m := range distributions(s) {
		if m.spread.N > 0 {
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%s\t\n", m.title, m.spread.N, number(m.spread.Mean()), number(m.spread.Percentile(50)), number(m.spread.Percentile(90)), number(m.spread.Percentile(99)), number(m.spread.Max))
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if c.Most == 0 || len(chains) == 0 {
		return nil
	}
	fmt.Fprintln(out)
	w = tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "CHAIN\tPARENT\tTURNS\tSECONDS\tIN\tHIT\tREAD/WRITE\tOUT\tTTFT P50\tTTFT P99\tTOOLS\tPAUSE P50\tPAUSE MAX")
	for _, t := range chains[:min(c.Most, len(chains))] {
		fmt.Fprintf(w, "%s\t%s\t%d\t%.1f\t%d\t%s\t%s\t%d\t%s\t%s\t%d\t%s\t%s\n",
			plain(t.ID), dash(plain(t.ParentID)), t.Requests, t.Last.Sub(t.First).Seconds(), t.Input, share(t.HitShare()), ratio(t.ReadWrite()), t.Output,
			known(&t.TTFT, 50), known(&t.TTFT, 99), max(t.ToolCalls, t.ToolEvents), known(&t.Pause, 50), known(&t.Pause, 100))
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if more := len(chains) - c.Most; more > 0 {
		fmt.Fprintf(out, "%d chains more: raise --most-chains, or take --json\n", more)
	}
	return nil
}

// sessions counts the chains that none of the others has opened; those that one has
// opened of which nothing was recorded are of one session.
func sessions(chains []*tree.ChainTotals) int {
	recorded, missing, roots := map[string]bool{}, map[string]bool{}, 0
	for _, c := range chains {
		recorded[c.ID] = true
	}
	for _, c := range chains {
		switch {
		case c.ParentID == "":
			roots++
		case !recorded[c.ParentID] && !missing[c.ParentID]:
			missing[c.ParentID] = true
			roots++
		}
	}
	return roots
}

// metric is a distribution and what it is called.
type metric struct {
	title, name string
	spread      *tree.Spread
}

func distributions(s *tree.Stats) []metric {
	return []metric{
		{"Time to first token (ms)", "ttft_ms", &s.TTFT},
		{"Time between tokens (ms)", "avg_itl_ms", &s.ITL},
		{"Time of requests (ms)", "total_time_ms", &s.Total},
		{"Parked by the router (ms)", "queue_time_ms", &s.Queue},
		{"Choosing the worker (ms)", "routing_time_ms", &s.Routing},
		{"Pause after asking for tools (ms)", "tool_pause_ms", &s.Pause},
		{"Tools, as told (ms)", "tool_time_ms", &s.Tool},
		{"Prompt (tokens)", "input_tokens", &s.Size},
		{"Answer (tokens)", "output_tokens", &s.Length},
	}
}

func share(x float64, ok bool) string {
	if !ok {
		return "unknown"
	}
	return percent(x)
}

func ratio(x float64, ok bool) string {
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.1f", x)
}

// known returns a percentile of times, in words for people.
func known(s *tree.Spread, p float64) string {
	if s.N == 0 {
		return "-"
	}
	return milli(s.Percentile(p))
}

// tally lists what was counted, the most frequent first.
func tally[K cmp.Ordered](counts map[K]int, name func(K) string) string {
	keys := slices.SortedFunc(maps.Keys(counts), func(a, b K) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	})
	var parts []string
	for i, k := range keys {
		if i == 8 {
			parts = append(parts, fmt.Sprintf("%d others", len(keys)-i))
			break
		}
		parts = append(parts, fmt.Sprintf("%s %d", name(k), counts[k]))
	}
	return dash(strings.Join(parts, ", "))
}

// Statistics as JSON.
type (
	statedTotals struct {
		Requests    int      `json:"requests"`
		Failed      int      `json:"failed"`
		Compactions int      `json:"compactions"`
		Start       string   `json:"start,omitzero"`
		Seconds     float64  `json:"seconds"`
		Input       uint64   `json:"input_tokens"`
		Output      uint64   `json:"output_tokens"`
		Cached      uint64   `json:"cached_tokens"`
		Told        uint64   `json:"input_tokens_with_cached_known"`
		HitShare    *float64 `json:"hit_share,omitzero"`
		ReadWrite   *float64 `json:"read_write_ratio,omitzero"`
		Expected    *float64 `json:"expected_hit_share,omitzero"`
		ToolCalls   int      `json:"tool_calls"`
		ToolEvents  int      `json:"tool_events"`
		ToolErrors  int      `json:"tool_errors"`
		TTFT        stated   `json:"ttft_ms"`
		Pause       stated   `json:"tool_pause_ms"`
		Tool        stated   `json:"tool_time_ms"`
	}
	stated struct {
		N    int     `json:"n"`
		Mean float64 `json:"mean"`
		P50  float64 `json:"p50"`
		P90  float64 `json:"p90"`
		P99  float64 `json:"p99"`
		Max  float64 `json:"max"`
	}
	statedChain struct {
		ID     string `json:"session_id"`
		Parent string `json:"parent_session_id,omitzero"`
		Run    string `json:"run_id,omitzero"`
		statedTotals
	}
	statedTrace struct {
		statedTotals
		Alone         int               `json:"requests_of_no_session"`
		Duplicates    int               `json:"duplicates"`
		Distributions map[string]stated `json:"distributions"`
		Workers       map[uint64]int    `json:"requests_by_prefill_worker"`
		Finish        map[string]int    `json:"requests_by_ending"`
		Chains        []statedChain     `json:"chains"`
	}
)

func state(s *tree.Spread) stated {
	return stated{s.N, s.Mean(), s.Percentile(50), s.Percentile(90), s.Percentile(99), s.Max}
}

func stateTotals(t *tree.Totals) statedTotals {
	known := func(x float64, ok bool) *float64 {
		if !ok {
			return nil
		}
		return &x
	}
	s := statedTotals{
		Requests: t.Requests, Failed: t.Failed, Compactions: t.Compactions, Seconds: t.Last.Sub(t.First).Seconds(),
		Input: t.Input, Output: t.Output, Cached: t.Cached, Told: t.Told,
		HitShare: known(t.HitShare()), ReadWrite: known(t.ReadWrite()), Expected: known(t.ExpectedShare()),
		ToolCalls: t.ToolCalls, ToolEvents: t.ToolEvents, ToolErrors: t.ToolErrors,
		TTFT: state(&t.TTFT), Pause: state(&t.Pause), Tool: state(&t.Tool),
	}
	if !t.First.IsZero() {
		s.Start = t.First.Format(time.RFC3339Nano)
	}
	return s
}

func statsJSON(out io.Writer, s *tree.Stats, chains []*tree.ChainTotals) error {
	told := statedTrace{
		statedTotals: stateTotals(&s.Totals), Alone: s.Alone.Requests, Duplicates: s.Duplicates,
		Distributions: map[string]stated{}, Workers: s.Workers, Finish: s.Finish, Chains: []statedChain{},
	}
	for _, m := range distributions(s) {
		told.Distributions[m.name] = state(m.spread)
	}
	for _, c := range chains {
		told.Chains = append(told.Chains, statedChain{c.ID, c.ParentID, c.Run, stateTotals(&c.Totals)})
	}
	if err := json.MarshalWrite(out, told, json.Deterministic(true), jsontext.WithIndent("  "), jsontext.AllowInvalidUTF8(true)); err != nil {
		return err
	}
	_, err := fmt.Fprintln(out)
	return err
}
