package remote

import (
	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine/remote/workerpb"
)

// eventMessages are how a step of an answer is told: none for what frontends make
// themselves.
func eventMessages(e *chat.Event) []*workerpb.ChatEvent {
	piece := func(d *workerpb.BlockDelta) []*workerpb.ChatEvent {
		d.Index, d.TokenIds, d.Logprobs = uint32(e.Index), e.IDs, chatLogprobMessages(e.Logprobs)
		return []*workerpb.ChatEvent{{Event: &workerpb.ChatEvent_Delta{Delta: d}}}
	}
	switch e.Kind {
	case chat.Start:
		if e.Usage == (chat.Usage{}) {
			return nil
		}
		return []*workerpb.ChatEvent{usageEvent(&e.Usage)}
	case chat.BlockStart:
		return []*workerpb.ChatEvent{{Event: &workerpb.ChatEvent_Start{Start: &workerpb.BlockStart{
			Index: uint32(e.Index), Kind: string(e.BlockKind), Tool: useMessage(e.Tool),
		}}}}
	case chat.TextDelta:
		return piece(&workerpb.BlockDelta{Piece: &workerpb.BlockDelta_Text{Text: e.Text}})
	case chat.ThinkingDelta:
		return piece(&workerpb.BlockDelta{Piece: &workerpb.BlockDelta_Thinking{Thinking: e.Text}})
	case chat.ArgsDelta:
		return piece(&workerpb.BlockDelta{Piece: &workerpb.BlockDelta_Arguments{Arguments: []byte(e.Text)}})
	case chat.RefusalDelta:
		return piece(&workerpb.BlockDelta{Piece: &workerpb.BlockDelta_Refusal{Refusal: e.Text}})
	case chat.BlockStop:
		return []*workerpb.ChatEvent{{Event: &workerpb.ChatEvent_Stop{Stop: &workerpb.BlockStop{Index: uint32(e.Index), Truncated: e.Truncated}}}}
	case chat.UsageUpdate:
		return []*workerpb.ChatEvent{usageEvent(&e.Usage)}
	case chat.Finished:
		return []*workerpb.ChatEvent{usageEvent(&e.Usage), {Event: &workerpb.ChatEvent_Finish{Finish: &workerpb.ChatFinish{
			Reason: string(e.Finish.Reason), StopSequence: e.Finish.StopText, StopId: e.Finish.StopID,
		}}}}
	}
	return nil
}

func usageEvent(u *chat.Usage) *workerpb.ChatEvent {
	return &workerpb.ChatEvent{Event: &workerpb.ChatEvent_Usage{Usage: &workerpb.Usage{
		PromptTokens: natural(u.Prompt), CachedTokens: unsigned(u.Cached),
		OutputTokens: natural(u.Output), ReasoningTokens: unsigned(u.Reasoning),
	}}}
}

func chatLogprobMessages(list []chat.Logprob) []*workerpb.Logprob {
	var out []*workerpb.Logprob
	for i := range list {
		l := &list[i]
		token := l.Bytes
		if token == nil {
			token = []byte(l.Text)
		}
		out = append(out, &workerpb.Logprob{Id: l.ID, Logprob: l.Logprob, Rank: natural(l.Rank), Token: token, Top: chatLogprobMessages(l.Top)})
	}
	return out
}

func chatLogprobsOf(list []*workerpb.Logprob) []chat.Logprob {
	var out []chat.Logprob
	for _, m := range list {
		out = append(out, chat.Logprob{
			ID: m.GetId(), Logprob: m.GetLogprob(), Rank: int(m.GetRank()),
			Text: string([]rune(string(m.GetToken()))), Bytes: m.GetToken(), Top: chatLogprobsOf(m.GetTop()),
		})
	}
	return out
}

// reading turns messages into an answer that keeps the order of events, whatever
// the worker leaves out: the start, the starts of blocks of text and thought, the
// ends of blocks, and usage.
type reading struct {
	begun    bool
	usage    chat.Usage
	open     chat.Kind // kind of the block that is open; empty: none
	next     int       // index of the next block
	finished bool
}

// take returns the events of a message, or what is wrong with it.
func (r *reading) take(m *workerpb.ChatEvent) (out []chat.Event, err error) {
	if u, ok := m.Event.(*workerpb.ChatEvent_Usage); ok {
		r.usage = chat.Usage{
			Prompt: int(u.Usage.GetPromptTokens()), Output: int(u.Usage.GetOutputTokens()),
			Cached: signed(u.Usage.CachedTokens), Reasoning: signed(u.Usage.ReasoningTokens),
		}
		if r.begun {
			return []chat.Event{{Kind: chat.UsageUpdate, Usage: r.usage}}, nil
		}
	}
	if !r.begun {
		r.begun = true
		out = append(out, chat.Event{Kind: chat.Start, Usage: r.usage})
	}
	switch e := m.Event.(type) {
	case *workerpb.ChatEvent_Start:
		out = r.close(out, false)
		kind := chat.Kind(e.Start.GetKind())
		switch {
		case kind == chat.ToolCall && e.Start.GetTool().GetName() == "":
			return nil, broken("a call of a tool without its name")
		case kind != chat.ToolCall && kind != chat.Text && kind != chat.Thought && kind != chat.Refusal:
			return nil, broken("a block of the kind %q, want %s, %s, %s or %s", kind, chat.Text, chat.Thought, chat.Refusal, chat.ToolCall)
		}
		out = r.begin(out, kind, useOf(e.Start.Tool))
	case *workerpb.ChatEvent_Delta:
		return r.piece(out, e.Delta)
	case *workerpb.ChatEvent_Stop:
		out = r.close(out, e.Stop.GetTruncated())
	case *workerpb.ChatEvent_Finish:
		out = r.close(out, false)
		r.finished = true
		out = append(out, chat.Event{Kind: chat.Finished, Usage: r.usage, Finish: finishOf(e.Finish)})
	}
	return out, nil
}

func (r *reading) begin(out []chat.Event, kind chat.Kind, tool *chat.ToolUse) []chat.Event {
	if tool != nil {
		tool.Args = "" // they come in pieces
		if tool.Kind == "" {
			tool.Kind = chat.ToolFunction
		}
	}
	r.open = kind
	return append(out, chat.Event{Kind: chat.BlockStart, Index: r.next, BlockKind: kind, Tool: tool})
}

func (r *reading) close(out []chat.Event, truncated bool) []chat.Event {
	if r.open == "" {
		return out
	}
	out = append(out, chat.Event{Kind: chat.BlockStop, Index: r.next, Truncated: truncated})
	r.open = ""
	r.next++
	return out
}

func (r *reading) piece(out []chat.Event, d *workerpb.BlockDelta) ([]chat.Event, error) {
	e := chat.Event{IDs: d.GetTokenIds(), Logprobs: chatLogprobsOf(d.GetLogprobs())}
	var in chat.Kind
	switch p := d.GetPiece().(type) {
	case *workerpb.BlockDelta_Text:
		in, e.Kind, e.Text = chat.Text, chat.TextDelta, p.Text
	case *workerpb.BlockDelta_Thinking:
		in, e.Kind, e.Text = chat.Thought, chat.ThinkingDelta, p.Thinking
	case *workerpb.BlockDelta_Refusal:
		in, e.Kind, e.Text = chat.Refusal, chat.RefusalDelta, p.Refusal
	case *workerpb.BlockDelta_Arguments:
		if r.open != chat.ToolCall {
			return nil, broken("arguments without a call of a tool")
		}
		in, e.Kind, e.Text = chat.ToolCall, chat.ArgsDelta, string(p.Arguments)
	default: // of a later version
		return out, nil
	}
	if r.open != in {
		out = r.begin(r.close(out, false), in, nil)
	}
	e.Index = r.next
	return append(out, e), nil
}

// finishOf returns why an answer ended; what has no word here is a stop.
func finishOf(m *workerpb.ChatFinish) chat.Finish {
	f := chat.Finish{Reason: chat.FinishReason(m.GetReason()), StopText: m.GetStopSequence(), StopID: m.StopId}
	switch f.Reason {
	case chat.FinishStop, chat.FinishStopSequence, chat.FinishLength, chat.FinishToolUse, chat.FinishContentFilter, chat.FinishContext:
	default:
		f.Reason = chat.FinishStop
	}
	return f
}
