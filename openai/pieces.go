package openai

import (
	"cmp"
	"slices"

	"github.com/dynago/dynago/chat"
	"github.com/dynago/dynago/internal/wire"
)

// Pieces is a completions request that comes member by member, as from an API that
// carries the prompt in one place and what else it says in others. It is for one
// goroutine.
type Pieces struct {
	options Options
	body    body
}

// NewPieces returns a request of which nothing is known yet.
func NewPieces(o Options) *Pieces { return &Pieces{options: o} }

// Set gives a member its value, which is a JSON text and is kept. The last value of a
// member wins, and null takes it back. Unknown members are listed, or refused by
// [Pieces.Call]. Every error is a *wire.Error whose Param begins with the name.
func (p *Pieces) Set(name string, value []byte) error {
	read := completionTable.byName[name]
	if read == nil {
		p.body.passOver(name)
		return nil
	}
	r := wire.NewReader(value, name)
	err := read(r, &p.body)
	if err == nil {
		err = r.End()
	}
	if broken, ok := err.(*wire.SyntaxError); ok {
		err = broken.Cause
	}
	if e, ok := err.(*wire.Error); ok && e.Param == "" {
		return wire.Malformed(name, "%s", e.Message)
	}
	return err
}

// Call returns what [DecodeCompletion] returns for a body with these members, and a
// prompt that is one text. What the members leave open comes from the operator's
// template.
func (p *Pieces) Call(model, prompt string) (*Call, error) {
	b := &p.body
	if p.options.RejectUnknown && len(b.unknown) > 0 {
		return nil, rejectUnknown(b.unknown)
	}
	if prompt == "" {
		return nil, wire.Missing("prompt", "Prompt string cannot be empty")
	}
	b.model, b.prompts = cmp.Or(model, p.options.DefaultModel), []chat.Prompt{{Text: prompt}}
	b.template = p.options.Template
	return b.completionCall(p.options)
}

// passOver notes a member that nobody here knows.
func (b *body) passOver(name string) {
	if unknown := wire.CleanText(name); !slices.Contains(b.unknown, unknown) && len(b.unknown) < maxUnknown {
		b.unknown = append(b.unknown, unknown)
	}
}
