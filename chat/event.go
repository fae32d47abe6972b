package chat

// EventKind says what an [Event] tells.
type EventKind uint8

// Kinds of events, in the order in which an answer produces them.
const (
	// Start opens a choice: exactly once, first. Usage holds what is known of
	// the prompt, in every choice of it.
	Start EventKind = iota + 1
	// BlockStart opens a block. At most one block of a choice is open at a time,
	// and indices count 0, 1, 2 without gaps.
	BlockStart
	// TextDelta, ThinkingDelta, ArgsDelta and RefusalDelta add to the open
	// block.
	TextDelta
	ThinkingDelta
	ArgsDelta
	RefusalDelta
	// BlockStop closes the open block.
	BlockStop
	// UsageUpdate tells how many tokens were used so far; the last one wins.
	UsageUpdate
	// Finished ends a choice: exactly once, last. So that its Usage adds up over
	// choices, only the first choice of a prompt counts the prompt.
	Finished
	// Dropped tells of generated text that belongs to no block (broken markup).
	// It is counted and logged, and shown by no API.
	Dropped
	// Aside tells something about the answer that is no part of it, between Start
	// and Finished: the member Reason of the client's extension object has the JSON
	// value Text from now on. None comes unless a client has asked.
	Aside
)

// Event is one step of an answer. A stream of events is an
// iter.Seq2[Event, error]; each choice in it follows the order of the kinds
// above, and a stream that fails ends with one error instead of Finished.
type Event struct {
	Kind   EventKind
	Choice int // which of several answers
	Index  int // which block of the answer

	BlockKind Kind     // BlockStart
	Tool      *ToolUse // BlockStart of a tool call: all but Args

	// Text is the piece of the block for the deltas, what was dropped for Dropped,
	// and a JSON value for Aside.
	Text string
	// IDs are the tokens whose last byte this event releases, and Logprobs one
	// entry for each of them, if they were asked for.
	IDs      []uint32
	Logprobs []Logprob

	// Truncated marks the BlockStop of a tool call whose arguments are not
	// complete.
	Truncated bool
	// Last marks a delta that came with the end of its choice: what follows of the
	// choice is at hand, and says nothing more. The last delta of a choice need not
	// be marked.
	Last bool
	// Reason says why text was Dropped; of Finished, how the answer breaks the form
	// that was asked for, where the engine could not be held to it; of an Aside, what
	// it is about.
	Reason string

	Usage  Usage  // Start, UsageUpdate, Finished
	Finish Finish // Finished
}

// Piece is the unit between the stages that turn tokens into blocks: some text,
// and the ids whose last byte it releases. An id without text travels with the
// next piece, or with a last empty one. Whoever holds text back holds its ids
// and log probabilities back with it.
type Piece struct {
	Text     string
	IDs      []uint32
	Logprobs []Logprob
}

// Logprob tells how likely a token was.
type Logprob struct {
	ID      uint32
	Text    string  // the token alone, with broken UTF-8 replaced
	Bytes   []byte  // the token's exact bytes
	Logprob float64 // natural logarithm
	Rank    int     // 1 = most likely; 0 = unknown
	Top     []Logprob
}

// Usage counts tokens. What is nil was not counted.
type Usage struct {
	Prompt int
	Cached *int // of the prompt, as the engine tells
	// Written are the tokens of the prompt that were computed anew up to its last
	// breakpoint; nil if it has none.
	Written   *int
	Output    int
	Reasoning *int
}

// FinishReason says why an answer ended.
type FinishReason string

// Reasons. A fault is never one of them: it is the stream's error.
const (
	FinishStop          FinishReason = "stop"          // end of turn, by the model
	FinishStopSequence  FinishReason = "stop_sequence" // a stop string or stop id of the client
	FinishLength        FinishReason = "length"        // max tokens reached
	FinishToolUse       FinishReason = "tool_use"      // at least one complete call
	FinishContentFilter FinishReason = "content_filter"
	FinishContext       FinishReason = "context_window" // prompt and answer fill the model's context
	// FinishPlaced ends what is no answer: the client asked only where there would
	// be one. Nothing was generated, and there is no usage.
	FinishPlaced FinishReason = "placed"
)

// Finish ends a choice.
type Finish struct {
	Reason FinishReason
	// StopText or StopID is what the client's stop list matched.
	StopText string
	StopID   *uint32
	// StopIDs are all that it matched, the last of which is StopID, where an engine
	// names several.
	StopIDs []uint32
}
