package talk

import "strings"

// action is what a tool does.
type action struct {
	about string   // what it does, in a word or two
	asked []string // patterns; arguments stand in braces
	// values draws one value per argument; "" leaves an optional one out.
	values func() []string
	result func() string
	// sums is an action that computes: what it returns is "the result".
	sums bool
}

// actionTool makes a tool that does something.
func (c *script) actionTool() *tool {
	if c.held || c.chance(50) {
		return c.madeAction()
	}
	return c.knownAction()
}

var pairNames = [][2]string{{"a", "b"}, {"a", "b"}, {"a", "b"}, {"x", "y"}, {"first", "second"}, {"left", "right"}, {"num1", "num2"}, {"n", "m"}}

// arithmetic makes a tool that computes.
func (c *script) arithmetic() *tool {
	type op struct {
		name, desc []string
		asked      []string
	}
	o := pick(c.source, []op{
		{[]string{"add", "sum", "add_numbers", "plus", "calculate_sum"}, []string{"Adds two numbers.", "Add two numbers", "Returns the sum of two numbers.", "Compute a sum", "Adds a and b."}, []string{
			"What is {a} + {b}?", "{a} + {b}", "What is {a} plus {b}?", "How much is {a} plus {b}?", "Add {a} and {b}.", "What is the sum of {a} and {b}?", "Please add {a} and {b}.", "Use the tool to add {a} and {b}.", "Compute {a} + {b}.", "Add {a} to {b}.", "What do {a} and {b} make?", "Calculate {a} plus {b}.",
		}},
		{[]string{"multiply", "times", "product", "mul"}, []string{"Multiplies two numbers.", "Multiply two numbers", "Returns the product of two numbers."}, []string{
			"What is {a} * {b}?", "What is {a} times {b}?", "How much is {a} times {b}?", "Multiply {a} and {b}.", "Multiply {a} by {b}.", "What is the product of {a} and {b}?", "Compute {a} * {b}.", "{a} times {b}",
		}},
		{[]string{"subtract", "minus", "difference", "sub"}, []string{"Subtracts two numbers.", "Subtract b from a", "Returns the difference of two numbers."}, []string{
			"What is {a} - {b}?", "What is {a} minus {b}?", "How much is {a} minus {b}?", "Compute {a} - {b}.", "What is the difference of {a} and {b}?", "{a} minus {b}",
		}},
		{[]string{"divide", "div"}, []string{"Divides two numbers.", "Divide a by b"}, []string{"What is {a} / {b}?", "What is {a} divided by {b}?", "Divide {a} by {b}.", "Compute {a} / {b}."}},
	})
	names := pick(c.source, pairNames)
	k := pick(c.source, []kind{aNumber, aNumber, anInteger})
	t := &tool{name: pick(c.source, o.name), desc: pick(c.source, o.desc)}
	for i, n := range names {
		t.args = append(t.args, arg{name: n, kind: k, desc: []string{"The first number", "The second number"}[i]})
	}
	for i, p := range o.asked {
		o.asked[i] = fill(p, "a", "{"+names[0]+"}", "b", "{"+names[1]+"}")
	}
	t.action = &action{about: strings.ReplaceAll(o.name[0], "_", " "), asked: o.asked, sums: true, values: func() []string { return []string{c.number(), c.number()} }, result: c.number}
	if c.chance(40) {
		t.action.result = func() string {
			return object(member{pick(c.source, []string{"result", "sum", "value", "answer"}), c.number()})
		}
	}
	return t
}

func (c *script) knownAction() *tool {
	if c.chance(25) {
		return c.arithmetic()
	}
	str := func(names ...string) (out []arg) {
		for _, n := range names {
			out = append(out, arg{name: n, desc: c.argDesc(n)})
		}
		return out
	}
	type one struct {
		name, desc string
		args       []arg
		values     []func() string
		asked      []string
	}
	text := func() string { return c.words(2, 6) }
	small := func() string { return c.digits(c.between(1, 2)) }
	whole := func(name string) arg { return arg{name: name, kind: anInteger, desc: c.argDesc(name)} }
	levels := strings.Fields("low medium high urgent")
	o := pick(c.source, []one{
		{"send_message", "Send a message to a person", str("to", "text"), []func() string{c.person, text}, []string{"Send {to} the message \"{text}\".", "Send \"{text}\" to {to}.", "Tell {to}: {text}", "Write to {to}: {text}", "Message {to}: {text}"}},
		{"send_email", "Sends an email.", str("to", "body"), []func() string{c.email, text}, []string{"Send an email to {to}: {body}", "Email {to}: {body}", "Write an email to {to} saying {body}.", "Send \"{body}\" to {to}."}},
		{"send_email", "Send an email with a subject", str("to", "subject", "body"), []func() string{c.email, text, text}, []string{"Send an email to {to} with the subject \"{subject}\" and the body \"{body}\".", "Email {to}, subject \"{subject}\", body \"{body}\"."}},
		{"set_timer", "Set a timer", []arg{whole("minutes")}, []func() string{small}, []string{"Set a timer for {minutes} minutes.", "Timer for {minutes} minutes.", "Wake me in {minutes} minutes."}},
		{"set_alarm", "Sets an alarm.", str("time"), []func() string{c.clock}, []string{"Set an alarm for {time}.", "Wake me at {time}.", "Alarm at {time}."}},
		{"create_event", "Create an event in the calendar", str("title", "date"), []func() string{text, c.date}, []string{"Create the event \"{title}\" on {date}.", "Put \"{title}\" into my calendar on {date}.", "Add an event on {date}: {title}"}},
		{"convert_currency", "Convert an amount of money", append([]arg{{name: "amount", kind: aNumber, desc: "The amount"}}, str("from", "to")...), []func() string{c.number, func() string { return pick(c.source, currency) }, func() string { return pick(c.source, currency) }}, []string{"Convert {amount} {from} to {to}.", "How much is {amount} {from} in {to}?", "What are {amount} {from} in {to}?", "{amount} {from} to {to}"}},
		{"translate", "Translate a text", str("text", "language"), []func() string{text, func() string { return c.word(languages) }}, []string{"Translate \"{text}\" into {language}.", "Translate \"{text}\" to {language}.", "How do you say \"{text}\" in {language}?", "What is \"{text}\" in {language}?"}},
		{"turn_on", "Turns a device on.", str("device"), []func() string{c.noun}, []string{"Turn on the {device}.", "Turn the {device} on.", "Switch on the {device}.", "{device} on, please."}},
		{"turn_off", "Turns a device off.", str("device"), []func() string{c.noun}, []string{"Turn off the {device}.", "Turn the {device} off.", "Switch off the {device}."}},
		{"play_song", "Play a song", str("title"), []func() string{text}, []string{"Play the song \"{title}\".", "Play \"{title}\".", "I want to hear {title}."}},
		{"book_table", "Book a table in a restaurant", append(str("restaurant"), whole("people")), []func() string{func() string { return capital(c.made()) }, func() string { return c.digits(1) }}, []string{"Book a table at {restaurant} for {people} people.", "A table for {people} at {restaurant}, please.", "Book {restaurant} for {people} people."}},
		{"create_ticket", "Open a ticket", append(str("title"), arg{name: "priority", kind: anEnum, choices: levels, desc: "How urgent it is"}), []func() string{text, func() string { return pick(c.source, levels) }}, []string{"Create a ticket \"{title}\" with priority {priority}.", "Open a {priority} ticket: {title}", "New ticket: {title}, priority {priority}."}},
		{"write_file", "Write a text to a file", str("path", "content"), []func() string{c.path, text}, []string{"Write \"{content}\" to {path}.", "Create the file {path} with the content \"{content}\".", "Put \"{content}\" into {path}."}},
		{"delete_file", "Delete a file", str("path"), []func() string{c.path}, []string{"Delete {path}.", "Delete the file {path}.", "Remove {path}."}},
		{"rename_file", "Rename a file", str("old", "new"), []func() string{c.path, c.path}, []string{"Rename {old} to {new}.", "Rename the file {old} to {new}.", "Call {old} {new} from now on."}},
		{"set_volume", "Set the volume", []arg{whole("level")}, []func() string{small}, []string{"Set the volume to {level}.", "Volume {level}.", "Turn the volume to {level}."}},
		{"random_number", "Draw a random number", []arg{whole("min"), whole("max")}, []func() string{small, c.number}, []string{"Give me a random number from {min} to {max}.", "A random number between {min} and {max}, please.", "Draw a number between {min} and {max}."}},
		{"book_flight", "Book a flight", str("from", "to", "date"), []func() string{c.city, c.city, c.date}, []string{"Book a flight from {from} to {to} on {date}.", "I want to fly from {from} to {to} on {date}."}},
		{"roll_dice", "Roll dice", []arg{whole("sides")}, []func() string{small}, []string{"Roll a dice with {sides} sides.", "Roll {sides} sides."}},
		{"greet", "Greets a person.", str("name"), []func() string{c.person}, []string{"Greet {name}.", "Say hello to {name}.", "Please greet {name}."}},
		{"remember", "Remember a value under a key", str("key", "value"), []func() string{c.noun, c.scalar}, []string{"Remember {value} as {key}.", "Store {value} under {key}.", "Keep {key}: {value}"}},
	})
	t := &tool{name: o.name, desc: o.desc, args: o.args}
	t.action = &action{about: strings.ReplaceAll(o.name, "_", " "), asked: o.asked, result: c.outcome, values: func() (out []string) {
		for _, v := range o.values {
			out = append(out, v())
		}
		return out
	}}
	return t
}

// madeAction makes a tool up: a verb, a noun, and arguments named in the request.
func (c *script) madeAction() *tool {
	v, n := c.word(verbs), c.noun()
	for v == n {
		n = c.noun()
	}
	t := &tool{name: v + pick(c.source, []string{"_", "_", "_", "-", "_the_", "_a_"}) + n}
	if c.chance(8) {
		t.name = v + capital(n)
	}
	t.desc = fill(pick(c.source, []string{"{V} {a} {n}", "{V} {a} {n}.", "Use this to {v} {a} {n}.", "{V}s {a} {n}."}), "V", capital(v), "v", v, "n", n, "a", pick(c.source, []string{"a", "the", "one"}))
	for range c.between(1, 3) {
		a := c.someArg()
		fits := true
		for _, other := range t.args {
			fits = fits && other.name != a.name
		}
		if fits {
			t.args = append(t.args, a)
		}
	}
	head := pick(c.source, []string{"{V} the {n}", "Please {v} the {n}", "{V} a {n}", "{V} {n}", "I want to {v} the {n}", "Can you {v} the {n}"})
	head = fill(head, "V", capital(v), "v", v, "n", n)
	var asked []string
	names := func(between, sep string) string {
		var out []string
		for _, a := range t.args {
			out = append(out, a.name+between+"{"+a.name+"}")
		}
		return strings.Join(out, sep)
	}
	asked = append(asked, head+" with "+names(" ", ", ")+".", head+" with "+names(" ", " and ")+".", head+": "+names(" is ", ", ")+".", head+", "+names(" ", ", ")+".", head+" ("+names(": ", ", ")+").", head+" with "+names("=", ", ")+".", "~"+head+", where "+names(" is ", " and ")+".", "~"+head+" using "+names(" ", ", ")+".")
	if len(t.args) == 1 && t.args[0].kind == aString {
		asked = append(asked, head+" {"+t.args[0].name+"}.", head+" {"+t.args[0].name+"}.", head+" called {"+t.args[0].name+"}.")
	}
	if !c.held {
		asked = append(asked, head+", so that "+names(" is ", " and ")+".", head+", whose "+names(" is ", ", ")+".", head+", in which "+names(" is ", " and ")+".", head+" by "+names(" ", ", ")+".",
			head+" given "+names(" ", ", ")+".", head+" - "+names(" = ", "; "), head+" and let "+names(" be ", " and ")+".", head+" for "+names(" ", " and ")+".")
	}
	t.action = &action{about: v + " " + n, asked: asked, result: c.outcome, values: func() (out []string) {
		for i := range t.args {
			out = append(out, c.valueOf(&t.args[i]))
		}
		return out
	}}
	return t
}

func (c *script) valueOf(a *arg) string {
	switch a.kind {
	case anInteger:
		return c.number()
	case aNumber:
		return pick(c.source, []func() string{c.number, c.decimal})()
	case aBool:
		return pick(c.source, []string{"true", "false"})
	case anEnum:
		return pick(c.source, a.choices)
	}
	return pick(c.source, []func() string{c.noun, c.person, c.city, c.made, c.code, c.noun, c.path, func() string { return c.word(adjectives) + " " + c.noun() }})()
}

// outcome is what a tool says that has done something.
func (c *script) outcome() string {
	switch c.below(6) {
	case 0:
		return pick(c.source, []string{"ok", "done", "sent", "created", "saved", "success", "true", "OK"})
	case 1:
		return pick(c.source, []string{"saved as ", "id ", "created ", "number "}) + c.code()
	case 2:
		return object(member{pick(c.source, []string{"ok", "success", "done"}), "true"})
	case 3:
		return object(member{"status", quote(pick(c.source, []string{"ok", "done", "sent", "created"}))}, member{pick(c.source, []string{"id", "number", c.noun()}), value(pick(c.source, []func() string{c.number, c.code})())})
	case 4:
		return c.words(2, 5)
	}
	return c.scalar()
}
