// Package anthropic speaks the Messages API: it decodes the bodies of messages
// and count_tokens into the conversation vocabulary of package chat, and encodes
// chat events back into server-sent events, whole messages, model lists and
// errors. It serves no HTTP; the frontend does.
//
// The one idea: a message is the ordered list of blocks that chat knows anyway,
// so that nothing is moved, merged or written anew on the way in or out, and
// what a client sends back is what it was sent. History is never refused: what
// no one here knows is kept as an opaque block, what was made by another server
// is read as far as it can be, and only what the client says now can be wrong.
package anthropic

import (
	"strings"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/nvext"
)

// Options are the operator's choices. The zero value is the default.
type Options struct {
	// DisableNVExt drops the member nvext unread.
	DisableNVExt bool
	// StrictNVExt refuses unknown members inside nvext.
	StrictNVExt bool
	// DefaultModel stands in for an absent or empty model, and DefaultMaxTokens for an
	// absent or zero max_tokens; 0: clients have to say how many.
	DefaultModel     string
	DefaultMaxTokens int
	// MarkErrors puts "[error] " before the text of a tool's result that is
	// marked as one and does not speak of an error itself.
	MarkErrors bool
	// Envelope makes and reads the signatures of thoughts; nil is one without a
	// key.
	Envelope *envelope.Box
}

func (o *Options) envelope() *envelope.Box {
	if o.Envelope == nil {
		return new(envelope.Box)
	}
	return o.Envelope
}

// Dialect is what the headers anthropic-version and anthropic-beta say. Unknown
// versions and betas are never an error.
type Dialect struct {
	Version string
	Betas   []string // each a list with commas
}

const contextBeta = "model-context-window-exceeded-2025-08-26"

// tellsContext says whether the client knows of answers that have filled the
// model's context.
func (d *Dialect) tellsContext() bool {
	if isDate(d.Version) && d.Version >= "2026-10-21" {
		return true
	}
	for _, list := range d.Betas {
		for name := range strings.SplitSeq(list, ",") {
			if strings.TrimSpace(name) == contextBeta {
				return true
			}
		}
	}
	return false
}

func isDate(s string) bool {
	_, err := time.Parse(time.DateOnly, s)
	return err == nil
}

// Call is one decoded client call. Its request is read-only.
type Call struct {
	Request *chat.Request
	Ext     *nvext.Ext // what the client put into nvext and cache_salt, or nil
	Model   string
	// UserID is the member metadata.user_id; agents put an object into it.
	UserID string
	Stream bool
	// Unknown lists what was passed over, for the log.
	Unknown []string
	// ExtDropped says that there was a member nvext, which DisableNVExt has dropped.
	ExtDropped bool

	omitThoughts bool // thoughts are sent sealed
	tellsContext bool
	// marked says that the prompt has marks of what to cache, and markedLong that
	// the last of them is to last for an hour at least.
	marked, markedLong bool
	envelope           *envelope.Box
}

// Decode decodes the body of a messages request. Every error is a *wire.Error of
// status 400, or 404 for a thread that is not kept, whose Param is the path of the
// member at fault.
func Decode(body []byte, d Dialect, o Options) (*Call, error) {
	b, err := read(body)
	if err != nil {
		return nil, err
	}
	return b.call(d, o, true)
}

// DecodeCount decodes the body of a count_tokens request, which is that of a
// messages request of which nothing but the prompt matters.
func DecodeCount(body []byte, o Options) (*chat.Request, error) {
	b, err := read(body)
	if err != nil {
		return nil, err
	}
	c, err := b.call(Dialect{}, o, false)
	if err != nil {
		return nil, err
	}
	return c.Request, nil
}
