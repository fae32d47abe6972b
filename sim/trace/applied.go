package trace

import (
	"cmp"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"
)

// sessionRow is one session of an applied_compute_agentic trace. Each of its
// turns calls tools, and a final answer comes after the last.
type sessionRow struct {
	Turns   *int64    `json:"num_turns"`
	Prompt  *int64    `json:"input_prompt_length"`
	Answers []int64   `json:"assistant_response_length"`
	Results []int64   `json:"tool_call_output_length"`
	Pauses  []float64 `json:"tool_call_latency"` // seconds
	Final   *int64    `json:"final_assistant_response_length"`
}

// readApplied yields the requests of each session, one after the other. All
// sessions begin at 0: how many of them run at a time is for who replays them.
func readApplied(o ReadOptions, sources []io.Reader) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		random := newRand(o.Seed)
		requests, session := 0, 0
		for l, err := range lines[sessionRow](sources[0]) {
			if err != nil {
				yield(Request{}, err)
				return
			}
			for r, err := range sessionOf(l, &o, random, session, requests) {
				if !yield(r, err) || err != nil {
					return
				}
				requests++
			}
			session++
		}
	}
}

// sessionOf yields the requests of the session of a line, the first of which is
// number n of the trace.
func sessionOf(l *line[sessionRow], o *ReadOptions, random *rand.Rand, session, n int) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		turns, prompt, final, err := sizes(l)
		if err != nil {
			yield(Request{}, err)
			return
		}
		r := Request{
			Session: "session " + strconv.Itoa(session),
			Prompt:  o.Prefix.prompt(random, cmp.Or(o.BlockSize, DefaultBlockSize), prompt, n),
		}
		for turn := range turns + 1 {
			output := int64(final)
			if turn < turns {
				output = l.row.Answers[turn]
			}
			r.ID = fmt.Sprintf("%s, turn %d", r.Session, turn)
			r.Answer, r.Final = answer(n+turn, max(int(output), 1)), turn == turns
			handed := r
			handed.Prompt = slices.Clip(r.Prompt)
			if !yield(handed, nil) || r.Final {
				return
			}
			pause, _ := duration(l.row.Pauses[turn], time.Second)
			result := Text{{Stream: stream(prompts, uint64(n+turn+1)), Len: uint32(l.row.Results[turn])}}
			r.Prompt, r.After, r.Delay, r.Tool = continued(&r, result), []string{r.ID}, pause, true
		}
	}
}

// sizes checks the row of a session and returns its plain numbers.
func sizes(l *line[sessionRow]) (turns, prompt, final int, err error) {
	row := &l.row
	if turns, err = l.length("num_turns", row.Turns); err != nil {
		return 0, 0, 0, err
	}
	if prompt, err = l.length("input_prompt_length", row.Prompt); err != nil {
		return 0, 0, 0, err
	}
	if prompt == 0 {
		return 0, 0, 0, l.fault("input_prompt_length", "the prompt is empty")
	}
	if final, err = l.length("final_assistant_response_length", row.Final); err != nil {
		return 0, 0, 0, err
	}
	for _, list := range []struct {
		field string
		n     int
	}{
		{"assistant_response_length", len(row.Answers)},
		{"tool_call_output_length", len(row.Results)},
		{"tool_call_latency", len(row.Pauses)},
	} {
		if list.n != turns {
			return 0, 0, 0, l.fault(list.field, "got %d values for %d turns", list.n, turns)
		}
	}
	total := prompt
	for i := range turns {
		a, err := l.length(fmt.Sprintf("assistant_response_length.%d", i), &row.Answers[i])
		if err != nil {
			return 0, 0, 0, err
		}
		t, err := l.length(fmt.Sprintf("tool_call_output_length.%d", i), &row.Results[i])
		if err != nil {
			return 0, 0, 0, err
		}
		if _, problem := duration(row.Pauses[i], time.Second); problem != "" {
			return 0, 0, 0, l.fault(fmt.Sprintf("tool_call_latency.%d", i), "%s", problem)
		}
		if total += max(a, 1) + t; total > maxTokens {
			return 0, 0, 0, l.fault("num_turns", "the session grows over %d tokens", maxTokens)
		}
	}
	return turns, prompt, final, nil
}
