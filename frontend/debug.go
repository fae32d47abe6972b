package frontend

import (
	"strconv"
	"unicode/utf16"

	"github.com/go-json-experiment/json"

	"github.com/dynago/dynago/pipeline"
)

// debugHeader asks, in a request, what its prompt shares with the one before it in
// its session, and where it runs, and tells that in the answer.
const debugHeader = "X-Dynago-Debug"

// reuseReport is what the header tells.
type reuseReport struct {
	Session     string   `json:"session"`
	First       bool     `json:"first,omitzero"` // nothing was before it
	Prompt      int      `json:"prompt"`         // tokens of this prompt
	Before      int      `json:"prompt_before"`  // of the one before
	Answer      int      `json:"answer_before"`  // and of its answer
	Common      int      `json:"common"`
	Ratio       *float64 `json:"ratio,omitzero"`
	PromptRatio *float64 `json:"prompt_ratio,omitzero"`
	AnswerRatio *float64 `json:"answer_ratio,omitzero"`
	Offset      *int     `json:"offset,omitzero"` // of the first token that differs
	Part        string   `json:"part,omitzero"`
	Cause       string   `json:"cause,omitzero"`
	TextBefore  string   `json:"text_before,omitzero"`
	TextNow     string   `json:"text_now,omitzero"`

	Placement placement `json:"placement"`
}

// placement is where a request runs, and what was taken to be cached there.
type placement struct {
	Worker        uint64  `json:"worker_id"`
	Rank          uint32  `json:"dp_rank"`
	PrefillWorker uint64  `json:"prefill_worker_id,omitzero"` // if it is another one
	PrefillRank   *uint32 `json:"prefill_dp_rank,omitzero"`
	Overlap       int     `json:"overlap_blocks"`
	Blocks        int     `json:"blocks"`
}

func placementOf(n *pipeline.Notes) placement {
	p := placement{Worker: n.Target.Worker, Rank: n.Target.Rank, Overlap: n.Overlap, Blocks: n.Blocks}
	if t := n.Prefill; t != nil {
		p.PrefillWorker, p.PrefillRank = t.Worker, &t.Rank
	}
	return p
}

// debugReport is the header's value: a JSON object in ASCII.
func debugReport(session string, n *pipeline.Notes) string {
	r := reuseReport{Session: session, Prompt: n.PromptTokens, First: n.Reuse == nil, Placement: placementOf(n)}
	if u := n.Reuse; u != nil {
		ratio, ofPrompt, ofAnswer := u.Ratio(), u.PromptRatio(), u.AnswerRatio()
		r.Before, r.Answer, r.Common = u.Prompt, u.Answer, u.Common
		r.Ratio, r.PromptRatio, r.AnswerRatio = &ratio, &ofPrompt, &ofAnswer
		if d := u.Difference; d != nil {
			r.Offset, r.Part, r.Cause, r.TextBefore, r.TextNow = &u.Common, d.Part, d.Cause, d.Before, d.Now
		}
	}
	text, err := json.Marshal(r)
	if err != nil {
		return ""
	}
	return ascii(text)
}

// ascii escapes all of a JSON text that a header may not hold.
func ascii(text []byte) string {
	out := make([]byte, 0, len(text))
	escape := func(unit uint16) {
		const digits = "0123456789abcdef"
		out = append(out, '\\', 'u', digits[unit>>12], digits[unit>>8&15], digits[unit>>4&15], digits[unit&15])
	}
	for _, r := range string(text) {
		switch {
		case r < 0x7f:
			out = append(out, byte(r))
		case r <= 0xffff:
			escape(uint16(r))
		default:
			high, low := utf16.EncodeRune(r)
			escape(uint16(high))
			escape(uint16(low))
		}
	}
	return string(out)
}

// wantsDebug reads the header of a request.
func wantsDebug(value string) bool {
	if value == "" {
		return false
	}
	on, err := strconv.ParseBool(value)
	return on || err != nil
}
