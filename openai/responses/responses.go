// Package responses speaks OpenAI's Responses API: it decodes the body of POST
// /v1/responses into the conversation vocabulary of package chat, and encodes
// chat events as numbered stream events, and as the response object that they
// add up to. It keeps nothing between requests; what earlier ones said comes
// through [History].
//
// The one idea: a conversation is a list of items, and an item is the same thing
// wherever it stands: sent by a client, kept by a store, or produced here. Input
// is never refused for what a newer client or another vendor put into it. What
// nobody here knows stays in its place in the list, and is only not rendered.
package responses

import (
	"net/http"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/nvext"
)

// Options are the operator's choices. The zero value is the default.
type Options struct {
	// RejectUnknown refuses unknown members of the body instead of listing them in
	// Call.Unknown.
	RejectUnknown bool
	// DisableNVExt drops the member nvext unread; StrictNVExt refuses unknown
	// members inside it.
	DisableNVExt, StrictNVExt bool
	// DefaultModel stands in for an absent or empty model.
	DefaultModel string
	// NoStore answers every request as if it had said store:false, and shows
	// that. Without a store there is no Background either.
	NoStore bool
	// Envelope makes and reads encrypted_content. Nil is a box without a key.
	Envelope *envelope.Box
	// EmptyInput lets a call say nothing yet.
	EmptyInput bool
	// RawReasoning says whether thoughts are streamed as they come.
	RawReasoning RawReasoning
}

// RawReasoning names the events that show thoughts where no summary of them was
// asked for. The two conventions exclude each other: the clients of one refuse
// the events of the other.
type RawReasoning string

// Conventions; empty means off.
const (
	RawOff           RawReasoning = "off"            // thoughts stand in the finished item alone
	RawOpenAI        RawReasoning = "openai"         // response.reasoning_text.delta
	RawOpenResponses RawReasoning = "open_responses" // response.reasoning.delta
)

// Call is one decoded client call. Before its Request is used, [Call.Resolve]
// has to be called.
type Call struct {
	// Request is what is asked; its turns are there after Resolve. It is
	// read-only from then on.
	Request *chat.Request
	// Ext is what the client put into nvext and cache_salt, or nil.
	Ext   *nvext.Ext
	Model string
	// PromptCacheKey is the client's name for a family of prompts, or empty.
	PromptCacheKey string
	// Stream asks for server-sent events, Background for an answer that nobody
	// waits for, Store for a response that can be fetched and continued.
	Stream, Background, Store bool
	// PreviousID is the response whose conversation goes on, or empty.
	PreviousID string
	// Input are the items that came with this call. After Resolve they hold no
	// references. Their bytes may alias the body.
	Input []Item
	// Unknown lists what was ignored, for the log: members, and items, parts and
	// tools of unknown types.
	Unknown []string
	// ExtDropped says that there was a member nvext, which DisableNVExt has dropped.
	ExtDropped bool

	earlier []Item // of the conversation that goes on
	tools   toolbox
	echo    []byte // members of the response object that repeat the request
	show    shown
	box     *envelope.Box
}

// shown is what an answer is to show.
type shown struct {
	raw         RawReasoning
	summary     bool // thoughts as their own summary
	encrypted   bool // thoughts in an envelope
	logprobs    bool
	topLogprobs int
	background  bool
}

// History is what was said in earlier calls. Both methods tell only of what this
// client may see. Items that they return are read-only.
type History interface {
	// Conversation returns the items of the conversation that ends with a
	// response: all that was put in, and all that came out. It returns false if
	// the response is unknown, expired, not complete or failed.
	Conversation(responseID string) ([]Item, bool)
	// Item returns one item of any conversation.
	Item(id string) (Item, bool)
}

// Decode decodes the body of POST /v1/responses. Every error is a *wire.Error of
// status 400 whose Param is the path of the member at fault.
func Decode(body []byte, o Options) (*Call, error) {
	b, err := decode(body)
	if err != nil {
		return nil, err
	}
	return b.call(o)
}

// Resolve puts the items that the call refers to where it refers to them, and
// makes the turns of its Request. h may be nil: then nothing is known. The error
// is a *wire.Error that says which id is not there.
func (c *Call) Resolve(h History) error {
	if c.PreviousID != "" {
		var known bool
		if h != nil {
			c.earlier, known = h.Conversation(c.PreviousID)
		}
		if !known {
			return PreviousNotFound(c.PreviousID)
		}
	}
	for i := range c.Input {
		item := &c.Input[i]
		if item.Type != itemReference {
			continue
		}
		id, found := item.ID, false
		if h != nil {
			*item, found = h.Item(id)
		}
		if !found {
			return itemNotFound(id)
		}
	}
	return c.converse()
}

// PreviousNotFound is the error of a previous_response_id that cannot be
// continued.
func PreviousNotFound(id string) *wire.Error {
	return &wire.Error{
		Status: http.StatusBadRequest, Message: "Previous response with id '" + wire.Clip(id) + "' not found.",
		Type: "invalid_request_error", Param: "previous_response_id", Code: "previous_response_not_found",
	}
}

func itemNotFound(id string) *wire.Error {
	return &wire.Error{
		Status: http.StatusNotFound, Message: "Item with id '" + wire.Clip(id) + "' not found.",
		Type: "invalid_request_error", Param: "input", Code: "item_not_found",
	}
}

// Header is what all events of one response have in common.
type Header struct {
	// ID is the id of the response: [IDPrefix] and 32 hex digits. Those of its
	// items are made from it.
	ID      string
	Model   string // primary name, also where an alias was asked for
	Created int64  // Unix seconds of the request's arrival
}

// IDPrefix begins the id of every response.
const IDPrefix = "resp_"
