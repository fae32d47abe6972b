package talk

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
)

// tools is a conversation with tools.
func (c *script) tools(l Lesson) {
	var set []*tool
	var topics, actions []*tool
	count, telling := []int{40, 32, 18, 10}, 62
	if !c.held {
		count, telling = []int{25, 45, 20, 10}, 75 // more to choose from
	}
	for range 1 + c.weighted(count) {
		t := c.actionTool
		if c.chance(telling) {
			t = c.topicTool
		}
		made := t()
		if slices.ContainsFunc(set, func(o *tool) bool { return o.name == made.name || rivals(o, made) }) {
			continue
		}
		set = append(set, made)
		if made.topic != nil {
			topics = append(topics, made)
		} else {
			actions = append(actions, made)
		}
	}
	d := c.dialect()
	c.talk.Request.API = d.api
	for _, t := range set {
		c.talk.Request.Tools = append(c.talk.Request.Tools, d.write(t))
	}
	if c.chance(60) {
		c.system()
	}
	if c.chance(l.Long / 2) {
		c.untooled(set)
	}
	c.useTools(set, topics, actions)
	for c.chance(l.Long) {
		if c.chance(35) {
			c.untooled(set)
		} else {
			c.useTools(set, topics, actions)
		}
	}
}

// rivals tells whether a question could be for either of two tools.
func rivals(a, b *tool) bool {
	if a.topic != nil && b.topic != nil {
		return a.topic.noun == b.topic.noun
	}
	return a.action != nil && b.action != nil && a.action.sums && b.action.sums
}

// untooled is talk that takes none of the tools.
func (c *script) untooled(set []*tool) {
	if c.chance(35) {
		c.decline(set)
		return
	}
	if slices.ContainsFunc(set, func(t *tool) bool { return t.action != nil && t.action.sums }) {
		c.small()
		return
	}
	c.aside()
}

// decline asks for what no tool can do.
func (c *script) decline(set []*tool) {
	var about string
	if c.chance(70) {
		n := c.noun()
		for slices.ContainsFunc(set, func(t *tool) bool { return t.topic != nil && t.topic.noun == n }) {
			n = c.noun()
		}
		about = n
		c.user(c.ask(n, pick(c.source, []string{"of", "of", "in", "for"}), c.entity()))
	} else {
		v, n := c.word(verbs), c.noun()
		about = v + " " + n
		c.user(c.casual(fill(pick(c.source, []string{"{V} the {n}.", "Please {v} the {n}.", "{V} a {n} called {x}."}), "V", capital(v), "v", v, "n", n, "x", c.made())))
	}
	c.answer(Answer{Task: Decline}, about+": no tool fits.", "I have no tool for that.")
}

func (c *script) useTools(set, topics, actions []*tool) {
	for {
		switch c.weighted([]int{6, 2, 1, 4, 2}) {
		case 0:
			if len(topics) > 0 {
				c.one(pick(c.source, topics))
				return
			}
		case 1:
			if t := c.withEntity(topics); t != nil {
				c.twice(t)
				return
			}
		case 2:
			if len(set) > 1 {
				c.two(set)
				return
			}
		case 3:
			if len(actions) > 0 {
				c.act(pick(c.source, actions))
				return
			}
		case 4:
			if c.chain(topics) {
				return
			}
		}
	}
}

func (c *script) withEntity(topics []*tool) *tool {
	if len(topics) == 0 {
		return nil
	}
	if t := pick(c.source, topics); !t.topic.plain {
		return t
	}
	return nil
}

// wish is one thing that is asked for: the words of the question, the call, and
// how the answer begins.
type wish struct {
	question, phrase string
	use              use
	says             string
	result           func() string
}

// wishFor asks for what a tool tells; phrase is the question without what makes it one.
func (c *script) wishFor(t *tool, entity string) wish {
	p := t.topic
	if p.plain {
		return wish{
			question: c.casual(fill(c.phrase([]string{"What is the {n}?", "What's the {n}?", "Tell me the {n}.", "{N}?", "Show me the {n}.", "Give me the current {n}.", "I need the {n}.", "~Please tell me the {n}."}), "n", p.noun, "N", capital(p.noun))),
			phrase:   "the " + p.noun, use: use{t.name, "{}"}, says: "The " + p.noun, result: p.result,
		}
	}
	w := wish{phrase: "the " + p.noun + " " + p.prep + " " + entity, says: "The " + p.noun + " " + p.prep + " " + entity, result: p.result}
	if p.prep == "" {
		w.phrase, w.says = p.noun+" "+entity, capital(p.noun)+" "+entity
	}
	members := []string{quote(t.args[0].name) + ": " + t.args[0].json(entity)}
	detail := ""
	if len(t.args) > 1 && c.chance(50) {
		a := &t.args[1]
		v := c.valueOf(a)
		members = append(members, quote(a.name)+": "+a.json(v))
		name := strings.ReplaceAll(a.name, "_", " ")
		if strings.HasPrefix(a.name, "unit") {
			detail = pick(c.source, []string{" in ", " in ", ", in ", ", " + name + " "}) + v
		} else {
			detail = pick(c.source, []string{", with " + name + " ", ", " + name + " ", " with " + name + " ", " (" + name + ": "}) + v
			if strings.Contains(detail, "(") {
				detail += ")"
			}
		}
	}
	w.use = use{t.name, "{" + strings.Join(members, ", ") + "}"}
	pattern := ""
	switch {
	case p.prep == "":
		pattern = c.phrase(p.also)
	case len(p.also) > 0 && c.chance(40):
		pattern = c.phrase(p.also)
	case c.chance(8):
		pattern = fill(c.phrase(byName), "t", t.name, "n", p.noun, "p", p.prep)
	default:
		pattern = fill(c.asking(), "n", p.noun, "N", capital(p.noun), "p", p.prep)
	}
	if detail != "" {
		end := len(pattern)
		if strings.ContainsAny(pattern[end-1:], ".?") {
			end--
		}
		pattern = pattern[:end] + "{d}" + pattern[end:]
	}
	w.question = c.casual(fill(pattern, "e", entity, "d", detail)) + c.urge(t)
	return w
}

// byName are ways of asking for a tool by its name.
var byName = []string{
	"Use {t} to get the {n} {p} {e}.", "Call {t} and tell me the {n} {p} {e}.", "Use the {t} tool for the {n} {p} {e}.", "What is the {n} {p} {e}, by {t}?",
	"~With {t}, find the {n} {p} {e}.", "~Please use {t} for the {n} {p} {e}.",
}

// urge now and then asks for a tool once more.
func (c *script) urge(t *tool) string {
	if !c.chance(6) {
		return ""
	}
	return fill(c.phrase([]string{" Use the tool.", " Use a tool.", " Use {t}.", " Use the {t} tool.", " Call the tool.", "~ Please use {t}."}), "t", t.name)
}

// one asks for one thing.
func (c *script) one(t *tool) {
	entity := ""
	if !t.topic.plain {
		entity = t.topic.entity()
	}
	w := c.wishFor(t, entity)
	c.user(w.question)
	c.answer(Answer{Task: Call}, t.about()+t.name+" fits.", "", w.use)
	c.tell([]wish{w})
}

// about is what is asked of a tool, said before the tool is named.
func (t *tool) about() string {
	if t.topic != nil {
		return t.topic.noun + ": "
	}
	return t.action.about + ": "
}

// twice asks one tool for two things.
func (c *script) twice(t *tool) {
	n := 2
	if c.chance(15) {
		n = 3
	}
	var wishes []wish
	var uses []use
	var entities []string
	plainArgs := *t
	plainArgs.args = t.args[:1]
	for len(entities) < n {
		e := t.topic.entity()
		if slices.Contains(entities, e) {
			continue
		}
		entities = append(entities, e)
		wishes = append(wishes, c.wishFor(&plainArgs, e))
		uses = append(uses, wishes[len(wishes)-1].use)
	}
	last := entities[n-1]
	both := strings.Join(entities[:n-1], ", ") + pick(c.source, []string{" and ", " and ", " and " + t.topic.prep + " "}) + last
	if t.topic.prep == "" {
		both = strings.Join(entities[:n-1], ", ") + " and " + last
		c.user(c.casual(fill(c.phrase(t.topic.also), "e", both)))
	} else {
		c.user(c.casual(fill(c.asking(), "n", t.topic.noun, "N", capital(t.topic.noun), "p", t.topic.prep, "e", both)))
	}
	c.answer(Answer{Task: Calls}, t.about()+t.name+" fits, for "+strings.Join(entities, " and for ")+".", "", uses...)
	c.tell(wishes)
}

// two asks two tools.
func (c *script) two(set []*tool) {
	a, b := pick(c.source, set), pick(c.source, set)
	if a == b || a.topic == nil || b.topic == nil {
		c.either(a)
		return
	}
	ea, eb := "", ""
	if !a.topic.plain {
		ea = a.topic.entity()
	}
	if !b.topic.plain {
		eb = b.topic.entity()
		if c.chance(30) && ea != "" {
			eb = ea
		}
	}
	one, other := *a, *b
	one.args, other.args = firstOf(a.args), firstOf(b.args)
	wa, wb := c.wishFor(&one, ea), c.wishFor(&other, eb)
	c.user(c.casual(fill(c.phrase([]string{"What is {a} and {b}?", "Tell me {a} and {b}.", "I need {a} and {b}.", "Give me {a}, and also {b}.", "Find {a} and {b}.", "What is {a}, and what is {b}?", "~Please tell me {a}, and {b}.", "~Look up {a} and {b}."}), "a", wa.phrase, "b", wb.phrase)))
	c.answer(Answer{Task: Calls}, a.about()+a.name+" and "+b.about()+b.name+" fit.", "", wa.use, wb.use)
	c.tell([]wish{wa, wb})
}

func (c *script) either(t *tool) {
	if t.topic != nil {
		c.one(t)
		return
	}
	c.act(t)
}

func firstOf(args []arg) []arg { return args[:min(1, len(args))] }

// act asks for something to be done.
func (c *script) act(t *tool) {
	values := t.action.values()
	pattern := c.phrase(t.action.asked)
	var pairs, members []string
	for i := range t.args {
		a := &t.args[i]
		pairs = append(pairs, a.name, values[i])
		members = append(members, quote(a.name)+": "+a.json(values[i]))
	}
	c.user(c.casual(fill(pattern, pairs...)) + c.urge(t))
	w := wish{use: use{t.name, "{" + strings.Join(members, ", ") + "}"}, says: "Done", result: t.action.result}
	if t.action.sums {
		w.says = "The result"
	}
	c.answer(Answer{Task: Call}, t.about()+t.name+" fits.", "", w.use)
	c.tell([]wish{w})
}

// chain asks for what needs the result of another tool.
func (c *script) chain(topics []*tool) bool {
	if len(topics) < 2 {
		return false
	}
	a, b := pick(c.source, topics), pick(c.source, topics)
	if a == b || a.topic.plain || b.topic.plain || a.topic.prep == "" || b.topic.prep == "" {
		return false
	}
	e, found := a.topic.entity(), b.topic.entity()
	other := *b
	other.args = b.args[:1]
	one := *a
	one.args = a.args[:1]
	wa, wb := c.wishFor(&one, e), c.wishFor(&other, found)
	c.user(c.casual(fill(c.phrase([]string{
		"What is the {m} {q} the {n} {p} {e}?", "Tell me the {m} {q} the {n} {p} {e}.", "Find the {n} {p} {e}, then the {m} {q} it.", "Look up the {n} {p} {e}, then tell me the {m} {q} that.", "First get the {n} {p} {e}, then the {m} {q} that.",
		"~I need the {m} {q} the {n} {p} {e}.", "~Get the {n} {p} {e} and then the {m} {q} that.",
	}), "n", a.topic.noun, "p", a.topic.prep, "e", e, "m", b.topic.noun, "q", b.topic.prep)))
	c.answer(Answer{Task: Call}, "First "+a.about()+a.name+", then "+b.about()+b.name+".", "", wa.use)
	c.results(found)
	c.answer(Answer{Task: Chain}, "Now "+b.about()+b.name+".", "", wb.use)
	c.tell([]wish{wb})
	return true
}

// tell writes the results of calls and the answer that tells them.
func (c *script) tell(wishes []wish) {
	var wire, said, keys []string
	failed := false
	for _, w := range wishes {
		if c.chance(10) {
			text, reason := c.failure()
			wire, said, keys = append(wire, text), append(said, "That did not work: "+reason), append(keys, reason)
			failed = true
			continue
		}
		text, shown := c.shape(w.result())
		wire, said, keys = append(wire, text), append(said, w.says+": "+shown), append(keys, shown)
	}
	c.results(wire...)
	for i := range said {
		if !strings.HasSuffix(said[i], ".") {
			said[i] += "."
		}
	}
	a := Answer{Task: Result}
	if failed {
		a.Task = Failure
	}
	if len(keys) == 1 {
		a.Key = keys[0]
	}
	c.answer(a, "", strings.Join(said, " "))
}

// shape makes of a result what a tool sends, and how the answer shows it.
func (c *script) shape(result string) (wire, shown string) {
	if strings.HasPrefix(result, "{") {
		return c.spaced(result), flat(result)
	}
	if strings.Contains(result, "\n") {
		return result, strings.ReplaceAll(result, "\n", ", ")
	}
	switch c.below(10) {
	case 0, 1, 2: // as a member of an object
		members := []member{{pick(c.source, []string{c.noun(), "result", "value", "text", "answer"}), value(result)}}
		for range c.weighted([]int{6, 3, 1}) {
			if n := c.member(); !slices.ContainsFunc(members, func(m member) bool { return m.name == n }) {
				members = append(members, member{n, value(c.scalar())})
			}
		}
		o := object(members...)
		return c.spaced(o), flat(o)
	case 3:
		items := []string{result}
		for range c.between(1, 2) {
			items = append(items, c.scalar())
		}
		var list []string
		for _, x := range items {
			list = append(list, value(x))
		}
		return c.spaced(array(list)), strings.Join(items, ", ")
	case 4:
		return c.spaced(value(result)), result
	}
	return result, result
}

// member is a name in an object.
func (c *script) member() string {
	if c.chance(20) {
		return c.noun() + pick(c.source, []string{"_", "_", ""}) + pick(c.source, []string{"id", "name", c.noun()})
	}
	return c.noun()
}

// spaced writes JSON as one client or another would: compact, with blanks, or
// over several lines.
func (c *script) spaced(text string) string {
	switch c.below(5) {
	case 0, 1:
		return text
	case 2:
		var b strings.Builder
		if err := indent(&b, text); err != nil {
			panic(err) // it was written here
		}
		return b.String()
	}
	return blanks(text)
}

func indent(b *strings.Builder, text string) error {
	var v json.RawMessage = []byte(text)
	out, err := json.MarshalIndent(v, "", "  ")
	b.Write(out)
	return err
}

// blanks puts a blank behind colons and commas that stand outside of strings.
func blanks(text string) string {
	var b strings.Builder
	in := false
	for i := range len(text) {
		b.WriteByte(text[i])
		switch {
		case text[i] == '"' && (i == 0 || text[i-1] != '\\'):
			in = !in
		case !in && (text[i] == ':' || text[i] == ','):
			b.WriteByte(' ')
		}
	}
	return b.String()
}

// flat is an object in words: each name and its value.
func flat(o string) string {
	dec := json.NewDecoder(strings.NewReader(o))
	dec.UseNumber()
	var out []string
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			panic(err) // it was written here
		}
		if _, ok := t.(json.Delim); ok {
			continue
		}
		v, err := dec.Token()
		if err != nil {
			panic(err)
		}
		out = append(out, fmt.Sprint(t)+" "+fmt.Sprint(v))
	}
	return strings.Join(out, ", ")
}

// failure is what a tool says that failed, and why it did.
func (c *script) failure() (wire, reason string) {
	n := c.noun()
	reason = pick(c.source, []string{n + " not found", "not found", "timeout", "no such " + n, "permission denied", "the " + n + " is " + c.word(adjectives), "unknown " + n, "no connection", "invalid " + n, "no " + n + " for " + c.person(), "busy"})
	switch c.below(6) {
	case 0, 1:
		return "Error: " + reason, reason
	case 2:
		return "error: " + reason, reason
	case 3:
		return "Failed: " + reason, reason
	}
	return c.spaced(object(member{"error", quote(reason)})), reason
}
