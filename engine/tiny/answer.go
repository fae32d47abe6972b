package tiny

import (
	"errors"
	"math"
	"strings"
	"sync"

	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/mock"
	"github.com/dynago/dynago/engine/tiny/sample"
	"github.com/dynago/dynago/guided/mask"
)

// answer is what becomes of one request. The goroutine of its rank makes it, and the
// consumer of its stream asks how likely its tokens were.
type answer struct {
	r       *engine.Request
	params  sample.Params
	sampler *sample.Sampler // made with the first token: what waits takes no room
	form    *form           // or nil
	ends    []uint32        // held back until there are MinTokens
	given   int
	next    uint32 // chosen, and not yet given

	mu       sync.Mutex
	logprobs []engine.Logprob
	prompt   []engine.Logprob
}

// Begin implements [mock.Computer].
func (e computer) Begin(r *engine.Request) (mock.Answer, error) {
	if r.KV.Namespace.LoRA != "" {
		return nil, engine.Errorf(engine.Unsupported, "adapters are not available on the tiny engine")
	}
	form, err := e.formOf(r)
	if err != nil {
		return nil, err
	}
	defaults := sample.Default()
	defaults.Seed = seedOf(r.ID)
	p, err := defaults.With(&r.Sampling, e.model.Config().Vocab)
	if err != nil {
		return nil, err
	}
	a := &answer{r: r, form: form, params: p, ends: r.Stop.Ends()}
	if err := a.resume(); err != nil {
		return nil, err
	}
	if r.PromptLogprobs != nil && len(r.TokenIDs) > 0 {
		a.prompt = make([]engine.Logprob, len(r.TokenIDs))
		a.prompt[0] = engine.Logprob{ID: r.TokenIDs[0], Logprob: math.NaN()}
	}
	return a, nil
}

// resume reads what others have given of the answer, so that the form goes on from there.
func (a *answer) resume() error {
	_, answered := a.r.Divide()
	for i, id := range answered {
		if a.next = id; a.form.ended() {
			continue // as behind an end that is not heeded
		}
		if err := a.form.accept(id); err != nil {
			return engine.Errorf(engine.Unsupported, "the answer cannot go on here: its token %d has not the form that is asked for: %v", i, err)
		}
	}
	return nil
}

// seedOf makes a seed for a request without one, of its name: the choices of a prompt
// differ, and the attempts at one choice do not.
func seedOf(id string) uint64 {
	h := uint64(14695981039346656037) // FNV-1a
	for _, b := range []byte(id[:max(0, strings.LastIndexByte(id, '-'))]) {
		h = (h ^ uint64(b)) * 1099511628211
	}
	return h
}

// tellsPrompt says whether the likelihoods of the prompt are still to be told: then the
// logits of all its tokens are wanted.
func (a *answer) tellsPrompt() bool { return a.prompt != nil && a.given == 0 }

// hear notes how likely the prompt's token at a position was, by the logits of the
// token before it.
func (a *answer) hear(position int, logits []float32) {
	if a.tellsPrompt() && position < len(a.prompt) {
		a.prompt[position] = sample.Logprob(logits, a.r.TokenIDs[position], *a.r.PromptLogprobs)
	}
}

// choose chooses the token that follows the one of the logits.
func (a *answer) choose(position int, logits []float32) error {
	if err := a.pick(position, logits); err != nil {
		return a.fault(err)
	}
	if k := a.r.Logprobs; k != nil {
		lp := sample.Logprob(logits, a.next, *k)
		a.mu.Lock()
		defer a.mu.Unlock()
		a.logprobs = append(a.logprobs, lp)
	}
	return nil
}

// pick chooses the next token. Behind the end that a form has come to, where the
// request does not take that for an end, it comes again.
func (a *answer) pick(position int, logits []float32) (err error) {
	if a.sampler == nil {
		prompt, answered := a.r.Divide()
		a.sampler = sample.New(a.params, prompt, len(logits))
		for _, id := range answered {
			a.sampler.Accept(id)
		}
	}
	if a.form.ended() {
		return nil
	}
	step := sample.Step{Logits: logits, Position: position}
	if a.given < a.r.Stop.MinTokens {
		step.Hold = a.ends
	}
	if step.Mask, err = a.form.mask(); err != nil {
		return err
	}
	if a.next, err = a.sampler.Next(step); err != nil {
		return err
	}
	return a.form.accept(a.next)
}

// fault is why no token could be chosen. Where the request allows none, that is what its
// client is told; all else is a fault of ours.
func (a *answer) fault(err error) error {
	kind, field := engine.Internal, ""
	switch {
	case errors.Is(err, sample.ErrNothing):
		kind, field = engine.InvalidArgument, a.narrows()
	case errors.Is(err, mask.ErrStuck), errors.Is(err, mask.ErrTooMuch):
		kind, field = engine.InvalidArgument, a.r.Format.Field()
	}
	_, answered := a.r.Divide()
	e := engine.Errorf(kind, "token %d of the answer: %v", len(answered)+a.given, err)
	e.Param = field
	return e
}

// narrows returns the member by which a request says, before all others, which tokens
// may come.
func (a *answer) narrows() string {
	switch s := &a.r.Sampling; {
	case s.AllowedIDs != nil:
		return "allowed_token_ids"
	case len(s.BadWords) > 0:
		return "bad_words"
	case a.form != nil:
		return a.r.Format.Field()
	}
	return "logit_bias"
}

// Next implements [mock.Generator].
func (a *answer) Next() uint32 {
	a.sampler.Accept(a.next)
	a.given++
	return a.next
}

// Logprob implements [mock.Answer].
func (a *answer) Logprob(i int) engine.Logprob {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.logprobs[i]
}

// PromptLogprobs implements [mock.Answer].
func (a *answer) PromptLogprobs() []engine.Logprob { return a.prompt }
