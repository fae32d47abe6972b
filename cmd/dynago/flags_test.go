//go:build unix

package main

import (
	"encoding/json"
	"testing"
)

// frail is a script by which a worker that is asked to vanish does so once.
const frail = `
rules:
  - when: {user: vanish}
    times: 1
    cut: {after: 1, as: disconnected}
    emit: Here you are, as far as I can.
default:
  emit: Here you are.
`

// What becomes of requests whose worker fails, and of those after them, is said by
// settings.
func TestFaultSettings(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name          string
		args          []string
		vanish, after int // status of the request whose worker fails, and of the next
	}{
		{"usual", nil, 200, 200},
		{"no move", []string{"--migration-limit", "0"}, 503, 200},
		{"too long to move", []string{"--migration-max-seq-len", "1"}, 503, 200},
		{"left alone", []string{"--migration-limit", "0", "--workers", "1"}, 503, 503},
		{"not left alone", []string{"--migration-limit", "0", "--workers", "1", "--runtime-inhibited-duration-secs", "0"}, 503, 200},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := serve(t, append([]string{"--workers", "2", "--speedup-ratio", "0", "--mock-script", fileOf(t, "script.yaml", frail)}, tc.args...)...)
			for _, ask := range []struct {
				text   string
				status int
			}{{"vanish", tc.vanish}, {"hello", tc.after}} {
				done, _ := p.begin(ask.text, "")
				if r := <-done; r.err != nil || r.status != ask.status {
					t.Errorf("%s: %d %s, %v, want %d", ask.text, r.status, r.body, r.err, ask.status)
				}
			}
		})
	}
}

// The log of decisions is as long as it is told to be, and keeps no more of a
// second than that.
func TestDecisionLog(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		args         []string
		kept, missed int // at least
		most         int
	}{
		{nil, 6, 0, 6},
		{[]string{"--router-decision-log", "2"}, 2, 0, 2},
		{[]string{"--router-decision-log-rate", "1"}, 1, 1, 5},
	} {
		p := serve(t, append([]string{"--speedup-ratio", "0"}, tc.args...)...)
		for range 6 {
			done, _ := p.begin("hello", "")
			if r := <-done; r.status != 200 {
				t.Fatalf("%d %s, %v", r.status, r.body, r.err)
			}
		}
		var told struct {
			Decisions []struct{} `json:"decisions"`
			NotKept   int        `json:"not_kept"`
		}
		status, text := p.get(p.url + "/admin/decisions")
		if err := json.Unmarshal([]byte(text), &told); err != nil || status != 200 {
			t.Fatalf("%d %s, %v", status, text, err)
		}
		if n := len(told.Decisions); n < tc.kept || n > tc.most || told.NotKept < tc.missed {
			t.Errorf("%v: %d kept, and %d not", tc.args, n, told.NotKept)
		}
	}
	p := serve(t, "--router-decision-log", "0")
	if status, _ := p.get(p.url + "/admin/decisions"); status != 404 {
		t.Errorf("without a log: %d", status)
	}
}
