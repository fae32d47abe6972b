package talk

import (
	"strings"
)

// topic is what a tool tells: the noun of an entity.
type topic struct {
	noun, prep string
	entity     func() string
	result     func() string
	plain      bool     // it tells of nothing in particular, and has no arguments
	also       []string // further ways of asking
}

// known are tools as many demonstrations have them: name, description, noun,
// preposition, argument, kind of entity, kind of result, further ways of asking.
var known = []struct {
	name, desc, noun, prep, arg, entity, result string
	also                                        []string
}{
	{"get_weather", "Tells the weather of a city.", "weather", "in", "city", "city", "weather", weatherly},
	{"get_weather", "Get the current weather for a location", "weather", "in", "location", "city", "weather", weatherly},
	{"weather", "Get the weather in a location", "weather", "in", "location", "city", "weather", weatherly},
	{"get_current_weather", "Get the current weather in a given city", "weather", "in", "city", "city", "weather", weatherly},
	{"get_temperature", "Get the temperature of a place", "temperature", "in", "place", "city", "degrees", []string{"How warm is it in {e}?", "How cold is it in {e}?", "How hot is it in {e}?", "~Is it cold in {e}?"}},
	{"get_forecast", "Returns the forecast for a city", "forecast", "for", "city", "city", "weather", nil},
	{"get_time", "Tells the time in a city.", "time", "in", "city", "city", "clock", timely},
	{"get_time", "Get the current time in a timezone", "time", "in", "timezone", "zone", "clock", timely},
	{"current_time", "Returns the current time of a place", "time", "in", "place", "city", "clock", timely},
	{"get_population", "Get the population of a country", "population", "of", "country", "country", "number", []string{"How many people live in {e}?"}},
	{"get_capital", "Get the capital of a country", "capital", "of", "country", "country", "city", nil},
	{"get_price", "Tells the price of a product.", "price", "of", "product", "noun", "money", []string{"How much is {e}?", "What does {e} cost?", "~How much does {e} cost?"}},
	{"get_stock_price", "Get the stock price of a symbol", "stock price", "of", "symbol", "symbol", "money", []string{"How is {e} traded?"}},
	{"get_balance", "Get the balance of an account", "balance", "of", "account", "code", "money", []string{"How much money is in {e}?"}},
	{"get_order_status", "Get the status of an order", "status", "of", "order_id", "code", "state", []string{"Where is order {e}?", "Where is my order {e}?"}},
	{"lookup_order", "Look up an order by its id", "order", "", "order_id", "code", "state", []string{"What about order {e}?"}},
	{"get_user", "Get a user by name", "user", "", "name", "person", "record", []string{"Who is {e}?"}},
	{"get_email", "Get the email of a person", "email", "of", "person", "person", "email", nil},
	{"get_phone", "Find the phone number of a person", "phone number", "of", "name", "person", "number", nil},
	{"get_birthday", "Get the birthday of a person", "birthday", "of", "name", "person", "date", []string{"When was {e} born?"}},
	{"search", "Search the web", "news", "about", "query", "noun", "text", []string{"Search for {e}.", "Search the web for {e}.", "~Search {e}."}},
	{"web_search", "Search the web for a query", "news", "about", "query", "noun", "text", []string{"Search for {e}.", "Search the web for {e}."}},
	{"read_file", "Read a file", "content", "of", "path", "path", "text", []string{"Read {e}.", "Read the file {e}.", "What is in {e}?", "Open {e}.", "Show me {e}.", "~Please read {e}."}},
	{"read", "Reads a file and returns its text", "text", "of", "file_path", "path", "text", []string{"Read {e}.", "Read the file {e}.", "What is in {e}?", "~Please read {e}."}},
	{"list_files", "List the files in a folder", "files", "in", "path", "path", "list", []string{"What is in {e}?", "List the files in {e}."}},
	{"run", "Run a shell command", "output", "of", "command", "command", "text", []string{"Run {e}.", "Execute {e}.", "Run the command {e}.", "~Please run {e}."}},
	{"bash", "Run a command in a shell", "output", "of", "command", "command", "text", []string{"Run {e}.", "Execute {e}.", "Run the command {e}."}},
	{"get_flight", "Get the status of a flight", "status", "of", "flight", "code", "state", []string{"Where is flight {e}?"}},
	{"get_distance", "Get the distance to a city", "distance", "to", "city", "city", "length", []string{"How far is {e}?"}},
	{"get_definition", "Look up a word in the dictionary", "definition", "of", "word", "noun", "text", []string{"What does {e} mean?", "Define {e}.", "~Please define {e}."}},
	{"get_version", "Get the version of a package", "version", "of", "package", "noun", "version", nil},
	{"count_words", "Count the words of a text", "number of words", "in", "text", "quoted", "number", []string{"How many words are in {e}?"}},
	{"get_secret", "Returns the secret word of a person", "secret word", "of", "name", "person", "noun", nil},
}

var (
	weatherly = []string{"Is it raining in {e}?", "Is it sunny in {e}?", "Will it rain in {e}?", "How is the weather in {e}?", "How is the weather in {e} today?", "What is the weather like in {e}?", "{e} weather?", "I am in {e}. How is the weather here?", "I will go to {e} tomorrow. How is the weather there?", "Do I need a coat in {e}?", "~Is it warm in {e}?", "~Will it be sunny in {e}?"}
	timely    = []string{"What time is it in {e}?", "What's the time in {e}?", "How late is it in {e}?", "Time in {e}?", "I am in {e}. What time is it?", "~Can you tell me what time it is in {e}?"}
)

// familiar are the nouns of the known tools.
var familiar = func() map[string]bool {
	out := map[string]bool{}
	for _, k := range known {
		out[k.noun] = true
	}
	return out
}()

func (c *script) entityOf(kind string) func() string {
	switch kind {
	case "city":
		return c.city
	case "country":
		return c.country
	case "person":
		return c.person
	case "code":
		return c.code
	case "path":
		return c.path
	case "symbol":
		return func() string { return c.letters(c.between(2, 4)) }
	case "zone":
		return func() string {
			return pick(c.source, []string{"Europe", "America", "Asia", "Africa"}) + "/" + c.word(cities)
		}
	case "command":
		return func() string {
			return pick(c.source, []string{"ls ", "cat ", "git ", "python ", "go run ", "echo ", "make ", "head "}) + pick(c.source, []func() string{c.path, c.noun, c.made})()
		}
	case "quoted":
		return func() string { return c.words(2, 5) }
	}
	return c.noun
}

func (c *script) resultOf(kind string) func() string {
	switch kind {
	case "weather":
		return func() string {
			return pick(c.source, []string{"sunny", "rainy", "cloudy", "windy", "foggy", "snow", "clear"}) + pick(c.source, []string{", ", " with ", " and "}) + c.digits(c.between(1, 2)) + pick(c.source, []string{" degrees", " °C", "C", " degrees Celsius"})
		}
	case "degrees":
		return func() string {
			return c.digits(c.between(1, 2)) + pick(c.source, []string{" degrees", " °C", "", "C"})
		}
	case "clock":
		return c.clock
	case "number":
		return c.number
	case "city":
		return c.city
	case "money":
		return func() string {
			return c.number() + pick(c.source, []string{" ", "." + c.digits(2) + " "}) + pick(c.source, currency)
		}
	case "state":
		return func() string {
			return pick(c.source, []string{"shipped", "open", "closed", "delayed", "delivered", "on time", "lost", "paid", "waiting"})
		}
	case "email":
		return c.email
	case "date":
		return c.date
	case "length":
		return func() string { return c.number() + " " + pick(c.source, []string{"km", "miles", "meters"}) }
	case "version":
		return func() string { return c.digits(1) + "." + c.digits(c.between(1, 2)) + "." + c.digits(1) }
	case "noun":
		return c.noun
	case "list":
		return func() string { return strings.Join([]string{c.path(), c.path()}, "\n") }
	case "text":
		return func() string {
			if c.chance(40) {
				return c.remark()
			}
			return c.words(2, 7)
		}
	}
	return c.scalar
}

// topicTool makes a tool that tells something.
func (c *script) topicTool() *tool {
	if !c.held && c.chance(45) {
		k := pick(c.source, known)
		t := &tool{name: k.name, desc: k.desc, args: []arg{{name: k.arg, desc: c.argDesc(k.arg)}}}
		t.topic = &topic{noun: k.noun, prep: k.prep, entity: c.entityOf(k.entity), result: c.resultOf(k.result), also: k.also}
		if k.noun == "weather" && c.chance(40) {
			t.args = append(t.args, arg{name: pick(c.source, []string{"unit", "units"}), kind: anEnum, choices: []string{"celsius", "fahrenheit"}, optional: true, desc: "The unit"})
		} else if c.chance(15) {
			t.args = append(t.args, c.spare(t.args))
		}
		return t
	}
	if c.chance(6) {
		n := c.noun()
		t := &tool{name: pick(c.source, []string{"get_", "read_", "current_", ""}) + n, desc: pick(c.source, []string{"Tells the " + n + ".", "Returns the current " + n + ".", "Get the " + n})}
		t.topic = &topic{noun: n, plain: true, result: c.scalar}
		return t
	}
	n, e := c.noun(), c.noun()
	for c.held && familiar[n] {
		n = c.noun() // training has a tool for it, though under a word that is held out
	}
	for e == n {
		e = c.noun()
	}
	if c.chance(12) {
		n = c.word(adjectives) + " " + n
	}
	t := &tool{name: c.toolName(n, e)}
	t.topic = &topic{noun: n, prep: pick(c.source, []string{"of", "of", "of", "in", "for"}), result: c.resultOf("")}
	t.topic.entity = pick(c.source, []func() string{c.person, c.city, c.code, c.noun, c.made, c.country, c.number, func() string { return capital(c.made()) }})
	the := pick(c.source, []string{"a ", "the ", "one ", "the given "})
	t.desc = pick(c.source, []string{
		"Tells the {n} {p} {e}.", "Returns the {n} {p} {e}.", "Get the {n} {p} {e}", "Gets the {n} {p} {e}.", "Look up the {n} {p} {e}", "Finds the {n} {p} {e}.",
		"{N} {p} {e}", "Get the current {n} {p} {e}", "Use this to know the {n} {p} {e}.", "Reads the {n}.",
	})
	t.desc = fill(t.desc, "n", n, "N", capital(n), "p", t.topic.prep, "e", the+e)
	if !strings.Contains(n, " ") && c.chance(8) && strings.Contains(t.name, n) {
		t.desc = ""
	}
	name := e
	if c.chance(35) {
		name = pick(c.source, []string{"name", "id", "key", "query", "q", "target", "item", "place", "who", "what", "input", "value", e + "_id", e + "_name"})
	}
	t.args = []arg{{name: name, desc: c.argDesc(e)}}
	if c.harder(55) {
		t.topic.prep = "of"
		t.name = pick(c.source, []string{"get_", "get_", "get_", "find_", "read_", "tell_"}) + strings.ReplaceAll(n, " ", "_")
		t.desc = fill(pick(c.source, []string{"Tells the {n} of a {e}.", "Tells the {n} of a {e}.", "Returns the {n} of a {e}.", "Get the {n} of a {e}", "Gets the {n} of the {e}."}), "n", n, "e", e)
		t.args = []arg{{name: e, desc: c.argDesc(e)}}
		return t
	}
	if c.chance(20) {
		t.args = append(t.args, c.spare(t.args))
	}
	return t
}

// spare is an argument that a question need not give.
func (c *script) spare(others []arg) arg {
	for {
		a := c.someArg()
		a.optional = true
		if a.name != others[0].name {
			return a
		}
	}
}

// someArg makes an argument up.
func (c *script) someArg() arg {
	n := c.noun()
	if c.chance(15) {
		n = n + "_" + c.noun()
	}
	a := arg{name: n, desc: c.argDesc(strings.ReplaceAll(n, "_", " "))}
	switch c.below(10) {
	case 0, 1:
		a.kind = anInteger
	case 2:
		a.kind = aNumber
	case 3:
		a.kind = aBool
	case 4, 5:
		a.kind = anEnum
		for range c.between(2, 4) {
			a.choices = append(a.choices, c.noun())
		}
	}
	return a
}

func (c *script) argDesc(e string) string {
	return pick(c.source, []string{"The " + e, "The " + e + ".", "the " + e, "Name of the " + e, "The " + e + " to look up", "The " + e + ", e.g. " + c.scalar(), "A " + e})
}

var getters = strings.Fields("get find fetch lookup look_up read check show query tell load")

func (c *script) toolName(n, e string) string {
	n = strings.ReplaceAll(n, " ", "_")
	v := pick(c.source, getters)
	switch c.below(12) {
	case 0:
		return n
	case 1:
		return v + capital(n)
	case 2:
		return n + "_" + pick(c.source, []string{"lookup", "of", "tool", "info", "service"})
	case 3:
		return v + "_" + n + "_of_" + e
	case 4:
		return v + "-" + n
	case 5:
		return e + "_" + n
	case 6:
		return pick(c.source, []string{"mcp__" + c.noun() + "__", "functions_", c.noun() + "_"}) + v + "_" + n
	case 7:
		return c.made() // the description tells what for
	}
	return v + "_" + n
}
