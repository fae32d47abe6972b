package pipeline

import (
	"context"
	"iter"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/router"
)

// A gateway that chooses workers itself asks first where a request would go, and then
// sends it there, with the tokens that it was told. Asking does all that is done before
// a worker is booked, and leaves nothing behind: no booking, no binding of a session, no
// turn of a policy.

// onlyAsks says whether a request only asks where it would run. The other APIs have no
// place for the answer.
func onlyAsks(r *Request) bool {
	switch r.Chat.API {
	case chat.APIChat, chat.APICompletions, chat.APIKServe:
		return r.Ext.Queries()
	}
	return false
}

// advice answers a request that only asks.
func (p *Pipeline) advice(ctx context.Context, requests []*Request) iter.Seq2[chat.Event, error] {
	if n := len(requests); n > 1 {
		e := engine.Errorf(engine.InvalidArgument, "query_instance_id asks for one prompt, got %d", n)
		e.Param = "nvext.annotations"
		return failed(e)
	}
	jobs, err := p.prepare(requests[0], 0)
	if err != nil {
		return failed(err)
	}
	j := jobs[0]
	where, err := j.whereabouts(ctx)
	if err != nil {
		return failed(err)
	}
	events := []chat.Event{{Kind: chat.Start}, {Kind: chat.Aside, Reason: nvext.MemberWorkerID, Text: string(marshal(where))}}
	if ids := j.prompt.IDs; ids != nil {
		events = append(events, chat.Event{Kind: chat.Aside, Reason: nvext.MemberTokenIDs, Text: string(marshal(ids))})
	}
	events = append(events, chat.Event{Kind: chat.Finished, Finish: chat.Finish{Reason: chat.FinishPlaced}})
	return func(yield func(chat.Event, error) bool) {
		for _, e := range events {
			if !yield(e, nil) {
				return
			}
		}
	}
}

// whereabouts returns where a request would run.
func (j *job) whereabouts(ctx context.Context) (*nvext.Placed, error) {
	q, legs := j.query(j.routed(nil), j.request.Chat.Sampling.Choices(), nil)
	prefill, answer, err := j.p.Router.AdviseLegs(ctx, q, legs)
	if elsewhere(ctx, err, legs) {
		legs.Whole = true
		_, whole, failed := j.p.Router.AdviseLegs(ctx, q, legs)
		switch {
		case failed == nil:
			prefill, answer, err = nil, whole, nil
		case ctx.Err() != nil:
			err = failed
		}
	}
	if err != nil {
		return nil, engine.CauseOf(ctx, err)
	}
	j.noteAdvice(prefill, answer)
	if prefill != nil {
		j.advised(*prefill)
	}
	j.advised(answer)
	where := &nvext.Placed{DecodeWorkerID: &answer.Target.Worker, DecodeDPRank: &answer.Target.Rank}
	if prefill != nil {
		where.PrefillWorkerID, where.PrefillDPRank = &prefill.Target.Worker, &prefill.Target.Rank
	}
	return where, nil
}

// noteAdvice notes what the advice rests on, as for a request that is placed.
func (j *job) noteAdvice(prefill *router.Decision, answer router.Decision) {
	n := j.request.Notes
	n.Target, n.Session = answer.Target, answer.Session
	n.Overlap, n.Blocks = answer.Overlap, answer.Blocks
	if prefill != nil {
		n.Prefill, n.Overlap, n.Blocks = &prefill.Target, prefill.Overlap, prefill.Blocks
	}
}
