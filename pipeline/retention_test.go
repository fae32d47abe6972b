package pipeline_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/chattemplate"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/harmony"
	"github.com/dynago/dynago/kv"
	"github.com/dynago/dynago/nvext"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/pipeline"
	"github.com/dynago/dynago/prompt"
	"github.com/dynago/dynago/router"
)

func TestGrant(t *testing.T) {
	plain, strict := pipeline.Retention{}, pipeline.Retention{StrictTTL: true}
	own := pipeline.Retention{MinTTL: time.Minute, MaxTTL: time.Hour}
	for _, tt := range []struct {
		of        *pipeline.Retention
		ttl, want time.Duration
	}{
		{&plain, 0, 0},
		{&plain, time.Millisecond, time.Second},
		{&plain, 90 * time.Second, 90 * time.Second},
		{&plain, 25 * time.Hour, 24 * time.Hour},
		{&own, time.Second, time.Minute},
		{&own, 2 * time.Hour, time.Hour},
		{&own, 0, 0},
		{&strict, 90 * time.Second, 5 * time.Minute},
		{&strict, 10 * time.Minute, 10 * time.Minute},
		{&strict, 24 * time.Hour, time.Hour},
		{&strict, 0, 0},
	} {
		if got := tt.of.Grant(tt.ttl); got != tt.want {
			t.Errorf("%+v: %v is granted for %v, want %v", *tt.of, got, tt.ttl, tt.want)
		}
	}
}

// pinner is an engine with pins that says nothing of them in its answers.
type pinner struct {
	*fake
	mu   sync.Mutex
	pins []engine.PinRequest
	err  error
}

func (p *pinner) Pin(_ context.Context, q engine.PinRequest) (engine.PinResult, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.pins = append(p.pins, q)
	n := len(q.TokenIDs) / 16
	return engine.PinResult{Requested: n, Pinned: n}, p.err
}

func (p *pinner) Retain(context.Context, engine.RetentionUpdate) (int, error) { return 0, nil }

func (p *pinner) told() []engine.PinRequest {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.pins)
}

// asks is a long request with an extension.
func asks(ext *nvext.Ext) *pipeline.Request {
	text := ""
	for i := range 60 {
		text += fmt.Sprintf("word%d ", i)
	}
	r := request(text)
	r.Ext, r.Notes = ext, new(pipeline.Notes)
	return r
}

func cached(ttl any) *nvext.Ext { return &nvext.Ext{CacheControl: &nvext.CacheControl{TTL: ttl}} }

// run runs a request to its end.
func run(t *testing.T, h *house, r *pipeline.Request) []chat.Event {
	t.Helper()
	var events []chat.Event
	for e, err := range h.Run(t.Context(), r) {
		if err != nil {
			t.Fatal(err)
		}
		events = append(events, e)
	}
	return events
}

// An engine that says nothing of the pins that came with a request is told of them when
// the answer is over.
func TestPinnersAreTold(t *testing.T) {
	for _, tt := range []struct {
		name string
		err  error
		want pipeline.PinCounts
	}{
		{"full", nil, pipeline.PinCounts{ByExtension: 1, Full: 1}},
		{"failed", engine.Errorf(engine.Internal, "no"), pipeline.PinCounts{ByExtension: 1, Failed: 1}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &pinner{fake: &fake{features: engine.Features{engine.FeaturePins}}, err: tt.err}
			h := newHouse(t, pipeline.Config{}, e)
			e.generate = h.say("Yes.", 1, engine.FinishEOS)
			r := asks(cached("1h"))
			r.KV.Session.ID, r.KV.Namespace.Salt = "s", "salt"
			r.KV.Namespace.Salt = ""
			run(t, h, r)
			h.Settle()
			ids := e.sent()[0].TokenIDs
			told := e.told()
			if len(told) != 1 || !slices.Equal(told[0].TokenIDs, ids) || told[0].TTL != time.Hour || told[0].Session != (kv.SessionKey{Model: "test/model", ID: "s"}) {
				t.Errorf("told %+v of a prompt of %d tokens", told, len(ids))
			}
			if got := h.Pins(); got != tt.want {
				t.Errorf("counted %+v, want %+v", got, tt.want)
			}
		})
	}
}

// A worker that says what became of the pins is not told again, and its client learns
// of it ahead of the end.
func TestPinsAreTold(t *testing.T) {
	e := &pinner{fake: &fake{features: engine.Features{engine.FeaturePins}}}
	h := newHouse(t, pipeline.Config{}, e)
	e.generate = func(_ context.Context, r *engine.Request, yield func(engine.Delta, error) bool) {
		yield(engine.Delta{
			TokenIDs: h.ids("Yes."), Finish: engine.FinishEOS, Usage: &engine.Usage{Prompt: len(r.TokenIDs), Output: 2},
			Pinned: &engine.PinResult{Requested: 9, Pinned: 7},
		}, nil)
	}
	r := asks(cached("10m"))
	events := run(t, h, r)
	h.Settle()
	if told := e.told(); len(told) != 0 {
		t.Errorf("told again: %+v", told)
	}
	if got, want := h.Pins(), (pipeline.PinCounts{ByExtension: 1, Partial: 1}); got != want {
		t.Errorf("counted %+v, want %+v", got, want)
	}
	i := slices.IndexFunc(events, func(e chat.Event) bool { return e.Kind == chat.Aside })
	if i < 0 || events[i].Reason != nvext.MemberCacheControl || events[i].Text != `{"granted_ttl_s":600,"pinned_blocks":7}` || events[i+1].Kind != chat.Finished {
		t.Errorf("events %+v", events)
	}
	if g := r.Notes.Granted; g == nil || *g != (nvext.Granted{TTL: 600, Blocks: 7}) {
		t.Errorf("noted %+v", g)
	}
}

// A tenant gets no longer pins, and no more of a worker, than it may have. Blocks count
// once, whatever conversations begin with them, and by whatever names.
func TestTenantCaps(t *testing.T) {
	e := &fake{features: engine.Features{engine.FeaturePins}, change: func(c *engine.Card) { c.TotalBlocks = 100 }}
	h := newHouse(t, pipeline.Config{}, e)
	e.generate = h.say("Yes.", 1, engine.FinishEOS)
	ttl, share := time.Minute, 0.15
	ask := func(tenant, session, text, ttl string, caps *nvext.Caps) (kv.Pin, []string) {
		t.Helper()
		r := asks(nil)
		if ttl != "" {
			r = asks(cached(ttl))
		}
		b := &r.Chat.Turns[0].Blocks[0]
		b.Text = text + b.Text
		r.Tenant, r.Caps, r.KV.Session.ID = tenant, caps, session
		r.ID = fmt.Sprintf("%08d-0000-4000-8000-000000000000", len(e.sent()))
		run(t, h, r)
		sent := e.sent()
		pins := sent[len(sent)-1].KV.Pins
		if len(pins) == 0 {
			return kv.Pin{}, r.Notes.Capped
		}
		return pins[0], r.Notes.Capped
	}
	caps := &nvext.Caps{MaxTTL: &ttl, PinShare: &share}
	free, beyond := ask("free", "f", "", "1h", nil)
	blocks := free.UpTo / 16
	if free.TTL != time.Hour || beyond != nil || blocks < 10 || blocks >= 15 {
		t.Fatalf("without caps %+v, beyond %v", free, beyond)
	}
	const one, other, third = "", "Another task altogether, of which nobody has heard before. ", "Once upon a time there were three bears. "
	both, long := []string{nvext.CapTTL, nvext.CapPinShare}, []string{nvext.CapTTL}
	rest := (15 - blocks) * 16
	for _, tt := range []struct {
		tenant, session, text, ttl string
		upTo                       uint32
		beyond                     []string
	}{
		{"a", "1", one, "1h", free.UpTo, long},
		{"a", "1", one, "1h", free.UpTo, long}, // the same one
		{"a", "2", one, "1h", free.UpTo, long}, // by another name
		{"a", "1", other, "1h", rest, both},    // another one by the same name
		{"a", "3", third, "1h", 0, both},
		{"b", "3", one, "1h", free.UpTo, long},
		{"a", "2", other, "0", 0, nil}, // which the first one holds
		{"a", "3", third, "1h", 0, both},
		{"a", "1", other, "0", 0, nil},
		{"a", "3", third, "1h", rest, both},
	} {
		pin, beyond := ask(tt.tenant, tt.session, tt.text, tt.ttl, caps)
		if tt.ttl == "0" {
			if pin.TTL != 0 || pin.UpTo == 0 {
				t.Errorf("%+v: %+v", tt, pin)
			}
			continue
		}
		if pin.UpTo != tt.upTo || tt.upTo > 0 && pin.TTL != time.Minute || !slices.Equal(beyond, tt.beyond) {
			t.Errorf("%+v: %+v, beyond %v", tt, pin, beyond)
		}
	}
}

// Marks at blocks pin the prompt up to each of them; of two at one place the longer one
// counts, and what lets go comes first. Nobody looks for them where no worker pins.
func TestMarks(t *testing.T) {
	conversation := func() *pipeline.Request {
		r := asks(nil)
		r.Chat.System = []chat.Block{{Kind: chat.Text, Text: "Be brief, and answer in the words of the question alone."}}
		r.Chat.Turns = append(r.Chat.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: texted("Yes.")}, chat.Turn{Role: chat.RoleUser, Blocks: texted("And then?")})
		r.Chat.Cache = []chat.Breakpoint{{Turn: -1, TTL: time.Hour}, {Turn: 0, TTL: 5 * time.Minute}, {Turn: 0, TTL: 10 * time.Minute}, {Turn: 2}}
		return r
	}
	e := &fake{features: engine.Features{engine.FeaturePins}}
	h := newHouse(t, pipeline.Config{}, e)
	e.generate = h.say("Yes.", 1, engine.FinishEOS)
	r := conversation()
	run(t, h, r)
	at, err := h.model.Offsets(r.Chat, nil, r.Chat.Cache...)
	if err != nil {
		t.Fatal(err)
	}
	want := []kv.Pin{{UpTo: uint32(at[3])}, {UpTo: uint32(at[0]), TTL: time.Hour}, {UpTo: uint32(at[1]), TTL: 10 * time.Minute}}
	if got := e.sent()[0].KV.Pins; !slices.Equal(got, want) || at[0] == 0 {
		t.Errorf("pins %+v, want %+v", got, want)
	}
	if got := h.Pins(); got.ByBlocks != 1 {
		t.Errorf("counted %+v", got)
	}

	stock := &fake{}
	h = newHouse(t, pipeline.Config{Retention: pipeline.Retention{KeepWarm: pipeline.KeepWarmAsked, KeepWarmBudget: 1}}, stock)
	stock.generate = h.say("Yes.", 1, engine.FinishEOS)
	run(t, h, conversation())
	if pins := stock.sent()[0].KV.Pins; len(pins) > 0 {
		t.Errorf("pins %+v for an engine that has none", pins)
	}
	if got := h.Warm(); got.Leases != 0 {
		t.Errorf("leases for who has not asked: %+v", got)
	}
}

func texted(s string) []chat.Block { return []chat.Block{{Kind: chat.Text, Text: s}} }

// Choices have one prompt, and it is pinned once.
func TestChoicesPinOnce(t *testing.T) {
	e := &fake{features: engine.Features{engine.FeaturePins}}
	h := newHouse(t, pipeline.Config{}, e)
	e.generate = h.say("Yes.", 1, engine.FinishEOS)
	r := asks(cached("1h"))
	r.Chat.Sampling.N = 3
	run(t, h, r)
	n := 0
	for _, sent := range e.sent() {
		n += len(sent.KV.Pins)
	}
	if n != 1 {
		t.Errorf("%d pins, want 1", n)
	}
}

// layout is a chat template that shows thoughts where a condition holds.
func layout(shown string) string {
	return `{%- set ns = namespace(last=0) %}{%- for m in messages %}{%- if m.role == 'user' %}{%- set ns.last = loop.index0 %}{%- endif %}{%- endfor %}
{%- for m in messages %}{{- '<|im_start|>' + m.role + '\n' }}{%- if m.reasoning_content and ` + shown + ` %}{{- '<think>\n' + m.reasoning_content + '\n</think>\n\n' }}{%- endif %}{{- m.content or '' }}
{%- for c in m.tool_calls or [] %}{{- '<tool_call>' + c.function.name + c.function.arguments | tojson + '</tool_call>' }}{%- endfor %}
{{- '<|im_end|>\n' }}{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}{%- endif %}`
}

// Reasoning goes first where the next prompt leaves it out, and nowhere else: the
// renderer is the one truth.
func TestForgottenThinking(t *testing.T) {
	tools := []chat.Tool{{Kind: chat.ToolFunction, Name: "look"}}
	for _, tt := range []struct {
		name, template string
		change         func(*pipeline.Request)
		forgets        bool
	}{
		{"a template that forgets", layout("loop.index0 > ns.last"), func(*pipeline.Request) {}, true},
		{"one that never shows it", layout("false"), func(*pipeline.Request) {}, true},
		{"one that keeps it", layout("true"), func(*pipeline.Request) {}, false},
		{"tools without a session", layout("loop.index0 > ns.last"), func(r *pipeline.Request) { r.Chat.Tools = tools }, false},
		{"tools in a session", layout("loop.index0 > ns.last"), func(r *pipeline.Request) { r.Chat.Tools, r.KV.Session.ID = tools, "s" }, true},
		{"kept by the client, where the template can", layout("(loop.index0 > ns.last or not clear_thinking | default(true))"), func(r *pipeline.Request) { r.Chat.Thinking.Keep = new(chat.KeepAll) }, false},
		{"a bare prompt", layout("false"), func(r *pipeline.Request) {
			r.Chat.API, r.Chat.Turns, r.Chat.Prompt = chat.APICompletions, nil, &chat.Prompt{Text: "One."}
		}, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			e := &fake{}
			model := templated(t, tt.template, prompt.Parsers{Reasoning: "qwen3"})
			h := newHouseWith(t, model, pipeline.Config{}, router.Config{Mode: router.RoundRobin}, e)
			e.generate = h.say("Yes.", 1, engine.FinishEOS)
			r := asks(nil)
			tt.change(r)
			run(t, h, r)
			thinking := e.sent()[0].KV.Thinking
			if got := thinking != nil; got != tt.forgets {
				t.Fatalf("reasoning is to go first: %v, want %v", got, tt.forgets)
			}
			begins, _ := model.Tokenizer.ID("<think>")
			ends, _ := model.Tokenizer.ID("</think>")
			if tt.forgets && (!slices.Contains(thinking.Start, begins) || !slices.Contains(thinking.End, ends)) {
				t.Errorf("it is spelled %+v, want %d and %d", thinking, begins, ends)
			}
		})
	}
}

// The thoughts of Harmony begin as all messages do, and are known by their channel. The
// prompts of a conversation leave them out when their question has been answered.
func TestForgottenHarmony(t *testing.T) {
	m, err := demoModel()
	if err != nil {
		t.Fatal(err)
	}
	c, special := *m, map[uint32]string{}
	for i, token := range harmony.Tokens() {
		special[uint32(m.VocabularySize+i)] = token
	}
	m = &c
	m.Tokenizer, m.Template = m.Tokenizer.AddSpecial(special), chattemplate.Harmony(chattemplate.Config{})
	m.Family = parser.Detect(strings.Join(harmony.Tokens(), ""), nil)
	e := &fake{}
	h := newHouseWith(t, m, pipeline.Config{}, router.Config{Mode: router.RoundRobin}, e)
	e.generate = h.say("<|channel|>final<|message|>Yes.", 1, engine.FinishEOS)
	run(t, h, asks(nil))
	thinking := e.sent()[0].KV.Thinking
	if thinking == nil {
		t.Fatal("reasoning is not to go first")
	}
	for text, want := range map[string]bool{
		"<|start|>assistant<|channel|>analysis<|message|>":                               true,
		"<|start|>assistant<|channel|>analysis<|message|>Well, ":                         true,
		"<|start|>assistant<|channel|>analysis<|message|>Well.<|end|><|start|>assistant": false,
		"<|start|>assistant<|channel|>final<|message|>The analysis":                      false,
		"<|start|>assistant<|channel|>analysis to=functions.f<|message|>":                false,
	} {
		if got := thinking.Open(m.Tokenizer.Append(nil, text)); got != want {
			t.Errorf("%s: within reasoning %v, want %v", text, got, want)
		}
	}
	r := asks(nil)
	r.Chat.Thinking.Keep = new(chat.KeepAll)
	if run(t, h, r); e.sent()[1].KV.Thinking != nil {
		t.Error("what is kept is to go first")
	}
}
