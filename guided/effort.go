package guided

import (
	"errors"
	"fmt"
	"sync"

	"github.com/dlclark/regexp2"
	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Limits of a schema. Compiling looks for each part among all others, and the
// library's references to a part are as long as the way to it.
const (
	maxDepth = 128
	maxParts = 4096
)

// measure returns an error for a schema with too many parts, or with parts too
// deep inside each other. What is neither an object nor true or false is none.
func measure(v any) error {
	parts := 0
	var walk func(v any, depth int) error
	walk = func(v any, depth int) error {
		if depth > maxDepth {
			return fmt.Errorf("it is nested more than %d levels deep", maxDepth)
		}
		switch v := v.(type) {
		case bool:
			parts++
		case []any:
			for _, below := range v {
				if err := walk(below, depth+1); err != nil {
					return err
				}
			}
		case map[string]any:
			parts++
			for _, below := range v {
				if err := walk(below, depth+1); err != nil {
					return err
				}
			}
		}
		if parts > maxParts {
			return fmt.Errorf("it has more than %d parts", maxParts)
		}
		return nil
	}
	return walk(v, 0)
}

// effort bounds what the check of one answer may cost. A schema of one page can
// ask for more work than a machine can do: thirty definitions, each of which
// refers to the next one twice, are a billion checks of a single value.
//
// The library has no such bound, but asks every part of a schema first for the
// format of a value. There the steps are counted, and when none are left nothing
// is looked at any more.
type effort struct {
	mu   sync.Mutex // held while an answer is checked
	left int
}

var errEffort = errors.New("it takes too long to check")

// stepsFor is the number of steps that an answer is worth.
func stepsFor(answer string) int { return 1<<16 + 16*len(answer) }

// check runs one check with n steps. It returns errEffort if they were not
// enough, whatever the check itself has found.
func (e *effort) check(n int, run func() error) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.left = n
	err := run()
	if e.left < 0 {
		return errEffort
	}
	return err
}

func (e *effort) step() error {
	if e.left--; e.left < 0 {
		return errEffort
	}
	return nil
}

// counted makes a compiler count: it returns the parts of what is compiled next,
// for count.
func (e *effort) counted(c *jsonschema.Compiler) *[]*jsonschema.Schema {
	var parts []*jsonschema.Schema
	c.RegisterVocabulary(&jsonschema.Vocabulary{
		URL: "urn:dynago:effort",
		Compile: func(ctx *jsonschema.CompilerContext, _ map[string]any) (jsonschema.SchemaExt, error) {
			parts = append(parts, ctx.Enqueue(nil)) // the part that is being compiled
			return nil, nil
		},
	})
	c.AssertVocabs()
	c.UseRegexpEngine(e.ecma)
	return &parts
}

// count puts the counting before all else that the parts ask for.
func (e *effort) count(parts []*jsonschema.Schema) {
	for _, s := range parts {
		own := s.Format
		s.Format = &jsonschema.Format{Name: "any", Validate: func(any) error { return e.step() }}
		if own == nil {
			continue
		}
		s.Format.Name = own.Name
		s.Format.Validate = func(v any) error {
			if err := e.step(); err != nil {
				return err
			}
			return own.Validate(v)
		}
		if own.Name == "regex" { // the library treats this name in its own way
			s.Format.Name = "regular expression"
			s.Format.Validate = func(v any) error {
				if err := e.step(); err != nil {
					return err
				}
				if text, ok := v.(string); ok {
					_, err := e.ecma(text)
					return err
				}
				return nil
			}
		}
	}
}

// ecma compiles patterns in the dialect that schemas are written in.
func (e *effort) ecma(pattern string) (jsonschema.Regexp, error) {
	re, err := regexp2.Compile(pattern, regexp2.ECMAScript|regexp2.Unicode)
	if err != nil {
		return nil, err
	}
	re.MatchTimeout = patience
	return ecmaPattern{re, e}, nil
}

type ecmaPattern struct {
	*regexp2.Regexp
	effort *effort
}

// MatchString ends the check of an answer for which the pattern takes too long.
func (p ecmaPattern) MatchString(s string) bool {
	ok, err := p.Regexp.MatchString(s)
	if err != nil {
		p.effort.left = -1
	}
	return err == nil && ok
}
