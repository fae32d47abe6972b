// Package openai speaks the OpenAI API: it decodes the bodies of chat
// completions, completions, tokenize and detokenize into the conversation
// vocabulary of package chat, and encodes chat events back into chunks, whole
// answers, model lists and errors. It serves no HTTP; the frontend does.
//
// The one idea: a table of fields is the API. Each row names a body member, its
// JSON schema and how it is read; decoding, the list of unknown members and the
// OpenAPI document are three walks over the same rows. Decoding is lenient
// about bytes (bad UTF-8, raw control characters, repeated members: the last
// one wins) and exact about types, and every complaint names the member as a
// path such as messages[2].content.
package openai

import (
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/nvext"
)

// Options are the operator's choices. The zero value is the default.
type Options struct {
	// RejectUnknown refuses unknown top-level members instead of listing them
	// in Call.Unknown.
	RejectUnknown bool
	// DisableNVExt drops the member nvext unread.
	DisableNVExt bool
	// StrictNVExt refuses unknown members inside nvext.
	StrictNVExt bool
	// ForceUsage treats every stream as if it had asked for usage.
	ForceUsage bool
	// NamedToolStop ends an answer to a named tool choice with finish reason
	// stop, as OpenAI's own service does, instead of tool_calls.
	NamedToolStop bool
	// ToolDispatch and ReasoningDispatch add events to streams of chat completions
	// that tell of a call, or of a thought, when it is complete. Clients can ask for
	// them as well.
	ToolDispatch, ReasoningDispatch bool
	// DefaultModel stands in for an absent or empty model.
	DefaultModel string
	// Template is what is put into requests of chat completions, and of [Pieces],
	// where they say nothing; nil: nothing is. Its model is [Options.DefaultModel].
	Template *RequestTemplate
	// ReasoningField is the member that carries reasoning in answers:
	// reasoning_content (also if empty) or reasoning.
	ReasoningField string
	// Annotations is how annotations are sent; empty is [FramingComment].
	Annotations Framing
	// SystemFingerprint is shown in every answer, if not empty.
	SystemFingerprint string
}

// Call is one decoded client call.
type Call struct {
	// Requests holds one request, or one for each prompt of a completions call.
	// They share pointers and are read-only.
	Requests []*chat.Request
	// Ext is what the client put into nvext and cache_salt, or nil.
	Ext *nvext.Ext
	// Stream asks for server-sent events, IncludeUsage for a usage chunk at the
	// end of them, ContinuousUsage for running usage on every chunk.
	Stream, IncludeUsage, ContinuousUsage bool
	Model                                 string
	// PromptCacheKey is the client's name for a family of prompts, or empty.
	PromptCacheKey string
	// Unknown lists what was ignored, for the log: top-level members, members
	// of nvext as paths, and tools of types other than function.
	Unknown []string
	// ExtDropped says that there was a member nvext, which DisableNVExt has dropped.
	ExtDropped bool

	api           chat.API
	choices       int  // of one prompt
	showLogprobs  bool // the client asked for log probabilities
	topLogprobs   int  // alternatives to show
	tokenIDs      bool // tokens are shown as token_id:<id>
	namedToolStop bool
	dispatch      dispatch
	framing       Framing
	reasoning     string // member name
	fingerprint   string
}

// Choices returns how many choices the answer has: prompts times n.
func (c *Call) Choices() int { return c.choices * len(c.Requests) }

// DecodeChat decodes the body of a chat completions request. Every error is an
// *wire.Error of status 400 or 501 whose Param is the path of the member at fault.
func DecodeChat(body []byte, o Options) (*Call, error) {
	b, err := decode(body, chatTable, o)
	if err != nil {
		return nil, err
	}
	b.template = o.Template
	return b.chatCall(o)
}

// DecodeCompletion decodes the body of a completions request, as [DecodeChat]
// does for chat.
func DecodeCompletion(body []byte, o Options) (*Call, error) {
	b, err := decode(body, completionTable, o)
	if err != nil {
		return nil, err
	}
	return b.completionCall(o)
}

// Header is what all chunks of one answer have in common.
type Header struct {
	ID      string // the request's UUID
	Model   string // primary name, also where an alias was asked for
	Created int64  // Unix seconds of the request's start
}

// Encoder writes one answer, streamed or whole. It only appends to what it is
// given, owns no buffer of the caller's, and is for one goroutine.
type Encoder interface {
	// AppendOpening appends the annotations that a stream begins with in any case. It
	// may be called from any goroutine.
	AppendOpening(dst []byte) []byte
	// AppendAnnotations appends those annotations that the client has asked for, of one
	// request. They come before the first event.
	AppendAnnotations(dst []byte, a Annotations) []byte
	// AppendEvent appends the complete SSE frames that an event gives, or
	// nothing. Event.Choice counts over all prompts: prompt*n + i.
	AppendEvent(dst []byte, e chat.Event) []byte
	// Note takes an event of an answer that is not streamed, for what the answer
	// carries besides its choices. All events must pass before AppendAnswer; where
	// the client has asked for nothing, there is no need to.
	Note(e chat.Event)
	// AppendEnd appends the usage chunk, if one was asked for and some choice
	// finished, and the end marker.
	AppendEnd(dst []byte) []byte
	// AppendAnswer appends the body that a client receives who does not stream.
	AppendAnswer(dst []byte, answers []chat.Answer) []byte
}

// Encoder returns an encoder for the answer to c.
func (c *Call) Encoder(h Header) Encoder {
	if c.api == chat.APICompletions {
		return newCompletionEncoder(c, h)
	}
	return newChatEncoder(c, h)
}
