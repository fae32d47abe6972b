package chattemplate

import (
	"errors"
	"regexp"
	"strings"
	"time"

	"github.com/dynago/dynago/chattemplate/jinja"
)

// traits is what a template can take, found out once, when it is compiled.
type traits struct {
	// partsFor are the roles whose content must be a list of parts, because the
	// template shows nothing of a string.
	partsFor map[string]bool
	// system tells that a leading system turn is shown; lateSystem, that one
	// further on is too; developer, that the template knows this role.
	system, lateSystem, developer bool
	// mergeUsers and mergeAssistants tell that two turns of the role in a row
	// are refused.
	mergeUsers, mergeAssistants bool
	// calls and results tell that the template has a place for them.
	calls, results bool
	// oneCall tells that a turn with several calls is refused, or that only one of
	// them is shown.
	oneCall bool
	// stringArguments tells that arguments that are text are shown as they are.
	stringArguments bool
	// nullContent tells that calls are shown only if the turn's content is None.
	nullContent bool
	// lead is the white space that the template puts before the text of an answer in
	// a history, and not where it asks for one.
	lead string
	// gap is the white space that the template puts between a text and the calls
	// behind it.
	gap string
	// shortIDs tells that call ids must be nine letters or digits.
	shortIDs bool
	// reasoning is the field for thoughts; empty if they go into the text.
	reasoning string
	// showsThinking, keepsThinking and rendersIDs are as in Traits.
	showsThinking, keepsThinking, rendersIDs bool
	// preservesThinking tells that the thoughts that are not kept are if the client
	// wants them to.
	preservesThinking bool
	// segments tells that the field for thoughts takes a list, of which each is
	// shown before the call that it led to.
	segments bool
	// thinkingMode tells that the template reads that variable, adaptive that it may
	// have that value.
	thinkingMode, adaptive bool
}

// Texts that no template contains.
const (
	mark    = "zqProbeOne"
	another = "zqProbeTwo"
)

// prober renders small conversations.
type prober struct {
	tmpl *jinja.Template
	cfg  Config
	// limits are those of a conversation, but for Time, which all have together.
	limits  jinja.Limits
	began   time.Time
	keeping bool // thoughts are asked to be kept
	// slow is the error of a conversation that took too long. What else would the
	// clock decide: the template is not read then.
	slow error
}

// probe finds out what a template can take. What only its words can tell, such
// as which variables it reads, it looks up in the source. The error is that of a
// template that takes too long.
func probe(tmpl *jinja.Template, source string, cfg Config, limits jinja.Limits) (traits, error) {
	p := &prober{tmpl: tmpl, cfg: cfg, limits: limits, began: time.Now()}
	t := traits{
		thinkingMode: strings.Contains(source, "thinking_mode"),
		adaptive:     adaptiveMode.MatchString(source),
		partsFor:     map[string]bool{},
	}
	for _, role := range []string{"user", "system", "assistant", "tool"} {
		t.partsFor[role] = p.needsParts(role)
	}
	// From here on every message has its content in the form found above.
	text := func(role, s string) message { return message{role: role, parts: []string{s}} }
	user := text("user", "q")
	shownInOrder := func(first, second string, m ...message) bool {
		out, err := p.render(&t, m)
		_, rest, ok := strings.Cut(out, first)
		return err == nil && ok && strings.Contains(rest, second)
	}
	shown := func(want string, m ...message) bool { return shownInOrder(want, "", m...) }
	refused := func(m ...message) bool {
		_, err := p.render(&t, m)
		return err != nil
	}

	t.developer = strings.Contains(source, "developer") && shown(mark, text("developer", mark), user)
	t.system = shown(mark, text("system", mark), user)
	// Some templates gather system turns at the front, which changes the prefix.
	t.lateSystem = shownInOrder(another, mark, text("user", another), text("assistant", "a"), text("system", mark), user)
	t.mergeUsers = refused(user, user) && !refused(user)
	t.mergeAssistants = refused(user, text("assistant", "a"), text("assistant", "b"), user) &&
		!refused(user, text("assistant", "a"), user)
	if asked, err := p.render(&t, []message{user}); err == nil {
		if told, err := p.render(&t, []message{user, text("assistant", mark)}); err == nil {
			rest, _ := strings.CutPrefix(told, asked)
			if lead, _, ok := strings.Cut(rest, mark); ok && strings.Trim(lead, " \n") == "" {
				t.lead = lead
			}
		}
	}
	p.tools(&t, shown)
	t.reasoning = reasoningField(&t, source, shown)
	p.thinking(&t, shown)
	return t, p.slow
}

// thinking finds out which thoughts are shown.
func (p *prober) thinking(t *traits, shown func(string, ...message) bool) {
	user := message{role: "user", parts: []string{"q"}}
	id := "call_zq1"
	if t.shortIDs {
		id = "zqProbe01"
	}
	// The answer goes on to speak, since some templates show thoughts only there.
	calling := message{role: "assistant", parts: []string{"a"}, thoughts: []string{mark}, thoughtAt: []int{0}, calls: []call{{id: id, name: "f", args: "{}"}}}
	result := message{role: "tool", callID: id, toolName: "f", parts: []string{"r"}}
	rewritten := func(m ...message) []message { return t.rewrite(m) }
	t.showsThinking = shown(mark, rewritten(user, calling, result)...)
	answered := rewritten(user, message{role: "assistant", parts: []string{"a"}, thoughts: []string{mark}}, user)
	t.keepsThinking = shown(mark, answered...)
	p.keeping = true
	t.preservesThinking = t.keepsThinking || shown(mark, answered...)
	p.keeping = false
	if t.reasoning != "" && t.calls {
		as := *t
		as.segments = true
		between := calling
		between.thoughts, between.thoughtAt = []string{mark, another}, []int{0, 1}
		between.calls = []call{{id: id, name: "zqCalled", args: "{}"}}
		out, err := p.render(&as, rewritten(user, between, result))
		_, rest, _ := strings.Cut(out, mark)
		_, rest, ok := strings.Cut(rest, "zqCalled")
		t.segments = err == nil && ok && strings.Contains(rest, another)
	}
	t.rendersIDs = t.calls && shown(id, rewritten(user, calling, result)...)
}

// tools finds out about calls and their results.
func (p *prober) tools(t *traits, shown func(string, ...message) bool) {
	user := message{role: "user", parts: []string{"q"}}
	turn := func(calls ...call) message { return message{role: "assistant", calls: calls} }
	answer := func(id, s string) message {
		return message{role: "tool", callID: id, toolName: mark, parts: []string{s}}
	}
	const argument = "zqArgument"
	first := call{name: mark, args: `{"zq":"` + argument + `"}`}
	t.calls, t.results = true, true // as long as the probes below run
	t.calls = func() bool {
		// Some templates show no name, because the ids of their models hold it.
		for _, want := range []string{mark, argument} {
			for _, first.id = range []string{"call_zq1", "zqProbe01"} {
				for _, t.nullContent = range []bool{false, true} {
					for _, t.stringArguments = range []bool{false, true} {
						if shown(want, user, turn(first), answer(first.id, "r")) {
							t.shortIDs = first.id == "zqProbe01"
							return true
						}
					}
				}
			}
		}
		t.nullContent, t.stringArguments = false, false
		return false
	}()
	t.results = shown(another, user, turn(first), answer(first.id, another))
	if !t.calls {
		return
	}
	second := call{id: strings.Replace(first.id, "1", "2", 1), name: another, args: "{}"}
	both := shown(another, user, turn(first, second), answer(first.id, "r"), answer(second.id, "r"))
	t.oneCall = !both && shown(another, user, turn(first), answer(first.id, "r"), turn(second), answer(second.id, "r"))
	t.stringArguments = t.stringArguments || p.keepsArguments(t, first.id)
	speaking := turn(first)
	speaking.parts = []string{another}
	if out, err := p.render(t, []message{user, speaking, answer(first.id, "r")}); err == nil {
		_, behind, _ := strings.Cut(out, another)
		t.gap = behind[:len(behind)-len(strings.TrimLeft(behind, " \n"))]
	}
}

// keepsArguments tells that arguments are best handed over as text: the
// template shows text as it is, and of an object makes nothing but its JSON (or,
// not meant for it, its Python form). A template that writes objects in a
// notation of its own gets objects.
func (p *prober) keepsArguments(t *traits, id string) bool {
	const spelled = `{"zq":  [1,2]}` // with blanks as no template would write them
	messages := []message{
		{role: "user", parts: []string{"q"}},
		{role: "assistant", calls: []call{{id: id, name: "f", args: spelled}}},
		{role: "tool", callID: id, toolName: "f", parts: []string{"r"}},
	}
	object, objectErr := p.render(t, messages)
	as := *t
	as.stringArguments = true
	text, err := p.render(&as, messages)
	if err != nil || !strings.Contains(text, spelled) {
		return false
	}
	return objectErr != nil || strings.Contains(strings.NewReplacer(" ", "", "'", `"`).Replace(object), `{"zq":[1,2]}`)
}

var fieldOfMessage = regexp.MustCompile(`(?:\.|\[['"]|get\(['"])(thinking|reasoning)\b`)

// reasoningField returns the field in which the template looks for thoughts.
func reasoningField(t *traits, source string, shown func(string, ...message) bool) string {
	if strings.Contains(source, "reasoning_content") {
		return "reasoning_content"
	}
	for _, m := range fieldOfMessage.FindAllStringSubmatch(source, -1) {
		t.reasoning = m[1]
		user := message{role: "user", parts: []string{"q"}}
		thought := message{role: "assistant", thoughts: []string{mark}, calls: []call{{id: "zqProbe01", name: "f", args: "{}"}}}
		answer := message{role: "tool", callID: "zqProbe01", toolName: "f", parts: []string{"r"}}
		said := message{role: "assistant", thoughts: []string{mark}, parts: []string{"a"}}
		if shown(mark, user, said) || shown(mark, user, thought, answer) {
			return m[1]
		}
	}
	return ""
}

// needsParts tells that a message of this role shows its text only in parts.
func (p *prober) needsParts(role string) bool {
	shows := func(parts bool) bool {
		t := &traits{partsFor: map[string]bool{}, calls: true, results: true}
		user := message{role: "user", parts: []string{"q"}}
		m := message{role: role, parts: []string{mark}}
		conversation := []message{user, m}
		switch role {
		case "user":
			conversation = []message{m}
		case "system":
			conversation = []message{m, user}
		case "assistant":
			conversation = append(conversation, user)
		case "tool":
			m.callID, m.toolName = "zqProbe01", "f"
			use := message{role: "assistant", calls: []call{{id: "zqProbe01", name: "f", args: "{}"}}}
			conversation = []message{user, use, m}
		}
		for _, other := range []bool{false, true} {
			for _, r := range []string{"user", "system", "assistant", "tool"} {
				t.partsFor[r] = other
			}
			t.partsFor[role] = parts
			if out, err := p.render(t, conversation); err == nil && strings.Contains(out, mark) {
				return true
			}
		}
		return false
	}
	return !shows(false) && shows(true)
}

// probeLimits are ample for conversations of a few words.
var probeLimits = jinja.Limits{Time: 5 * time.Second, Output: 256 << 10, Steps: 50_000}

// probeTime is when probes take place: the clock must not decide on traits.
var probeTime = time.Date(2025, time.June, 2, 12, 0, 0, 0, time.UTC)

func (p *prober) render(t *traits, messages []message) (string, error) {
	if p.slow != nil {
		return "", p.slow
	}
	vars := specials(p.cfg)
	vars.Set("messages", t.values(messages))
	vars.Set("tools", probeTools)
	vars.Set("add_generation_prompt", true)
	if p.keeping {
		keepAll(vars)
	}
	limits := p.limits
	limits.Time = max(limits.Time-time.Since(p.began), 1)
	text, err := p.tmpl.Render(vars, jinja.Env{Now: probeTime, Limits: limits})
	if tooSlow(err) {
		p.slow = err
	}
	return text, err
}

func tooSlow(err error) bool {
	e, ok := errors.AsType[*jinja.Error](err)
	return ok && e.Kind == jinja.TimeError
}

var probeTools = func() jinja.Value {
	v, err := jinja.FromJSON([]byte(`[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object","properties":{}}}}]`))
	if err != nil {
		panic(err)
	}
	return v
}()
