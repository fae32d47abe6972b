package remote

import (
	"encoding/json"
	"math"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/remote/workerpb"
	"github.com/dynago/dynago/kv"
)

// The two directions of each message stand together: what one writes the other
// reads.

var phases = pairs(map[engine.Phase]workerpb.Phase{
	engine.PhaseWhole:   workerpb.Phase_PHASE_UNSPECIFIED,
	engine.PhasePrefill: workerpb.Phase_PHASE_PREFILL,
	engine.PhaseDecode:  workerpb.Phase_PHASE_DECODE,
})

// pair are the words of both sides.
type pair[G, W comparable] struct {
	wire map[G]W
	word map[W]G
}

func pairs[G, W comparable](wire map[G]W) pair[G, W] {
	p := pair[G, W]{wire, make(map[W]G, len(wire))}
	for g, w := range wire {
		p.word[w] = g
	}
	return p
}

// requestMessage is how a request is told.
func requestMessage(r *engine.Request) (*workerpb.GenerateRequest, error) {
	m := &workerpb.GenerateRequest{
		Id: r.ID, Model: r.Model, Epoch: r.Epoch, TokenIds: r.TokenIDs, Prompt: r.Prompt,
		Sampling: samplingMessage(&r.Sampling), Stop: stopMessage(r), Guided: guidedMessage(r.Format),
		Priority: r.Priority, DpRank: r.DPRank, Phase: phases.wire[r.Disagg.Phase], Handoff: r.Disagg.Handoff,
		Kv: directivesMessage(&r.KV), ExpectedOutput: r.Expected, RequestTimestampMs: r.RequestTimestampMS, Meta: r.Meta, Extra: r.Extra,
		Annotations: r.Annotations, Answered: natural(r.Answered),
	}
	if r.Logprobs != nil || r.PromptLogprobs != nil || r.RoutedExperts {
		m.Output = &workerpb.Output{Logprobs: unsigned(r.Logprobs), PromptLogprobs: unsigned(r.PromptLogprobs), RoutedExperts: r.RoutedExperts}
	}
	if r.Chat == nil {
		return m, nil
	}
	var err error
	m.Chat, err = conversationMessage(r.Chat)
	return m, err
}

// requestOf is the inverse.
func requestOf(m *workerpb.GenerateRequest) *engine.Request {
	r := &engine.Request{
		ID: m.Id, Model: m.Model, Epoch: m.Epoch, TokenIDs: m.TokenIds, Prompt: m.Prompt,
		Sampling: samplingOf(m.Sampling), Stop: stopOf(m.Stop), Format: formatOf(m.Guided),

		Priority: m.Priority, DPRank: m.DpRank,
		Disagg: engine.Disagg{Phase: phases.word[m.Phase], Handoff: raw(m.Handoff)},
		KV:     directivesOf(m.Kv), Expected: m.ExpectedOutput, RequestTimestampMS: m.RequestTimestampMs, Meta: m.Meta, Extra: raw(m.Extra),
		Annotations: m.Annotations, Answered: int(m.Answered),
	}
	if m.Output != nil {
		r.RoutedExperts = m.Output.RoutedExperts
		r.Logprobs, r.PromptLogprobs = signed(m.Output.Logprobs), signed(m.Output.PromptLogprobs)
	}
	if m.Stop != nil {
		r.ThinkingBudget = signed(m.Stop.MaxThinkingTokens)
	}
	if m.Chat != nil {
		r.Chat = conversationOf(m.Chat)
	}
	return r
}

func raw(b []byte) json.RawMessage {
	if len(b) == 0 {
		return nil
	}
	return b
}

// natural fits a count into the wire.
func natural(n int) uint32 { return uint32(min(max(n, 0), math.MaxUint32)) }

func unsigned(n *int) *uint32 {
	if n == nil {
		return nil
	}
	u := natural(*n)
	return &u
}

func signed(n *uint32) *int {
	if n == nil {
		return nil
	}
	i := int(*n)
	return &i
}

func samplingMessage(s *engine.Sampling) *workerpb.Sampling {
	m := &workerpb.Sampling{
		Temperature: s.Temperature, TopP: s.TopP, MinP: s.MinP, FrequencyPenalty: s.FrequencyPenalty,
		PresencePenalty: s.PresencePenalty, RepetitionPenalty: s.RepetitionPenalty, Seed: s.Seed,
		LogitBias: s.LogitBias, AllowedTokenIds: s.AllowedIDs,
	}
	if s.TopK != nil {
		k := int32(min(max(*s.TopK, math.MinInt32), math.MaxInt32))
		m.TopK = &k
	}
	for _, w := range s.BadWords {
		if len(w) == 1 {
			m.BadTokenIds = append(m.BadTokenIds, w[0])
			continue
		}
		m.BadWords = append(m.BadWords, &workerpb.Word{TokenIds: w})
	}
	return m
}

func samplingOf(m *workerpb.Sampling) engine.Sampling {
	if m == nil {
		return engine.Sampling{}
	}
	s := engine.Sampling{
		Temperature: m.Temperature, TopP: m.TopP, MinP: m.MinP, FrequencyPenalty: m.FrequencyPenalty,
		PresencePenalty: m.PresencePenalty, RepetitionPenalty: m.RepetitionPenalty, Seed: m.Seed,
		LogitBias: m.LogitBias, AllowedIDs: m.AllowedTokenIds,
	}
	if m.TopK != nil {
		k := int(*m.TopK)
		s.TopK = &k
	}
	for _, id := range m.BadTokenIds {
		s.BadWords = append(s.BadWords, []uint32{id})
	}
	for _, w := range m.BadWords {
		s.BadWords = append(s.BadWords, w.TokenIds)
	}
	return s
}

func stopMessage(r *engine.Request) *workerpb.Stop {
	s := &r.Stop
	return &workerpb.Stop{
		MaxTokens: natural(s.MaxTokens), MinTokens: natural(s.MinTokens), Ids: s.IDs, HiddenIds: s.Hidden, Strings: s.Strings,
		// An engine that has an end of sequence of its own must be told that it ends
		// nothing here.
		IgnoreEos: len(r.TokenIDs) > 0 && len(s.Hidden) == 0, MaxThinkingTokens: unsigned(r.ThinkingBudget),
	}
}

func stopOf(m *workerpb.Stop) engine.Stop {
	return engine.Stop{
		MaxTokens: int(m.GetMaxTokens()), MinTokens: int(m.GetMinTokens()),
		IDs: m.GetIds(), Hidden: m.GetHiddenIds(), Strings: m.GetStrings(),
	}
}

func guidedMessage(f *chat.OutputFormat) *workerpb.Guided {
	if f == nil || f.Kind == chat.FormatText {
		return nil
	}
	m := &workerpb.Guided{Name: f.Name, Strict: f.Strict}
	switch f.Kind {
	case chat.FormatJSONObject:
		m.Form = &workerpb.Guided_JsonObject{JsonObject: true}
	case chat.FormatJSONSchema:
		m.Form = &workerpb.Guided_JsonSchema{JsonSchema: string(f.Schema)}
	case chat.FormatRegex:
		m.Form = &workerpb.Guided_Regex{Regex: f.Pattern}
	case chat.FormatGrammar:
		m.Form = &workerpb.Guided_Grammar{Grammar: f.Pattern}
	case chat.FormatChoice:
		m.Form = &workerpb.Guided_Choice{Choice: &workerpb.Choices{Items: f.Choices}}
	case chat.FormatStructuralTag:
		m.Form = &workerpb.Guided_StructuralTag{StructuralTag: string(f.Schema)}
	}
	return m
}

func formatOf(m *workerpb.Guided) *chat.OutputFormat {
	if m == nil {
		return nil
	}
	f := &chat.OutputFormat{Name: m.Name, Strict: m.Strict}
	switch g := m.Form.(type) {
	case *workerpb.Guided_JsonObject:
		f.Kind = chat.FormatJSONObject
	case *workerpb.Guided_JsonSchema:
		f.Kind, f.Schema = chat.FormatJSONSchema, raw([]byte(g.JsonSchema))
	case *workerpb.Guided_Regex:
		f.Kind, f.Pattern = chat.FormatRegex, g.Regex
	case *workerpb.Guided_Grammar:
		f.Kind, f.Pattern = chat.FormatGrammar, g.Grammar
	case *workerpb.Guided_Choice:
		f.Kind, f.Choices = chat.FormatChoice, g.Choice.GetItems()
	case *workerpb.Guided_StructuralTag:
		f.Kind, f.Schema = chat.FormatStructuralTag, raw([]byte(g.StructuralTag))
	default:
		// A form of a later version: nothing here can keep it.
		f.Kind = "unknown"
	}
	return f
}

// compacted is the phase of a compaction that is over.
const compacted = "done"

func directivesMessage(d *kv.Directives) *workerpb.Directives {
	m := &workerpb.Directives{
		Lora: d.Namespace.LoRA, Salt: d.Namespace.Salt, Priority: d.Priority,
		Class: workerpb.Class(d.Class), SkipWrite: d.SkipWrite, EvictSession: d.EvictSession,
	}
	if s := d.Session; s != (kv.Session{}) {
		m.Session = &workerpb.Session{Id: s.ID, Parent: s.Parent, TimeoutMs: millis(s.Timeout), Ephemeral: s.Ephemeral}
	}
	for _, r := range d.Ranges {
		m.Ranges = append(m.Ranges, &workerpb.Range{Start: r.Start, End: r.End, Priority: uint32(r.Priority), TtlMs: millis(r.TTL)})
	}
	if d.DecodePriority != nil || d.DecodeTTL != 0 {
		m.Decode = &workerpb.Retention{TtlMs: millis(d.DecodeTTL)}
		if d.DecodePriority != nil {
			p := uint32(*d.DecodePriority)
			m.Decode.Priority = &p
		}
	}
	for _, p := range d.Pins {
		m.Pins = append(m.Pins, &workerpb.Pin{Upto: p.UpTo, TtlMs: millis(p.TTL), Hard: p.Hard})
	}
	if t := d.Thinking; t != nil {
		m.ThinkEphemeral, m.ThinkStart, m.ThinkEnd, m.ThinkHeader = true, t.Start, t.End, t.Header
	}
	if d.Compacted {
		m.Compaction = &workerpb.Compaction{Phase: compacted}
	}
	if d.NextIn > 0 {
		n := millis(d.NextIn)
		m.NextInMs = &n
	}
	return m
}

func directivesOf(m *workerpb.Directives) kv.Directives {
	if m == nil {
		return kv.Directives{}
	}
	d := kv.Directives{
		Namespace: kv.Namespace{LoRA: m.Lora, Salt: m.Salt}, Priority: m.Priority,
		SkipWrite: m.SkipWrite, NextIn: duration(m.GetNextInMs()), EvictSession: m.EvictSession,
		DecodeTTL: duration(m.GetDecode().GetTtlMs()),
	}
	if m.Class == workerpb.Class_CLASS_EPHEMERAL {
		d.Class = kv.ClassEphemeral
	}
	if s := m.Session; s != nil {
		d.Session = kv.Session{ID: s.Id, Parent: s.Parent, Timeout: duration(s.TimeoutMs), Ephemeral: s.Ephemeral}
	}
	for _, r := range m.Ranges {
		d.Ranges = append(d.Ranges, kv.Range{Start: r.Start, End: r.End, Priority: priority(r.Priority), TTL: duration(r.TtlMs)})
	}
	if p := m.Decode; p != nil && p.Priority != nil {
		n := priority(*p.Priority)
		d.DecodePriority = &n
	}
	if m.ThinkEphemeral {
		d.Thinking = &kv.Thinking{Start: m.ThinkStart, End: m.ThinkEnd, Header: m.ThinkHeader}
	}
	d.Compacted = m.GetCompaction().GetPhase() == compacted
	for _, p := range m.Pins {
		d.Pins = append(d.Pins, kv.Pin{UpTo: p.Upto, TTL: duration(p.TtlMs), Hard: p.Hard})
	}
	return d
}

func priority(n uint32) uint8 { return uint8(min(n, 100)) }

// millis writes milliseconds; a part of one is one, because 0 means something else.
func millis(d time.Duration) uint64 {
	n := d.Milliseconds()
	if d%time.Millisecond > 0 {
		n++
	}
	return uint64(max(0, n))
}

// duration reads milliseconds; what is beyond the longest one is that.
func duration(ms uint64) time.Duration {
	return time.Duration(min(ms, uint64(math.MaxInt64/time.Millisecond))) * time.Millisecond
}
