package pipeline

import (
	"context"
	"encoding/binary"
	"errors"
	"iter"
	"slices"
	"strings"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/prompt"
)

// A server of conversations makes the prompt and reads the answer itself. It is sent
// the request in its model's words, and what comes back are events already: there
// is no prompt stage and no parser, nothing is known of tokens, and an answer that
// has begun cannot go on elsewhere.

// prepareChat returns a job for each choice of a request that goes out as a
// conversation.
func (p *Pipeline) prepareChat(r *Request, k int, card *engine.Card) (jobs, error) {
	if err := sayable(r, card); err != nil {
		return nil, err
	}
	// Nothing is known of the model, which is what an empty one says.
	model := &prompt.Model{ContextLength: int(card.ContextLength)}
	view := p.show(p.spelt.restore(asTurns(r.Chat)), model, card.Model, r.Notes)
	asked, seen := r.Chat, *r
	seen.Chat = plain(view.chat)
	r = &seen
	outline := outlineOf(r.Chat)
	r.Notes.PromptTokens = len(outline)

	s := &r.Chat.Sampling
	stop := engine.Stop{MinTokens: s.MinTokens, Strings: s.Stop}
	if s.MaxTokens != nil {
		stop.MaxTokens = *s.MaxTokens
	}
	n := s.Choices()
	r.traces(nil, 0) // the worker alone knows the prompt's tokens
	shared, noting := share(n), new(noting)
	all := make(jobs, n)
	for i := range all {
		all[i] = &job{
			p: p, request: r, names: view.names, model: model, prompt: &prompt.Prompt{Stop: stop},
			choice: k*n + i, index: i, booking: shared, noting: noting, door: engine.InputChat, outline: outline,
			asides: asidesOf(r, i),
		}
	}
	all[0].outlook = p.outlook(r, asked, card.Model, stop.MaxTokens)
	return all, nil
}

// sayable refuses what cannot be said in a conversation.
func sayable(r *Request, card *engine.Card) error {
	s, ext := &r.Chat.Sampling, r.Ext
	bare := r.Chat.Prompt
	if bare == nil {
		bare = new(chat.Prompt)
	}
	if ext == nil {
		ext = new(nvext.Ext)
	}
	for _, f := range []struct {
		asked       bool
		param, what string
	}{
		{bare.IDs != nil, "prompt", "a prompt of token ids"},
		{bare.Echo, "echo", "echo"},
		{ext.TokenData != nil, "nvext.token_data", "nvext.token_data"},
		{ext.UseRawPrompt != nil && *ext.UseRawPrompt, "nvext.use_raw_prompt", "nvext.use_raw_prompt"},
		{s.Logprobs != nil, "logprobs", "logprobs"},
		{s.PromptLogprobs != nil, "prompt_logprobs", "prompt_logprobs"},
		{len(s.StopIDs) > 0, "stop_token_ids", "stop_token_ids"},
		{len(s.AllowedIDs) > 0, "allowed_token_ids", "allowed_token_ids"},
		{len(s.BadWords) > 0, "bad_words", "bad_words"},
		{len(s.LogitBias) > 0 && !card.Features.Has(engine.FeatureLogitBias), "logit_bias", "logit_bias"},
		{len(s.Stop) > 0 && !card.Features.Has(engine.FeatureStopStrings), "stop", "stop"},
	} {
		if f.asked {
			e := engine.Errorf(engine.InvalidArgument, "%s is not supported by model '%s': it is served as conversations alone (%s)", f.what, card.Model, card.Engine)
			e.Param, e.Code = f.param, "unsupported_parameter"
			return e
		}
	}
	if r.Chat.Prompt != nil && bare.Text == "" {
		e := engine.Errorf(engine.InvalidArgument, "the prompt is empty")
		e.Param = "prompt"
		return e
	}
	return nil
}

// asTurns returns a request whose prompt, if it has one instead of turns, is a user's
// turn.
func asTurns(r *chat.Request) *chat.Request {
	if r.Prompt == nil {
		return r
	}
	c := *r
	c.Prompt, c.System = nil, nil
	c.Turns = []chat.Turn{{Role: chat.RoleUser, Raw: true, Blocks: []chat.Block{{Kind: chat.Text, Text: r.Prompt.Text}}}}
	return &c
}

// plain returns a request without what other APIs have and conversations do not:
// groups of tools, whose names are the tools' own by now, tools that wait to be found,
// of which none is left by now, tools that take free text, which go as functions that
// take it as their input, and marks of the cache.
func plain(r *chat.Request) *chat.Request {
	c := *r
	c.Cache, c.Tools = nil, slices.Clone(r.Tools)
	for i := range c.Tools {
		t := &c.Tools[i]
		t.Namespace, t.Deferred = "", false
		if t.Kind == chat.ToolCustom {
			if t.Kind = chat.ToolFunction; t.Schema == nil {
				t.Schema = freeText
			}
		}
	}
	free := func(use *chat.ToolUse) bool { return use.Kind == chat.ToolCustom }
	if slices.ContainsFunc(calls(r), free) {
		turns := copied(r).Turns
		c.Turns = turns
		for _, use := range calls(&c) {
			if free(use) {
				use.Kind, use.Args = chat.ToolFunction, asInput(use.Args)
			}
		}
	}
	return &c
}

// freeText is the schema of a tool that takes free text, as models are shown it.
var freeText = []byte(`{"type":"object","properties":{"input":{"type":"string"}},"required":["input"]}`)

// asInput returns the arguments with which a model calls such a tool.
func asInput(text string) string {
	quoted, err := jsontext.AppendQuote(nil, strings.ToValidUTF8(text, "\uFFFD"))
	if err != nil {
		return text // valid texts can be quoted
	}
	return `{"input":` + string(quoted) + `}`
}

// outlineBytes is how many bytes of a conversation count as a token.
const outlineBytes = 4

// outlineOf returns what stands for the tokens of a conversation: about as many, and
// alike as far as conversations are alike. So its worker is chosen by load, and by
// what was sent there before; they are for the router alone.
func outlineOf(r *chat.Request) []uint32 {
	var text []byte
	var add func([]chat.Block)
	add = func(blocks []chat.Block) {
		for i := range blocks {
			b := &blocks[i]
			text = append(text, b.Text...)
			if b.Use != nil {
				text = append(append(text, b.Use.Name...), b.Use.Args...)
			}
			if b.Result != nil {
				add(b.Result.Blocks)
			}
		}
	}
	for i := range r.Tools {
		t := &r.Tools[i]
		text = append(append(append(text, t.Name...), t.Description...), t.Schema...)
	}
	add(r.System)
	for i := range r.Turns {
		text = append(text, r.Turns[i].Role...)
		add(r.Turns[i].Blocks)
	}
	text = append(text, make([]byte, outlineBytes-1)...) // what is left over counts as one
	ids := make([]uint32, len(text)/outlineBytes)
	for i := range ids {
		ids[i] = binary.LittleEndian.Uint32(text[i*outlineBytes:])
	}
	return ids
}

// conversation runs a job whose worker takes conversations.
func (j *job) conversation(ctx context.Context) iter.Seq2[chat.Event, error] {
	if card := j.booking.booking.Worker().Card(); card != nil {
		var err error
		if j.held, err = j.constrainText(card); err != nil {
			return failed(err)
		}
		j.formed(budgetBy(j.request.Chat, card))
	}
	j.settled = func() bool { return false }
	events := j.spoken(ctx)
	if j.held.check != nil {
		events = judged(events, j.held.check)
	}
	if j.nonEmpty() {
		events = nonEmpty(events)
	}
	return j.counted(events)
}

// budgetBy says who keeps a thinking budget where tokens are not seen.
func budgetBy(r *chat.Request, card *engine.Card) string {
	switch {
	case r.Thinking.Budget == nil:
		return ""
	case card.Features.Has(engine.FeatureThinkingBudget):
		return ByEngine
	}
	return ByNobody
}

// spoken runs attempt after attempt until one has begun to answer.
func (j *job) spoken(ctx context.Context) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		c := &carry{job: j}
		for {
			err := c.converse(ctx, yield)
			if err == nil {
				return
			}
			if err = c.next(ctx, err); err != nil {
				c.movedInVain(ctx, err)
				yield(chat.Event{}, unsayable(err))
				return
			}
		}
	}
}

// unsayable returns the error for a request that no server has words for. An adapter
// that refuses one says that another server may have them; here there is none, and
// what is left is for the client to mend.
func unsayable(err error) error {
	e, ok := errors.AsType[*engine.Error](err)
	if !ok || e.Kind != engine.Unsupported || e.FromEngine || e.Worker != 0 || e.Param != "" {
		return err
	}
	told := *e
	told.Kind, told.Code = engine.InvalidArgument, "unsupported_parameter"
	return &told
}

// converse is attempt for a worker that takes conversations.
func (c *carry) converse(ctx context.Context, yield func(chat.Event, error) bool) (err error) {
	worker := c.booking.booking.Worker()
	request, err := c.begin(worker)
	if err != nil {
		return err
	}
	speaker, ok := engine.As[engine.ChatEngine](worker.Engine())
	if !ok {
		return &engine.Error{Kind: engine.Unsupported, Worker: worker.ID(), Message: "the worker's card says that it takes conversations, and it does not"}
	}
	sent := c.p.dispatched(c.job, request, c.booking.booking)
	defer func() { sent.end(err) }()
	c.flight = c.p.flow.send(aggregated)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	lost := worker.Lost()
	defer context.AfterFunc(lost, func() { cancel(context.Cause(lost)) })()
	defer c.end()
	h := hearing{carry: c}
	for e, err := range watch(&watchdog{limits: c.p.Limits, cancel: cancel}, c.p.Spans.Chat(ctx, speaker, request)) {
		if err != nil {
			return engine.CauseOf(ctx, err)
		}
		h.event(&e)
		if e.Kind == chat.Finished {
			c.booking.booking.Completed()
		}
		if !yield(e, nil) || e.Kind == chat.Finished {
			return nil
		}
		if h.enough(&e) {
			c.booking.booking.Completed()
			end := chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishToolUse}}
			h.event(&end)
			yield(end, nil)
			return nil
		}
	}
	return engine.CauseOf(ctx, errIncomplete)
}

// hearing is what was heard of an answer in one attempt.
type hearing struct {
	*carry
	pieces  int // of text, each taken for a token
	calling bool
}

// event books an event before it goes up, makes it one of its choice, and adds what
// the server has not counted.
func (h *hearing) event(e *chat.Event) {
	e.Choice = h.choice
	n := 0
	if isDelta(e.Kind) {
		n = 1
	}
	h.pieces += n
	booking := h.booking.booking
	if h.pace.item(n, h.seen) {
		h.flight.answered(h.pace.waited())
		booking.Prefilled()
		h.moved(MoveSuccess)
	}
	booking.Output(n)
	h.asides.item(n, e.Kind == chat.Finished, booking.Decision().Target)
	u := &e.Usage
	switch e.Kind {
	case chat.BlockStart:
		h.calling = e.BlockKind == chat.ToolCall
	case chat.Start:
		if u.Prompt == 0 {
			u.Prompt = len(h.outline)
		}
	case chat.UsageUpdate, chat.Finished:
		limit := h.model.ContextLength
		if e.Finish.Reason == chat.FinishLength && limit > 0 && u.Prompt > 0 && u.Prompt+u.Output >= limit {
			e.Finish.Reason = chat.FinishContext
		}
		if u.Prompt == 0 {
			u.Prompt = len(h.outline)
		}
		if u.Output == 0 {
			u.Output = h.pieces
		}
		if h.index > 0 { // the first choice counts the prompt
			u.Prompt, u.Cached = 0, nil
		}
	}
}

// enough says that an event ends the one call that the client wants.
func (h *hearing) enough(e *chat.Event) bool {
	parallel := h.request.Chat.ToolChoice.Parallel
	return e.Kind == chat.BlockStop && h.calling && !e.Truncated && parallel != nil && !*parallel
}
