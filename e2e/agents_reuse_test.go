//go:build e2e

package e2e_test

import (
	"encoding/json"
	"fmt"
	"testing"
)

// reuse is what a prompt begins with of the turn before it, in tokens, as the
// server tells in the header x-dynago-debug.
type reuse struct {
	First  bool `json:"first"` // of its conversation
	Prompt int  `json:"prompt_before"`
	Answer int  `json:"answer_before"`
	Common int  `json:"common"`
	// Where the first token differs, and why.
	Part, Cause string
	TextBefore  string `json:"text_before"`
	TextNow     string `json:"text_now"`

	again bool // the user has taken the conversation up again
}

// ofPrompt and ofAnswer are the shares that are used again.
func (r reuse) ofPrompt() float64 {
	return float64(min(r.Common, r.Prompt)) / float64(max(1, r.Prompt))
}

func (r reuse) ofAnswer() float64 {
	return float64(max(0, r.Common-r.Prompt)) / float64(max(1, r.Answer))
}

func (r reuse) String() string {
	return fmt.Sprintf("%d of %d + %d of %d", min(r.Common, r.Prompt), r.Prompt, max(0, r.Common-r.Prompt), r.Answer)
}

// reuses reads what the server told of each turn of a conversation but the first.
func reuses(t testing.TB, talk []*trip, steps []step) (all []reuse) {
	t.Helper()
	for i, p := range talk {
		var r reuse
		if err := json.Unmarshal([]byte(p.answer.Get("X-Dynago-Debug")), &r); err != nil {
			t.Errorf("turn %d: x-dynago-debug: %v in %q", i+1, err, p.answer.Get("X-Dynago-Debug"))
			continue
		}
		if r.First != (i == 0) {
			t.Errorf("turn %d: the server took it for the first of its session: %v", i+1, r.First)
		}
		if i > 0 {
			_, r.again = steps[min(i, len(steps)-1)].when["user"]
			all = append(all, r)
		}
	}
	return all
}

// worst returns the least shares of the turns that the user took up, or of the
// others; 1 where there are none.
func worst(all []reuse, again bool) (ofPrompt, ofAnswer float64) {
	ofPrompt, ofAnswer = 1, 1
	for _, r := range all {
		if r.again == again {
			ofPrompt, ofAnswer = min(ofPrompt, r.ofPrompt()), min(ofAnswer, r.ofAnswer())
		}
	}
	return ofPrompt, ofAnswer
}

// Each turn must begin with the one before it, or nearly.
const leastOfPrompt, leastOfAnswer = 0.99, 0.95

func checkReuse(t testing.TB, all []reuse, again bool) {
	t.Helper()
	for i, r := range all {
		if r.again == again && (r.ofPrompt() < leastOfPrompt || r.ofAnswer() < leastOfAnswer) {
			t.Errorf("turn %d begins with %v of the turn before it: it differs in %s, since %s:\nbefore %q\nnow    %q", i+2, r, r.Part, r.Cause, r.TextBefore, r.TextNow)
		}
	}
}
