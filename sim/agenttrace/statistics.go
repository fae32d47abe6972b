package agenttrace

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/dynago/dynago/sim/trace"
)

// Statistics are what a workload of agents looks like.
type Statistics struct {
	trace.Statistics     // in blocks of 64 tokens
	Leads, SubAgents int // sessions
	LeadTurns        int // requests of leads, with those that ask for a summary
	SubTurns         int
	Compactions      int
	// LastFull and Compacted are the mean sizes of the prompts that ask for a
	// summary, and of those that go on with it, in tokens.
	LastFull, Compacted float64
	// Pauses are those before requests that bring the results of tools alone.
	MeanPause, MaxPause time.Duration
	Thinking            float64 // share of the answers that later prompts leave out
	// LeadReuse and SubReuse are the shares of their prompts' blocks that a cache
	// of all prompts and answers before, which never forgets, would have.
	LeadReuse, SubReuse float64
}

// Analyse looks at a workload as [Config.Requests] makes it. The reuse it tells
// of is that of the order in which requests come, one lead after the other.
func Analyse(w []trace.Request) Statistics {
	s := Statistics{Statistics: trace.Analyse(w, 64)}
	answers := map[uint64]uint32{} // length of those that later prompts may show
	shown := map[uint64]uint32{}
	compaction := map[string]bool{}
	var pauses []time.Duration
	for i := range w {
		r := &w[i]
		switch {
		case r.Parent != "":
			s.SubTurns++
			s.SubAgents += one(r.Final)
		default:
			s.LeadTurns++
			s.Leads += one(r.Final)
		}
		if strings.HasSuffix(r.ID, ", compaction") {
			compaction[r.ID] = true
			s.Compactions++
			s.LastFull += float64(r.Prompt.Len())
		} else {
			answers[r.Answer[0].Stream] = r.Answer[0].Len
		}
		if len(r.After) == 1 && compaction[r.After[0]] {
			s.Compacted += float64(r.Prompt.Len())
		}
		if r.Delay > 0 {
			pauses = append(pauses, r.Delay)
		}
		for _, p := range r.Prompt {
			if _, ok := answers[p.Stream]; ok {
				shown[p.Stream] = p.Len
			}
		}
	}
	s.LastFull /= float64(max(s.Compactions, 1))
	s.Compacted /= float64(max(s.Compactions, 1))
	generated, kept := 0, 0
	for stream, n := range shown {
		generated += int(answers[stream])
		kept += int(n)
	}
	s.Thinking = 1 - float64(kept)/float64(max(generated, 1))
	var sum time.Duration
	for _, p := range pauses {
		sum += p
	}
	if len(pauses) > 0 {
		s.MeanPause, s.MaxPause = sum/time.Duration(len(pauses)), slices.Max(pauses)
	}
	s.LeadReuse, s.SubReuse = reuse(w)
	return s
}

// reuse returns which share of the blocks of leads and of sub-agents were there
// before, in prompts or in answers.
func reuse(w []trace.Request) (lead, sub float64) {
	// What a request leaves in a cache is its prompt and its answer behind it.
	whole := make([]trace.Request, 0, 2*len(w))
	for _, r := range w {
		behind := trace.Request{Prompt: slices.Concat(r.Prompt, r.Answer)}
		whole = append(whole, r, behind)
	}
	chains := trace.Chains(whole, 64)
	cache := trace.NewCache(0)
	var held, all [2]int
	for i, r := range w {
		prompt := chains[2*i]
		who := one(r.Parent != "")
		held[who] += cache.Match(prompt)
		all[who] += len(prompt)
		cache.Touch(chains[2*i+1])
	}
	share := func(i int) float64 { return float64(held[i]) / float64(max(all[i], 1)) }
	return share(0), share(1)
}

func one(b bool) int {
	if b {
		return 1
	}
	return 0
}

// String returns a few lines for people.
func (s Statistics) String() string {
	var b strings.Builder
	b.WriteString(s.Statistics.String())
	fmt.Fprintf(&b, "%d leads of %.1f turns, each with %.1f sub-agents of %.1f turns\n",
		s.Leads, float64(s.LeadTurns)/float64(max(s.Leads, 1)), float64(s.SubAgents)/float64(max(s.Leads, 1)), float64(s.SubTurns)/float64(max(s.SubAgents, 1)))
	fmt.Fprintf(&b, "%d compactions from %.0f tokens to %.0f\n", s.Compactions, s.LastFull, s.Compacted)
	fmt.Fprintf(&b, "tools take %s on average, %s at most; thinking is %.1f%% of the answers\n", s.MeanPause.Round(10*time.Millisecond), s.MaxPause.Round(10*time.Millisecond), 100*s.Thinking)
	fmt.Fprintf(&b, "prompts of leads were there before to %.1f%%, those of sub-agents to %.1f%%\n", 100*s.LeadReuse, 100*s.SubReuse)
	return b.String()
}
