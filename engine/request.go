package engine

import (
	"encoding/json"
	"slices"
	"strconv"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/kv"
)

// Request is one generation of one choice. It is read-only for the engine and
// may be shared with a later attempt.
type Request struct {
	ID       string   // "<uuid>-<attempt>"; "<uuid>.<choice>-<attempt>" for further choices
	Model    string   // the name the engine serves it under
	Epoch    uint64   // life of the worker that the prompt was made for; 0: any
	TokenIDs []uint32 // whole prompt, special tokens included
	// Answered is how many of the last TokenIDs are the beginning of this answer, which
	// others have given: what is counted over an answer counts them, Stop alone does not.
	Answered int
	Prompt   string        // InputText only
	Chat     *chat.Request // InputChat, or FeatureWantsChat
	Sampling Sampling
	Stop     Stop
	Logprobs *int // nil none, 0 the sampled id alone, k up to k alternatives
	// PromptLogprobs asks the same for the positions of the prompt.
	PromptLogprobs *int
	Format         *chat.OutputFormat // at most one constraint, or nil
	// ThinkingBudget is how many tokens of thought there may be; nil for no limit,
	// or unless the card has FeatureThinkingBudget.
	ThinkingBudget *int
	Priority       *int32 // higher is sooner; nil unless the card has FeaturePriority
	DPRank         *uint32
	KV             kv.Directives
	Disagg         Disagg
	Expected       uint32 // forecast of output tokens, never a limit; 0: none
	Trace          Trace
	// RequestTimestampMS is when a gateway before this server has got the request, in
	// milliseconds since 1970; nil if nobody says.
	RequestTimestampMS *float64
	// RoutedExperts asks that the answer's EngineData tells which experts its tokens
	// went to, where the engine can.
	RoutedExperts bool
	// Annotations are what the client has noted on the request and nobody here has a
	// meaning for.
	Annotations []string
	Meta        map[string]string // what the client says to workers beside the prompt
	Extra       json.RawMessage   // object for the engine alone, or nil
}

// Divide returns the prompt as it was at first, and what of the answer stands behind it.
func (r *Request) Divide() (prompt, answered []uint32) {
	n := len(r.TokenIDs) - min(max(r.Answered, 0), len(r.TokenIDs))
	return r.TokenIDs[:n:n], r.TokenIDs[n:]
}

// Disagg says which leg of a request that two workers share this one is.
type Disagg struct {
	Phase Phase
	// Handoff is how the legs meet: what [Disaggregator.Prepare] made, or what the
	// prefill leg's last delta handed over. Its bytes are kept as they came.
	Handoff json.RawMessage
}

// Phase names the leg of a request.
type Phase string

// Phases; the empty one is the whole request. The one token of a prefill leg is
// thrown away: the decode leg makes the first.
const (
	PhaseWhole   Phase = ""
	PhasePrefill Phase = "prefill"
	PhaseDecode  Phase = "decode"
)

// Sampling says how tokens are chosen; nil means the engine's own default.
type Sampling struct {
	Temperature, TopP, MinP           *float64
	TopK                              *int
	FrequencyPenalty, PresencePenalty *float64
	RepetitionPenalty                 *float64
	Seed                              *int64
	LogitBias                         map[uint32]float64
	AllowedIDs                        []uint32
	BadWords                          [][]uint32
}

// NamedBias returns the biases by ids that are written out, as JSON has them; nil if
// there are none.
func (s *Sampling) NamedBias() map[string]float64 {
	if len(s.LogitBias) == 0 {
		return nil
	}
	named := make(map[string]float64, len(s.LogitBias))
	for id, bias := range s.LogitBias {
		named[strconv.FormatUint(uint64(id), 10)] = bias
	}
	return named
}

// Stop says when generation ends.
type Stop struct {
	MaxTokens int      // at least 1; 0 only with InputChat: as the server does it
	MinTokens int      // until then nothing stops the generation but MaxTokens
	IDs       []uint32 // end the stream and stay in it
	Hidden    []uint32 // end the stream and are left out, but counted (end of sequence)
	Strings   []string // InputText and InputChat only
}

// Ends returns all ids that end the stream, each once; nil if there are none.
func (s *Stop) Ends() []uint32 {
	var ids []uint32
	for _, id := range slices.Concat(s.IDs, s.Hidden) {
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// Trace carries the W3C trace context, verbatim.
type Trace struct {
	Parent, State string
	// Span is the id of the span engine.generate, in hexadecimal, where whoever sends the
	// request has chosen it, to be able to name it.
	Span string
	// From names, as Parent does, the span engine.generate of an attempt or of a leg
	// before this one, which it goes on from; empty if there is none.
	From string
}

// Finish says why a generation ended.
type Finish string

// Reasons that an engine yields. Cancellation and failure are errors instead.
const (
	Running             Finish = "" // not finished
	FinishEOS           Finish = "eos"
	FinishStop          Finish = "stop" // a listed stop id or string
	FinishLength        Finish = "length"
	FinishContentFilter Finish = "content_filter"
)

// Delta is one item of an answer. It belongs to the consumer; its slices are
// not used again. A source never holds a token back to fill a delta, but may
// merge what waits for a slow consumer.
type Delta struct {
	TokenIDs []uint32
	Text     string    // only if the engine cannot give ids; never together with TokenIDs
	Logprobs []Logprob // one per id, or none
	// PromptLogprobs comes once; its first entry has no prediction (NaN).
	PromptLogprobs []Logprob
	Finish         Finish   // set on the terminal delta alone
	MatchedIDs     []uint32 // what ended it: listed stop ids …
	MatchedText    string   // … or a stop string (text engines)
	Usage          *Usage   // required on the terminal delta
	// Handoff is what a prefill leg hands over, on its terminal delta. Its bytes are
	// kept as they came: integers in them may be larger than a float64 holds.
	Handoff json.RawMessage
	// Pinned says what became of the request's pins, on its terminal delta; nil if
	// there were none, or the engine does not tell.
	Pinned *PinResult
	// EngineData is opaque.
	EngineData json.RawMessage
}

// Logprob tells how likely one id was. Top is in falling order, at most as long
// as asked for.
type Logprob struct {
	ID      uint32
	Logprob float64
	Rank    int
	Top     []Logprob
}

// Usage counts tokens. Prompt is the number of ids sent, Output the number
// generated, hidden stop ids included.
type Usage struct {
	Prompt    int
	Cached    *int // nil: unknown
	Output    int
	Reasoning *int
}
