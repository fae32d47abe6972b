package frontend

import (
	"iter"
	"net/http"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/envelope"
	"github.com/dynago/dynago/internal/sse"
	"github.com/dynago/dynago/internal/wire"
	"github.com/dynago/dynago/openai/responses"
)

// summarise is what a model is asked for at the end of a conversation that is to
// be compacted. It stands last, so that the prompt before it is the one that the
// workers have cached.
const summarise = `Write a handover of this conversation for an assistant that will continue it without seeing it. ` +
	`Do not continue the conversation, answer no question in it, and call no tool. State, as far as they came up:

- what the user wants, in the user's own terms, with every requirement and restriction that still holds
- what has been done, decided and found out, with the reasons
- names that will be needed again, exactly as they are: files, functions, commands, addresses, identifiers, error messages
- what is unfinished, and the next step

Be complete about what still matters, and leave out what does not. Write only the handover.`

// handover stands before a summary where a model reads it.
const handover = "This conversation was shortened. What happened before, in the words of the assistant that was part of it:\n\n"

// compactAPI is POST /v1/responses/compact: the conversation so far as one item,
// which only we can read.
type compactAPI struct{ *Server }

func (compactAPI) endpoint() string { return "responses_compact" }

func (a compactAPI) decode(_ http.Header, body []byte) (call, error) {
	c, err := responses.Decode(body, a.Responses)
	if err != nil {
		return call{}, err
	}
	return call{
		requests: []*chat.Request{c.Request}, ext: c.Ext, model: c.Model, promptCacheKey: c.PromptCacheKey, unknown: &c.Unknown,
		resolve: func(x *exchange) error {
			if err := c.Resolve(&past{store: a.ResponsesStore, tenant: x.tenant}); err != nil {
				return err
			}
			r := c.Request
			r.Turns = append(r.Turns, chat.Turn{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: summarise}}})
			r.ToolChoice, r.Output = chat.ToolChoice{Mode: chat.ToolNone}, chat.OutputFormat{}
			// A conversation is compacted when it hardly fits any more.
			r.Truncate = true
			return nil
		},
		encoder: func(x *exchange, _ string) encoder {
			return &compactEncoder{server: a.Server, id: responses.NewID(), created: x.arrived.Unix()}
		},
	}, nil
}

// compactEncoder is the encoder of a compaction, which is never streamed.
type compactEncoder struct {
	server  *Server
	id      string
	created int64
	summary string
	usage   chat.Usage
}

// errNoSummary is told to the client: another try, or another model, may write
// one.
var errNoSummary = &wire.Error{Status: http.StatusInternalServerError, Message: "The model has written no summary", Code: wire.CodeServerError}

// gather implements [gatherer].
func (e *compactEncoder) gather(events iter.Seq2[chat.Event, error]) error {
	answers, err := chat.Fold(events)
	if err != nil {
		return err
	}
	var b strings.Builder
	for _, answer := range answers {
		for _, block := range answer.Blocks {
			if block.Kind == chat.Text {
				b.WriteString(block.Text)
			}
		}
		e.usage = answer.Usage
	}
	if e.summary = strings.TrimSpace(b.String()); e.summary == "" {
		return errNoSummary
	}
	return nil
}

// appendAnswer implements [encoder].
func (e *compactEncoder) appendAnswer(dst []byte, _ []chat.Answer) []byte {
	box := e.server.Responses.Envelope
	if box == nil {
		box = new(envelope.Box)
	}
	dst = append(append(append(dst, `{"id":"`...), e.id...), `","object":"response.compaction","created_at":`...)
	dst = strconv.AppendInt(dst, e.created, 10)
	dst = append(append(dst, `,"output":[{"type":"compaction","id":"`...), newItemID("compaction")...)
	dst = append(append(dst, `","encrypted_content":"`...), box.Seal(handover+e.summary, 0)...)
	dst = responses.AppendUsage(append(dst, `"}],"usage":`...), e.usage)
	return append(dst, '}')
}

// Refuse implements [sse.Protocol].
func (e *compactEncoder) Refuse(w http.ResponseWriter, err error) {
	e.server.refuse(w, e.server.responsesError(err))
}

// The rest is for streams.
func (e *compactEncoder) appendEvent(dst []byte, _ chat.Event) []byte { return dst }
func (e *compactEncoder) AppendOpening(dst []byte) []byte             { return dst }
func (e *compactEncoder) AppendEnd(dst []byte) []byte                 { return dst }
func (e *compactEncoder) AppendPing(dst []byte) []byte                { return append(dst, sse.Comment...) }
func (e *compactEncoder) AppendFailure(dst []byte, _ error) []byte    { return dst }

// countInput answers POST /v1/responses/input_tokens: the prompt is made as for an
// answer, and asks no worker.
func (s *Server) countInput(w http.ResponseWriter, r *http.Request) {
	s.quick(w, r, func(body []byte) ([]byte, error) {
		c, err := responses.Decode(body, s.Responses)
		if err != nil {
			return nil, err
		}
		if err := c.Resolve(&past{store: s.ResponsesStore, tenant: exchangeOf(r).tenant}); err != nil {
			return nil, err
		}
		ids, _, err := s.Backend.Tokenize(s.resolved(c.Request), true)
		if err != nil {
			return nil, s.responsesError(err)
		}
		dst := strconv.AppendInt([]byte(`{"object":"response.input_tokens","input_tokens":`), int64(len(ids)), 10)
		return append(dst, '}'), nil
	})
}
