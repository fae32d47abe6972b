// Package pipeline joins the stages that a request passes: prompt turns it into
// tokens, router finds the worker, the engine generates, prompt turns tokens
// into text, parser turns text into blocks. Down goes a [Request], in the words
// that its model knows, up comes an iter.Seq2 of chat.Event, in the client's.
//
//	Request ── show ── prompt ── router ── engine
//	                                         │ engine.Delta   [watch] [carry]
//	                                       decode
//	                                         │ prompt.Output
//	                                       parse
//	                                         ▼ chat.Event
//
// Where workers take no tokens but conversations, show and router stand alone before
// the engine, and its events go up as they are.
//
// Each stage up is a function from one sequence to the next, without timer and
// without goroutine. Leaving the loop, or cancelling the context, stops
// everything below and releases every booking, once. Goroutines exist only in
// two joints, which wait for them: that of several choices, and that of two legs
// at once. What is told to engines behind the end of a request belongs to the
// pipeline, until its Close.
package pipeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/fleet"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

// Config says how a pipeline behaves.
type Config struct {
	Fleet  *fleet.Fleet
	Router *router.Router
	// Load reads what the prompt stage needs to know about the model of a card.
	// It is called once for each set of files.
	Load func(card *engine.Card) (*prompt.Model, error)
	// MigrationLimit is how often a request may go on on another worker.
	MigrationLimit int
	// MigrationMaxTokens ends migration for requests that have grown beyond it;
	// 0 = never.
	MigrationMaxTokens int
	// Moved, if not nil, is told of each move to another worker when it is known what
	// came of it. It is called from any goroutine and must be quick.
	Moved  func(Move)
	Limits Limits
	Tags   Tags
	// KeepEntities leaves &lt; and its like in arguments, whatever the model.
	KeepEntities bool
	// KeepPreamble leaves the lines in the system text that name an agent's program
	// and are other ones with every request.
	KeepPreamble bool
	// ImagePlaceholder lets a short text stand for images and documents of the newest
	// user turn as well, instead of refusing them.
	ImagePlaceholder bool
	// DefaultThinking is whether models think of which clients say nothing; nil leaves
	// it to the models.
	DefaultThinking *bool
	// ExcludeTools says whether tools stay out of the prompts of requests that forbid
	// calls; nil does so only where a model cannot be kept from calling otherwise.
	ExcludeTools *bool
	// HistoryTokens is how many tokens of the latest requests of sessions are kept,
	// to tell what of them is used again; 0 means [DefaultHistoryTokens], and less
	// keeps none.
	HistoryTokens int
	// Spans tells of decisions, dispatches and generations in spans; nil: nobody asks.
	// RouterMode is how workers are picked, in their words; empty is kv.
	Spans      *engine.Spans
	RouterMode string
	// StrictSessions refuses turns whose session an engine should open and cannot,
	// instead of serving them all the same.
	StrictSessions bool
	// Retention says what is granted of what clients want to stay cached.
	Retention Retention
	// Learn says what is learned from requests; nothing by default.
	Learn  Learn
	Logger *slog.Logger
}

// Pipeline serves requests. It is safe for concurrent use.
type Pipeline struct {
	Config
	models  models
	count   counters
	flow    Flow
	spelled func(tokens int, took time.Duration) // tells flow
	drops   drops
	seen    sightings
	forms   forms
	past    *histories // nil: none is kept
	begun   *beginnings
	spelt   *spellings
	behind  behind
	// foreseen are the prompts that are computed ahead of their requests.
	foreseen foresights
	// fetched are the prefetches that clients can ask about.
	fetched prefetches
	endings endings // of sessions that engines keep
	unheard unheard
	listed  pinList
	pinned  pinning
	expects *outlooks // nil: nothing is learned
	shares  pinShares
	warm    warmth
}

// counters are what a pipeline has done since its start.
type counters struct {
	migratedNew, migratedOngoing, tooLong atomic.Int64

	handedOver, prefillAnswered, prefillFailed, decodeFailed atomic.Int64
	handoffLeft, handoffResent, wholeInstead                 atomic.Int64
}

// Counters are totals since the start.
type Counters struct {
	MigratedNew, MigratedOngoing int64 // retries before and after the first item
	MigrationTooLong             int64 // retries refused by MigrationMaxTokens
}

// New makes a pipeline. It reads no file yet; see [Pipeline.Preload].
func New(c Config) *Pipeline {
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	p := &Pipeline{
		Config: c,
		models: models{fleet: c.Fleet, load: c.Load},
		seen:   sightings{fleet: c.Fleet},
		spelt:  newSpellings(spellingBytes),
		begun:  newBeginnings(mostBeginnings),

		expects: newOutlooks(c.Learn),
	}
	p.endings.behind = &p.behind
	p.spelled = p.flow.detokenized
	if c.Router != nil {
		c.Router.OnSessionEnd(p.endings.end)
	}
	if n := cmp.Or(c.HistoryTokens, DefaultHistoryTokens); n > 0 {
		p.past = newHistories(n)
	}
	return p
}

// Flow returns where requests are. It may be asked at any time.
func (p *Pipeline) Flow() *Flow { return &p.flow }

// Counters returns what was counted so far.
func (p *Pipeline) Counters() Counters {
	return Counters{
		MigratedNew:      p.count.migratedNew.Load(),
		MigratedOngoing:  p.count.migratedOngoing.Load(),
		MigrationTooLong: p.count.tooLong.Load(),
	}
}

// Run serves requests of one client call, which differ in their prompt alone,
// and merges their answers: choice i of request k has the number k*n+i. Most
// calls have one request.
//
// The sequence is for one loop. Nothing happens before it begins, and nothing
// goes on after it has ended.
func (p *Pipeline) Run(ctx context.Context, requests ...*Request) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		ctx, cancel := within(ctx, requests)
		defer cancel()
		if len(requests) > 0 && onlyAsks(requests[0]) {
			p.advice(ctx, requests)(yield)
			return
		}
		jobs, err := p.prepareAll(requests)
		requests = nil // a long answer shall not keep what its jobs do without
		defer jobs.follow(ctx)
		// Every booking is released here, whatever happens below.
		defer jobs.release()
		if err == nil {
			err = jobs.begin(ctx)
		}
		switch {
		case err != nil:
			fail(yield, err)
		case len(jobs) == 1:
			jobs[0].alone = true
			jobs[0].events(ctx)(yield)
		default:
			merge(ctx, jobs)(yield)
		}
	}
}

// within returns a context that ends with the client's own deadline, if it has
// set one.
func within(ctx context.Context, requests []*Request) (context.Context, context.CancelFunc) {
	var deadline time.Time
	for _, r := range requests {
		if deadline.IsZero() || !r.Deadline.IsZero() && r.Deadline.Before(deadline) {
			deadline = r.Deadline
		}
	}
	if deadline.IsZero() {
		return ctx, func() {} // what is below ends by itself when the loop does
	}
	return context.WithDeadlineCause(ctx, deadline, engine.ErrDeadline)
}

// jobs are the choices of one client call.
type jobs []*job

func (js jobs) release() {
	for _, j := range js {
		j.leave()
	}
}

// follow does what is left for the time behind the answer.
func (js jobs) follow(ctx context.Context) {
	if len(js) > 0 {
		js[0].p.follow(ctx, js[0].foresight)
	}
}

// begin finds a worker for the first request, so that a call that nobody can
// serve is refused before anything has come of it. The others are placed when
// they are run: if they have to wait for room, it may be that which the first
// takes until it has run.
func (js jobs) begin(ctx context.Context) error {
	if len(js) == 0 {
		return nil
	}
	return js[0].place(ctx)
}

// prepareAll returns the jobs of all requests.
func (p *Pipeline) prepareAll(requests []*Request) (all jobs, err error) {
	for k, r := range requests {
		js, err := p.prepare(r, k)
		if bad, ok := errors.AsType[*engine.Error](err); ok && len(requests) > 1 && bad.Param == "prompt" {
			bad.Param = fmt.Sprintf("prompt[%d]", k)
		}
		if err != nil {
			return nil, err
		}
		all = append(all, js...)
	}
	return all, nil
}

// job is one choice of one request: one generation, on one worker after
// another.
type job struct {
	p       *Pipeline
	request *Request // in the model's words
	names   names    // in which the client is told of it
	model   *prompt.Model
	prompt  *prompt.Prompt
	choice  int // over all requests
	index   int // of the request's own choices
	// alone says that nothing else runs for this call, so that notes may still
	// be taken.
	alone bool
	// settled says whether the answer so far could end well without a finish.
	settled func() bool
	// booking is where the job runs; the choices of a request share one until
	// they move. Of its bookings here is the one of the leg that runs now, or is to
	// run next; computed says that its prompt needs no place any more.
	booking  *shared
	here     *router.Booking
	computed bool
	// noting is shared by the choices of a request as well, and stays so.
	noting *noting
	// held is what the answer is held to.
	held constraint
	// budget caps its thinking; nil if nothing does here.
	budget *budget
	// told tells of what the job has answered; nil if nobody asks.
	told *telling
	// foresight is what is to be computed behind the answer; nil if nothing is.
	foresight *foresight
	// outlook is what is expected of the job, and learned from it; nil if nothing is.
	outlook *outlook
	// asides are what its client wants to know besides; nil if that is nothing.
	asides *asides
	// pinnedBy says who asks for the request's pins.
	pinnedBy string
	// door is the form in which workers take the request.
	door engine.Input
	// outline stands for the tokens of a conversation that is sent as it is.
	outline []uint32
}

// prepare makes the prompt of a request and returns a job for each choice, which
// will share one booking.
func (p *Pipeline) prepare(r *Request, k int) (jobs, error) {
	p.flow.preprocess.Add(1)
	defer p.flow.preprocess.Add(-1)
	if r.Notes == nil {
		r.Notes = new(Notes)
	}
	worker, card, err := p.serves(r.Chat.Model)
	if err != nil {
		return nil, err
	}
	name := card.Model
	r.Notes.Model = name
	r = adapted(r, card)
	if err := p.checkFormat(r.Chat); err != nil {
		return nil, err
	}
	door := doorOf(card)
	if door == engine.InputChat {
		return p.prepareChat(r, k, card)
	}
	model, err := p.loadFor(worker, card)
	if err != nil {
		return nil, err
	}
	if err := p.checkMedia(r.Chat); err != nil {
		return nil, err
	}
	view, err := p.view(r, model, name)
	if err != nil {
		return nil, err
	}
	asked, origin, seen := r.Chat, r, *r
	seen.Chat = view.chat
	r = &seen
	wishes, err := p.wishesOf(r, len(asked.Turns), view.kept)
	if err != nil {
		return nil, err
	}
	built, err := model.Build(r.Chat, r.Ext, wishes.places...)
	if err != nil {
		return nil, err
	}
	if !onlyAsks(r) {
		p.heed(r, wishes, built)
	}
	r.KV.Session.Ephemeral = p.ephemeral(r)
	r.KV.Thinking, r.KV.Compacted = forgotten(r, model), p.compacted(r, name, built)
	r.Notes.PromptTokens, r.Notes.Template, r.Notes.Tokenize = len(built.IDs), built.Render, built.Tokenize
	annotate(r, built)

	n := r.Chat.Sampling.Choices()
	r.traces(built.IDs, card.BlockSize)
	shared, noting := share(n), new(noting)
	all := make(jobs, n)
	for i := range all {
		all[i] = &job{p: p, request: r, names: view.names, model: model, prompt: built, choice: k*n + i, index: i, booking: shared, noting: noting, door: door, pinnedBy: wishes.by, asides: asidesOf(r, i)}
	}
	all[0].told = p.reuse(r, model, built, len(asked.Turns))
	all[0].outlook = p.outlook(r, asked, name, built.Stop.MaxTokens)
	if !r.Background && !onlyAsks(r) {
		p.foreseen.supersede(r, name, built.IDs)
		all[0].foresight = p.foresees(origin, name)
	}
	return all, nil
}

// view returns what a model is to see of a request.
func (p *Pipeline) view(r *Request, m *prompt.Model, name string) (view, error) {
	v := p.show(p.spelt.restore(r.Chat), m, name, r.Notes)
	if s, ok := sessionOf(r, name); ok {
		v.chat.Date = p.begun.of(s, time.Now())
	}
	shorter, left, err := truncated(v.chat, m)
	v.chat, v.kept = shorter, v.kept.and(left)
	return v, err
}

// adapted returns a request as one to the base model if it names an adapter of it.
func adapted(r *Request, card *engine.Card) *Request {
	lora := adapterOf(card, r.Chat.Model)
	if lora == "" {
		return r
	}
	c, asked := *r, *r.Chat
	asked.Model, c.Chat = card.Model, &asked
	if c.KV.Namespace.LoRA == "" {
		c.KV.Namespace.LoRA = lora
	}
	return &c
}

// events runs the job.
func (j *job) events(ctx context.Context) iter.Seq2[chat.Event, error] {
	if j.door == engine.InputChat {
		return j.conversation(ctx)
	}
	r, s := j.request.Chat, &j.request.Chat.Sampling
	card := j.answering()
	if card != nil {
		var err error
		if j.held, err = j.constrain(card); err != nil {
			return failed(err)
		}
	}
	var family parser.Family // plain text
	if r.Prompt == nil {
		family = j.model.Family
	}
	tools := offered(r.Tools)
	a := &answer{
		choice: j.choice, counted: j.index == 0, prompt: len(j.prompt.IDs),
		parser: parser.New(family, parser.Options{
			Start:    j.prompt.Start,
			Tools:    tools,
			Mode:     j.held.mode,
			Named:    j.held.named,
			Allowed:  r.ToolChoice.Names,
			ToolsOn:  len(tools) > 0 && r.ToolChoice.Mode != chat.ToolNone,
			ThinkOn:  r.Prompt == nil && j.thinks(),
			Parallel: r.ToolChoice.Parallel,
			History:  j.history(),
			NewID:    newID(r.API),

			KeepEntities: j.p.KeepEntities,
		}),
		oneCall: r.ToolChoice.Parallel != nil && !*r.ToolChoice.Parallel,
		remember: func(ids []uint32, said *prompt.Saying) {
			j.model.Remember(j.prompt, ids, said)
			j.told.end(ids)
			j.outlook.end(j, ids)
		},
	}
	if j.model.ReplayRaw {
		a.said = new(prompt.Saying)
	}
	j.settled = a.settled
	if card != nil {
		var by string
		j.budget, by = j.cap(card, a.parser.Thinking, a.parser.ReasoningTokens)
		j.formed(by)
	}
	if j.echoes() {
		var err error
		if a.echo, err = j.model.Echo(r.Prompt, s.KeepSpecial); err != nil {
			return failed(err)
		}
		a.echoes = true
	}
	events := a.events(j.model.Decode(j.deltas(ctx), prompt.Decoding{
		Stop: j.prompt.Stop, Strings: s.Stop, IncludeStop: s.IncludeStop,
		KeepSpecial: s.KeepSpecial, Markers: j.model.Markers(family),
		ByToken: family.Thinks() || family.Calls(),
		Prompt:  len(j.prompt.IDs),
		Spelled: j.p.spelled,
	}))
	if j.held.check != nil {
		events = judged(events, j.held.check)
	}
	if j.nonEmpty() {
		events = nonEmpty(events)
	}
	return j.counted(events)
}

// failed is an answer that is nothing but an error.
func failed(err error) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) { fail(yield, err) }
}

// fail yields an error that ends a sequence. What is yielded takes room on the stack
// of its yielder, and one that waits for what comes below holds that all the while:
// so whatever it yields but once has a frame of its own.
//
//go:noinline
func fail[T any](yield func(T, error) bool, err error) {
	var none T
	yield(none, err)
}

// history returns the calls that the conversation has had, for models that count
// them.
func (j *job) history() []*chat.ToolUse {
	if j.model.Family.IDs() == chat.NoIDs {
		return nil
	}
	return calls(j.request.Chat)
}

// echoes says whether every choice begins with the prompt.
func (j *job) echoes() bool { return j.request.Chat.Prompt != nil && j.request.Chat.Prompt.Echo }

// counted counts what the parser had to drop, and tells of the rest in the client's
// words.
func (j *job) counted(events iter.Seq2[chat.Event, error]) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		spelt := listener{to: j.p.spelt}
		for e, err := range events {
			if e.Kind == chat.Dropped {
				j.dropped(&e)
				j.asides.drop(&e)
				continue
			}
			if err == nil {
				j.completeUsage(&e)
				j.told.event(&e)
				spelt.event(&e)
				if e.Tool != nil {
					e.Tool = j.names.tell(e.Tool)
				}
				j.foresight.event(j.p, &e, j.request.Notes)
				j.outlook.event(j, &e)
				if aside, ok := j.granted(&e); ok && !yield(aside, nil) {
					return
				}
				for _, aside := range j.asides.ahead(j, &e) {
					if !yield(aside, nil) {
						return
					}
				}
			}
			if !yield(e, err) {
				return
			}
		}
	}
}
