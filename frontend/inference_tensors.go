package frontend

import (
	"context"
	"iter"
	"time"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/kserve"
	"github.com/dynago/dynago/pipeline"
)

// Tensors runs calls of models that take tensors; [pipeline.Pipeline] does. It is
// used from many goroutines at once.
type Tensors interface {
	// Infer runs a call on a worker and yields its responses as they come.
	Infer(ctx context.Context, call *pipeline.Inference) iter.Seq2[*engine.TensorResponse, error]
}

// tensorCall reads the call as one of tensors.
func (i *Inference) tensorCall(a *Arrival) error {
	i.job.record.endpoint = tensorEndpoint
	r, err := a.Tensors()
	if err != nil {
		return err
	}
	i.name(r.ID)
	if i.tensor, err = r.Tensors(); err != nil {
		return err
	}
	i.call = r
	if s := i.job.Server; s.TensorNVExt && !s.OpenAI.DisableNVExt {
		i.job.call.ext, err = kserve.TakeExt(i.tensor, s.OpenAI.StrictNVExt)
	}
	return err
}

// tensors runs the call on a worker.
func (i *Inference) tensors() iter.Seq2[*kserve.Response, error] {
	j, r := &i.job, i.call
	j.record.accept(j.call.model, i.several)
	i.tensor.Model, i.tensor.Meta = j.call.model, j.beside.meta
	call := &pipeline.Inference{
		ID: j.x.id, Ext: j.call.ext, Class: j.beside.meta[policyClass], Notes: &i.notes[0], Tensors: i.tensor,
	}
	return func(yield func(*kserve.Response, error) bool) {
		for answer, err := range j.record.watchTensors(j.Tensors.Infer(j.ctx, call), i.notes[:]) {
			if err != nil {
				yield(nil, err)
				return
			}
			if !yield(r.FromTensors(answer), nil) {
				return
			}
		}
	}
}

// single returns the one response of a call whose client cannot take more.
func single(responses iter.Seq2[*kserve.Response, error]) (*kserve.Response, error) {
	var one *kserve.Response
	for r, err := range responses {
		switch {
		case err != nil:
			return nil, err
		case one != nil:
			return nil, engine.Errorf(engine.Internal, "Multiple responses in non-streaming mode")
		}
		one = r
	}
	if one == nil {
		return nil, engine.Errorf(engine.Internal, "No response received")
	}
	return one, nil
}

// watchTensors measures responses as they pass. They have no tokens to count; the
// first of them ends the wait.
func (r *record) watchTensors(responses iter.Seq2[*engine.TensorResponse, error], notes []pipeline.Notes) iter.Seq2[*engine.TensorResponse, error] {
	r.notes = notes
	return func(yield func(*engine.TensorResponse, error) bool) {
		for answer, err := range responses {
			if err == nil && r.first.IsZero() {
				r.first, r.begun = time.Now(), max(1, notes[0].Attempts)
				r.series.queued.Dec()
			}
			if !yield(answer, err) {
				return
			}
		}
	}
}
