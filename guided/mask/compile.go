package mask

import (
	"container/list"
	"fmt"
	"strings"
	"sync"

	"github.com/dynago/dynago/chat"
)

// Compiler compiles forms for one vocabulary, and keeps those that were asked for
// last. It is safe for concurrent use.
type Compiler struct {
	vocabulary *Vocabulary
	mu         sync.Mutex
	order      list.List // of *compiled, the newest first
	byKey      map[string]*list.Element
}

type compiled struct {
	key     string
	grammar *Grammar
	err     error
}

// Limits of what is kept: agents use few forms, again and again.
const (
	mostGrammars = 64
	mostBytes    = 1 << 27 // of the states and masks of all of them
)

// NewCompiler returns a compiler that keeps nothing yet.
func NewCompiler(v *Vocabulary) *Compiler {
	return &Compiler{vocabulary: v, byKey: map[string]*list.Element{}}
}

// Compile returns the grammar of a format. The error says in one sentence what is
// wrong with the format, or what of it is not understood: a part of a schema that
// no answer would be held to is refused, by its place, and never left out.
func (c *Compiler) Compile(f *chat.OutputFormat) (*Grammar, error) {
	key := string(f.Kind) + "\x00" + f.Pattern + "\x00" + string(f.Schema) + "\x00" + strings.Join(f.Choices, "\x00")
	if known := c.find(key); known != nil {
		return known.grammar, known.err
	}
	g, err := compile(c.vocabulary, f)
	known := c.add(&compiled{key, g, err})
	return known.grammar, known.err
}

func (c *Compiler) find(key string) *compiled {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.byKey[key]
	if !ok {
		return nil
	}
	c.order.MoveToFront(at)
	return at.Value.(*compiled)
}

// add keeps what was compiled, unless somebody else has compiled it meanwhile.
func (c *Compiler) add(fresh *compiled) *compiled {
	c.mu.Lock()
	defer c.mu.Unlock()
	if at, ok := c.byKey[fresh.key]; ok {
		return at.Value.(*compiled)
	}
	c.byKey[fresh.key] = c.order.PushFront(fresh)
	c.forget()
	return fresh
}

// forget drops the oldest grammars. Answers that are held to them keep them.
func (c *Compiler) forget() {
	bytes, n := int64(0), 0
	for at := c.order.Front(); at != nil; {
		next := at.Next()
		known := at.Value.(*compiled)
		n++
		if known.grammar != nil {
			bytes += known.grammar.size.Load()
		}
		if n > mostGrammars || n > 1 && bytes > mostBytes {
			delete(c.byKey, c.order.Remove(at).(*compiled).key)
		}
		at = next
	}
}

func compile(v *Vocabulary, f *chat.OutputFormat) (*Grammar, error) {
	var r rules
	root, err := express(v, f, &r)
	if err != nil {
		return nil, err
	}
	return newGrammar(v, r, root)
}

// express writes a format as an expression.
func express(v *Vocabulary, f *chat.OutputFormat, r *rules) (*expr, error) {
	switch f.Kind {
	case chat.FormatJSONObject:
		return mapping(anyString, anything(r), 0, noLimit), nil
	case chat.FormatRegex:
		return plain.pattern(f.Pattern, false)
	case chat.FormatChoice:
		return choice(f.Choices)
	case chat.FormatJSONSchema:
		return schema(f.Schema, r)
	case chat.FormatGrammar:
		return grammar(f.Pattern, r)
	case chat.FormatStructuralTag:
		return structuralTag(v, f.Schema, r)
	}
	return nil, fmt.Errorf("answers are not held to a %s here", f.Kind)
}
