package frontend

import (
	"math"
	"strconv"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/router"
)

// appendDecision appends what a trace keeps of a routing decision: why it fell, and what
// the request would have cost where it went and at the cheapest other place. Its names
// are those of [decision]. It is written by hand, since it is done for each request.
func appendDecision(to jsontext.Value, e *router.Entry) jsontext.Value {
	to = append(to, `{"worker":`...)
	to = appendName(to, e.Worker)
	to = append(to, `,"reason":`...)
	to = appendName(to, string(e.Reason))
	if e.Class != "" {
		to = append(to, `,"policy_class":`...)
		to = appendName(to, e.Class)
	}
	to = append(to, `,"predicted_cached_tokens":`...)
	to = strconv.AppendInt(to, int64(e.CachedTokens), 10)
	to = append(to, `,"candidates":`...)
	to = strconv.AppendInt(to, int64(e.Candidates), 10)
	to = append(to, `,"best":[`...)
	others := 0
	for i := range e.Best {
		p := &e.Best[i]
		if p.Target != e.Target {
			if others++; others > 1 {
				continue
			}
		}
		if to[len(to)-1] != '[' {
			to = append(to, ',')
		}
		to = append(to, `{"worker":`...)
		to = appendName(to, p.Worker)
		to = append(to, `,"dp_rank":`...)
		to = strconv.AppendUint(to, uint64(p.Target.Rank), 10)
		to = append(to, `,"cached_blocks":`...)
		to = strconv.AppendInt(to, int64(p.Cached), 10)
		if !math.IsNaN(p.Cost) && !math.IsInf(p.Cost, 0) { // a policy of somebody else may say so
			to = append(to, `,"cost":`...)
			to = strconv.AppendFloat(to, p.Cost, 'f', 3, 64)
		}
		to = append(to, '}')
	}
	return append(to, "]}"...)
}

// appendName appends a string. What is no UTF-8 in it is replaced.
func appendName(to jsontext.Value, s string) jsontext.Value {
	to, _ = jsontext.AppendQuote(to, s)
	return to
}
