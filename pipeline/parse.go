package pipeline

import (
	"iter"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/engine"
	"github.com/dynago/dynago/parser"
	"github.com/dynago/dynago/prompt"
)

// answer is how the text of one choice becomes its events.
type answer struct {
	choice int
	// counted says whether this choice's usage counts the prompt: the first
	// choice of a prompt does, so that usage adds up over choices.
	counted bool
	prompt  int
	// echo is text that the answer begins with, although the model did not
	// write it.
	echo   string
	parser *parser.Parser
}

// events turns text into the events of one choice. The parser is a machine
// without time; this is the loop around it.
func (a *answer) events(outputs iter.Seq2[prompt.Output, error]) iter.Seq2[chat.Event, error] {
	return func(yield func(chat.Event, error) bool) {
		var (
			buf       []chat.Event
			started   bool
			reasoning int
			cached    *int
		)
		send := func() bool {
			for _, e := range buf {
				if e.Kind == chat.ThinkingDelta {
					reasoning += len(e.IDs)
				}
				e.Choice = a.choice
				if !yield(e, nil) {
					return false
				}
			}
			return true
		}
		for out, err := range outputs {
			if err != nil {
				yield(chat.Event{}, err)
				return
			}
			buf = buf[:0]
			if out.Cached != nil && cached == nil {
				n := min(*out.Cached, a.prompt)
				cached = &n
			}
			if !started {
				started = true
				buf = append(buf, chat.Event{Kind: chat.Start, Usage: a.usage(engine.Usage{}, cached, nil)})
				if a.echo != "" || out.PromptLogprobs != nil {
					buf = a.parser.Push(buf, chat.Piece{Text: a.echo, Logprobs: out.PromptLogprobs})
				}
			}
			buf = a.parser.Push(buf, out.Piece)
			if out.End == nil {
				if !send() {
					return
				}
				continue
			}
			finish := finishOf(out.End)
			buf, finish.Reason = a.parser.Finish(buf, finish.Reason)
			if !send() {
				return
			}
			usage := out.End.Usage
			if usage.Reasoning == nil && reasoning > 0 {
				usage.Reasoning = &reasoning
			}
			yield(chat.Event{
				Kind: chat.Finished, Choice: a.choice, Finish: finish,
				Usage: a.usage(usage, cached, usage.Reasoning),
			}, nil)
			return
		}
	}
}

func (a *answer) usage(u engine.Usage, cached, reasoning *int) chat.Usage {
	out := chat.Usage{Output: u.Output, Reasoning: reasoning}
	if a.counted {
		out.Prompt, out.Cached = a.prompt, cached
	}
	return out
}

func finishOf(e *prompt.End) chat.Finish {
	f := chat.Finish{StopText: e.StopText, StopID: e.StopID}
	switch e.Finish {
	case engine.FinishLength:
		f.Reason = chat.FinishLength
	case engine.FinishContentFilter:
		f.Reason = chat.FinishContentFilter
	case engine.FinishStop:
		f.Reason = chat.FinishStop
		if e.StopText != "" || e.StopID != nil {
			f.Reason = chat.FinishStopSequence
		}
	default:
		f.Reason = chat.FinishStop
	}
	return f
}
