package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/google/uuid"

	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/router"
)

// explainSettings say how a placement is explained, and what the request would
// change of the router's configuration.
type explainSettings struct {
	Full    bool     `name:"explain" env:"DYN_EXPLAIN" negatable:"" help:"Show every part of the costs, who is out, and what decided. Nothing is booked."`
	JSON    bool     `name:"json" env:"DYN_JSON" negatable:"" help:"The same as a JSON object."`
	Server  string   `name:"server" env:"DYN_SERVER" placeholder:"URL" help:"Explain where this running server would send the prompt, instead of making a fleet."`
	APIKey  string   `name:"api-key" env:"DYN_API_KEY" placeholder:"KEY" help:"Key that the server wants."`
	Running []string `name:"running" env:"DYN_RUNNING" placeholder:"PROMPT" help:"Prompts that are still being answered, and count as load; repeatable."`
	Allow   []string `name:"allow" env:"DYN_ALLOW" placeholder:"WORKER" help:"Only this worker may be taken; repeatable."`
	Credit  *float64 `name:"overlap-score-credit" env:"DYN_OVERLAP_SCORE_CREDIT" range:"0.." placeholder:"X" help:"What one cached block saves this request; otherwise what the router is set to."`
	Scale   *float64 `name:"prefill-load-scale" env:"DYN_PREFILL_LOAD_SCALE" range:"0.." placeholder:"X" help:"What a block of prefill costs this request against one in use; otherwise what the router is set to."`
	Reuse   *bool    `name:"assume-kv-reuse" env:"DYN_ASSUME_KV_REUSE" negatable:"" help:"Let this request share blocks in the books; otherwise as the router is set to."`
	Track   *bool    `name:"track-prefill-tokens" env:"DYN_TRACK_PREFILL_TOKENS" negatable:"" help:"Count prompts that are not yet computed; otherwise as the router is set to."`
}

func (s *explainSettings) overrides() *router.Overrides {
	return &router.Overrides{OverlapScoreCredit: s.Credit, PrefillLoadScale: s.Scale, AssumeKVReuse: s.Reuse, TrackPrefillTokens: s.Track}
}

// explanation says where a prompt would go, and why.
type explanation struct {
	Model     string        `json:"model"`
	Tokens    int           `json:"tokens"`
	Blocks    int           `json:"blocks"`
	BlockSize int           `json:"block_size"`
	Mode      string        `json:"router_mode,omitzero"`
	Taken     string        `json:"taken"`
	Rank      uint32        `json:"dp_rank"`
	Reason    router.Reason `json:"reason"`
	Why       string        `json:"why"`
	Rows      []explained   `json:"candidates"`
	Out       []outRow      `json:"not_eligible"`

	byCost bool // a worker is picked by what the request costs there
}

// explained is one rank that may serve the prompt. Costs are in blocks.
type explained struct {
	Worker   string `json:"worker"`
	ID       uint64 `json:"worker_id"`
	Rank     uint32 `json:"dp_rank"`
	Taken    bool   `json:"taken"`
	Device   int    `json:"device_blocks"`
	Host     int    `json:"host_pinned_blocks"`
	Disk     int    `json:"disk_blocks"`
	Shared   int    `json:"shared_blocks"`
	Uncached int    `json:"uncached_tokens"`
	Ahead    int    `json:"active_prefill_tokens"`
	Active   int    `json:"active_blocks"`
	Running  int    `json:"active_requests"`

	Raw        float64 `json:"raw_prefill"`
	Decay      float64 `json:"credit_decay"`
	Credit     float64 `json:"credit"`
	Scale      float64 `json:"prefill_load_scale"`
	Prefill    float64 `json:"prefill"`
	Decode     float64 `json:"decode"`
	Requests   float64 `json:"requests"`
	Preference float64 `json:"preference"`
	Total      float64 `json:"total"`
	Chance     float64 `json:"probability"`
}

// outRow is a worker that may not serve the prompt.
type outRow struct {
	Worker string `json:"worker"`
	ID     uint64 `json:"worker_id"`
	Reason string `json:"reason"`
}

// explainFully prints every part of what each rank would cost. It completes an
// explanation that says how workers are picked.
func (sys *system) explainFully(ctx context.Context, to outlet, text string, s *explainSettings, e *explanation) error {
	for _, running := range s.Running {
		b, err := sys.begin(ctx, running)
		if err != nil {
			return fmt.Errorf("--running: %w", err)
		}
		defer b.Release()
	}
	ids, _, err := sys.Tokenize(sys.conversation(text), true)
	if err != nil {
		return err
	}
	q := &router.Query{ID: uuid.NewString(), Model: sys.files.name, Tokens: ids, Choices: 1, Overrides: s.overrides()}
	if q.Allow, err = sys.named(s.Allow); err != nil {
		return err
	}
	e.Tokens = len(ids)
	for _, b := range sys.router.Barred(q) {
		e.Out = append(e.Out, outRow{b.Worker.Name(), b.Worker.ID(), b.Reason})
	}
	rows, err := sys.router.Explain(ctx, q)
	if err != nil {
		return err
	}
	d, err := sys.router.Advise(ctx, q)
	if err != nil {
		return err
	}
	names := make(map[uint64]string)
	for _, w := range sys.fleet.Snapshot() {
		names[w.ID()] = w.Name()
	}
	e.fill(rows, names, d)
	return e.show(to.out, s.JSON)
}

// begin books a prompt as if it were being answered.
func (sys *system) begin(ctx context.Context, text string) (*router.Booking, error) {
	ids, _, err := sys.Tokenize(sys.conversation(text), true)
	if err != nil {
		return nil, err
	}
	return sys.router.Route(ctx, &router.Query{ID: uuid.NewString(), Model: sys.files.name, Tokens: ids})
}

// named returns the ids of workers, or nil if none is named.
func (sys *system) named(names []string) ([]uint64, error) {
	var ids []uint64
	workers := sys.fleet.Snapshot()
	for _, name := range names {
		i := slices.IndexFunc(workers, func(w *fleet.Worker) bool { return w.Name() == name })
		if i < 0 {
			return nil, fmt.Errorf("--allow: %q: there is no such worker", name)
		}
		ids = append(ids, workers[i].ID())
	}
	return ids, nil
}

// fill makes the explanation of a decision between rows.
func (e *explanation) fill(rows []router.Row, names map[uint64]string, d router.Decision) {
	slices.SortFunc(rows, func(a, b router.Row) int {
		return cmp.Or(compareNames(names[a.Target.Worker], names[b.Target.Worker]), cmp.Compare(a.Target.Rank, b.Target.Rank))
	})
	slices.SortFunc(e.Out, func(a, b outRow) int { return compareNames(a.Worker, b.Worker) })
	e.Blocks, e.Rank = d.Blocks, d.Target.Rank
	for i := range rows {
		r := &rows[i]
		taken := r.Target == d.Target
		e.Rows = append(e.Rows, explained{
			Worker: names[r.Target.Worker], ID: r.Target.Worker, Rank: r.Target.Rank, Taken: taken,
			Device: r.Device, Host: r.Host, Disk: r.Disk, Shared: r.Shared,
			Uncached: max(0, e.Tokens-(r.Device+r.Host+r.Disk)*r.BlockSize),
			Ahead:    r.PrefillTokens, Active: r.ActiveBlocks, Running: r.Requests,
			Raw: r.Terms.RawPrefill, Decay: r.Terms.Decay, Credit: r.Terms.Credit, Scale: r.Terms.Scale, Prefill: r.Terms.Prefill,
			Decode: r.Terms.Decode, Requests: r.Terms.Requests, Preference: r.Terms.Preference,
			Total: r.Terms.Total, Chance: r.Chance,
		})
		if taken {
			c := router.Compare(rows, i)
			e.BlockSize, e.Taken, e.Reason = r.BlockSize, names[r.Target.Worker], c.Reason
			e.Why = e.because(rows, names, i, c)
		}
	}
}

// because says in one sentence why the row at i is taken.
func (e *explanation) because(rows []router.Row, names map[uint64]string, i int, c router.Comparison) string {
	label := func(i int) string {
		name := names[rows[i].Target.Worker]
		if slices.ContainsFunc(rows, func(r router.Row) bool {
			return r.Target.Worker == rows[i].Target.Worker && r.Target.Rank != rows[i].Target.Rank
		}) {
			name += " rank " + strconv.FormatUint(uint64(rows[i].Target.Rank), 10)
		}
		return name
	}
	cost := func(tokens float64) string { return number(math.Abs(tokens) / float64(rows[i].BlockSize)) }
	who := label(i) + " is taken"
	if !e.byCost && c.Next >= 0 {
		return fmt.Sprintf("%s because %s picks it, whatever it costs.", who, e.Mode)
	}
	switch c.Reason {
	case router.ReasonNecessity:
		return who + " because no other may serve the request."
	case router.ReasonTie:
		return fmt.Sprintf("%s by a draw: %d cost the same.", who, c.Ties)
	case router.ReasonChance:
		return fmt.Sprintf("%s by a draw in which its chance was %.1f %%: at a temperature also those are that cost more than %s.", who, 100*rows[i].Chance, label(c.Next))
	case router.ReasonPolicy:
		return fmt.Sprintf("%s because the policy wants it, though %s costs less.", who, label(c.Next))
	case router.ReasonPreference:
		return fmt.Sprintf("%s because the request prefers its taints.", who)
	case router.ReasonCache:
		s := fmt.Sprintf("%s for its cache: that takes %s more off the cost than at %s, the next best", who, cost(c.Cache), label(c.Next))
		switch {
		case c.Load < 0:
			s += fmt.Sprintf(", where other work costs %s less", cost(c.Load))
		case c.Load > 0:
			s += fmt.Sprintf(", and other work costs %s less here", cost(c.Load))
		}
		return s + "."
	}
	s := fmt.Sprintf("%s for its load: other work costs %s less than at %s, the next best", who, cost(c.Load), label(c.Next))
	switch {
	case c.Cache < 0:
		s += fmt.Sprintf(", whose cache would take %s more off", cost(c.Cache))
	case c.Cache > 0:
		s += fmt.Sprintf(", and its cache takes %s more off", cost(c.Cache))
	}
	return s + "."
}

// number writes a cost as short as it can be.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*100)/100, 'f', -1, 64)
}

// show prints the explanation for a person or a program.
func (e *explanation) show(w io.Writer, asJSON bool) error {
	if !asJSON {
		return e.write(w)
	}
	err := json.MarshalWrite(w, e, jsontext.WithIndent("  "), json.FormatNilSliceAsNull(false))
	if err == nil {
		_, err = io.WriteString(w, "\n")
	}
	return err
}

// column is a column of the table.
type column struct {
	name string
	show func(*explained) string
	// dull is a value that, if all rows have it, tells nothing; "": always shown.
	dull string
}

// columns are those of the table. Chances are those of mode kv.
func columns(byCost bool) []column {
	whole := func(f func(*explained) int) func(*explained) string {
		return func(r *explained) string { return strconv.Itoa(f(r)) }
	}
	cost := func(f func(*explained) float64) func(*explained) string {
		return func(r *explained) string { return strconv.FormatFloat(f(r), 'f', 2, 64) }
	}
	all := []column{
		{"rank", whole(func(r *explained) int { return int(r.Rank) }), "0"},
		{"device", whole(func(r *explained) int { return r.Device }), ""},
		{"host", whole(func(r *explained) int { return r.Host }), "0"},
		{"disk", whole(func(r *explained) int { return r.Disk }), "0"},
		{"shared", whole(func(r *explained) int { return r.Shared }), "0"},
		{"uncached", whole(func(r *explained) int { return r.Uncached }), ""},
		{"ahead", whole(func(r *explained) int { return r.Ahead }), ""},
		{"active", whole(func(r *explained) int { return r.Active }), ""},
		{"running", whole(func(r *explained) int { return r.Running }), ""},
		{"raw", cost(func(r *explained) float64 { return r.Raw }), ""},
		{"decay", cost(func(r *explained) float64 { return r.Decay }), "1.00"},
		{"credit", cost(func(r *explained) float64 { return r.Credit }), ""},
		{"prefill", cost(func(r *explained) float64 { return r.Prefill }), ""},
		{"decode", cost(func(r *explained) float64 { return r.Decode }), ""},
		{"requests", cost(func(r *explained) float64 { return r.Requests }), "0.00"},
		{"preference", cost(func(r *explained) float64 { return r.Preference }), "1.00"},
		{"total", cost(func(r *explained) float64 { return r.Total }), ""},
	}
	if byCost {
		all = append(all, column{"chance", func(r *explained) string { return fmt.Sprintf("%.1f%%", 100*r.Chance) }, ""})
	}
	return all
}

// write prints the table that a person wants.
func (e *explanation) write(out io.Writer) error {
	fmt.Fprintf(out, "%d tokens, %d blocks of %d\n\n", e.Tokens, e.Blocks, e.BlockSize)
	shown := slices.DeleteFunc(columns(e.byCost), func(c column) bool {
		return c.dull != "" && !slices.ContainsFunc(e.Rows, func(r explained) bool { return c.show(&r) != c.dull })
	})
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprint(w, "worker\t")
	for _, c := range shown {
		fmt.Fprint(w, c.name, "\t")
	}
	fmt.Fprintln(w)
	for i := range e.Rows {
		r := &e.Rows[i]
		fmt.Fprint(w, r.Worker, "\t")
		for _, c := range shown {
			fmt.Fprint(w, c.show(r), "\t")
		}
		if r.Taken {
			fmt.Fprint(w, "  ← taken")
		}
		fmt.Fprintln(w)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for _, o := range e.Out {
		fmt.Fprintf(out, "%s is out: it %s\n", o.Worker, o.Reason)
	}
	_, err := fmt.Fprintf(out, "\n%s\n\n"+legend, e.Why, number(e.Rows[0].Scale))
	return err
}

// legend lacks the scale of prefill.
var legend = strings.TrimPrefix(`
device, host, disk, shared: blocks of the prompt that are cached, by tier
uncached, ahead: tokens to compute, of this prompt and of those before it
active, running: blocks in use, and requests
total: prefill + decode in blocks, with requests and preference where they count;
prefill is %s × (raw - credit), raw the prompt with all before it, credit what is
cached, and decode the blocks in use with this one
`, "\n")
