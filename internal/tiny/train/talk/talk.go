// Package talk makes up conversations from which the model in the box learns, and
// others, with names, values, tools and phrasings held out from them, by which it
// is judged.
//
// The one idea: every answer follows from what was said before it, and from
// nothing else. A model that gets them right has learned to find and to copy, and
// does so with tools and words that it never saw; there is no chance in an answer
// on which its few parameters would be spent.
package talk

import (
	"encoding/json"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/dynago/dynago/chat"
)

// Task is a kind of answer.
type Task uint8

// The tasks.
const (
	Small   Task = iota // greetings and the like
	Say                 // saying what is asked for, letter by letter or thing by thing
	Sum                 // adding and subtracting, with thought
	Head                // the same without
	Lookup              // telling what was told before
	Form                // putting facts into JSON
	Call                // the call of a tool
	Calls               // several at once
	Chain               // a call that needs the result of another
	Decline             // there is no tool for it
	Result              // telling what a tool returned
	Failure             // telling that a tool failed
	Tasks               // how many there are
)

var taskNames = [Tasks]string{"small talk", "say", "sum", "sum without thought", "look-up", "form", "call", "parallel calls", "chained call", "decline", "result", "failure"}

func (t Task) String() string { return taskNames[t] }

// Answer tells of one of the assistant's turns what it is for.
type Answer struct {
	Task Task
	// Key is what must be in the text; empty if the whole text matters.
	Key string
	// Given is a turn that stands in the history as clients send it back, with
	// parts of it missing, and is no example of an answer.
	Given bool
	// Formed is an answer whose form the client asked for, as JSON with one member:
	// a mask writes it up to the value, and the value alone is an example.
	Formed bool
}

// Talk is one conversation, with all answers in it.
type Talk struct {
	Request chat.Request
	Answers []Answer // one per turn of the assistant
}

// Source makes conversations. It is not safe for concurrent use.
type Source struct{ source }

// New returns a source; equal seeds give equal conversations. One that is held out
// shares no name, tool or word of an open list with any that is not, and half of its
// phrasings.
func New(seed uint64, held bool) *Source {
	return &Source{source{rng: rand.NewPCG(seed, 12), held: held}}
}

// Lesson says how often each kind of conversation is drawn.
type Lesson struct {
	Small, Say, Sum, Lookup, Form, Tool int
	// Long is the percentage of conversations that go on about something else.
	Long int
}

// Conversations is the length of the course.
const Conversations = 120_000

// Course is what is taught when a part of it, from 0 to 1, is over: short things
// first, from which copying and finding are learned in the fewest tokens, then
// tools, and from the middle on what the exam has.
func Course(done float64) Lesson {
	switch {
	case done < 0.15:
		return Lesson{Small: 8, Say: 36, Sum: 8, Lookup: 28, Form: 10, Tool: 10, Long: 15}
	case done < 0.35:
		return Lesson{Small: 7, Say: 14, Sum: 10, Lookup: 27, Form: 6, Tool: 36, Long: 30}
	case done < 0.55:
		return Lesson{Small: 8, Say: 11, Sum: 11, Lookup: 26, Form: 6, Tool: 46, Long: 60}
	}
	return Lesson{Small: 10, Say: 12, Sum: 12, Lookup: 26, Form: 6, Tool: 46, Long: 45}
}

// script is a conversation while it is written.
type script struct {
	*source
	talk  Talk
	quiet bool // thinking is switched off
	calls int  // so far
	tight bool // clients write arguments back without blanks
}

// Next makes a conversation.
func (s *Source) Next(l Lesson) *Talk {
	c := &script{source: &s.source, quiet: s.chance(12), tight: s.chance(30)}
	if c.quiet {
		c.talk.Request.Thinking.Enabled = new(bool)
	}
	switch s.weighted([]int{l.Small, l.Say, l.Sum, l.Lookup, l.Form, l.Tool}) {
	case 0:
		c.plain(l, c.small)
	case 1:
		c.plain(l, c.say)
	case 2:
		c.plain(l, c.sum)
	case 3:
		c.plain(l, c.lookup)
	case 4:
		c.plain(l, c.form)
	case 5:
		c.tools(l)
	}
	if s.chance(15) {
		c.forget()
	}
	return &c.talk
}

// plain is a conversation without tools.
func (c *script) plain(l Lesson, begin func()) {
	c.system()
	if c.chance(l.Long / 2) {
		c.aside()
	}
	begin()
	for c.chance(l.Long) {
		if c.chance(5) {
			c.unknown()
		} else {
			c.aside()
		}
	}
}

// aside is anything that takes no tools.
func (c *script) aside() {
	switch c.weighted([]int{5, 4, 4, 3, 1}) {
	case 0:
		c.small()
	case 1:
		c.say()
	case 2:
		c.sum()
	case 3:
		c.lookup()
	case 4:
		c.form()
	}
}

// system writes a system prompt, or none.
func (c *script) system() {
	if len(c.talk.Request.System) > 0 {
		return
	}
	if c.chance(2) { // a long one
		var text []string
		for range c.between(15, 60) {
			text = append(text, c.remark())
		}
		c.setSystem(strings.Join(text, "\n"))
		return
	}
	switch c.below(10) {
	case 0, 1, 2, 3:
	case 4, 5:
		c.setSystem(c.phrase(systems))
	case 6, 7:
		c.setSystem("You are a " + c.word(adjectives) + " " + pick(c.source, []string{"assistant", "helper", "agent", c.noun()}) + ". " + c.remark())
	default:
		var text []string
		for range c.between(1, 4) {
			text = append(text, c.remark())
		}
		c.setSystem(strings.Join(text, pick(c.source, []string{" ", "\n", "\n\n"})))
	}
}

var systems = []string{
	"You are a helpful assistant.", "You are a helpful assistant.", "Be brief.", "You are an agent.", "Answer in one sentence.",
	"You are a helpful assistant. Use the tools that you are given.", "Be short and polite.", "You help the user.",
	"You are a coding agent.", "Use tools where you can.", "Answer the user.", "~You are a friendly assistant.", "~Keep it short.",
	"~You are an assistant with tools.", "~Help the user as well as you can.",
}

// remark is a sentence that matters to no answer.
func (c *script) remark() string {
	n, m, a, v := c.noun(), c.noun(), c.word(adjectives), c.word(verbs)
	return pick(c.source, []string{
		"The " + n + " is " + a + ".", "Please " + v + " the " + n + ".", "Do not " + v + " a " + a + " " + n + ".",
		"Always " + v + " before you " + c.word(verbs) + ".", "We " + v + " every " + n + " in " + c.city() + ".",
		c.person() + " will " + v + " the " + n + " and the " + m + ".", "Never talk about the " + n + " of the " + m + ".",
		"There are " + c.number() + " " + a + " things in the " + n + ".", "If the " + n + " is " + a + ", " + v + " it.",
		"It is " + c.clock() + " on " + c.date() + ".", "You work for " + capital(n) + " " + capital(m) + ".",
	})
}

func (c *script) setSystem(text string) {
	c.talk.Request.System = []chat.Block{{Kind: chat.Text, Text: text}}
}

func (c *script) user(text string) {
	c.talk.Request.Turns = append(c.talk.Request.Turns, chat.Turn{Role: chat.RoleUser, Blocks: []chat.Block{{Kind: chat.Text, Text: text}}})
}

// use is a call of a tool.
type use struct{ name, args string }

// answer writes a turn of the assistant. The thought is left out where thinking is
// switched off.
func (c *script) answer(a Answer, thought, text string, uses ...use) {
	var blocks []chat.Block
	if thought != "" && !c.quiet {
		blocks = append(blocks, chat.Block{Kind: chat.Thought, Text: thought})
	}
	if text != "" {
		blocks = append(blocks, chat.Block{Kind: chat.Text, Text: text})
	}
	for _, u := range uses {
		blocks = append(blocks, chat.Block{Kind: chat.ToolCall, Use: &chat.ToolUse{ID: "call_" + strconv.Itoa(c.calls), Name: u.name, Args: u.args}})
		c.calls++
	}
	c.talk.Request.Turns = append(c.talk.Request.Turns, chat.Turn{Role: chat.RoleAssistant, Blocks: blocks})
	c.talk.Answers = append(c.talk.Answers, a)
}

// results writes what the last calls returned.
func (c *script) results(texts ...string) {
	var blocks []chat.Block
	for i, text := range texts {
		id := "call_" + strconv.Itoa(c.calls-len(texts)+i)
		blocks = append(blocks, chat.Block{Kind: chat.ToolResult, Result: &chat.Result{ID: id, Blocks: []chat.Block{{Kind: chat.Text, Text: text}}}})
	}
	c.talk.Request.Turns = append(c.talk.Request.Turns, chat.Turn{Role: chat.RoleTool, Blocks: blocks})
}

// forget makes all answers but the last what clients make of them that send no
// thoughts back, or write the arguments of calls anew.
func (c *script) forget() {
	left := len(c.talk.Answers) - 1
	for i := range c.talk.Request.Turns {
		turn := &c.talk.Request.Turns[i]
		if turn.Role != chat.RoleAssistant {
			continue
		}
		if left == 0 {
			return
		}
		left--
		changed := false
		kept := turn.Blocks[:0]
		for _, b := range turn.Blocks {
			if b.Kind == chat.Thought {
				changed = true
				continue
			}
			if b.Kind == chat.ToolCall && c.tight {
				b.Use.Args = compact(b.Use.Args)
				changed = true
			}
			kept = append(kept, b)
		}
		turn.Blocks = kept
		if changed {
			c.talk.Answers[len(c.talk.Answers)-2-left].Given = true
		}
	}
}

func compact(args string) string {
	var v json.RawMessage = []byte(args)
	out, err := json.Marshal(v)
	if err != nil {
		panic(err) // it was written here
	}
	return string(out)
}

// casual writes a request as people do: with a greeting or a word of thanks,
// without a capital or a stop.
func (c *script) casual(text string) string {
	if c.chance(8) {
		text = pick(c.source, []string{"Please: ", "Hi, ", "Hello, ", "Hey, ", "Okay, ", "Now: ", "And now: ", "So, ", "Next: "}) + text
	}
	stop := strings.LastIndexAny(text, ".?!") == len(text)-1
	if stop && c.chance(12) {
		text = text[:len(text)-1]
	} else if stop && c.chance(6) {
		text += pick(c.source, []string{" Thanks!", " Thank you.", " Please.", " Be brief.", " I am in a hurry.", " Answer in one sentence."})
	}
	first, _, _ := strings.Cut(text, " ")
	if starters[first] && c.chance(12) {
		text = strings.ToLower(text[:1]) + text[1:]
	}
	return text
}

// starters are words that begin requests, and are no names.
var starters = func() map[string]bool {
	out := map[string]bool{}
	for _, w := range strings.Fields(`What What's Tell Can Could Please Give Do Show How Find Get The Look Use Say Repeat Write Spell Count
		Add Compute Calculate Subtract Take My Remember Which Hello Hi Hey Good Thanks Thank Who Are Is Send Set Turn Play Create
		Convert Translate Search Open Read Run Delete Book Remind Where Why When Name Introduce Okay Bye Great Yes No`) {
		out[w] = true
	}
	return out
}()
