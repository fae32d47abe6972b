package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/engine/attach"
	"github.com/dynago/dynago/prompt"
)

// patient is an engine under examination.
type patient struct {
	*examination
	spec   *attach.Spec
	engine *attach.Engine
	brand  brand
	card   *engine.Card
	model  *prompt.Model // nil where the server has template and tokenizer
	limit  time.Duration // of a tiny answer
	status bulletin
}

// bulletin is the latest that an engine has told of itself.
type bulletin struct {
	mu   sync.Mutex
	last engine.Status
	news chan struct{} // closed when there is something newer
}

func (b *bulletin) post(s engine.Status) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.last = s
	if b.news != nil {
		close(b.news)
	}
	b.news = make(chan struct{})
}

func (b *bulletin) read() (engine.Status, <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.news == nil {
		b.news = make(chan struct{})
	}
	return b.last, b.news
}

// await waits until what is told is as wanted, and returns the latest.
func (b *bulletin) await(ctx context.Context, wait time.Duration, wanted func(engine.Status) bool) (engine.Status, bool) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		s, news := b.read()
		if wanted(s) {
			return s, true
		}
		select {
		case <-news:
		case <-timer.C:
			return s, false
		case <-ctx.Done():
			return s, false
		}
	}
}

// examine tries whether an engine does what it is needed for.
func (c *doctorCommand) examine(ctx context.Context, spec *attach.Spec) *examination {
	p := &patient{examination: &examination{Name: spec.String()}, spec: spec, limit: c.Doctor.Patient, brand: brands[spec.Kind]}
	if err := c.HTTP.apart([]*attach.Spec{spec}); err != nil {
		p.find(cannotServe, "port", p.brand.cure("port"), "The engine and dynago want the same port: %s.", err)
		return p.examination
	}
	e, err := attach.New(spec, attach.Config{ModelPath: c.Model.Path, Known: inside, Adapter: attach.Adapter{Log: quiet()}})
	if err != nil {
		p.find(cannotServe, "reach", "", "The engine cannot be attached: %s.", err)
		return p.examination
	}
	p.engine = e
	defer e.Close() //nolint:errcheck // nothing of it matters any more
	ctx, cancel := context.WithCancel(ctx)
	var cards sync.WaitGroup
	defer cards.Wait()
	defer cancel()
	cards.Go(func() { p.follow(ctx) })
	if !p.meet(ctx, c.Doctor.Wait) {
		return p.examination
	}
	p.files(&c.settings)
	p.room()
	if p.worst < cannotServe {
		p.try(ctx)
	}
	return p.examination
}

// follow keeps what the engine tells of itself.
func (p *patient) follow(ctx context.Context) {
	for s, err := range p.engine.Card(ctx) {
		if err != nil {
			return
		}
		p.status.post(s)
	}
}

// meet waits until the engine tells what it is.
func (p *patient) meet(ctx context.Context, wait time.Duration) bool {
	s, ok := p.status.await(ctx, wait, func(s engine.Status) bool { return s.State == engine.Ready && s.Card != nil })
	if !ok {
		p.absent(s, wait)
		return false
	}
	p.card, p.brand = s.Card, brandOf(s.Card.Engine)
	p.find(fine, "reach", "", "It is %s and serves the model %s.", s.Card.Engine, s.Card.Model)
	if len(s.Card.Aliases)+len(s.Card.Adapters) > 0 {
		p.find(fine, "names", "", "Further names of the model: %s; adapters: %s.", listOf(s.Card.Aliases), listOf(s.Card.Adapters))
	}
	if n := s.Card.Ranks(); n > 1 {
		p.find(fine, "ranks", "", "It has %d data-parallel ranks, from %d on.", n, s.Card.DPStart)
	}
	return true
}

// room tells how long prompt and answer may be, which some models' files say in the
// engine's place.
func (p *patient) room() {
	switch n := p.card.ContextLength; {
	case n > 0:
		p.find(fine, "context", "", "Prompt and answer may have %d tokens together.", n)
	case !p.card.Accept(engine.InputChat):
		p.find(cannotServe, "context", p.brand.cure("context"), "How many tokens a prompt may have is not known, so nothing is sent there.")
	}
}

// absent tells of an engine that did not become ready.
func (p *patient) absent(s engine.Status, wait time.Duration) {
	if s.Card != nil {
		p.brand = brandOf(s.Card.Engine)
	}
	reason := s.Reason
	if reason == "" {
		reason = "it tells nothing"
	}
	check := "reach"
	switch {
	case strings.Contains(reason, string(engine.Denied)):
		check = "key"
	case strings.Contains(reason, "does not serve"), strings.Contains(reason, "no model"):
		check = "model"
	case strings.Contains(reason, "context_length"):
		check = "context"
	}
	p.find(cannotServe, check, p.brand.cure(check), "It is %s after %s: %s.", s.State, wait, strings.TrimSuffix(reason, "."))
}

func listOf(names []string) string {
	if len(names) == 0 {
		return "none"
	}
	return strings.Join(names, ", ")
}

// files reads tokenizer and chat template.
func (p *patient) files(s *settings) {
	if p.card.Accept(engine.InputChat) && !p.card.Accept(engine.InputTokens) {
		p.find(fine, "tokenizer", "", "It takes conversations as they are; no tokenizer is needed here.")
		return
	}
	models, err := newServed(s.Model, quiet())
	if err == nil {
		p.model, err = models.forCard(p.card)
	}
	if err != nil {
		p.find(cannotServe, "tokenizer", p.brand.cure("tokenizer"), "Tokenizer and chat template cannot be read: %s.", err)
		return
	}
	card := *p.card
	p.card = &card
	complete(p.card, p.model)
	p.find(fine, "tokenizer", "", "Tokenizer: %s, %s, %d tokens.", p.card.Files[0].URI, p.model.Files.Kind, p.model.Tokenizer.Size())
	if p.model.Template == nil {
		p.find(degraded, "template", p.brand.cure("template"), "The model has no chat template, so it completes texts and does not chat.")
	}
}

// try sends the engine tiny requests.
func (p *patient) try(ctx context.Context) {
	if p.model == nil {
		p.converse(ctx)
		p.load(ctx)
		return
	}
	listening, stop := context.WithCancel(ctx)
	heard := p.listen(listening)
	defer stop()
	ids := p.prompt(3)
	first, ok := p.generate(ctx, ids)
	if !ok {
		return
	}
	p.find(fine, "generate", "", "It answers with token ids; the first came after %s.", first.latency.Round(time.Millisecond))
	p.again(ctx, ids, first)
	p.events(ctx, ids, heard)
	p.priority(ctx)
	p.cancel(ctx)
	p.load(ctx)
}

// prompt makes a prompt of so many blocks and one token that nobody has cached.
func (p *patient) prompt(blocks int) []uint32 {
	size := int(p.card.BlockSize)
	if size == 0 {
		size = 16
	}
	n := min(blocks*size+1, int(p.card.ContextLength)/2)
	ids := make([]uint32, 0, n)
	for tries := 0; len(ids) < n; tries++ {
		id := rand.Uint32N(uint32(p.model.VocabularySize))
		// Ids that mean something special are no text that a model would be sent.
		if p.model.Tokenizer.Bytes(id) != nil && !p.model.Tokenizer.IsSpecial(id) {
			ids = append(ids, id)
		}
	}
	return ids
}

// outcome is what came of a request.
type outcome struct {
	usage   *engine.Usage
	latency time.Duration // to the first ids
	ids     int
}

// request makes one of a few tokens.
func (p *patient) request(ids []uint32, tokens int) *engine.Request {
	return &engine.Request{
		ID: uuid.NewString() + "-1", Model: p.card.Model, TokenIDs: ids,
		Sampling: engine.Sampling{Temperature: new(0.0)},
		Stop:     engine.Stop{MaxTokens: tokens, Hidden: p.model.EOS},
	}
}

// run runs a request to its end.
func (p *patient) run(ctx context.Context, r *engine.Request) (outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	var o outcome
	begin := time.Now()
	for d, err := range p.engine.Generate(ctx, r) {
		if err != nil {
			return o, err
		}
		if len(d.TokenIDs) > 0 && o.ids == 0 {
			o.latency = time.Since(begin)
		}
		o.ids += len(d.TokenIDs)
		if d.Finish != engine.Running {
			o.usage = d.Usage
		}
	}
	switch {
	case o.usage == nil:
		return o, errors.New("the answer had no end")
	case o.ids == 0 && o.usage.Output == 0:
		return o, errors.New("the answer had no tokens")
	}
	return o, nil
}

// generate asks for a tiny answer.
func (p *patient) generate(ctx context.Context, ids []uint32) (outcome, bool) {
	o, err := p.run(ctx, p.request(ids, 4))
	if err != nil {
		p.find(cannotServe, "generate", p.brand.cure("generate"), "It does not answer a prompt of %d tokens: %s.", len(ids), err)
		return o, false
	}
	return o, true
}

// again sends the same prompt a second time, whose blocks must be cached by then.
func (p *patient) again(ctx context.Context, ids []uint32, first outcome) {
	second, err := p.run(ctx, p.request(ids, 4))
	if err == nil && second.usage.Cached == nil {
		// That an engine tells it may be known only since it has told it.
		if _, ok := p.status.await(ctx, soon, has(engine.FeatureCachedTokens)); ok {
			second, err = p.run(ctx, p.request(ids, 4))
		}
	}
	if err != nil {
		p.find(cannotServe, "generate", p.brand.cure("generate"), "It does not answer the same prompt twice: %s.", err)
		return
	}
	size := max(1, int(p.card.BlockSize))
	want := (len(ids) - 1) / size * size
	switch cached := second.usage.Cached; {
	case cached == nil:
		p.find(degraded, "cached tokens", p.brand.cure("cached tokens"), "It does not tell how many tokens of a prompt were cached.")
	case *cached == 0 && want > 0:
		p.find(degraded, "prefix caching", p.brand.cure("prefix caching"), "Nothing of a prompt that was sent twice was cached, so no prompt gets cheaper.")
	case *cached < want:
		p.find(degraded, "prefix caching", "Look whether other requests ran meanwhile, and whether its cache is large enough.", "Of a prompt that was sent twice %d tokens were cached, where %d could be.", *cached, want)
	default:
		p.find(fine, "prefix caching", "", "Prefix caching works: of a prompt that was sent twice %d of %d tokens were cached.", *cached, len(ids))
	}
	if first.usage.Cached == nil && second.usage.Cached != nil {
		// What an engine tells of its first answer may be left out until it is known
		// that it tells it.
		if o, err := p.run(ctx, p.request(p.prompt(1), 1)); err == nil {
			first = o
		}
	}
	if c := first.usage.Cached; c != nil && *c >= size {
		p.find(degraded, "prefix caching", "", "It says that %d tokens of a new prompt were cached, which cannot be.", *c)
	}
}

// has says whether an engine's card has a feature.
func has(f engine.Feature) func(engine.Status) bool {
	return func(s engine.Status) bool { return s.Card != nil && s.Card.Features.Has(f) }
}

// priority tries a request that is more urgent than others.
func (p *patient) priority(ctx context.Context) {
	if !p.card.Features.Has(engine.FeaturePriority) {
		p.find(degraded, "priority", p.brand.cure("priority"), "It does not say that it heeds priorities, so none are sent.")
		return
	}
	r := p.request(p.prompt(1), 1)
	r.Priority = new(int32(5))
	if _, err := p.run(ctx, r); err != nil {
		p.find(cannotServe, "priority", "Leave priority_enabled out of --engine, or: "+p.brand.cure("priority"), "It refuses a request with a priority: %s.", err)
		return
	}
	if s, _ := p.status.await(ctx, time.Second, func(s engine.Status) bool { return !has(engine.FeaturePriority)(s) }); !has(engine.FeaturePriority)(s) {
		p.find(degraded, "priority", p.brand.cure("priority"), "It was said to heed priorities and refuses them, so none are sent.")
		return
	}
	p.find(fine, "priority", "", "It takes priorities.")
}

// freed is how soon an engine must be idle after its client has left.
const freed = 3 * time.Second

// cancel leaves a long answer, and looks whether the engine is free soon.
func (p *patient) cancel(ctx context.Context) {
	r := p.request(p.prompt(1), min(512, int(p.card.ContextLength)/2))
	r.Stop.Hidden, r.Stop.MinTokens = nil, r.Stop.MaxTokens
	limited, stop := context.WithTimeout(ctx, p.limit)
	defer stop()
	begun := false
	var left time.Time
	for d, err := range p.engine.Generate(limited, r) {
		if err != nil {
			p.find(cannotServe, "cancel", p.brand.cure("generate"), "A longer answer failed: %s.", err)
			return
		}
		begun = begun || len(d.TokenIDs) > 0
		left = time.Now()
		if begun {
			break
		}
	}
	took := time.Since(left)
	if took > time.Second {
		p.find(degraded, "cancel", p.brand.cure("cancel"), "Leaving an answer took %s.", took.Round(time.Millisecond))
	}
	free, known := p.idle(ctx)
	switch {
	case !known:
		p.find(fine, "cancel", "", "Leaving an answer works here; whether the engine stopped cannot be seen, as its load is not known.")
	case free:
		p.find(fine, "cancel", "", "It stopped %s after its client had left.", time.Since(left).Round(time.Millisecond))
	default:
		p.find(degraded, "cancel", p.brand.cure("cancel"), "It was still busy %s after its client had left, unless others use it.", freed)
	}
}

// idle waits until the engine says that nothing runs there.
func (p *patient) idle(ctx context.Context) (free, known bool) {
	ctx, cancel := context.WithTimeout(ctx, freed)
	defer cancel()
	for l, err := range p.engine.Load(ctx) {
		if err != nil {
			return false, known
		}
		running := int64(0)
		for _, r := range l.Ranks {
			if r.Running == engine.Unknown {
				return false, false
			}
			running += r.Running
		}
		if len(l.Ranks) == 0 {
			return false, false
		}
		if known = true; running == 0 {
			return true, true
		}
	}
	return false, known
}

// load reads once how busy the engine is.
func (p *patient) load(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, soon)
	defer cancel()
	for l, err := range p.engine.Load(ctx) {
		if err != nil || len(l.Ranks) == 0 {
			break
		}
		r := l.Ranks[0]
		if r.Running == engine.Unknown && r.UsedBlocks == engine.Unknown {
			break
		}
		var known []string
		for _, v := range []struct {
			name  string
			value int64
		}{{"running", r.Running}, {"waiting", r.Waiting}, {"KV blocks in use", r.UsedBlocks}, {"KV blocks", r.TotalBlocks}} {
			if v.value != engine.Unknown {
				known = append(known, fmt.Sprintf("%s %d", v.name, v.value))
			}
		}
		p.find(fine, "load", "", "It tells its load: %s.", strings.Join(known, ", "))
		return
	}
	p.find(degraded, "load", p.brand.cure("load"), "It does not tell its load.")
}

// converse asks a server of conversations.
func (p *patient) converse(ctx context.Context) {
	e, ok := engine.As[engine.ChatEngine](p.engine)
	if !ok {
		p.find(cannotServe, "generate", "", "It takes neither tokens nor conversations.")
		return
	}
	ctx, cancel := context.WithTimeout(ctx, p.limit)
	defer cancel()
	begin := time.Now()
	r := &engine.Request{
		ID: uuid.NewString() + "-1", Model: p.card.Model, Stop: engine.Stop{MaxTokens: 4},
		Chat: &chat.Request{
			API: chat.APIChat, Model: p.card.Model,
			Turns:    []chat.Turn{{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: "Say hello."}}}},
			Sampling: chat.Sampling{MaxTokens: new(4)},
		},
	}
	ended, usage := false, chat.Usage{}
	for event, err := range e.Chat(ctx, r) {
		if err != nil {
			p.find(cannotServe, "generate", p.brand.cure("generate"), "It does not answer: %s.", err)
			return
		}
		if event.Kind == chat.UsageUpdate || event.Kind == chat.Finished {
			ended, usage = event.Kind == chat.Finished, event.Usage
		}
	}
	if !ended {
		p.find(cannotServe, "generate", p.brand.cure("generate"), "Its answer had no end.")
		return
	}
	p.find(fine, "generate", "", "It answers after %s.", time.Since(begin).Round(time.Millisecond))
	if usage.Output == 0 {
		p.find(degraded, "usage", "Nothing can be done about it here: tokens are then counted by what is seen.", "It does not tell how many tokens it made.")
	}
	p.find(degraded, "events", p.brand.cure("events"), "It tells no KV events, so what was sent there counts as cached there until it is old.")
}
