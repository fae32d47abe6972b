package mock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/dynago/dynago/engine"
	"go.yaml.in/yaml/v4"
)

// Script says what the engine answers to which conversation: a list of rules,
// of which the first that matches is followed. README.md describes the format.
type Script struct {
	rules []*rule

	mu   sync.Mutex
	used []int // how often each rule was followed
}

// document is a script as written.
type document struct {
	Rules   []*rule `yaml:"rules"`
	Default *rule   `yaml:"default"`
}

// rule is one entry of a script, as written.
type rule struct {
	Name  string `yaml:"name"`
	When  when   `yaml:"when"`
	Times int    `yaml:"times"` // 0 = always
	Emit  steps  `yaml:"emit"`
	Pace  *pace  `yaml:"pace"` // of all steps that have none
	Cut   *cutAs `yaml:"cut"`
}

// when holds conditions, all of which must hold.
type when struct {
	User         string   `yaml:"user"`
	UserRegexp   *pattern `yaml:"user_regexp"`
	Result       string   `yaml:"result"`
	ResultRegexp *pattern `yaml:"result_regexp"`
	Tool         string   `yaml:"tool"`
	Turn         *int     `yaml:"turn"`
	HasTools     *bool    `yaml:"has_tools"`
	Offers       string   `yaml:"offers"`
	System       string   `yaml:"system"`
	Model        string   `yaml:"model"`
}

// step is a piece of the emission with a pace of its own.
type step struct {
	Text string `yaml:"text"`
	Pace *pace  `yaml:"pace"`
}

type steps []step

type pace struct {
	TTFT           time.Duration `yaml:"ttft"`
	ITL            time.Duration `yaml:"itl"`
	TokensPerDelta int           `yaml:"tokens_per_delta"`
}

// cutAs breaks an emission off.
type cutAs struct {
	After   int    `yaml:"after"`
	As      string `yaml:"as"`
	Message string `yaml:"message"`
}

// Words for how an emission is cut, beside the kinds of engine errors.
const (
	cutLength = "length"
	cutStall  = "stall"
	cutDeath  = "death"
)

var cutKinds = []engine.ErrorKind{
	engine.InvalidArgument, engine.NotFound, engine.Unsupported, engine.Denied, engine.CannotConnect, engine.ConnectionTimeout,
	engine.Disconnected, engine.ResponseTimeout, engine.StreamIncomplete, engine.EngineShutdown, engine.Unavailable,
	engine.WorkerOverloaded, engine.Stale, engine.Internal,
}

type pattern struct{ *regexp.Regexp }

// UnmarshalYAML compiles the expression.
func (p *pattern) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind != yaml.ScalarNode {
		return fmt.Errorf("is %s, want a regular expression", kindOf(n))
	}
	re, err := regexp.Compile(n.Value)
	if err != nil {
		return fmt.Errorf("is no regular expression: %w", err)
	}
	p.Regexp = re
	return nil
}

// UnmarshalYAML accepts one text, or a list of texts and steps.
func (s *steps) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		*s = steps{{Text: n.Value}}
		return nil
	}
	if n.Kind == yaml.MappingNode {
		return errors.New("is a mapping, want a text, or a list of texts and steps")
	}
	var list []yaml.Node
	if err := n.Load(&list); err != nil {
		return err
	}
	*s = make(steps, len(list))
	for i := range list {
		if list[i].Kind == yaml.ScalarNode {
			(*s)[i].Text = list[i].Value
			continue
		}
		if err := list[i].Load(&(*s)[i], yaml.WithKnownFields()); err != nil {
			return err
		}
	}
	return nil
}

var errNoRules = errors.New("mock script: it has no rules")

// LoadScript reads a script. Errors name the line and the key.
func LoadScript(r io.Reader) (*Script, error) {
	data, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("mock script: %w", err)
	}
	var root yaml.Node
	if len(bytes.TrimSpace(data)) == 0 {
		return nil, errNoRules
	}
	if err := yaml.Load(data, &root); err != nil {
		return nil, fmt.Errorf("mock script: %w", err)
	}
	var doc document
	if err := yaml.Load(data, &doc, yaml.WithKnownFields()); err != nil {
		return nil, fmt.Errorf("mock script: %w", explain(&root, err))
	}
	if doc.Default != nil {
		doc.Rules = append(doc.Rules, doc.Default)
	}
	if len(doc.Rules) == 0 {
		return nil, errNoRules
	}
	for i, r := range doc.Rules {
		path := []any{"rules", i}
		fallback := doc.Default != nil && r == doc.Default
		if fallback {
			path = []any{"default"}
		}
		if key, err := r.validate(fallback); err != nil {
			where := locate(&root, append(path, key...))
			return nil, fmt.Errorf("mock script: line %d: %s: %w", where.line, where.key, err)
		}
	}
	return &Script{rules: doc.Rules, used: make([]int, len(doc.Rules))}, nil
}

// validate returns the first fault and the path to its key.
func (r *rule) validate(fallback bool) (key []any, err error) {
	if r == nil {
		return nil, errors.New("is empty")
	}
	if fallback && r.When != (when{}) {
		return []any{"when"}, errors.New("the default has no conditions")
	}
	if r.Times < 0 {
		return []any{"times"}, fmt.Errorf("is %d, want 0 (always) or more", r.Times)
	}
	if t := r.When.Turn; t != nil && *t < 0 {
		return []any{"when", "turn"}, fmt.Errorf("is %d, want 0 or more", *t)
	}
	if len(r.Emit) == 0 && r.Cut == nil {
		return []any{"emit"}, errors.New("is missing")
	}
	if err := r.Pace.validate(); err != nil {
		return []any{"pace"}, err
	}
	for i, s := range r.Emit {
		if err := s.Pace.validate(); err != nil {
			return []any{"emit", i, "pace"}, err
		}
		if err := r.checkPlaceholders(s.Text); err != nil {
			return []any{"emit"}, err
		}
	}
	return r.Cut.validate()
}

func (p *pace) validate() error {
	if p != nil && (p.TTFT < 0 || p.ITL < 0 || p.TokensPerDelta < 0) {
		return errors.New("times and counts must not be negative")
	}
	return nil
}

func (c *cutAs) validate() (key []any, err error) {
	if c == nil {
		return nil, nil
	}
	if c.After < 0 || c.After == 0 && c.As == cutLength {
		return []any{"cut", "after"}, fmt.Errorf("is %d, too few", c.After)
	}
	if slices.Contains([]string{cutLength, cutStall, cutDeath}, c.As) || slices.Contains(cutKinds, engine.ErrorKind(c.As)) {
		return nil, nil
	}
	return []any{"cut", "as"}, fmt.Errorf("is %q, want %s, %s, %s or a kind of error such as %s", c.As, cutLength, cutStall, cutDeath, engine.StreamIncomplete)
}

// place is where a key stands in a file.
type place struct {
	line int
	key  string
}

// locate follows a path of keys and positions as far as the file goes.
func locate(n *yaml.Node, path []any) place {
	if n.Kind == yaml.DocumentNode {
		n = n.Content[0]
	}
	at := place{line: n.Line}
	var key strings.Builder
	for _, p := range path {
		switch p := p.(type) {
		case int:
			fmt.Fprintf(&key, "[%d]", p)
			if n != nil && n.Kind == yaml.SequenceNode && p < len(n.Content) {
				n = n.Content[p]
				at.line = n.Line
			} else {
				n = nil
			}
		case string:
			if key.Len() > 0 {
				key.WriteByte('.')
			}
			key.WriteString(p)
			n = member(n, p, &at)
		}
	}
	at.key = key.String()
	return at
}

func member(n *yaml.Node, name string, at *place) *yaml.Node {
	if n == nil || n.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == name {
			at.line = n.Content[i].Line
			return n.Content[i+1]
		}
	}
	return nil
}
