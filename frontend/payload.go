package frontend

import (
	"bytes"
	"net/http"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/trace"
)

// payload is what was said in one call, for records of that. It belongs to the
// goroutine of its record. What the client gets does not depend on it: a stream is
// made again, as the answer that a client has who does not stream.
type payload struct {
	kind    string
	body    []byte
	headers map[string]string

	begun bool // the call was accepted
	// Of a stream: what makes its answer, and from what, or what has made it.
	folder  *chat.Folder
	whole   whole
	already recounter
	torn    bool   // the events make no answer
	answer  []byte // of a call that does not stream
}

// whole writes the answer of a client that does not stream.
type whole interface {
	Note(e chat.Event)
	AppendAnswer(dst []byte, answers []chat.Answer) []byte
}

// recounter is an encoder that knows its whole answer when the stream has ended.
type recounter interface{ recount() []byte }

// payloadKinds are the APIs of conversations, by the names of their routes.
var payloadKinds = map[string]string{
	"chat_completions": "openai.chat_completion", "responses": "openai.response", "anthropic_messages": "anthropic.message",
}

// said begins to take note of what is said, where that is wanted.
func (s *Server) said(endpoint string, h http.Header, body []byte) *payload {
	kind := payloadKinds[endpoint]
	if s.Tracing == nil || !s.Tracing.Payloads || kind == "" {
		return nil
	}
	return &payload{kind: kind, body: body, headers: captured(h, s.Tracing.Headers)}
}

// captured returns those headers that are to be kept; nil if there are none.
func captured(h http.Header, names []string) map[string]string {
	var kept map[string]string
	for _, name := range names {
		values := slices.DeleteFunc(slices.Clone(h.Values(name)), func(v string) bool { return v == "" || !utf8.ValidString(v) })
		if len(values) == 0 {
			continue
		}
		if kept == nil {
			kept = map[string]string{}
		}
		kept[name] = trace.RedactHeader(name, strings.Join(values, ", "))
	}
	return kept
}

// begin notes that the call is answered. Its encoder is made after that.
func (p *payload) begin(j *job, model string) {
	if p == nil {
		return
	}
	p.begun = true
	if j.call.stream && j.call.whole != nil {
		p.folder, p.whole = new(chat.Folder), j.call.whole(j.x, model)
	}
}

// by notes which encoder writes the answer.
func (p *payload) by(encode encoder) {
	if p != nil && p.folder == nil {
		p.already, _ = encode.(recounter)
	}
}

// event takes note of an event of a stream.
func (p *payload) event(e *chat.Event) {
	if p == nil || p.folder == nil {
		return
	}
	p.whole.Note(*e)
	p.torn = p.torn || p.folder.Add(*e) != nil
}

// answered takes note of a whole answer.
func (p *payload) answered(body []byte) {
	if p != nil {
		p.answer = bytes.Clone(body)
	}
}

// row tells what was said; nil if nothing was answered.
func (p *payload) row(r *record) *trace.Record {
	if p == nil || !p.begun {
		return nil
	}
	row := &trace.Record{
		Schema: trace.Schema, EventType: trace.RequestPayload, EventTime: uint64(r.x.arrived.UnixMilli()), Source: trace.SourceDynamo,
		Payload: &trace.Payload{RequestID: r.x.id, Endpoint: p.kind, Model: r.model, Headers: p.headers, Complete: true},
	}
	body, answer := p.body, p.response(r)
	row.Later(len(body)+len(answer), func(row *trace.Record) { redact(row.Payload, body, answer) })
	return row
}

// redact tells what was said, as it may be kept.
func redact(to *trace.Payload, body, answer []byte) {
	var err error
	if to.Request, err = trace.Redact(body); err != nil {
		to.Request, to.Complete, to.DropReason = nil, false, "request_is_no_json"
	}
	if answer != nil {
		to.Response, _ = trace.Redact(answer) // what we write is JSON
	}
}

// response returns the whole answer; nil if there is none.
func (p *payload) response(r *record) []byte {
	switch {
	case r.fault != nil:
		return nil
	case p.answer != nil:
		return p.answer
	case p.already != nil:
		return p.already.recount()
	case p.folder == nil:
		return nil
	}
	answers, err := p.folder.Answers()
	if err != nil || p.torn || len(answers) == 0 {
		return nil
	}
	return p.whole.AppendAnswer(nil, answers)
}
