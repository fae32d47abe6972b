package pipeline

import (
	"container/list"
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/internal/estimate"
	"github.com/dynago/dynago/kv"
)

// Agents do the same again and again: those with the same tools, whose last call was of
// the same tool, are answered at about the same length, and a tool takes about as long
// as it took before. What clients do not say of either is expected to be what it was.

// Learn says what is learned from requests and expected of later ones. What clients say
// themselves holds.
type Learn struct {
	// OutputTokens lets routers and engines expect answers of a length.
	OutputTokens bool
	// ToolTime lets what an answer leaves in a cache be brought back for the time at
	// which the results of the tools should come that it calls, where engines can do
	// that.
	ToolTime bool
}

// Outlook tells how well was expected what has been learned.
type Outlook struct {
	Keys int // that something is known of
	// Offered is how often something was expected that the client did not say.
	Offered int64
	estimate.Errors
}

// mostPauses is how many sessions are known whose tools run.
const mostPauses = 4096

// outlooks are what is expected of requests, by those that have ended. It is safe for
// concurrent use.
type outlooks struct {
	mu     sync.Mutex
	tokens *lookout // nil: not learned
	pauses *lookout // of milliseconds; nil: not learned
	paused map[session]*list.Element
	used   list.List // of *pause, the latest first
}

// lookout is what is expected of one thing.
type lookout struct {
	book *estimate.Book
	told Outlook
}

// pause is the time that tools take, as long as it lasts.
type pause struct {
	session  session
	call     string // the first one
	since    time.Time
	key      estimate.Key
	expected expected
}

// expected is an estimate, if there is one.
type expected struct {
	estimate.Estimate
	ok bool
}

// newOutlooks returns nil if nothing is to be learned.
func newOutlooks(l Learn) *outlooks {
	if l == (Learn{}) {
		return nil
	}
	o := &outlooks{}
	if l.OutputTokens {
		o.tokens = &lookout{book: estimate.New(estimate.DefaultKeys)}
	}
	if l.ToolTime {
		o.pauses = &lookout{book: estimate.New(estimate.DefaultKeys)}
		o.paused = map[session]*list.Element{}
	}
	return o
}

// of returns what is expected.
func (l *lookout) of(k estimate.Key) expected {
	e, ok := l.book.Of(k)
	return expected{e, ok}
}

// came notes what came, and holds what was expected against it.
func (l *lookout) came(k estimate.Key, e expected, n uint32) {
	l.book.Observe(k, n)
	if e.ok {
		l.told.Add(e.Estimate, n)
	}
}

// outlook is what is expected of a request, and what is learned from it.
type outlook struct {
	all     *outlooks
	key     estimate.Key
	session session
	named   bool
	tokens  expected
	// What its answer calls, in the client's words.
	tools  []string
	call   string
	answer []uint32 // without the token that ended it
}

// outlook begins the outlook of a request to a model, whose client has asked in these
// words, or returns nil if nothing is learned. It sets how long the answer will be that
// may have most tokens, if its client does not say so.
func (p *Pipeline) outlook(r *Request, asked *chat.Request, model string, most int) *outlook {
	all := p.expects
	if all == nil || r.Background || onlyAsks(r) {
		return nil
	}
	o := &outlook{all: all, key: keyOf(r, asked, model)}
	o.session, o.named = sessionOf(r, model)
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.pauses != nil && o.named {
		all.resumedLocked(o.session, asked, time.Now())
	}
	if all.tokens == nil {
		return o
	}
	o.tokens = all.tokens.of(o.key)
	told := r.Ext != nil && r.Ext.AgentHints != nil && r.Ext.AgentHints.OSL != nil
	if o.tokens.ok && !told {
		r.expected = max(1, o.tokens.Median)
		if most > 0 {
			r.expected = min(r.expected, uint32(most))
		}
		all.tokens.told.Offered++
	}
	return o
}

// keyOf returns what a request is known by. An agent is known by the tools that it has,
// and by whether it works for another one.
func keyOf(r *Request, asked *chat.Request, model string) estimate.Key {
	var agent strings.Builder
	agent.WriteString(r.Identity.Type)
	if r.Identity.Parent != "" {
		agent.WriteString("\x00sub")
	}
	for i := range asked.Tools {
		agent.WriteString("\x00")
		agent.WriteString(asked.Tools[i].Name)
	}
	k := estimate.Key{Owner: r.Tenant, Model: model, Agent: agent.String(), Trigger: strconv.Itoa(int(InputOf(asked)))}
	for _, t := range slices.Backward(asked.Turns) {
		if t.Role == chat.RoleAssistant {
			k.Tool = toolsOf(t.Blocks)
			break
		}
	}
	return k
}

// toolsOf names the tools that are called, those of several calls together: they run at
// the same time.
func toolsOf(blocks []chat.Block) string {
	var names []string
	for i := range blocks {
		if blocks[i].Use != nil {
			names = append(names, blocks[i].Use.Name)
		}
	}
	return together(names)
}

func together(names []string) string {
	slices.Sort(names)
	return strings.Join(slices.Compact(names), "\x00")
}

// resumedLocked ends the pause of a session if its tools have returned. Another request
// of the session, as for a title, does not end it. The lock must be held.
func (o *outlooks) resumedLocked(s session, c *chat.Request, now time.Time) {
	e := o.paused[s]
	if e == nil {
		return
	}
	p := e.Value.(*pause)
	if !returns(c, p.call) {
		return
	}
	o.forgetLocked(e)
	took := now.Sub(p.since).Milliseconds()
	o.pauses.came(p.key, p.expected, uint32(min(max(took, 0), 1<<31)))
}

// returns says whether the newest turns of a conversation bring what a call returns.
func returns(c *chat.Request, call string) bool {
	for _, t := range slices.Backward(c.Turns) {
		if t.Role == chat.RoleAssistant {
			return false
		}
		if slices.ContainsFunc(t.Blocks, func(b chat.Block) bool { return b.Result != nil && b.Result.ID == call }) {
			return true
		}
	}
	return false
}

func (o *outlooks) forgetLocked(e *list.Element) {
	delete(o.paused, o.used.Remove(e).(*pause).session)
}

// event takes an event of the answer, in the client's words. A nil one takes it, too.
func (o *outlook) event(j *job, e *chat.Event) {
	switch {
	case o == nil:
	case e.Kind == chat.BlockStart && e.Tool != nil:
		if o.tools = append(o.tools, e.Tool.Name); o.call == "" {
			o.call = e.Tool.ID
		}
	case e.Kind == chat.Finished:
		o.ended(j, e)
	}
}

// end takes the tokens of the answer.
func (o *outlook) end(j *job, ids []uint32) {
	if o != nil {
		o.answer = j.model.Body(j.prompt, ids)
	}
}

// ended learns from an answer that is complete.
func (o *outlook) ended(j *job, e *chat.Event) {
	switch e.Finish.Reason {
	case chat.FinishStop, chat.FinishStopSequence, chat.FinishToolUse, chat.FinishLength:
	default:
		return
	}
	all := o.all
	all.mu.Lock()
	defer all.mu.Unlock()
	if all.tokens != nil {
		all.tokens.came(o.key, o.tokens, uint32(e.Usage.Output))
	}
	if all.pauses == nil || o.call == "" || !o.named || e.Finish.Reason == chat.FinishLength {
		return
	}
	now := &pause{session: o.session, call: o.call, since: time.Now(), key: o.key}
	now.key.Tool = together(o.tools)
	now.key.Trigger = ""
	now.expected = all.pauses.of(now.key)
	if before := all.paused[o.session]; before != nil {
		all.forgetLocked(before)
	}
	all.paused[o.session] = all.used.PushFront(now)
	if len(all.paused) > mostPauses {
		all.forgetLocked(all.used.Back())
	}
	if j.request.KV.NextIn == 0 && now.expected.ok && j.bring(o.answer, time.Duration(now.expected.Low)*time.Millisecond) {
		all.pauses.told.Offered++
	}
}

// bring lets the blocks of prompt and answer be where they were computed when the next
// request should come. It says whether the worker can do that: one that computes prompts
// for others does not have the answer.
func (j *job) bring(answer []uint32, in time.Duration) bool {
	if in == 0 || j.door == engine.InputChat || j.booking.plan.Prefill != nil {
		return false
	}
	if j.request.KV.Thinking != nil {
		answer = nil // what follows a thought is not asked for again
	}
	w, target := j.here.Worker(), j.here.Decision().Target
	e, err := prefetcher(w)
	if err != nil {
		return false
	}
	q := engine.PrefetchRequest{
		Namespace: j.request.KV.Namespace, TokenIDs: slices.Concat(j.prompt.IDs, answer), Target: kv.TierDevice, In: in,
	}
	if w.Card().Ranks() > 1 {
		q.Rank = &target.Rank
	}
	j.p.behind.run(func(ctx context.Context) {
		if _, err := e.Prefetch(ctx, q); err != nil {
			j.p.Logger.Debug("blocks are not brought back for the next turn", "worker", w.Name(), "error", err)
		}
	})
	return true
}

// OutputOutlook tells how well the lengths of answers were expected, in tokens.
func (p *Pipeline) OutputOutlook() Outlook {
	if p.expects == nil {
		return Outlook{}
	}
	return p.expects.read(p.expects.tokens)
}

// ToolOutlook tells how well the times of tools were expected, in milliseconds.
func (p *Pipeline) ToolOutlook() Outlook {
	if p.expects == nil {
		return Outlook{}
	}
	return p.expects.read(p.expects.pauses)
}

func (o *outlooks) read(l *lookout) Outlook {
	if l == nil {
		return Outlook{}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	t := l.told
	t.Keys = l.book.Len()
	return t
}
