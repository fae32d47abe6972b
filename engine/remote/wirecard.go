package remote

import (
	"math"
	"slices"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

var (
	// States that only a frontend sees have no word here: see stateMessage.
	states = pairs(map[engine.State]workerpb.State{
		engine.Loading:  workerpb.State_STATE_LOADING,
		engine.Ready:    workerpb.State_STATE_READY,
		engine.Draining: workerpb.State_STATE_DRAINING,
		engine.Failed:   workerpb.State_STATE_FAILED,
	})
	roles = pairs(map[engine.Role]workerpb.Role{
		engine.Aggregated: workerpb.Role_ROLE_UNSPECIFIED,
		engine.Prefill:    workerpb.Role_ROLE_PREFILL,
		engine.Decode:     workerpb.Role_ROLE_DECODE,
		engine.Encode:     workerpb.Role_ROLE_ENCODE,
	})
	inputs = pairs(map[engine.Input]workerpb.Input{
		engine.InputTokens: workerpb.Input_INPUT_TOKENS,
		engine.InputText:   workerpb.Input_INPUT_TEXT,
		engine.InputChat:   workerpb.Input_INPUT_CHAT,
		engine.InputTensor: workerpb.Input_INPUT_TENSOR,
	})
)

// stateMessage is a state for those who look at a worker from afar: an engine that
// its worker cannot reach may come back, like one that loads.
func stateMessage(s engine.State) workerpb.State {
	if m, ok := states.wire[s]; ok {
		return m
	}
	return workerpb.State_STATE_LOADING
}

// cardMessage is how a card is told.
func cardMessage(c *engine.Card) *workerpb.Card {
	m := &workerpb.Card{
		Model: c.Model, Aliases: c.Aliases, Role: roles.wire[c.Role],
		ContextLength: c.ContextLength, BlockSize: c.BlockSize, HashScheme: c.HashScheme,
		DpStart: c.DPStart, DpSize: c.DPSize, TotalBlocks: c.TotalBlocks, MaxSeqs: c.MaxSeqs, MaxBatchedTokens: c.MaxBatchedTokens,
		Features: words[string](c.Features), MaxLogprobs: c.MaxLogprobs, Controls: c.Controls, EosTokenIds: c.EOS,
		ToolParser: c.ToolParser, ReasoningParser: c.ReasoningParser,
		Tensor: tensorConfigMessage(c.Tensor), Taints: c.Taints, Topology: c.Topology, Engine: c.Engine, Device: c.Device,
		TellsAdapters: c.Adapters != nil, UserData: c.Hint.UserData(),
	}
	for _, role := range c.Needs {
		m.Needs = append(m.Needs, roles.wire[role])
	}
	for _, in := range c.Accepts {
		m.Accepts = append(m.Accepts, inputs.wire[in])
	}
	for _, f := range c.Files {
		m.Files = append(m.Files, &workerpb.FileRef{Kind: f.Kind, Uri: f.URI, Sha256: f.SHA256, Size: uint64(max(0, f.Size))})
	}
	for _, name := range c.Adapters {
		m.Adapters = append(m.Adapters, &workerpb.Adapter{Name: name, Loaded: true})
	}
	if t := c.Disagg; t != (engine.Transfer{}) {
		m.Disagg = &workerpb.Disagg{
			Style: t.Style, Host: t.Host, Port: uint32(t.Port), Layout: t.Layout, SmallRooms: t.SmallRooms,
			Domain: t.Domain, Enforcement: string(t.Enforcement), PreferredWeight: t.PreferredWeight,
		}
	}
	return m
}

// cardOf is the inverse. What a worker may not say is left out.
func cardOf(m *workerpb.Card) *engine.Card {
	c := &engine.Card{
		Model: m.Model, Aliases: m.Aliases, Role: roles.word[m.Role],
		ContextLength: m.ContextLength, BlockSize: m.BlockSize, HashScheme: m.HashScheme,
		DPStart: m.DpStart, DPSize: m.DpSize, TotalBlocks: m.TotalBlocks, MaxSeqs: m.MaxSeqs, MaxBatchedTokens: m.MaxBatchedTokens,
		Features: words[engine.Feature](m.Features), MaxLogprobs: m.MaxLogprobs, Controls: m.Controls, EOS: m.EosTokenIds,
		ToolParser: m.ToolParser, ReasoningParser: m.ReasoningParser,
		Tensor: tensorConfigOf(m.Tensor), Taints: m.Taints, Topology: m.Topology, Engine: m.Engine, Device: m.Device,
		Hint: engine.ParseHintSource(m.UserData),
	}
	for _, role := range m.Needs {
		if r, ok := roles.word[role]; ok {
			c.Needs = append(c.Needs, r)
		}
	}
	for _, in := range m.Accepts {
		if i, ok := inputs.word[in]; ok {
			c.Accepts = append(c.Accepts, i)
		}
	}
	for _, f := range m.Files {
		c.Files = append(c.Files, engine.File{Kind: f.GetKind(), URI: f.GetUri(), SHA256: f.GetSha256(), Size: int64(min(f.GetSize(), math.MaxInt64))})
	}
	if m.TellsAdapters || len(m.Adapters) > 0 {
		c.Adapters = []string{}
	}
	for _, a := range m.Adapters {
		c.Adapters = append(c.Adapters, append([]string{a.GetName()}, a.GetAliases()...)...)
	}
	if t := m.Disagg; t != nil {
		c.Disagg = engine.Transfer{
			Style: t.Style, Host: t.Host, Port: uint16(min(t.Port, math.MaxUint16)), Layout: t.Layout, SmallRooms: t.SmallRooms,
			Domain: t.Domain, Enforcement: engine.Enforcement(t.Enforcement), PreferredWeight: t.PreferredWeight,
		}
	}
	// Blocks of which it is not known how they are hashed are of no use.
	if c.BlockSize == 0 || c.HashScheme == "" {
		c.Features = slices.DeleteFunc(c.Features, func(f engine.Feature) bool { return f == engine.FeatureEvents })
	}
	return c
}

// words turns names of one type into those of another.
func words[To, From ~string, S ~[]From](in S) []To {
	if in == nil {
		return nil
	}
	out := make([]To, len(in))
	for i, w := range in {
		out[i] = To(w)
	}
	return out
}

// loadMessages are how a reading is told that was taken at a time.
func loadMessages(l engine.Load, age time.Duration) []*workerpb.RankLoad {
	known := func(n int64) *uint64 {
		if n < 0 {
			return nil
		}
		u := uint64(n)
		return &u
	}
	out := make([]*workerpb.RankLoad, len(l.Ranks))
	for i, r := range l.Ranks {
		out[i] = &workerpb.RankLoad{
			Rank: r.Rank, Running: known(r.Running), Waiting: known(r.Waiting), WaitingTokens: known(r.WaitingTokens),
			UsedBlocks: known(r.UsedBlocks), TotalBlocks: known(r.TotalBlocks),
			PrefixHits: known(r.PrefixHits), PrefixQueries: known(r.PrefixQueries), Preemptions: known(r.Preemptions),
			AgeMs: uint32(min(max(0, age.Milliseconds()), math.MaxUint32)),
		}
	}
	return out
}

// staleLoad is how old a reading may be that is still used.
const staleLoad = 5 * time.Second

// loadOf is the inverse. What was read too long ago is unknown.
func loadOf(list []*workerpb.RankLoad) engine.Load {
	l := engine.Load{Ranks: make([]engine.RankLoad, len(list))}
	for i, m := range list {
		old := time.Duration(m.GetAgeMs())*time.Millisecond > staleLoad
		number := func(n *uint64) int64 {
			if n == nil || old || *n > math.MaxInt64 {
				return engine.Unknown
			}
			return int64(*n)
		}
		l.Ranks[i] = engine.RankLoad{
			Rank: m.GetRank(), Running: number(m.Running), Waiting: number(m.Waiting), WaitingTokens: number(m.WaitingTokens),
			UsedBlocks: number(m.UsedBlocks), TotalBlocks: number(m.TotalBlocks),
			PrefixHits: number(m.PrefixHits), PrefixQueries: number(m.PrefixQueries), Preemptions: number(m.Preemptions),
		}
	}
	return l
}
