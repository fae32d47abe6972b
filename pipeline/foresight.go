package pipeline

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/google/uuid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/prompt"
)

// An agent's next prompt is known but for what its tools return, or its user says.
// While these take their time, the worker that has answered computes what is known: a
// request of one token, for which nobody waits. It is worth most where a model's
// thoughts leave the prompt when their turn is over, for then all that was said behind
// them has to be computed again.

// mostForeseen is how many prompts are computed ahead at a time.
const mostForeseen = 16

// Foresight is what became of prompts that clients wanted computed ahead.
type Foresight string

// The ends of one.
const (
	ForesightDone      Foresight = "done"       // it was computed
	ForesightFull      Foresight = "limit"      // not begun: so many are under way
	ForesightBusy      Foresight = "busy"       // not begun: the worker has enough to do, or has left
	ForesightCancelled Foresight = "superseded" // the next request came first
	ForesightUnknown   Foresight = "unknown"    // not begun: nothing of the next prompt can be told
	ForesightFailed    Foresight = "failed"
)

// ForesightCounts are what became of foresight since the start.
type ForesightCounts struct {
	Ends map[Foresight]int64
	// Tokens are those of prompts that were computed ahead, cached ones included;
	// Used are those of them with which the next prompt of the session began.
	Tokens, Used int64
	Running      int
}

// foresights are the prompts that are computed ahead. It is safe for concurrent use.
type foresights struct {
	mu      sync.Mutex
	running []*foresight
	// done are the latest that were computed, until their sessions go on.
	done   []*foresight
	counts ForesightCounts
}

// foresight is one. What it says of the turn before it never changes.
type foresight struct {
	request *Request // of that turn, as the client has sent it
	model   string
	session session // zero if it has none
	named   bool
	prefill *kv.Target // that computed its prompt, if it was another one
	target  kv.Target  // that has answered
	answer  answered

	// ids are what is computed, nil until that is known, and begun says that its turn
	// is over. The lock guards them.
	ids    []uint32
	begun  bool
	ctx    context.Context
	cancel context.CancelCauseFunc
}

// foresees returns the foresight that a request asks for, or nil. Only a conversation
// has a next turn, and only where there is one answer it is known how it goes on.
func (p *Pipeline) foresees(r *Request, model string) *foresight {
	ext := r.Ext
	if ext == nil || ext.AgentHints == nil || ext.AgentHints.SpeculativePrefill == nil || !*ext.AgentHints.SpeculativePrefill {
		return nil
	}
	raw := ext.UseRawPrompt != nil && *ext.UseRawPrompt
	if r.Chat.Prompt != nil || raw || ext.TokenData != nil || r.Background || r.Chat.Sampling.Choices() > 1 || r.Identity.Final || ext.SessionControl.Ends() {
		return nil
	}
	f := &foresight{request: r, model: model}
	f.session, f.named = sessionOf(r, model)
	return f
}

// event takes an event of the answer, in the client's words. A nil one takes it, too.
func (f *foresight) event(p *Pipeline, e *chat.Event, notes *Notes) {
	if f == nil {
		return
	}
	f.answer.event(e)
	if e.Kind != chat.Finished {
		return
	}
	switch e.Finish.Reason {
	case chat.FinishStop, chat.FinishStopSequence, chat.FinishToolUse, chat.FinishLength:
	default:
		return
	}
	f.prefill, f.target = notes.Prefill, notes.Target
	// The next request may come as soon as the client knows of the end.
	p.foreseen.add(p.behind.context(), f)
}

// add lets a foresight begin when its turn is over, if there is room for it. One whose
// turn is not over makes room: its client may have stopped reading.
func (s *foresights) add(ctx context.Context, f *foresight) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.running) >= mostForeseen {
		s.endLocked(ForesightFull)
		i := slices.IndexFunc(s.running, func(other *foresight) bool { return !other.begun })
		if i < 0 {
			return
		}
		s.running[i].cancel(nil)
		s.running = slices.Delete(s.running, i, i+1)
	}
	f.ctx, f.cancel = context.WithCancelCause(ctx)
	s.running = append(s.running, f)
}

// begin says whether a foresight whose turn is over still has its place.
func (s *foresights) begin(f *foresight) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f.begun = slices.Contains(s.running, f)
	return f.begun
}

func (s *foresights) endLocked(end Foresight) {
	if s.counts.Ends == nil {
		s.counts.Ends = map[Foresight]int64{}
	}
	s.counts.Ends[end]++
}

// end takes a foresight out, and counts what became of it.
func (s *foresights) end(f *foresight, end Foresight) {
	f.cancel(nil)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = slices.DeleteFunc(s.running, func(other *foresight) bool { return other == f })
	s.endLocked(end)
	if end != ForesightDone {
		return
	}
	s.counts.Tokens += int64(len(f.ids))
	f.request, f.answer = nil, answered{} // only what it is known by is kept
	if s.done = append(s.done, f); len(s.done) > mostForeseen {
		s.done = s.done[1:]
	}
}

// knows returns those ids of a foresight with which a prompt begins, and whether the
// prompt is the next one of its session.
func (f *foresight) knows(s session, named bool, ids []uint32) (int, bool) {
	n := commonIDs(f.ids, ids)
	if f.named || named {
		return n, f.named && named && f.session == s
	}
	return n, f.session == s && len(f.ids) > 0 && n == len(f.ids)
}

// supersede ends what is computed ahead of a request that has come now: whoever
// computes it will do so anyway.
func (s *foresights) supersede(r *Request, model string, ids []uint32) {
	of, named := sessionOf(r, model)
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.running {
		if _, next := f.knows(of, named, ids); next {
			f.cancel(engine.ErrSuperseded)
		}
	}
	s.done = slices.DeleteFunc(s.done, func(f *foresight) bool {
		n, next := f.knows(of, named, ids)
		if next {
			s.counts.Used += int64(n)
		}
		return next
	})
}

// follow does what a turn has been seen to want, now that it is over.
func (p *Pipeline) follow(ctx context.Context, f *foresight) {
	if f == nil || f.cancel == nil || !p.foreseen.begin(f) {
		return
	}
	if ctx.Err() != nil { // the client has left
		p.foreseen.end(f, ForesightCancelled)
		return
	}
	p.behind.run(func(context.Context) {
		end, err := p.foresee(f)
		if err != nil {
			p.Logger.Debug("a prompt was not computed ahead", "request", f.request.ID, "outcome", string(end), "error", err)
		}
		p.foreseen.end(f, end)
	})
}

// foresee computes what is known of the next prompt.
func (p *Pipeline) foresee(f *foresight) (end Foresight, err error) {
	defer func() {
		if v := recover(); v != nil {
			end, err = ForesightFailed, fmt.Errorf("foresight panicked: %v", v)
		}
	}()
	worker, err := p.spare(f)
	if err != nil {
		return ForesightBusy, err
	}
	ids, err := p.ahead(f)
	if err != nil {
		return ForesightUnknown, err
	}
	if size := int(worker.Card().BlockSize); size > 0 {
		ids = ids[:len(ids)/size*size]
	}
	if len(ids) == 0 {
		return ForesightUnknown, errors.New("not one block of it is known")
	}
	p.foreseen.mu.Lock()
	f.ids = ids
	p.foreseen.mu.Unlock()
	for e, err := range p.Run(f.ctx, f.prefilling()) {
		switch {
		case f.ctx.Err() != nil:
			return ForesightCancelled, context.Cause(f.ctx)
		case engine.KindOf(err) == engine.ResourceExhausted, engine.KindOf(err) == engine.Unavailable:
			return ForesightBusy, err
		case err != nil:
			return ForesightFailed, err
		case e.Kind == chat.Finished:
			return ForesightDone, nil
		}
	}
	return ForesightFailed, errIncomplete
}

// spare returns the worker that computes the next prompt, or says why it should not.
func (p *Pipeline) spare(f *foresight) (*fleet.Worker, error) {
	target := f.target
	if f.prefill != nil {
		target = *f.prefill
	}
	workers := p.Fleet.Snapshot()
	i := slices.IndexFunc(workers, func(w *fleet.Worker) bool { return w.ID() == target.Worker })
	if i < 0 || !workers[i].Ready() || workers[i].Card() == nil {
		return nil, engine.Errorf(engine.Unavailable, "worker %d has left", target.Worker)
	}
	w := workers[i]
	busy := engine.Errorf(engine.ResourceExhausted, "worker %s has enough to do", w.Name())
	if w.Overloaded() {
		return nil, busy
	}
	load, _ := w.Load()
	for _, rank := range load.Ranks {
		if rank.Rank == target.Rank && rank.Waiting > 0 {
			return nil, busy
		}
	}
	// Prompts that fill its next pass would have to wait for this one, and so would any
	// where it does not say what it computes in one.
	pass := int(w.Card().MaxBatchedTokens)
	for _, l := range p.Router.Loads() {
		if l.Target == target && l.PrefillTokens > 0 && l.PrefillTokens >= pass {
			return nil, busy
		}
	}
	return w, nil
}

// ahead returns the ids with which the next prompt begins, whatever comes between.
func (p *Pipeline) ahead(f *foresight) ([]uint32, error) {
	worker, card, err := p.serves(f.model)
	if err != nil {
		return nil, err
	}
	m, err := p.loadFor(worker, card)
	if err != nil {
		return nil, err
	}
	one, other := prompt.GoingOn(f.next())
	for _, c := range []**chat.Request{&one, &other} {
		r := *f.request
		r.Chat, r.Notes = *c, new(Notes)
		v, err := p.view(&r, m, f.model)
		if err != nil {
			return nil, err
		}
		*c = v.chat
	}
	return m.Common(one, other, f.request.Ext)
}

// next returns the conversation with the answer as its client will show it.
func (f *foresight) next() *chat.Request {
	blocks := f.answer.blocks
	if f.request.Chat.API == chat.APIChat {
		blocks = oneMessage(blocks)
	}
	if !returnsThoughts(f.request.Chat) {
		blocks = slices.DeleteFunc(slices.Clone(blocks), func(b chat.Block) bool { return b.Kind == chat.Thought })
	}
	c := *f.request.Chat
	c.Turns = append(slices.Clone(c.Turns), chat.Turn{Role: chat.RoleAssistant, Blocks: blocks})
	return &c
}

// returnsThoughts says whether a client sends thoughts back: its protocol wants that,
// or else it has done so before. Of one that does so for the first time, all is cached
// as it was generated.
func returnsThoughts(r *chat.Request) bool {
	return r.API != chat.APIChat || slices.ContainsFunc(r.Turns, func(t chat.Turn) bool {
		return t.Role == chat.RoleAssistant && slices.ContainsFunc(t.Blocks, func(b chat.Block) bool { return b.Kind == chat.Thought })
	})
}

// prefilling is the request that computes a prompt ahead.
func (f *foresight) prefilling() *Request {
	origin := f.request
	place := nvext.Placement{DPRank: new(f.target.Rank)}
	worker := nvext.WorkerID(f.target.Worker)
	if f.prefill == nil {
		place.BackendInstanceID = &worker
	} else {
		prefill := nvext.WorkerID(f.prefill.Worker)
		place.DecodeWorkerID, place.PrefillWorkerID, place.PrefillDPRank = &worker, &prefill, new(f.prefill.Rank)
	}
	return &Request{
		ID:     uuid.NewString(),
		Tenant: origin.Tenant,
		Chat: &chat.Request{
			API: chat.APICompletions, Model: f.model, Prompt: &chat.Prompt{IDs: f.ids},
			Sampling: chat.Sampling{MaxTokens: new(1), IgnoreEOS: true, Temperature: new(0.0)},
		},
		Ext: &nvext.Ext{Placement: place, AgentHints: &nvext.Hints{Priority: new(nvext.PriorityBackground)}},
		// What is warmed is the session's, and worth as much as the rest of it.
		KV:         kv.Directives{Namespace: origin.KV.Namespace, Session: origin.KV.Session, Priority: origin.KV.Priority},
		Background: true,
	}
}

// Foresights tells what became of prompts that were computed ahead.
func (p *Pipeline) Foresights() ForesightCounts {
	s := &p.foreseen
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.counts
	c.Ends = make(map[Foresight]int64, len(s.counts.Ends))
	for end, n := range s.counts.Ends {
		c.Ends[end] = n
	}
	c.Running = len(s.running)
	return c
}

// answered are the blocks of an answer, gathered from its events.
type answered struct {
	blocks []chat.Block
	text   strings.Builder
}

func (a *answered) event(e *chat.Event) {
	switch e.Kind {
	case chat.BlockStart:
		b := chat.Block{Kind: e.BlockKind}
		if e.Tool != nil {
			use := *e.Tool
			b.Use = &use
		}
		a.blocks = append(a.blocks, b)
	case chat.TextDelta, chat.ThinkingDelta, chat.ArgsDelta, chat.RefusalDelta:
		a.text.WriteString(e.Text)
	case chat.BlockStop:
		b := &a.blocks[len(a.blocks)-1]
		if b.Text = a.text.String(); b.Use != nil {
			b.Use.Args, b.Text = b.Text, ""
		}
		a.text.Reset()
	}
}

// oneMessage is an answer as chat completions tell it: one thought, one text, and
// calls.
func oneMessage(blocks []chat.Block) (out []chat.Block) {
	var thought, text []string
	var calls []chat.Block
	for _, b := range blocks {
		switch b.Kind {
		case chat.Thought:
			thought = append(thought, b.Text)
		case chat.ToolCall:
			calls = append(calls, b)
		default:
			text = append(text, b.Text)
		}
	}
	if thought != nil {
		out = append(out, chat.Block{Kind: chat.Thought, Text: strings.Join(thought, "")})
	}
	if text != nil {
		out = append(out, chat.Block{Kind: chat.Text, Text: strings.Join(text, "\n")})
	}
	return append(out, calls...)
}
