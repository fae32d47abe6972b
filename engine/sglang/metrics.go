package sglang

import (
	"math"
	"strconv"
	"strings"
)

// readMetrics finds the load of the ranks in a page of metrics, as far as it is
// there. Workers that share a rank tell the same: the first one counts.
func readMetrics(page string) []rankLoad {
	byRank := map[uint32]*rankLoad{}
	var order []uint32
	for line := range strings.Lines(page) {
		name, labels, value, ok := parseMetric(line)
		if !ok || !foremost(labels["tp_rank"]) || !foremost(labels["pp_rank"]) {
			continue
		}
		rank, err := strconv.ParseUint(labels["dp_rank"], 10, 32)
		if err != nil && labels["dp_rank"] != "" {
			continue
		}
		l := byRank[uint32(rank)]
		if l == nil {
			l = &rankLoad{Rank: uint32(rank)}
		}
		if !l.take(name, value) {
			continue
		}
		if byRank[l.Rank] == nil {
			byRank[l.Rank] = l
			order = append(order, l.Rank)
		}
	}
	ranks := make([]rankLoad, len(order))
	for i, r := range order {
		ranks[i] = *byRank[r]
	}
	return ranks
}

// foremost says whether a label names the first of several, or there are none.
func foremost(rank string) bool { return rank == "" || rank == "0" }

// take keeps a metric if it is one of ours. Some builds and exporters write the
// prefix with an underscore.
func (r *rankLoad) take(name string, value float64) bool {
	name, ok := strings.CutPrefix(strings.Replace(name, "sglang_", "sglang:", 1), "sglang:")
	if !ok {
		return false
	}
	n := int64(value)
	switch name {
	case "num_running_reqs":
		r.Running = &n
	case "num_queue_reqs":
		r.Waiting = &n
	case "num_used_tokens":
		r.UsedTokens = &n
	case "kv_used_tokens":
		if r.UsedTokens == nil {
			r.UsedTokens = &n
		}
	case "token_usage":
		r.Usage = &value
	case "max_total_num_tokens":
		r.MaxTokens = &n
	case "cached_tokens_total":
		r.Hits = &n
	case "prompt_tokens_total":
		r.Queries = &n
	default:
		return false
	}
	return true
}

// parseMetric reads one line of the Prometheus text format. A comment, a line
// that is none, and a value that counts nothing are not ok.
func parseMetric(line string) (name string, labels map[string]string, value float64, ok bool) {
	line = strings.TrimSpace(line)
	end := strings.IndexAny(line, "{ \t")
	if end <= 0 || line[0] == '#' {
		return "", nil, 0, false
	}
	name, rest := line[:end], line[end:]
	if rest[0] == '{' {
		if labels, rest, ok = parseLabels(rest[1:]); !ok {
			return "", nil, 0, false
		}
	}
	fields := strings.Fields(rest) // a time or an exemplar may follow
	if len(fields) == 0 {
		return "", nil, 0, false
	}
	value, err := strconv.ParseFloat(fields[0], 64)
	ok = err == nil && value >= 0 && value < math.MaxInt64
	return name, labels, value, ok
}

// parseLabels reads labels up to their brace.
func parseLabels(s string) (labels map[string]string, rest string, ok bool) {
	labels = map[string]string{}
	for {
		s = strings.TrimLeft(s, " ,")
		if rest, ok = strings.CutPrefix(s, "}"); ok {
			return labels, rest, true
		}
		key, quoted, found := strings.Cut(s, "=")
		if !found || !strings.HasPrefix(quoted, `"`) {
			return nil, "", false
		}
		end := 1
		for end < len(quoted) && quoted[end] != '"' {
			if quoted[end] == '\\' {
				end++
			}
			end++
		}
		if end >= len(quoted) {
			return nil, "", false
		}
		// Escapes stand in names of models alone, which are not asked for.
		labels[strings.TrimSpace(key)] = quoted[1:end]
		s = quoted[end+1:]
	}
}
