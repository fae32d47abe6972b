// Package chat is the vocabulary of a conversation: what a client asks, turn by
// turn and block by block, and the stream of events that answers it. It is the
// one internal representation of all APIs, and imports nothing of ours.
//
// The one idea: a turn is an ordered list of typed blocks, and an answer is the
// same list, arriving in pieces. Order and bytes are kept as they came (tool
// arguments and schemas are never decoded and encoded again), so that what a
// model generated can be put before it again byte for byte on the next turn.
package chat

import (
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// API names the protocol a request arrived by.
type API string

// The protocols.
const (
	APIChat        API = "chat"
	APICompletions API = "completions"
	APIResponses   API = "responses"
	APIMessages    API = "messages"
	APIKServe      API = "kserve"
)

// Request is one request for an answer, whatever API it came by. Stages treat
// it as read-only.
type Request struct {
	API   API
	Model string

	// System blocks stand before all turns. APIs that carry system text inside
	// their message list leave it empty and use turns of role system.
	System []Block
	Turns  []Turn
	// Prompt, if not nil, is used instead of System and Turns, without a chat
	// template.
	Prompt *Prompt

	Tools      []Tool
	ToolChoice ToolChoice
	Thinking   Thinking
	Output     OutputFormat
	Sampling   Sampling
	// TemplateArgs is a JSON object that the chat template sees on top of its
	// own variables, or nil.
	TemplateArgs json.RawMessage

	// Truncate lets the oldest exchanges be left out of a conversation that is
	// longer than the model's context; otherwise it is refused.
	Truncate bool

	// Summarized says that a part of the conversation is a summary that the client has
	// put in the place of what was said before.
	Summarized bool

	// Date is what the prompt tells as the date of today; zero is the real one. A
	// conversation keeps that of its beginning.
	Date time.Time

	// Cache holds the positions that the client marked as worth caching.
	Cache []Breakpoint
	// KeepCached is how long the client hopes that the whole prompt stays cached; 0:
	// it does not say.
	KeepCached time.Duration
	// Metadata is opaque to us.
	Metadata map[string]string
}

// Bare returns the text of a request that is one raw turn: a prompt that stands for
// itself, on its way to an engine that takes conversations.
func (r *Request) Bare() (string, bool) {
	if len(r.Turns) != 1 || !r.Turns[0].Raw {
		return "", false
	}
	var text strings.Builder
	for _, b := range r.Turns[0].Blocks {
		text.WriteString(b.Text)
	}
	return text.String(), true
}

// Prompt is a prompt that needs no chat template: either text or ids.
type Prompt struct {
	Text string
	IDs  []uint32
	// NoSpecialTokens keeps the tokenizer from adding what its post-processor
	// adds around a text (a BOS, for instance).
	NoSpecialTokens bool
	// Echo asks that the answer begin with the prompt.
	Echo bool
}

// Role says who speaks.
type Role string

// Roles.
const (
	RoleSystem    Role = "system"
	RoleDeveloper Role = "developer"
	RoleUser      Role = "user"
	RoleAssistant Role = "assistant"
	RoleTool      Role = "tool"
)

// Turn is one message of a conversation.
type Turn struct {
	Role   Role
	Name   string // optional author name
	Blocks []Block
	// Phase is what an answer is for, commentary or final_answer; empty if nobody
	// said.
	Phase string
	// Raw marks a user's turn that stands for a whole prompt: whoever can put it
	// before the model without a chat template does so.
	Raw bool
}

// Kind says what a block holds.
type Kind string

// Kinds of blocks.
const (
	Text       Kind = "text"
	Thought    Kind = "thinking"
	ToolCall   Kind = "tool_use"
	ToolResult Kind = "tool_result"
	Image      Kind = "image"
	Document   Kind = "document"
	Refusal    Kind = "refusal"
	// ToolReference names a deferred tool in its Text: from there on the model
	// may call it.
	ToolReference Kind = "tool_reference"
	Opaque        Kind = "opaque" // known to no one here; kept, counted, not rendered
)

// Block is a part of a turn. Which fields mean something depends on Kind.
type Block struct {
	Kind   Kind
	Text   string // text, thinking, refusal; the name in a tool reference
	Use    *ToolUse
	Result *Result
	Media  *Media
	Wire   json.RawMessage // opaque: as it came
}

// ToolKind says who runs a tool, and how it is called.
type ToolKind string

// Kinds of tools.
const (
	ToolFunction ToolKind = "function" // arguments are a JSON object
	ToolCustom   ToolKind = "custom"   // input is free text
	ToolServer   ToolKind = "server"   // run by the provider: no model here may call it
)

// ToolUse is a call that a model made.
type ToolUse struct {
	ID string // as the client knows it
	// NativeID is the id as the model knows it, in families that write ids into
	// the prompt; else it is empty.
	NativeID string
	Name     string
	// Namespace is the group of tools that the name stands in, if there is one.
	Namespace string
	Kind      ToolKind
	// Args are the exact bytes of the arguments, as generated or as the client
	// sent them; they need not be valid JSON.
	Args string
}

// Result answers a [ToolUse].
type Result struct {
	ID      string // of the use, as the client knows it
	Name    string // optional
	IsError bool
	Blocks  []Block
}

// Media is an image or a document.
type Media struct {
	Source    string // base64, url or file
	MediaType string
	Data      string // base64 data, URL or file id
	Detail    string
	// Path is where it stands in the client's body, as messages[2].content[0], for
	// those who have to refuse it.
	Path string
}

// Tool is something that the model may call.
type Tool struct {
	Kind        ToolKind
	Name        string
	Description string
	Schema      json.RawMessage // JSON schema of the arguments, or nil
	Strict      *bool
	// Namespace is the group that the client put the tool into, or empty. Two
	// tools may share a name in different groups.
	Namespace string
	// Grammar restricts the input of a custom tool; nil is any text.
	Grammar *Grammar
	// Deferred keeps the tool out of the prompt until a result refers to it.
	Deferred bool
	// Wire is the tool exactly as the client sent it, in the shape of its API.
	Wire json.RawMessage
}

// Callable says whether a model here may call the tool.
func (t *Tool) Callable() bool { return t.Kind != ToolServer }

// Grammar is a formal description of texts.
type Grammar struct {
	Syntax     string // lark or regex
	Definition string
}

// ToolMode says whether the model may, must or must not call tools.
type ToolMode string

// Modes of tool choice; empty means auto.
const (
	ToolAuto     ToolMode = "auto"
	ToolNone     ToolMode = "none"
	ToolRequired ToolMode = "required"
	ToolNamed    ToolMode = "named" // exactly the tool named in Names
)

// ToolChoice restricts the use of tools.
type ToolChoice struct {
	Mode ToolMode
	// Names are the only tools that may be called; none means all of them. They
	// stay in the prompt with the others, so that the choice changes no prefix.
	Names    []string
	Parallel *bool
	// Hidden keeps the tools out of the prompt.
	Hidden bool
}

// Thinking says how much the model shall reason.
type Thinking struct {
	// Enabled is nil if the client said nothing.
	Enabled *bool
	// Adaptive leaves it to the model when to think, if it knows how to; others
	// are enabled.
	Adaptive bool
	Budget   *int   // at most so many tokens of thought
	Effort   string // none minimal low medium high xhigh max, or empty
	// Keep says of how many of the newest answers the thoughts stay in the
	// prompt; nil leaves it to the template. [KeepAll] is all of them.
	Keep *int
}

// KeepAll keeps the thoughts of all answers, as far as the template can show
// them.
const KeepAll = -1

// OutputFormat constrains what is generated.
type OutputFormat struct {
	Kind   FormatKind
	Name   string
	Schema json.RawMessage
	Strict *bool
	// Pattern is the regular expression or grammar; Choices the alternatives.
	Pattern string
	Choices []string
	// Member is where in the request the client asked for it, such as
	// text.format, if that is not what chat completions call it. Errors name it.
	Member string
}

// Field returns the member of a request by which the client asked for the format.
func (f *OutputFormat) Field() string {
	switch {
	case f.Member != "":
		return f.Member
	case f.Kind == FormatJSONObject, f.Kind == FormatJSONSchema && f.Name != "":
		return "response_format"
	case f.Kind == FormatJSONSchema:
		return "guided_json"
	case f.Kind == FormatRegex:
		return "guided_regex"
	case f.Kind == FormatGrammar:
		return "guided_grammar"
	case f.Kind == FormatChoice:
		return "guided_choice"
	}
	return ""
}

// ChoicePattern returns the regular expression of the choices, for engines that have
// no other way to say them.
func (f *OutputFormat) ChoicePattern() string {
	quoted := make([]string, len(f.Choices))
	for i, c := range f.Choices {
		quoted[i] = regexp.QuoteMeta(c)
	}
	return "(" + strings.Join(quoted, "|") + ")"
}

// FormatKind says by what the output is constrained.
type FormatKind string

// Kinds of constraint; empty means free text.
const (
	FormatText       FormatKind = ""
	FormatJSONObject FormatKind = "json_object"
	FormatJSONSchema FormatKind = "json_schema"
	FormatRegex      FormatKind = "regex"
	FormatGrammar    FormatKind = "grammar"
	FormatChoice     FormatKind = "choice"
	// FormatStructuralTag constrains what stands inside of the markers of calls
	// alone; Schema holds the tag, in the form that engines take. It is made by us,
	// and no client asks for it.
	FormatStructuralTag FormatKind = "structural_tag"
)

// Sampling holds everything that says how tokens are chosen and when to stop.
// A nil pointer means that the client said nothing, and stays so down to the
// engine, which then applies its own default.
type Sampling struct {
	Temperature, TopP, MinP           *float64
	TopK                              *int // -1 = off
	FrequencyPenalty, PresencePenalty *float64
	RepetitionPenalty                 *float64
	Seed                              *int64
	LogitBias                         map[uint32]float64

	N         int // choices; 0 = 1
	MaxTokens *int
	MinTokens int
	IgnoreEOS bool

	Stop           []string
	StopIDs        []uint32
	IncludeStop    bool // keep the matched stop string in the text
	KeepSpecial    bool // keep special tokens that nobody consumed in the text
	Logprobs       *int // nil none, 0 the sampled token alone, k up to k alternatives
	PromptLogprobs *int // the same for the prompt
	AllowedIDs     []uint32
	BadWords       [][]uint32
}

// Choices returns the number of answers asked for, at least 1.
func (s *Sampling) Choices() int { return max(1, s.N) }

// Breakpoint marks a place up to which the client expects the prompt to stay
// cached, for TTL as the client said it; 0 lets go of what was to stay. Turn -1 is
// the system text, -2 the tools.
type Breakpoint struct {
	Turn, Block int
	TTL         time.Duration
}
