package chat

import (
	"fmt"
	"iter"
	"strings"
)

// Answer is one folded choice: what a client that does not stream receives.
type Answer struct {
	Blocks []Block
	// Logprobs holds one entry per generated token, if they were asked for, and
	// IDs the tokens themselves.
	Logprobs []Logprob
	IDs      []uint32
	Usage    Usage
	Finish   Finish
	// Mismatch says how the answer breaks the form that was asked for, where the
	// engine could not be held to it; empty if it keeps it, or had to.
	Mismatch string
}

// Fold reads a stream to its end and returns one answer per choice, in order.
// It checks the stream's own grammar, and an error of the stream is returned
// as it is.
func Fold(events iter.Seq2[Event, error]) ([]Answer, error) {
	var f Folder
	for e, err := range events {
		if err != nil {
			return nil, err
		}
		if err := f.Add(e); err != nil {
			return nil, err
		}
	}
	return f.Answers()
}

// Folder is [Fold] for events that pass by. Its zero value has seen none.
type Folder struct{ choices []*folding }

// Answers returns what the events come to. No more of them may be added.
func (f *Folder) Answers() ([]Answer, error) {
	for i := range f.choices {
		if !f.choices[i].done {
			return nil, fmt.Errorf("chat: choice %d ended without a finish", i)
		}
	}
	answers := make([]Answer, len(f.choices))
	for i := range f.choices {
		answers[i] = f.choices[i].Answer
	}
	return answers, nil
}

type folding struct {
	Answer
	started, open, done bool
	text                strings.Builder
}

// Add takes the next event. An error says that it cannot stand there.
func (f *Folder) Add(e Event) error {
	if e.Choice < 0 {
		return fmt.Errorf("chat: choice %d: choices count from 0", e.Choice)
	}
	for e.Choice >= len(f.choices) {
		f.choices = append(f.choices, new(folding))
	}
	c := f.choices[e.Choice]
	switch {
	case c.done:
		return fmt.Errorf("chat: choice %d: event after its finish", e.Choice)
	case !c.started && e.Kind != Start:
		return fmt.Errorf("chat: choice %d: event before its start", e.Choice)
	}
	c.IDs = append(c.IDs, e.IDs...)
	c.Logprobs = append(c.Logprobs, e.Logprobs...)
	switch e.Kind {
	case Start:
		if c.started {
			return fmt.Errorf("chat: choice %d: started twice", e.Choice)
		}
		c.started, c.Usage = true, e.Usage
	case BlockStart:
		if c.open || e.Index != len(c.Blocks) {
			return fmt.Errorf("chat: choice %d: block %d opened out of order", e.Choice, e.Index)
		}
		b := Block{Kind: e.BlockKind}
		if e.Tool != nil {
			use := *e.Tool
			b.Use = &use
		}
		c.Blocks, c.open = append(c.Blocks, b), true
	case TextDelta, ThinkingDelta, ArgsDelta, RefusalDelta:
		if !c.open || e.Index != len(c.Blocks)-1 {
			return fmt.Errorf("chat: choice %d: delta for block %d, which is not open", e.Choice, e.Index)
		}
		c.text.WriteString(e.Text)
	case BlockStop:
		if !c.open || e.Index != len(c.Blocks)-1 {
			return fmt.Errorf("chat: choice %d: block %d closed, which is not open", e.Choice, e.Index)
		}
		b := &c.Blocks[len(c.Blocks)-1]
		if b.Use != nil {
			b.Use.Args = c.text.String()
		} else {
			b.Text = c.text.String()
		}
		c.text.Reset()
		c.open = false
	case UsageUpdate:
		c.Usage = e.Usage
	case Finished:
		if c.open {
			return fmt.Errorf("chat: choice %d finished with an open block", e.Choice)
		}
		c.Usage, c.Finish, c.Mismatch, c.done = e.Usage, e.Finish, e.Reason, true
	}
	return nil
}
