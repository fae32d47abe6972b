package talk

import (
	_ "embed"
	"fmt"
	"strconv"
	"strings"
)

//go:embed smalltalk.txt
var smallTalk string

// intent is an answer and the ways of asking for it.
type intent struct {
	reply string
	asked []string
}

var intents = func() (out []intent) {
	for line := range strings.Lines(smallTalk) {
		fields := strings.Split(strings.TrimSpace(line), " | ")
		out = append(out, intent{fields[0], fields[1:]})
	}
	return out
}()

// small is small talk.
func (c *script) small() {
	if c.chance(8) {
		name := c.person()
		c.user(c.casual(fill(c.phrase(names), "name", name)))
		c.answer(Answer{Task: Small}, "", "Nice to meet you, "+name+".")
		return
	}
	i := pick(c.source, intents)
	text := c.phrase(i.asked)
	if !strings.ContainsAny(text[len(text)-1:], ".?!") && c.chance(60) {
		text += pick(c.source, []string{".", ".", "!"})
	}
	c.user(c.casual(text))
	c.answer(Answer{Task: Small}, "", i.reply)
}

var names = []string{"My name is {name}.", "I am {name}.", "I am called {name}.", "Hello, I am {name}.", "Hi! My name is {name}.", "You can call me {name}.", "~Hello, my name is {name}.", "~I am {name}, hello."}

// fill puts values into the slots of a pattern: name, value, name, value ….
func fill(pattern string, pairs ...string) string {
	var r []string
	for i := 0; i < len(pairs); i += 2 {
		r = append(r, "{"+pairs[i]+"}", pairs[i+1])
	}
	return strings.NewReplacer(r...).Replace(pattern)
}

// say asks for what is in the question already.
func (c *script) say() {
	exact := Answer{Task: Say}
	switch c.weighted([]int{8, 2, 2, 2, 2, 2}) {
	case 0:
		x := c.utterance()
		if c.harder(30) {
			c.user(c.casual(fill(c.freely(pick(c.source, []string{"{x}", "\"{x}\"", "the words {x}", "this text: {x}"}), []string{"say", "repeat", "write", "print", "echo", "type", "copy", "answer with", "write down"}), "x", x)))
			c.answer(exact, "", x)
			return
		}
		c.user(c.casual(fill(c.phrase([]string{
			"Say {x}.", "Say: {x}", "Repeat: {x}", "Repeat after me: {x}", "Say \"{x}\".", "Write {x}.", "Write \"{x}\".", "Echo {x}.", "Answer with {x}.",
			"Please say {x}.", "Say just {x}.", "Repeat this: {x}", "Reply with \"{x}\".", "Print {x}.", "~Please repeat: {x}", "~Please write {x}.", "~Say this: {x}", "~Answer with \"{x}\".",
		}), "x", x)))
		c.answer(exact, "", x)
	case 1:
		x := c.noun()
		if c.chance(30) {
			x = c.person()
		}
		if c.harder(30) {
			c.user(c.casual(fill(c.freely("{x}", []string{"spell", "spell the name", "spell out", "write the letters of", "give me the letters of", "tell me how one spells"}), "x", x)))
			c.answer(exact, "", strings.Join(strings.Split(strings.ToUpper(x), ""), "-"))
			return
		}
		c.user(c.casual(fill(c.phrase([]string{"Spell {x}.", "Spell the word {x}.", "How do you spell {x}?", "Spell {x}, please.", "~Please spell {x}.", "~How is {x} spelled?"}), "x", x)))
		c.answer(exact, "", strings.Join(strings.Split(strings.ToUpper(x), ""), "-"))
	case 2:
		from, to := 1, c.between(2, 15)
		text := fill(c.phrase([]string{"Count to {to}.", "Count from 1 to {to}.", "Count up to {to}.", "~Please count to {to}."}), "to", strconv.Itoa(to))
		if c.chance(60) {
			from = c.between(1, 89)
			to = from + c.between(1, 9)
			text = fmt.Sprintf("Count from %d to %d.", from, to)
		}
		var list []string
		for i := from; i <= to; i++ {
			list = append(list, strconv.Itoa(i))
		}
		c.user(c.casual(text))
		c.answer(exact, "", strings.Join(list, ", "))
	case 3:
		x := c.utterance()
		n := c.between(2, 3)
		c.user(c.casual(fill(c.phrase([]string{"Say {x} {n} times.", "Repeat {x} {n} times.", "Write \"{x}\" {n} times.", "~Please say {x} {n} times."}), "x", x, "n", []string{2: "two", 3: "three"}[n])))
		c.answer(exact, "", strings.TrimSuffix(strings.Repeat(x+"\n", n), "\n"))
	case 4:
		list := c.list(c.between(2, 5))
		which := c.below(2)
		at := []int{0, len(list) - 1}[which]
		c.user(c.casual(fill(c.phrase([]string{"What is the {nth} of {list}?", "Which is the {nth} of these: {list}?", "Name the {nth} of {list}.", "Give me the {nth} one: {list}", "{list}: which is the {nth}?", "~Tell me the {nth} of {list}."}),
			"nth", []string{"first", "last"}[which], "list", strings.Join(list, ", "))))
		c.answer(exact, "", list[at])
	case 5:
		list := c.list(c.between(2, 6))
		c.user(c.casual(fill(c.phrase([]string{"How many are these: {list}?", "Count these: {list}", "How many things are in {list}?", "~How many are in this list: {list}?"}), "list", strings.Join(list, ", "))))
		c.answer(exact, "", strconv.Itoa(len(list)))
	}
}

func (c *script) list(n int) []string {
	kind := pick(c.source, []func() string{c.noun, c.person, c.city, c.number, c.made})
	var list []string
	for range n {
		list = append(list, kind())
	}
	return list
}

// utterance is something to say.
func (c *script) utterance() string {
	switch c.below(8) {
	case 0:
		return c.person()
	case 1:
		return c.number()
	case 2:
		return c.code()
	case 3:
		return capital(c.words(2, 6))
	case 4:
		return c.scalar()
	case 5:
		var soup []string
		for range c.between(1, 4) {
			soup = append(soup, c.made())
		}
		return strings.Join(soup, " ")
	}
	return c.words(1, 5)
}

// sum adds or subtracts.
func (c *script) sum() {
	a, b := c.operand(), c.operand()
	task := Sum
	if c.quiet {
		task = Head
		a, b = a%20, b%20
	}
	minus := c.chance(40)
	if minus && a < b {
		a, b = b, a
	}
	text, order := c.sumQuestion(minus)
	if order {
		a, b = b, a
	}
	c.user(c.casual(fill(text, "a", strconv.Itoa(a), "b", strconv.Itoa(b))))
	if order {
		a, b = b, a
	}
	result, sign := a+b, "+"
	if minus {
		result, sign = a-b, "-"
	}
	c.answer(Answer{Task: task, Key: strconv.Itoa(result)}, working(a, b, minus), fmt.Sprintf("%d %s %d = %d", a, sign, b, result))
}

func (c *script) operand() int {
	if c.chance(35) {
		return c.below(10)
	}
	return c.between(10, 99)
}

// sumQuestion returns a pattern, and whether it names the second number first.
func (c *script) sumQuestion(minus bool) (pattern string, swapped bool) {
	if !minus {
		return c.phrase([]string{
			"What is {a} + {b}?", "{a} + {b}", "{a}+{b}", "{a} + {b} = ?", "What is {a} plus {b}?", "How much is {a} plus {b}?", "How much is {a} + {b}?", "Add {a} and {b}.", "Add {a} to {b}.",
			"What is the sum of {a} and {b}?", "Compute {a} + {b}.", "Please add {a} and {b}.", "{a} plus {b}", "{a} and {b} make?", "Calculate {a} plus {b}.", "What do {a} and {b} make?",
			"~What does {a} + {b} make?", "~Please compute {a} plus {b}.", "~Tell me the sum of {a} and {b}.", "~Can you add {a} and {b}?",
		}), false
	}
	if c.chance(20) {
		return c.phrase([]string{"Subtract {a} from {b}.", "Take {a} from {b}.", "Take {a} away from {b}.", "~Please subtract {a} from {b}."}), true
	}
	return c.phrase([]string{
		"What is {a} - {b}?", "{a} - {b}", "{a}-{b}", "{a} - {b} = ?", "What is {a} minus {b}?", "How much is {a} minus {b}?", "How much is {a} - {b}?", "Compute {a} - {b}.", "{a} minus {b}", "Calculate {a} minus {b}.",
		"What is the difference of {a} and {b}?", "~What does {a} - {b} make?", "~Please compute {a} minus {b}.", "~Can you tell me {a} minus {b}?",
	}), false
}

// working is a sum as it is done on paper: the units, then the tens.
func working(a, b int, minus bool) string {
	if minus {
		unit := a%10 - b%10
		if unit >= 0 {
			return fmt.Sprintf("%d - %d = %d; %d - %d = %d", a%10, b%10, unit, a/10, b/10, a/10-b/10)
		}
		return fmt.Sprintf("1%d - %d = %d; %d - 1 - %d = %d", a%10, b%10, unit+10, a/10, b/10, a/10-1-b/10)
	}
	unit := a%10 + b%10
	if unit < 10 {
		return fmt.Sprintf("%d + %d = %d; %d + %d = %d", a%10, b%10, unit, a/10, b/10, a/10+b/10)
	}
	return fmt.Sprintf("%d + %d = %d; %d + %d + 1 = %d", a%10, b%10, unit, a/10, b/10, a/10+b/10+1)
}

// askings are ways of asking for the N of E, where "of" may be another word.
var askings = []string{
	"What is the {n} {p} {e}?", "What is the {n} {p} {e}?", "What's the {n} {p} {e}?", "{N} {p} {e}?", "{n} {p} {e}?", "{n} {p} {e}", "Tell me the {n} {p} {e}.", "I need the {n} {p} {e}.",
	"Can you find the {n} {p} {e}?", "Please look up the {n} {p} {e}.", "Give me the {n} {p} {e}.", "Do you know the {n} {p} {e}?",
	"I want to know the {n} {p} {e}.", "Show me the {n} {p} {e}.", "Could you check the {n} {p} {e}?", "How is the {n} {p} {e}?",
	"Find out the {n} {p} {e}.", "Get the {n} {p} {e}.", "Can you tell me the {n} {p} {e}?", "What is the {n} {p} {e} right now?", "What is the {n} {p} {e} today?",
	"The {n} {p} {e}, please.", "Look up the {n} {p} {e}.", "I would like to know the {n} {p} {e}.", "And the {n} {p} {e}?", "Use a tool to find the {n} {p} {e}.",
	"~Would you tell me the {n} {p} {e}?", "~What about the {n} {p} {e}?", "~I would like the {n} {p} {e}.", "~Let me know the {n} {p} {e}.", "~Please check the {n} {p} {e}.", "~Please tell me the {n} {p} {e}.",
}

// freely asks for something by parts: what the request begins with, and what is to
// be done. It never makes one of the phrases that are held out.
func (c *script) freely(what string, acts []string) string {
	begin := pick(c.source, []string{"Please ", "Can you ", "Could you ", "Will you ", "I want you to ", "Now ", "You must ", "", "I ask you to ", "May I ask you to "})
	act := pick(c.source, acts)
	stop := "."
	if strings.HasSuffix(begin, "you ") || strings.HasPrefix(begin, "May") {
		stop = "?"
	}
	if begin == "Please " && c.chance(30) {
		begin, stop = "", ", please."
	} else if begin == "Please " {
		begin = "Do "
	}
	text := begin + act + " " + what + stop
	return capital(text)
}

// asking returns a pattern that asks for the N of E.
func (c *script) asking() string {
	if c.harder(30) {
		return c.freely(pick(c.source, []string{"the {n} {p} {e}", "the {n} {p} {e}", "the {n} {p} {e}", "what the {n} {p} {e} is"}), []string{"tell me", "give me", "show me", "find", "look up", "get", "fetch", "read me", "say", "check", "look for", "report"})
	}
	return c.phrase(askings)
}

func (c *script) ask(n, p, e string) string {
	return c.casual(fill(c.asking(), "n", n, "N", capital(n), "p", p, "e", e))
}

// lookup asks for what was told before.
func (c *script) lookup() {
	if c.chance(25) {
		c.mine()
		return
	}
	type fact struct{ noun, entity, value string }
	shared := [2]string{c.noun(), c.entity()}
	var facts []fact
	for range c.between(1, 5) {
		f := fact{c.noun(), c.entity(), c.scalar()}
		switch c.below(3) {
		case 0:
			f.noun = shared[0]
		case 1:
			f.entity = shared[1]
		}
		fits := true
		for _, g := range facts {
			fits = fits && (g.noun != f.noun || g.entity != f.entity)
		}
		if fits {
			facts = append(facts, f)
		}
	}
	pattern := ""
	var lines []string
	for _, f := range facts {
		if pattern == "" || c.chance(25) {
			pattern = c.phrase([]string{"The {n} of {e} is {v}.", "The {n} of {e} is {v}.", "{e}'s {n} is {v}.", "{N} of {e}: {v}", "{e} has the {n} {v}.", "{e}: {n} {v}", "~As the {n} of {e} we have {v}.", "~{e}'s {n}: {v}"})
			if c.harder(30) {
				pattern = pick(c.source, []string{"{n} of {e} = {v}", "We know that the {n} of {e} is {v}.", "For {e} the {n} is {v}.", "With {e} we have the {n} {v}.", "The {n} that {e} has is {v}.", "As {n}, {e} has {v}.", "{e} - {n}: {v}", "{n} ({e}): {v}", "the {n} of {e}: {v}"})
			}
		}
		lines = append(lines, fill(pattern, "n", f.noun, "N", capital(f.noun), "e", f.entity, "v", f.value))
	}
	told := strings.Join(lines, pick(c.source, []string{" ", "\n", "\n"}))
	f := pick(c.source, facts)
	ask := func() string {
		if c.chance(20) {
			return c.casual(fill(c.phrase([]string{"What is {e}'s {n}?", "Tell me {e}'s {n}.", "{e}'s {n}?", "Which {n} has {e}?", "What {n} does {e} have?", "~Please tell me {e}'s {n}."}), "e", f.entity, "n", f.noun))
		}
		return c.ask(f.noun, "of", f.entity)
	}
	reply := func() {
		if c.harder(20) {
			c.answer(Answer{Task: Lookup, Key: f.value, Formed: true}, "", "{"+quote(f.noun)+": "+value(f.value)+"}")
			return
		}
		c.answer(Answer{Task: Lookup, Key: f.value}, "", "The "+f.noun+" of "+f.entity+" is "+f.value+".")
	}
	switch {
	case c.chance(40) && len(c.talk.Request.Turns) == 0 && len(c.talk.Request.Tools) == 0:
		head := ""
		if len(c.talk.Request.System) > 0 {
			head = c.talk.Request.System[0].Text + pick(c.source, []string{" ", "\n", "\n\n"})
		}
		c.setSystem(head + told)
		c.user(ask())
		reply()
	case c.chance(50):
		c.user(told + pick(c.source, []string{" ", "\n", "\n\n"}) + ask())
		reply()
	default:
		c.user(pick(c.source, []string{"", "", "Remember: ", "Remember this: ", "Note that ", "Facts:\n"}) + told)
		c.answer(Answer{Task: Small}, "", "I will remember that.")
		if c.chance(30) {
			c.small()
		}
		c.user(ask())
		reply()
	}
	for c.chance(45) {
		f = pick(c.source, facts)
		c.user(ask())
		reply()
	}
	if c.chance(12) && len(c.talk.Request.Tools) == 0 {
		c.unknown()
	}
}

// unknown asks for what nobody told.
func (c *script) unknown() {
	c.user(c.ask(c.noun(), pick(c.source, []string{"of", "of", "in", "for"}), c.entity()))
	c.answer(Answer{Task: Decline}, "", "I do not know that.")
}

// entity is somebody or something that has properties.
func (c *script) entity() string {
	switch c.below(5) {
	case 0:
		return c.city()
	case 1:
		return c.country()
	case 2:
		return c.code()
	case 3:
		return "the " + c.noun()
	}
	return c.person()
}

// mine is a fact about the user.
func (c *script) mine() {
	n, v := c.noun(), c.scalar()
	if c.chance(40) {
		n, v = "name", c.person()
	}
	c.user(c.casual(fill(c.phrase([]string{"My {n} is {v}.", "Remember that my {n} is {v}.", "Note that my {n} is {v}.", "My {n}: {v}", "~Please remember that my {n} is {v}."}), "n", n, "v", v)))
	if n == "name" {
		c.talk.Request.Turns[len(c.talk.Request.Turns)-1].Blocks[0].Text = "My name is " + v + "."
		c.answer(Answer{Task: Small}, "", "Nice to meet you, "+v+".")
	} else {
		c.answer(Answer{Task: Small}, "", "I will remember that.")
	}
	if c.chance(40) {
		c.aside()
	}
	c.user(c.casual(fill(c.phrase([]string{"What is my {n}?", "Tell me my {n}.", "Do you know my {n}?", "What was my {n}?", "Do you remember my {n}?", "And my {n}?", "~Can you tell me my {n}?", "~Please tell me my {n}."}), "n", n)))
	c.answer(Answer{Task: Lookup, Key: v}, "", "Your "+n+" is "+v+".")
}

// form asks for facts as JSON.
func (c *script) form() {
	var facts, members []string
	seen := map[string]bool{}
	for range c.between(1, 4) {
		n, v := c.noun(), c.scalar()
		if c.chance(40) {
			v = c.number()
		}
		if seen[n] || strings.Contains(v, ",") {
			continue
		}
		seen[n] = true
		facts = append(facts, n+pick(c.source, []string{" is ", ": ", " "})+v)
		members = append(members, quote(n)+": "+value(v))
	}
	if len(facts) == 0 {
		facts, members = []string{"size 1"}, []string{`"size": 1`}
	}
	c.user(c.casual(fill(c.phrase([]string{"As JSON: {f}", "Write as JSON: {f}", "{f}, as JSON", "Give me JSON: {f}", "Turn this into JSON: {f}", "{f}. Answer in JSON.", "~Please write as JSON: {f}", "~Make JSON of this: {f}"}), "f", strings.Join(facts, ", "))))
	c.answer(Answer{Task: Form}, "", "{"+strings.Join(members, ", ")+"}")
}

func quote(s string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`, "\n", `\n`).Replace(s) + `"`
}

// value is a text as JSON: a number stays one.
func value(s string) string {
	if isNumber(s) {
		return s
	}
	return quote(s)
}
