//go:build unix

package main

import (
	"slices"
	"testing"
	"time"

	"github.com/dynago/dynago/kv"
)

// retentionRows are what is promised about what stays cached.
var retentionRows = slices.Concat(pinnedRows(), markRows, rangeRows)

// pinnedFor checks that the worker was asked to pin the whole prompt for so long.
func pinnedFor(ttl time.Duration) func(*testing.T, *crossing) {
	return func(t *testing.T, c *crossing) {
		r := c.only(t)
		if want := []kv.Pin{{UpTo: uint32(len(r.TokenIDs)), TTL: ttl}}; !slices.Equal(r.KV.Pins, want) {
			t.Errorf("pins %+v, want %+v", r.KV.Pins, want)
		}
	}
}

// notPinned checks that the worker was not asked to pin anything.
func notPinned(t *testing.T, c *crossing) {
	if pins := c.only(t).KV.Pins; len(pins) > 0 {
		t.Errorf("pins %+v, want none", pins)
	}
}

// grantedTTL is what the answer says of it, where the API carries that.
func grantedTTL(seconds string) string { return `"granted_ttl_s":` + seconds + `,"pinned_blocks":\d` }

func pinnedRows() (rows []row) {
	for _, tt := range []struct {
		name, nvext string
		ttl         time.Duration
		seconds     string
		flags       []string
	}{
		{"5m", `"type":"ephemeral","ttl":"5m"`, 5 * time.Minute, "300", nil},
		{"1h", `"type":"ephemeral","ttl":"1h"`, time.Hour, "3600", nil},
		{"90s", `"ttl":"90s"`, 90 * time.Second, "90", nil},
		{"a text of seconds", `"ttl":"600"`, 10 * time.Minute, "600", nil},
		{"a number of seconds", `"ttl":600`, 10 * time.Minute, "600", nil},
		{"nothing said", ``, 5 * time.Minute, "300", nil},
		{"a week is a day", `"ttl":"168h"`, 24 * time.Hour, "86400", nil},
		{"what cannot be read", `"ttl":"1d"`, 5 * time.Minute, "300", nil},
		{"less than nothing", `"ttl":"-1s"`, 5 * time.Minute, "300", nil},
		{"no text", `"ttl":""`, 5 * time.Minute, "300", nil},
		{"let go", `"ttl":"0m"`, 0, "0", nil},
		{"let go by a number", `"ttl":0`, 0, "0", nil},
		{"strict, too short", `"ttl":"90s"`, 5 * time.Minute, "300", []string{"--cache-control-strict-ttl"}},
		{"strict, too long", `"ttl":"2h"`, time.Hour, "3600", []string{"--cache-control-strict-ttl"}},
		{"bounds of the operator", `"ttl":"2s"`, 10 * time.Second, "10", []string{"--cache-control-min-ttl", "10s", "--cache-control-max-ttl", "20s"}},
		{"bounds of the operator above", `"ttl":"2h"`, 20 * time.Second, "20", []string{"--cache-control-min-ttl", "10s", "--cache-control-max-ttl", "20s"}},
	} {
		field := "cache_control " + tt.name
		rows = append(rows,
			row{field: field, nvext: `{"cache_control":{` + tt.nvext + `}}`, flags: tt.flags, check: pinnedFor(tt.ttl)},
			row{field: field + " is told", nvext: `{"cache_control":{` + tt.nvext + `}}`, flags: tt.flags, apis: []string{"chat", "completions"}, says: grantedTTL(tt.seconds)})
	}
	off := []string{"--no-enable-cache-control"}
	return append(rows,
		row{field: "cache_control turned off", nvext: `{"cache_control":{"ttl":"1h"}}`, flags: off, check: notPinned},
		row{field: "cache_control of another type", nvext: `{"cache_control":{"type":"eternal"}}`, status: 400, says: `nvext\.cache_control\.type`},
		row{field: "no cache_control", check: notPinned},
		row{
			field: "prompt_cache_retention", more: `"prompt_cache_retention":"24h"`, apis: []string{"chat", "completions", "responses"},
			check: pinnedFor(24 * time.Hour),
		},
		row{
			field: "prompt_cache_retention in memory", more: `"prompt_cache_retention":"in_memory"`, apis: []string{"chat", "completions", "responses"},
			check: notPinned,
		},
		row{
			field: "prompt_cache_retention beside cache_control", more: `"prompt_cache_retention":"24h"`, nvext: `{"cache_control":{"ttl":"1m"}}`,
			apis: []string{"chat", "completions", "responses"}, check: pinnedFor(time.Minute),
		},
		row{field: "prompt_cache_retention turned off", more: `"prompt_cache_retention":"24h"`, apis: []string{"chat"}, flags: off, check: notPinned},
	)
}

// marked is a conversation with marks behind its system text, a part of a message and
// at its end.
const marked = `"system":[{"type":"text","text":"The rules of the house are these, and they are many and long. {here}","cache_control":{"type":"ephemeral","ttl":"1h"}}],
"messages":[{"role":"user","content":[{"type":"text","text":"The first part of the question, which is long as well, and comes with every request of the day.","cache_control":{"type":"ephemeral"}},{"type":"text","text":"The rest."}]},
{"role":"assistant","content":"Yes."},{"role":"user","content":[{"type":"text","text":"And then?","cache_control":{"type":"ephemeral","ttl":"10m"}}]}]`

var markRows = []row{
	{
		field: "marks at blocks", more: marked, apis: []string{"messages"},
		check: func(t *testing.T, c *crossing) {
			r := c.only(t)
			var ttls []time.Duration
			last := uint32(0)
			for _, pin := range r.KV.Pins {
				if pin.UpTo <= last || int(pin.UpTo) >= len(r.TokenIDs) {
					t.Errorf("pins %+v of a prompt of %d tokens", r.KV.Pins, len(r.TokenIDs))
				}
				last = pin.UpTo
				ttls = append(ttls, pin.TTL)
			}
			if want := []time.Duration{time.Hour, 5 * time.Minute, 10 * time.Minute}; !slices.Equal(ttls, want) {
				t.Errorf("pins for %v, want %v", ttls, want)
			}
		},
	},
	{
		field: "marks at blocks beside cache_control", more: marked, nvext: `{"cache_control":{"ttl":"1m"}}`, apis: []string{"messages"},
		check: pinnedFor(time.Minute),
	},
	{field: "marks at blocks turned off", more: marked, apis: []string{"messages"}, flags: []string{"--no-enable-cache-control"}, check: notPinned},
	{
		field: "marks at blocks of another type", apis: []string{"messages"},
		more:  `"messages":[{"role":"user","content":[{"type":"text","text":"One two three.","cache_control":{"type":"eternal"}}]}]`,
		check: notPinned,
	},
}

// rangesAre checks the ranges that the worker has got.
func rangesAre(want ...kv.Range) func(*testing.T, *crossing) {
	return func(t *testing.T, c *crossing) {
		got := c.only(t).KV.Ranges
		same := func(a, b kv.Range) bool {
			return a.Start == b.Start && a.Priority == b.Priority && a.TTL == b.TTL && (a.End == nil) == (b.End == nil) && (a.End == nil || *a.End == *b.End)
		}
		if !slices.EqualFunc(got, want, same) {
			t.Errorf("ranges %+v, want %+v", got, want)
		}
	}
}

var rangeRows = []row{
	{
		field: "retention", nvext: `{"retention":{"ranges":[{"start":0,"end":16,"priority":100},{"start":16,"end":null,"priority":60,"ttl":"45s"}],"decode":{"priority":1,"duration_ms":1500}}}`,
		check: func(t *testing.T, c *crossing) {
			rangesAre(kv.Range{End: new(uint32(16)), Priority: 100}, kv.Range{Start: 16, Priority: 60, TTL: 45 * time.Second})(t, c)
			if d := &c.only(t).KV; d.DecodePriority == nil || *d.DecodePriority != 1 || d.DecodeTTL != 1500*time.Millisecond {
				t.Errorf("decode %v for %v", d.DecodePriority, d.DecodeTTL)
			}
		},
	},
	{
		field: "retention by messages", nvext: `{"retention":{"ranges":[{"message":0,"priority":90,"ttl":60},{"message":2,"priority":40}]}}`,
		more: `"messages":[{"role":"user","content":"What is the first thing that has to be said here?"},{"role":"assistant","content":"This."},{"role":"user","content":"And the second one, is it as long?"}]`,
		apis: []string{"chat", "messages"},
		check: func(t *testing.T, c *crossing) {
			r := c.only(t)
			if len(r.KV.Ranges) != 2 || r.KV.Ranges[0].End == nil || r.KV.Ranges[1].End == nil {
				t.Fatalf("ranges %+v", r.KV.Ranges)
			}
			first, second := *r.KV.Ranges[0].End, *r.KV.Ranges[1].End
			if first == 0 || second <= first || int(second) >= len(r.TokenIDs) {
				t.Errorf("messages end at %d and %d of %d", first, second, len(r.TokenIDs))
			}
			rangesAre(kv.Range{End: &first, Priority: 90, TTL: time.Minute}, kv.Range{Start: first, End: &second, Priority: 40})(t, c)
		},
	},
	{
		field: "retention of a message that is not there", nvext: `{"retention":{"ranges":[{"message":1,"priority":90}]}}`,
		status: 400, says: `nvext\.retention\.ranges\[0\]\.message: 1 is not in a conversation of \d messages`,
	},
	{field: "retention out of range", nvext: `{"retention":{"ranges":[{"start":0,"priority":101}]}}`, status: 400, says: `nvext\.retention\.ranges\[0\]\.priority`},
	{field: "retention by two measures", nvext: `{"retention":{"ranges":[{"message":0,"end":5,"priority":1}]}}`, status: 400, says: `stands for start and end`},
	{field: "retention for two times", nvext: `{"retention":{"decode":{"priority":1,"ttl":"1s","duration_ms":1}}}`, status: 400, says: `the same as duration_ms`},
}
