package trtllm

import (
	"bytes"
	"context"
	"math"
	"strconv"
	"strings"
	"time"
)

// Names on the server's Prometheus page.
const (
	running        = "trtllm_num_requests_running"
	waiting        = "trtllm_num_requests_waiting"
	utilization    = "trtllm_kv_cache_utilization"
	maxBlocks      = "trtllm_kv_cache_max_blocks"
	tokensPerBlock = "trtllm_kv_cache_tokens_per_block"
	succeeded      = "trtllm_request_success_total"
	processStart   = "process_start_time_seconds"
)

// reading is a Prometheus page: of each name the sum over its labels. Nil is a
// page that is not there.
type reading map[string]float64

func (e *Engine) prometheus(ctx context.Context) (reading, error) {
	page, err := e.client.Get(ctx, "/prometheus/metrics")
	if err != nil {
		return nil, err
	}
	return readPage(page), nil
}

// readPage reads the text format: a name, labels in braces, a value. Lines that
// are none are left out.
func readPage(page []byte) reading {
	r := reading{}
	for line := range bytes.Lines(page) {
		s := strings.TrimSpace(string(line))
		end := strings.IndexAny(s, "{ \t")
		if end <= 0 || s[0] == '#' {
			continue
		}
		name, rest := s[:end], s[end:]
		if rest[0] == '{' {
			close := labelsEnd(rest)
			if close < 0 {
				continue
			}
			rest = rest[close:]
		}
		value := strings.Fields(rest)
		if len(value) == 0 {
			continue
		}
		if v, err := strconv.ParseFloat(value[0], 64); err == nil {
			r[name] += v
		}
	}
	return r
}

// labelsEnd returns where labels are over; a quoted value may hold a brace.
func labelsEnd(s string) int {
	quoted := false
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case c == '}' && !quoted:
			return i + 1
		}
	}
	return -1
}

// number returns a value that is a count or a share; anything else is unknown.
func (r reading) number(name string) (float64, bool) {
	v, ok := r[name]
	if !ok || math.IsNaN(v) || v < 0 || v > math.MaxInt32 {
		return 0, false
	}
	return v, true
}

// another says whether a reading is of another process than the one before it,
// which was taken that long ago. Without a word of when it began, a count that
// falls tells it, or a long silence.
func (r reading) another(before reading, since time.Duration) bool {
	now, ok := r[processStart]
	then, told := before[processStart]
	if ok && told {
		return now != then
	}
	n, ok := r[succeeded]
	m, told := before[succeeded]
	return ok && told && n < m || since > lostAfter
}
