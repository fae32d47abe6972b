package router

import "context"

// AdviseLegs returns where the legs of a request would go, and books nothing: the
// worker that answers, and the one that computes the prompt for it; nil if there is no
// other. It is to [Router.Place] what [Router.Advise] is to Route, and the errors are
// the same.
func (r *Router) AdviseLegs(ctx context.Context, q *Query, l Legs) (prefill *Decision, answer Decision, err error) {
	p, first := r.plan(ctx, q, l)
	if first != nil {
		d, err := r.Advise(ctx, first)
		if err != nil {
			return nil, Decision{}, err
		}
		w := r.fleet.Worker(d.Target.Worker)
		if w == nil {
			return nil, Decision{}, notReady(q.Model) // it has just left
		}
		if err := r.second(p.decode, w.Card()); err != nil {
			return nil, Decision{}, err
		}
		prefill = &d
	}
	answer, err = r.Advise(ctx, p.decode)
	return prefill, answer, err
}
