package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/dynago/dynago/bench/stats"
)

// part is one number of a figure.
type part struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`

	// Of several runs Value is the median.
	Runs   int           `json:"runs,omitempty"`
	Spread *stats.Spread `json:"spread,omitempty"`

	// A baseline was taken in the same run; Ratio is Value / Baseline.
	Baseline   *float64 `json:"baseline,omitempty"`
	BaselineOf string   `json:"baseline_of,omitempty"`
	Ratio      *float64 `json:"ratio,omitempty"`

	// The most that passes, and the most that was aimed for; where more is
	// better, the least. A number without a line is there to explain the others,
	// and is not judged.
	PassLine *float64 `json:"pass_line,omitempty"`
	AimLine  *float64 `json:"aim_line,omitempty"`
	Pass     *bool    `json:"pass,omitempty"`
	Aim      *bool    `json:"aim,omitempty"`
	More     bool     `json:"more_is_better,omitempty"`

	Note string `json:"note,omitempty"`
}

// median makes a part of the values that repeated runs gave.
func median(what, unit string, values []float64) part {
	spread := stats.SpreadOf(values)
	return part{What: what, Value: stats.Median(values), Unit: unit, Runs: len(values), Spread: &spread}
}

// countUnit marks numbers of things, which do not depend on the machine.
const countUnit = "count"

// count makes a part of a number of things.
func count(what string, n int) part {
	return part{What: what, Value: float64(n), Unit: countUnit}
}

// against adds what the same work cost elsewhere.
func (p part) against(of string, baseline float64) part {
	ratio := p.Value / baseline
	p.Baseline, p.BaselineOf, p.Ratio = &baseline, of, &ratio
	return p
}

// atMost judges the part by its pass line.
func (p part) atMost(line float64) part {
	pass := p.Value <= line
	p.PassLine, p.Pass = &line, &pass
	return p
}

// aim judges the part by what was aimed for.
func (p part) aim(line float64) part {
	met := p.Value <= line
	p.AimLine, p.Aim = &line, &met
	return p
}

// atLeast judges a part of which more is better by its pass line.
func (p part) atLeast(line float64) part {
	pass := p.Value >= line
	p.PassLine, p.Pass, p.More = &line, &pass, true
	return p
}

// aimAtLeast judges a part of which more is better by what was aimed for.
func (p part) aimAtLeast(line float64) part {
	met := p.Value >= line
	p.AimLine, p.Aim, p.More = &line, &met, true
	return p
}

func (p part) noted(format string, args ...any) part {
	p.Note = fmt.Sprintf(format, args...)
	return p
}

// record is what a figure came out as. A figure of one part has it inline.
type record struct {
	ID    string `json:"id"`
	What  string `json:"what"`
	*part        // of a figure with a single one
	Parts []part `json:"parts,omitempty"`

	Pass    bool    `json:"pass"`            // every judged part passes
	Aim     bool    `json:"aim"`             // the aim was tried for and met by every part that has one
	Short   bool    `json:"short,omitempty"` // taken in the short form
	Seconds float64 `json:"seconds"`
	Machine machine `json:"machine"`
}

func newRecord(f figure, parts []part, m machine) record {
	r := record{ID: f.id, What: f.what, Parts: parts, Pass: true, Machine: m}
	aimed, missed := false, false
	for _, p := range parts {
		r.Pass = r.Pass && (p.Pass == nil || *p.Pass)
		aimed = aimed || p.Aim != nil
		missed = missed || p.Aim != nil && !*p.Aim
	}
	r.Aim = aimed && !missed
	if len(parts) == 1 {
		r.What, r.Parts, r.part = parts[0].What, nil, &parts[0]
	}
	return r
}

// all returns the parts, be they inline or a list.
func (r record) all() []part {
	if r.part != nil {
		return []part{*r.part}
	}
	return r.Parts
}

// broken says whether a count is not as it must be.
func (r record) broken() bool {
	return slices.ContainsFunc(r.all(), func(p part) bool {
		return p.Unit == countUnit && p.Pass != nil && !*p.Pass
	})
}

// lines prints one line for each part.
func (r record) lines() string {
	var b strings.Builder
	for _, p := range r.all() {
		fmt.Fprintf(&b, "%-4s %s\n", r.ID, p.line())
	}
	return b.String()
}

func (p part) line() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s %s", p.What, number(p.Value), p.Unit)
	if p.Spread != nil && p.Runs > 1 {
		fmt.Fprintf(&b, " (%s to %s in %d runs)", number(p.Spread.Min), number(p.Spread.Max), p.Runs)
	}
	if p.Baseline != nil {
		fmt.Fprintf(&b, ", %.2f× %s at %s", *p.Ratio, p.BaselineOf, number(*p.Baseline))
	}
	sign := "≤"
	if p.More {
		sign = "≥"
	}
	if p.Pass != nil {
		fmt.Fprintf(&b, "; pass %s %s: %s", sign, number(*p.PassLine), yes(*p.Pass))
	}
	if p.Aim != nil {
		fmt.Fprintf(&b, "; aim %s %s: %s", sign, number(*p.AimLine), yes(*p.Aim))
	}
	if p.Note != "" {
		b.WriteString("; " + p.Note)
	}
	return b.String()
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "NO"
}

// number prints four significant digits, and whole numbers whole.
func number(v float64) string {
	if v == float64(int64(v)) || v >= 1000 {
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 4, 64)
}
